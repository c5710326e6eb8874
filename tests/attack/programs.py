"""Random programs around a few functions, as source: what is called, with what, what becomes of the results, what
changes in between. Calls repeat what the call before did more often than not, so that they are replayed."""

import numpy as np

from . import families, fragments

HEADER = """\
import collections
import contextlib
import copy
import dataclasses
import gc
import signal
import threading
import weakref

import numpy as np
from attack.compare import assert_same, flat, in_threads, n_alive, peek, reading, said, shared

import weft
from weft import nn, optim, randn
from weft.nn import functional as F
from weft.utils.checkpoint import checkpoint

Two = collections.namedtuple("Two", "first second")


class Box:
    scale = 0.75


@dataclasses.dataclass
class Batch:
    x: object
    y: object
    scale: float = 1.5


class Twice(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2.0

    @staticmethod
    def backward(ctx, g):
        return g * 2.0


class Cube(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3.0 * x * x


class Pair(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        out = x * y
        ctx.save_for_backward(x, y, out)
        return out, x + y

    @staticmethod
    def backward(ctx, g, h):
        x, y, out = ctx.saved_tensors
        gx = (g * y + h).sum_to_size(x.shape) if ctx.needs_input_grad[0] else None
        return gx, (g * x + h).sum_to_size(y.shape) if ctx.needs_input_grad[1] else None


class Straight(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g.view(ctx.shape)


def program(compile):
    weft.manual_seed({seed})
    w, v = randn(3, 4, requires_grad=True), randn(4, requires_grad=True)
    model = nn.Sequential(nn.Linear(4, 4), nn.{layer}, nn.Linear(4, 4))
    other = copy.deepcopy(model)
    kernel, image = randn(2, 3, 2, requires_grad=True), randn(2, 1, 2, 2, requires_grad=True)
    lstm, attend = nn.LSTM(4, 4, batch_first=True), nn.MultiheadAttention(4, 2, batch_first=True)
    optimizer = optim.{optimizer}
    scheduler = optim.lr_scheduler.StepLR(optimizer, 2)
    index, running = weft.tensor([0, 2, 1]), [weft.zeros(4), weft.ones(4)]
    s, u, a, b, base, box = weft.zeros(3, 4), randn(4), randn(3, 4), randn(4), randn(6, 4), Box()
    array = np.ones((3, 4), np.float32)
    n = weft.from_numpy(array)
    out, cache = weft.zeros(3, 4), weft.zeros(0, 4)
    kept, seen, calls, mode, elsewhere, scale = [], [], [0], [], [], 0.5
    handle = held = saved = rs = None
    r0, handles = randn(3, 4), []
    bag, named = [randn(3, 4), randn(4), w], {"a": randn(3, 4), "b": v}

    def named_weights():
        return dict(model.named_parameters())

    def inner(x):
        return x.cos() * v

    def between(x, y):
        return (x * y).sin() + x

    nested = compile(between)

    def look_elsewhere():
        thread = threading.Thread(target=lambda: elsewhere.append((w.sum().item(), s.tolist())))
        thread.start()
        thread.join()

    signal.signal(signal.SIGUSR1, lambda *_: elsewhere.append((v * 2.0).sum().item()))
"""
FOOTER = """

if __name__ == "__main__":
    assert_same(program)
"""
LAYERS = ("Tanh()", "ReLU()", "Dropout(0.3)", "LayerNorm(4)", "BatchNorm1d(4)", "Identity()")
OPTIMIZERS = (
    "SGD([w, v, *model.parameters()], lr=0.05)",
    "SGD([w, v, kernel, image, *lstm.parameters()], lr=0.05, momentum=0.9)",
    "RMSprop([w, v, *attend.parameters()], lr=0.01)",
    "SGD([w, v], lr=0.05, momentum=0.9)",
    "Adam([w, v, *model.parameters()], lr=0.02)",
    "AdamW([{'params': [w]}, {'params': [v, *model.parameters()], 'lr': 0.01}])",
)
# What a program has of besides values and views: statements of two of these kinds.
RARE = [fragments.CHANGES, fragments.LOOKS, fragments.GRADIENTS, fragments.ODDITIES]
RARE += [families.SCANS, families.LAYERS, families.MASKS, families.HIGHER, families.PARTS, families.CLOSURES]
RARE += [families.PLACES]


class RandomAttack:
    """seed -> `source`. Of three programs one has calls that are all alike, but for what changes once in a while."""

    rare, optimizers = RARE, OPTIMIZERS

    def __init__(self, seed):
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.n_functions = int(self.rng.choice([1, 1, 2, 3]))
        self.n_calls = int(self.rng.integers(12, 31))
        self.restless = (0.02, 0.1, 0.25)[seed % 3]

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability):
        return self.rng.random() < probability

    def words(self, names, number):
        late = names[int(len(names) * np.sqrt(self.rng.random()))]
        return {"x": late, "y": self.pick(names), "t": f"t{number}", "k": int(self.rng.integers(4, 14))}

    def function(self, k, parameters, first):
        """The lines of a function."""
        names, lines = ["x", "y"], [f"def f{k}({parameters}):", "    calls[0] += 1", f"    {first}"]
        lines.insert(1, "    nonlocal handle, s, array, cache")
        for number in range(int(self.rng.integers(1, 7))):
            kind = self.pick(self.kinds)
            words = self.words(names, number)
            text = self.pick(kind)
            lines += [f"    {line}" for line in text.format(**words).split("\n")]
            if text.split("{t} = ")[0] in ("", "with weft.no_grad():\n    "):
                names.append(words["t"])
        text = self.pick(fragments.RETURNS).format(**self.words(names, 9))
        return [*lines, *(f"    {line}" for line in text.split("\n")), ""]

    def plan(self):
        """(function, what is given, what is done with its results)."""
        k = int(self.rng.integers(self.n_functions))
        given = self.pick(fragments.ARGUMENTS), self.pick(fragments.ARGUMENTS)
        return k, given, self.after()

    def surgery(self):
        of_closures = families.CLOSURES in self.kinds and self.chance(0.5)
        return self.pick(families.CHANGES_OF_CLOSURES if of_closures else fragments.SURGERY)

    def after(self):
        words = {"r": self.pick(["rs[0]", "rs[0]", "rs[-1]"]), "q": "rs[-1]"}
        return [self.pick(fragments.AFTER).format(**words) for _ in range(int(self.rng.choice([0, 1, 1, 2])))]

    def varied(self, plan):
        k, given, after = plan
        if self.chance(0.3):
            return self.plan()
        if self.chance(0.4):
            return k, (self.pick(fragments.ARGUMENTS), given[1]), after
        return k, given, self.after()

    def call(self, plan):
        k, (a, b), after = plan
        lines = ["try:"]
        if self.chance(self.restless * 1.5):
            lines += _indented(self.surgery())
        lines += [f"    given = {self.signatures[k][2].format(a=a, b=b)}".replace("given = ", f"r = f{k}(", 1) + ")"]
        if self.chance(0.05):
            around = self.pick(
                ["mode[-1] if mode else contextlib.nullcontext()", "reading(w, v, s)", "reading(*rs or [w])"]
            )
            lines[-1] = f"    with {around}:\n        {lines[-1].strip()}"
        lines += ["    rs = flat(r)", *(line for text in after for line in _indented(text))]
        lines += ["except (Exception, KeyboardInterrupt) as error:", "    yield said(error)"]
        if self.chance(0.3):
            lines += ["yield peek([s, u, a, b, n, base, kept, seen])"]
        if self.chance(0.5):
            lines += ["yield peek([w.grad, v.grad, w, v, box.__dict__])"]
        return lines

    def calls(self):
        plans = [self.plan() for _ in range(int(self.rng.choice([1, 1, 2, 3])))]
        lines = []
        for number in range(self.n_calls):
            k = number % len(plans) if self.chance(0.7) else int(self.rng.integers(len(plans)))
            once = plans[k]
            if self.chance(self.restless):
                once = self.varied(plans[k])
                if self.chance(0.4):
                    plans[k] = once
            lines += [f"call = {number}", *self.call(once)]
        return lines

    @property
    def source(self):
        f = fragments
        rare = [self.pick(self.rare) for _ in range(2)]
        self.kinds = [*[f.VALUES] * 3, f.VIEWS, *rare, *(rare if self.chance(0.3) else [])]
        self.signatures = [self.pick(f.SIGNATURES) for _ in range(self.n_functions)]
        lines = [
            *HEADER.replace("{seed}", str(self.seed))
            .replace("{layer}", self.pick(LAYERS))
            .replace("{optimizer}", self.pick(self.optimizers))
            .split("\n")
        ]
        for k, (parameters, first, _) in enumerate(self.signatures):
            lines += _indented("\n".join(self.function(k, parameters, first)))
        compiled = [f"f{k} = compile(f{k})" for k in range(self.n_functions)]
        last = ["yield kept, seen, w, v, s, u, n, base, list(model.parameters()), [w.grad, v.grad]"]
        last += [
            "yield list(optimizer.state.values())",
        ]
        lines += _indented("\n".join([*compiled, *self.calls(), *last]))
        return "\n".join(lines) + "\n" + FOOTER


class RandomLoop(RandomAttack):
    """The same call many times, with few changes: what is made ready after many calls, and what grows with them."""

    n_turns, n_counted = 140, 30

    def calls(self):
        self.restless = 0.0
        plan = self.plan()
        # What comes late would still be learned where tensors are counted.
        events = {int(k): self.surgery() for k in self.rng.integers(5, 50, int(self.rng.integers(0, 4)))}
        changes = [f"if call == {k}:\n" + "\n".join(_indented(text)) for k, text in events.items()]
        lines = [*changes, *self.call(plan), f"if call in {tuple(range(79, self.n_turns, self.n_counted))}:"]
        lines += ["    kept.clear(), seen.clear(), elsewhere.clear()", "    counted.append(n_alive())"]
        body = _indented("\n".join(lines))
        # What grows in eager mode too, a history that is never let go, may grow otherwise; what is made ready, once.
        more = f"min(counted[1] - counted[0], counted[2] - counted[1]) >= {self.n_counted}"
        growth = f"yield 'tensors more for a call', {more}"
        return ["counted = []", f"for call in range({self.n_turns}):", *body, growth]


def _indented(text):
    return [f"    {line}" if line else "" for line in text.split("\n")]
