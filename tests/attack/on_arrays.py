"""Random programs around functions of arrays: `value_and_grad` of what reads lists, dicts, arrays, tensors, objects and
functions outside, which are replaced or changed in place between calls. Calls go to their program at once as soon as
they are alike (frontend/prepared.py), so that nothing but what is compared tells that something has changed.

{x}, {y}: tensors of the function; {t}: a new name. There are outside: scale, a number; flag; word; table, a tensor;
array and grid, arrays; rows, a list of arrays; weights, a list of tensors; params, a dict of tensors; box, an object
with a class that has attributes too; pair, a named tuple; helper, a function; model, a network; RATES and WORDS,
globals.
"""

from .programs import RandomAttack

HEADER = """\
import collections
import copy
import dataclasses
import functools
import math
import types

import numpy as np
from attack.compare import assert_same, in_threads, on_arrays, said

import weft
from weft import nn
from weft.nn import functional as F

Two = collections.namedtuple("Two", "first second")
RATES = [0.5, 1.5, 2.5]
WORDS = {"a": 1.0, "b": 2.0}


class Box:
    scale = 0.75

    def __init__(self):
        self.shift = 0.25
        self.table = tensor([0.5, 1.0, 1.5])

    @property
    def twice(self):
        return 2.0 * self.shift

    def moved(self, x):
        return x * self.scale + self.shift

    def __call__(self, x):
        return self.moved(x).tanh() * self.table


class Other(Box):
    scale = 1.25

    def moved(self, x):
        return x - self.shift


@dataclasses.dataclass
class Options:
    rate: float = 0.5
    word: str = "a"


def tensor(values):
    return weft.tensor(values, dtype=weft.float64)


def cubed(x, by=3.0):
    return x**by * 0.1


def program(compile):
    RATES[:], WORDS["a"], Box.scale, cubed.__defaults__ = [0.5, 1.5, 2.5], 1.0, 0.75, (3.0,)
    rng = np.random.default_rng({seed})
    weft.manual_seed({seed})
    scale, flag, word, number = 1.5, True, "a", np.float64(0.5)
    table, array, grid = tensor([1.0, 2.0, 3.0]), rng.normal(size=3), rng.normal(size=(3, 3))
    rows, weights = [rng.normal(size=3) for _ in range(3)], [tensor(rng.normal(size=3)) for _ in range(3)]
    params, box, pair = {"w": tensor(rng.normal(size=3)), "b": tensor(0.5)}, Box(), Two(0.5, tensor([1.0, 0.5, 0.25]))
    options, space, helper, nested = Options(), types.SimpleNamespace(k=2, w=weights[0]), cubed, [[1.0, 2.0], [3.0]]
    part = functools.partial(cubed, by=2.0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double()
    shown = weft.from_numpy(array)
    kept, x, y = [], rng.normal(size=3), rng.normal(size=3)

    def shifted(x):
        return x + scale * table
"""
FOOTER = """

if __name__ == "__main__":
    assert_same(program)
"""
VALUES = (
    "{t} = {x} * scale", "{t} = {x} * table", "{t} = {x} + {y}", "{t} = {x} * {y}", "{t} = {x}.tanh()",
    "{t} = {x} * weft.as_tensor(array)", "{t} = {x} * weft.from_numpy(array)", "{t} = {x} * weft.tensor(array)",
    "{t} = {x} * array[0]", "{t} = {x} + float(array[1])", "{t} = weft.as_tensor(grid) @ {x}", "{t} = {x} * shown",
    "{t} = {x} * weft.as_tensor(rows[0])", "for row in rows:\n    {x} = {x} + weft.as_tensor(row) * 0.5",
    "{t} = sum({x} * weft.as_tensor(row) for row in rows)", "{t} = {x} * len(rows)", "{t} = {x} * weights[0]",
    "for w in weights:\n    {x} = {x} + w * {y}", "{t} = sum(w * {x} for w in weights)",
    "{t} = {x} * weights[-1] + 1.0", "{t} = {x} * params['w'] + params['b']",
    "for k in sorted(params):\n    {x} = {x} * params[k]", "for k, value in params.items():\n    {x} = {x} + value",
    "{t} = sum(p.sum() for p in params.values()) * {x}", "{t} = {x} * len(params)",
    "if 'c' in params:\n    {x} = {x} * 2.0", "{t} = {x} * params.get('c', 1.0)", "{t} = {x} * box.scale",
    "{t} = {x} + box.shift", "{t} = {x} * box.table", "{t} = box.moved({x})", "{t} = box({x})",
    "{t} = {x} * box.twice", "{t} = {x} * getattr(box, 'scale')", "{t} = {x} * Box.scale", "{t} = {x} * pair.first",
    "{t} = {x} * pair[1]", "{t} = helper({x})", "{t} = cubed({x})", "{t} = part({x})", "{t} = shifted({x})",
    "{t} = model({x})", "{t} = F.linear({x}, model[0].weight)", "{t} = {x} * RATES[0]",
    "for rate in RATES:\n    {x} = {x} * rate", "{t} = {x} * sum(RATES)", "{t} = {x} * WORDS[word]",
    "{t} = {x} * WORDS['a']", "if flag:\n    {x} = {x} * 0.5", "{t} = {x} * 2.0 if word == 'a' else {x} + 1.0",
    "{t} = {x} * options.rate", "{t} = {x} * space.w * space.k", "{t} = {x} * math.sqrt(abs(scale))",
    "{t} = {x} * number", "{t} = {x} * nested[0][1]", "{t} = {x} * sum(sum(row) for row in nested)",
    "{t} = {x} * table.sum()", "{t} = {x} * table.shape[0]", "{t} = {x} * array.shape[0]",
    "{t} = {x}[:2].sum() * {y}", "{t} = {x} * max(RATES)", "{t} = weft.stack([{x}, {y}]).prod(0)",
    "{t} = {x}.exp() / (1.0 + {y}.abs())", "{t} = weft.where({x} > scale, {x}, {y})",
    "{t} = {x} * (table if flag else pair.second)", "{t} = {x} * {x}.numel() + {x}.ndim",
    "{t} = (lambda q: q * scale)({x})", "{t} = {x} ** options.rate if flag else {x}",
    "a, *b = weights\n{t} = {x} * a + len(b)", "{t} = {x} * [1.0, scale][1]", "{t} = {x} * {{'k': scale}}['k']",
    "for k, w in enumerate(weights):\n    {x} = {x} + w * k",
    "for w, r in zip(weights, RATES):\n    {x} = {x} + w * r",
    "{t} = {x} * options.rate if options.word == word else {x}.sin()",
    "{t} = {x} * (1.0 if table.requires_grad else 2.0)", "{t} = {x} * weft.ones(3, dtype=table.dtype)",
    "{t} = weft.where(table > 1.5, {x}, {y})", "{t} = {x} * (2.0 if weft.is_grad_enabled() else 1.0)",
    "{t} = {x}.to(table.dtype) * 0.5", "{t} = {x} * weft.as_tensor(RATES)",
    "{t} = {x} * weft.tensor([scale, 1.0, 2.0])", "{t} = {x}[nested[0][0] > 1.0 :]", "{t} = {x} * np.sqrt(2.0)",
    "{t} = {x} * grid.T[0, 1]", "{t} = {x} * weft.as_tensor(grid[1])", "{t} = {x} * abs(scale)",
)  # fmt: skip
RETURNS = (
    "return {x}.sum()", "return ({x} * {y}).sum()", "return {x}.square().mean()",
    "return ({x} - table).square().sum()", "return {x}.sum() * scale", "return weft.logsumexp({x}, 0)",
    "return {x}.sum() + weights[1].sum()", "return {x}.norm()",
)  # fmt: skip
SURGERY = (
    "scale = 2", "scale = 2.0", "scale = True", "scale = -scale", "scale = np.float64(1.25)", "scale = tensor(0.5)",
    "flag = not flag", "word = 'b' if word == 'a' else 'a'", "number = np.float64(2.0)", "number = np.float32(0.5)",
    "table = tensor([0.5, 0.25, 4.0])", "table.mul_(0.5)", "table[1] = 7.0", "table.data.add_(1.0)",
    "table.data = tensor([3.0, 2.0, 1.0])", "table.numpy()[0] = 0.125", "table = table.float()",
    "table = table.double()", "table.requires_grad_(not table.requires_grad)", "table = table[[2, 1, 0]]",
    "table = tensor(2.0)", "table = tensor(np.arange(6.0))[::2]", "array[0] = 3.0", "array *= 0.5",
    "array = rng.normal(size=3)", "array += y", "array = array[::-1]", "array = array.astype(np.float32)",
    "array = array.astype(np.float64)", "array.sort()", "array = grid[0]", "array.setflags(write=False)",
    "grid[1, 2] += 1.0", "grid = grid.T", "grid[...] = grid.T.copy()", "rows[0][1] = 2.0",
    "rows.append(rng.normal(size=3))", "rows.reverse()", "rows[1] = rows[0]", "del rows[1:]", "rows[-1] *= 2.0",
    "rows = [row + 1.0 for row in rows]", "rows[0] = array", "weights[0].mul_(0.5)",
    "weights[0] = tensor([1.0, 1.0, 2.0])", "weights.append(tensor([0.1, 0.2, 0.3]))", "weights.pop()",
    "weights.reverse()", "weights[1].data = weights[0].data", "weights[-1].fill_(0.5)", "weights = [*weights]",
    "weights[0] = weights[0].float()", "weights[0].requires_grad_(True)", "params['w'] = tensor([0.5, 0.5, 1.0])",
    "params['w'].add_(1.0)", "params['c'] = tensor(2.0)", "params.pop('c', None)", "params['b'].fill_(0.25)",
    "params = dict(reversed(params.items()))", "params['b'] = 0.75", "params['w'].numpy()[...] *= 2.0",
    "params.clear()", "box.scale = 2.0", "Box.scale = 3.0", "box.shift += 0.5", "box.table = table",
    "box.table.mul_(0.5)", "box = Box()", "box.__class__ = Other", "box = copy.deepcopy(box)", "del box.shift",
    "Box.extra = 1", "box.__dict__['shift'] = 1.0", "pair = pair._replace(first=2.0)", "pair.second.mul_(2.0)",
    "pair = Two(0.5, table)", "helper = weft.sin", "helper = lambda x: x * scale", "helper = cubed",
    "cubed.__defaults__ = (2.0,)", "part = functools.partial(cubed)", "part.keywords['by'] = 1.0",
    "model[0].weight.data.mul_(0.5)", "model[1] = nn.ReLU()", "model.eval()", "model[0].bias = None",
    "with weft.no_grad():\n    model[0].weight[0] = 1.0", "model = copy.deepcopy(model)",
    "model[0].weight = nn.Parameter(model[0].weight.detach() * 2.0)", "model.requires_grad_(False)",
    "handle = model[0].register_forward_hook(lambda module, given, out: out * 0.5)", "RATES[0] = 0.1",
    "RATES.append(3.0)", "RATES.reverse()", "RATES[1] = 2", "WORDS['a'] = 3.0", "WORDS['a'] = 3",
    "options.rate = 0.25", "options.word = 'b'", "options = Options(0.125)", "space.k = 3", "space.w = weights[-1]",
    "space.w.add_(0.5)", "nested[0][1] = 5.0", "nested.append([1.0])", "nested[1] = nested[0]",
    "weft.set_default_dtype(weft.float64)", "weft.set_default_dtype(weft.float32)",
    "weft.set_grad_enabled(not weft.is_grad_enabled())", "x[0] = 9.0", "x = rng.normal(size=3)",
    "x = x.astype(np.float32)", "x = x.astype(np.float64)", "x = grid[0]", "x = grid[:, 1]", "y = x", "y = array",
    "y = x[::-1]", "x = table.numpy()", "x = list(x)", "x = np.asarray(x, dtype=np.float64)", "y = 0.5",
    "y = rng.normal(size=3)", "y = table", "y = np.float64(2.0)", "x = array", "x = np.array([np.nan, 1.0, 2.0])",
    "x.setflags(write=False)", "x = rng.normal(size=4)", "x = weights[0].numpy()", "shown[0] = 4.0", "kept.clear()",
    "found[1][...] = 7.0", "kept[-1][1].fill(1.0)", "table = weights[0]", "weights[0] = table",
    "shown = weft.from_numpy(array)",
)  # fmt: skip
# How the function is called: what is differentiated for, its parameters, what it is given.
CALLS = (
    ("0", "x", "x"),
    ("0", "x, y", "x, y"),
    ("(0, 1)", "x, y", "x, y"),
    ("1", "x, y", "x, y"),
    ("0", "x, y=0.5", "x, y=y"),
)
# What is done after every call.
AROUND = (
    "pass",
    "pass",
    "pass",
    "found[1][0] = 3.0",
    "x = x - 0.1 * found[1]",
    "x -= 0.1 * np.asarray(found[1])",
    "x[0] += 0.25",
)


class RandomOnArrays(RandomAttack):
    """seed -> `source`: calls that are alike long enough to be prepared, then something changes, then more calls."""

    head, values, returns, surgeries, calls_are = HEADER, VALUES, RETURNS, SURGERY, CALLS

    def __init__(self, seed):
        super().__init__(seed)
        self.n_functions = int(self.rng.choice([1, 1, 2]))

    def text_of_value(self):
        return self.pick(self.values)

    def function(self, k, parameters, first):
        names, lines = ["x", "y"] if "y" in parameters else ["x"], [f"def f{k}({parameters}):"]
        for number in range(int(self.rng.integers(1, 5))):
            words = self.words(names, number)
            text = self.text_of_value()
            lines += [f"    {line}" for line in text.format(**words).split("\n")]
            if "{t} = " in text:
                names.append(words["t"])
        return [*lines, "    " + self.pick(self.returns).format(**self.words(names, 9)), ""]

    def calls(self):
        lines, after = [], self.around()
        for _ in range(int(self.rng.integers(3, 7))):
            n = int(self.rng.choice([1, 2, 9, 9, 14]))
            lines += [f"for call in range({n}):", "    try:"]
            k = int(self.rng.integers(self.n_functions))
            lines += [f"        {line}" for line in [*self.called(k), *after.split("\n")]]
            lines += ["    except Exception as error:", "        yield said(error)"]
            for _ in range(int(self.rng.choice([1, 1, 1, 2]))):
                lines += ["try:", *(f"    {line}" for line in self.pick(self.surgeries).split("\n"))]
                lines += ["except Exception as error:", "    pass"]
        return lines

    def compiled(self, k, places):
        return [f"both{k} = on_arrays(compile, f{k}, {places})"]

    def called(self, k):
        given = self.given[k][2]
        lines = [f"found = both{k}({given})", "kept.append(found)"]
        if self.chance(0.05):
            lines = [f"yield in_threads(both{k}, {given.replace('y=y', 'y')})", *lines]
        return lines

    def around(self):
        return self.pick(AROUND) + "\nyield found"

    def last(self):
        return ["yield kept, [np.asarray(q) for q in (x, array, grid, *rows)]"]

    @property
    def source(self):
        self.given = [self.pick(self.calls_are) for _ in range(self.n_functions)]
        lines = self.head.replace("{seed}", str(self.seed)).split("\n")
        body = []
        for k, (places, parameters, _) in enumerate(self.given):
            body += [*self.function(k, parameters, ""), *self.compiled(k, places)]
        body += [*self.calls(), *self.last()]
        lines += [f"    {line}" if line else "" for line in body]
        return "\n".join(lines) + "\n" + FOOTER
