"""What Python has for holding tensors: as arguments, as results, as state."""

import itertools
import types
from collections import ChainMap, OrderedDict, UserDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from .registry import idiom
from .strangers import in_turn, labels_in_turn


@idiom
def options_in_a_frozen_dataclass(T, s):
    @dataclass(frozen=True)
    class Options:
        scale: float = 0.5
        shift: float = 1.0
        power: int = 2

    x, options = in_turn(s, 3, 6), Options()

    @s.compile
    def f(x, o):
        return (x * o.scale + o.shift) ** o.power

    return lambda: f(next(x), options)


@idiom
def state_replaced_in_a_dataclass(T, s):
    @dataclass
    class Particle:
        at: object
        speed: object
        path: list = field(default_factory=list)

    held = [Particle(s.numbers(5, 3), s.numbers(5, 3))]

    @s.compile
    def move(p):
        speed = p.speed * 0.99 - p.at * 0.1
        return replace(p, at=p.at + speed * 0.1, speed=speed)

    def call():
        held[0] = move(held[0])
        return [held[0].at, held[0].speed]

    return call


@idiom
def typed_tuple_in_and_out(T, s):
    class Carry(NamedTuple):
        hidden: object
        total: object

    cell, x, held = s.weights(T.nn.Linear(7, 4)), in_turn(s, 3, 2, 3), [Carry(T.zeros(2, 4), T.zeros(2))]

    @s.compile
    def step(carry, x):
        hidden = T.tanh(cell(T.cat([carry.hidden, x], 1)))
        return Carry(hidden, carry.total + hidden.sum(1))

    def call():
        with T.no_grad():
            held[0] = step(held[0], next(x))
        return list(held[0])

    return call


@idiom
def weights_in_nested_dictionaries(T, s):
    weights = {
        "encoder": {"w": s.parameter(3, 4), "b": s.parameter(4)},
        "decoder": {"w": s.parameter(4, 3), "b": s.parameter(3)},
    }
    x = in_turn(s, 3, 6, 3)

    def leaves(tree):
        for value in tree.values():
            yield from leaves(value) if isinstance(value, dict) else [value]

    @s.compile
    def step(weights, x):
        code = T.tanh(x @ weights["encoder"]["w"] + weights["encoder"]["b"])
        loss = ((code @ weights["decoder"]["w"] + weights["decoder"]["b"] - x) ** 2).mean()
        loss.backward()
        with T.no_grad():
            for p in leaves(weights):
                p.sub_(p.grad, alpha=0.1)
                p.grad = None
        return loss.detach()

    return lambda: [step(weights, next(x)), *leaves(weights)]


@idiom
def choice_of_an_enumeration(T, s):
    Kind = Enum("Kind", "SUM MEAN MAX")
    x, kinds = in_turn(s, 4, 3, 5), itertools.cycle(Kind)

    @s.compile
    def pool(x, kind):
        if kind is Kind.SUM:
            return x.sum(1)
        return x.mean(1) if kind is Kind.MEAN else x.amax(1)

    return lambda: pool(next(x), next(kinds))


@idiom
def matched_by_its_pattern(T, s):
    x, orders = in_turn(s, 3, 5), itertools.cycle([("scale", 2.0), ("shift", 1.0), ("both", 0.5, 3.0)])

    @s.compile
    def f(x, order):
        match order:
            case ("scale", by):
                return x * by
            case ("shift", by):
                return x + by
            case (_, by, then):
                return x * by + then

    return lambda: f(next(x), next(orders))


@idiom
def settings_in_a_namespace(T, s):
    settings, x = types.SimpleNamespace(rate=0.1, momentum=0.9, velocity=T.zeros(4)), in_turn(s, 3, 4)

    @s.compile
    def f(c, g):
        c.velocity = c.momentum * c.velocity - c.rate * g
        return c.velocity

    return lambda: f(settings, next(x))


@idiom
def moments_in_a_default_dictionary(T, s):
    moments, x = defaultdict(lambda: T.zeros(3)), {name: in_turn(s, 3, 3) for name in "abc"}

    @s.compile
    def f(batch):
        for name, g in batch.items():
            moments[name] = 0.9 * moments[name] + 0.1 * g * g
        return {name: g / (moments[name].sqrt() + 1e-3) for name, g in batch.items()}

    return lambda: list(f({name: next(values) for name, values in x.items()}).values())


@idiom
def window_in_a_deque(T, s):
    window, x = deque([T.zeros(4)] * 5, maxlen=5), in_turn(s, 3, 4)

    @s.compile
    def f(x):
        window.append(x)
        return sum(window) / len(window)

    return lambda: f(next(x))


@idiom
def ordered_weights(T, s):
    weights = OrderedDict((f"layer{k}", s.numbers(4, 4, scale=0.5)) for k in range(3))
    x = in_turn(s, 3, 2, 4)

    @s.compile
    def f(x, weights):
        for _, w in weights.items():
            x = T.nn.functional.gelu(x @ w)
        return x

    return lambda: f(next(x), weights)


@idiom
def stacked_options(T, s):
    options, x = ChainMap({"scale": 0.5}, {"scale": 1.0, "shift": 0.1}), in_turn(s, 3, 5)
    f = s.compile(lambda x, o: x * o["scale"] + o["shift"])
    return lambda: f(next(x), options)


@idiom
def batch_of_a_class_of_ones_own(T, s):
    class Batch(UserDict):
        def __getattr__(self, name):
            return self.data[name]

    x, y = in_turn(s, 3, 4, 3), labels_in_turn(s, 3, 3, 4)
    f = s.compile(lambda batch: T.nn.functional.cross_entropy(batch.x, batch["y"]))
    return lambda: f(Batch(x=next(x), y=next(y)))


@idiom
def unpacked_with_a_star(T, s):
    x = in_turn(s, 3, 4, 3)

    @s.compile
    def f(x):
        first, *rest, last = x.unbind(0)
        return first + last * sum(r.sum() for r in rest)

    return lambda: f(next(x))


@idiom
def sorted_by_a_key(T, s):
    sizes = {"c": s.numbers(2), "a": s.numbers(3), "b": s.numbers(4)}
    f = s.compile(lambda parts: T.cat([parts[key] * (k + 1) for k, key in enumerate(sorted(parts))]))
    return lambda: f(sizes)


@idiom
def default_that_is_shared(T, s):
    x = in_turn(s, 3, 4)

    @s.compile
    def f(x, total=[T.zeros(4)]):  # noqa: B006, B008
        total[0] = total[0] + x
        return total[0] / 2

    return lambda: f(next(x))


@idiom
def tree_of_tensors_mapped(T, s):
    def mapped(function, *trees):
        first = trees[0]
        if isinstance(first, dict):
            return {key: mapped(function, *[tree[key] for tree in trees]) for key in first}
        if isinstance(first, (list, tuple)):
            return type(first)(mapped(function, *parts) for parts in zip(*trees, strict=True))
        return function(*trees)

    tree = {"a": [s.numbers(3), s.numbers(2)], "b": {"c": (s.numbers(2, 2),)}}
    f = s.compile(lambda tree, other: mapped(lambda x, y: 0.9 * x + 0.1 * y.square(), tree, other))
    return lambda: [*(out := f(tree, tree))["a"], out["b"]["c"][0]]


@idiom
def result_with_fields(T, s):
    Output, x = namedtuple("Output", "logits loss extra"), in_turn(s, 3, 4, 3)
    w, y = s.parameter(3, 3), labels_in_turn(s, 3, 3, 4)

    @s.compile
    def forward(x, y):
        logits = x @ w
        return Output(logits, T.nn.functional.cross_entropy(logits, y), {"norm": logits.norm()})

    def call():
        out = forward(next(x), next(y))
        w.grad = None
        out.loss.backward()
        return [out.logits, out.loss, out.extra["norm"], w.grad]

    return call
