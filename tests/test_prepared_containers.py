"""Calls on arrays that go to their program at once: of functions that read lists, dicts, arrays of NumPy's and classes
as people write them. Whatever changes in there counts from the next call on."""

import functools
import itertools
import operator
from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from prepared_parts import is_prepared, prepared, same_as_tensors

import weft
from weft.nn import functional as F
from weft.runtime.replay.native import native_code_is_used

draw = np.random.default_rng(0)
X, Y = draw.standard_normal((30, 3)), draw.standard_normal(30)
DESIGN, TARGET = weft.tensor(X), weft.tensor(Y)
POINT = np.array([0.5, -1.0, 2.0])


def check(function, *changes, x=POINT):
    """The function is prepared, and is what it would be on tensors after each of these changes."""
    both = prepared(weft.value_and_grad(function), x)
    assert is_prepared(both), both.explain()
    assert same_as_tensors(both, function, x)
    for change in changes:
        change()
        assert same_as_tensors(both, function, x)
    prepared(both, x, calls=150)
    assert is_prepared(both) and same_as_tensors(both, function, x)
    return both


# --- lists and dicts --------------------------------------------------------------------------------------------------
def test_items_of_lists_are_compared():
    weights = [1.0, 2.0, 3.0]
    check(
        lambda x: sum(w * x[k] for k, w in enumerate(weights)),
        lambda: operator.setitem(weights, 1, 5.0),
        weights.reverse,
        weights.pop,
        lambda: weights.extend([7.0]),
    )


def test_values_keys_and_order_of_dicts_are_compared():
    data = {"design": DESIGN, "target": TARGET, "prior": {"scale": 2.0, "center": 0}}
    check(
        lambda x: ((data["target"] - data["design"] @ x) ** 2).sum() + (x / data["prior"]["scale"]).square().sum(),
        lambda: operator.setitem(data["prior"], "scale", 3.0),
        lambda: data.update(target=TARGET * 2),
        lambda: operator.setitem(data, "prior", {"scale": 1.0}),
        lambda: TARGET.neg_(),
    )
    rows = {"a": 1.0, "b": 2.0, "c": 3.0}
    check(
        lambda x: (weft.tensor(list(rows.values()), dtype=weft.float64) * x).sum(),
        lambda: rows.update(a=rows.pop("a")),
        lambda: rows.update(d=rows.pop("c")),
    )


def test_functions_in_tables():
    links = {"log": weft.exp, "logit": weft.sigmoid}
    kinds = ["log", "logit", "log"]
    check(
        lambda x: weft.stack([links[kind](v) for kind, v in zip(kinds, x)]).sum(),
        lambda: operator.setitem(kinds, 2, "logit"),
        lambda: operator.setitem(links, "log", lambda v: v * 3),
    )


def test_what_a_function_leaves_in_lists_it_leaves_there():
    seen, tally, last = [], {"n": 0}, {}

    def appends(x):
        seen.append(len(seen))
        return x.sum()

    def counts(x):
        tally["n"] += 1
        return x.sum() * tally["n"]

    def keeps(x):
        last["x"] = x * 2
        return x.sum()

    for function in (appends, counts, keeps):
        both = prepared(weft.value_and_grad(function), POINT, calls=40)
        assert not is_prepared(both) or "native code is not used" in both.explain()
    assert len(seen) == tally["n"] == 40 and last["x"] is not None
    assert weft.value_and_grad(counts)(POINT)[0] == POINT.sum() * 41


def test_a_cache_that_the_first_call_fills():
    cache = {}

    def penalty(n):
        if n not in cache:
            cache[n] = weft.eye(n, dtype=weft.float64) * 2
        return cache[n]

    check(lambda x: x @ penalty(3) @ x, cache.clear, lambda: cache[3].mul_(2))


# --- NumPy ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "function",
    [
        lambda x, a, b: ((b - weft.tensor(a) @ x) ** 2).sum(),
        lambda x, a, b: ((weft.from_numpy(b) - weft.from_numpy(a) @ x) ** 2).sum(),
        lambda x, a, b: (weft.as_tensor(np.log1p(np.abs(a))) @ x).sum() / len(b),
        lambda x, a, b: (weft.tensor(a[:, ::2]) @ x[::2]).sum() * b[3] + np.mean(b),
        lambda x, a, b: (x * np.asarray(a, dtype=np.float64).sum(axis=0)).sum() + b.max(),
    ],
)
def test_arrays_are_compared_byte_by_byte(function):
    a, b = X.copy(), Y.copy()

    def likelihood(x):
        return function(x, a, b)

    def changes(array):
        array[3] = np.nextafter(array[3], 9)

    check(likelihood, lambda: changes(a), lambda: changes(b), lambda: a.sort(axis=0), lambda: b.fill(1.5))


def test_arrays_that_lie_otherwise_are_other_arrays():
    a = np.arange(9.0).reshape(3, 3)
    turned, part = a.T, np.arange(12.0)[::-4]
    check(
        lambda x: (weft.tensor(a) @ x).sum() + (weft.tensor(turned) @ x * weft.tensor(part)).sum(),
        lambda: operator.setitem(a, (0, 1), 5.0),
        lambda: operator.setitem(part, 2, 5.0),
    )
    flat = np.arange(6.0)

    def f(x):
        return (weft.tensor(flat).reshape(2, 3) @ x).sum() * flat.shape[0]

    both = check(f)
    flat.resize((2, 3), refcheck=False)
    assert same_as_tensors(both, f, POINT)


def test_arrays_of_objects_are_not_compared():
    array = np.array([1.0, "a", None], dtype=object)
    both = prepared(weft.value_and_grad(lambda x: x.sum() * array[0]), POINT, calls=20)
    array[0] = 3.0
    assert both(POINT)[0] == POINT.sum() * 3


def test_numpy_functions_that_are_replaced(monkeypatch):
    def f(x):
        return (x * np.mean(Y)).sum() + np.linalg.norm(Y)

    both = check(f)
    monkeypatch.setattr(np, "mean", lambda y: 2.0)
    assert same_as_tensors(both, f, POINT)
    both = prepared(weft.value_and_grad(lambda x: (x * np.random.normal()).sum()), POINT, calls=12)
    assert len({both(POINT)[0] for _ in range(12)}) == 12


def test_tensors_that_are_made_in_the_call():
    check(
        lambda x: (
            x @ weft.eye(3, dtype=x.dtype) @ weft.tensor([1.0, 2.0, 3.0], dtype=weft.float64)
            + weft.linalg.solve(weft.diag(weft.exp(x)), x).sum()
            + weft.einsum("ij,j->i", DESIGN, x).mean()
        )
    )


def test_what_code_asks_of_tensors_that_no_op_reads():
    weights, flag = [weft.ones(4, dtype=weft.float64)], weft.zeros(2)

    def f(x):
        return x.sum() * weights[0].shape[0] * (2.0 if flag.requires_grad else 1.0)

    def grows():
        weights[0].data = weft.ones(7, dtype=weft.float64)

    check(f, flag.requires_grad_, grows)


def test_parts_of_tensors_that_numpy_shows_too():
    array = np.arange(6.0)
    data = weft.from_numpy(array)
    check(lambda x: (data[1:4] * x).sum() * data[5], lambda: operator.setitem(array, 2, 9.0), lambda: data.add_(1))
    assert array[0] == 1.0


# --- classes and objects ----------------------------------------------------------------------------------------------
Pair = namedtuple("Pair", "design target")


class Split(NamedTuple):
    left: object
    right: object

    def both(self):
        return self.left * self.right


class Options:
    scale = 2.0
    names = ("a", "b")


class Prior:
    def __init__(self, center, scale):
        self.center, self.scale = center, scale

    def log_density(self, x):
        return -(((x - self.center) / self.scale) ** 2).sum()


class Posterior:
    order = 2

    def __init__(self):
        self.data, self.parts = {"x": DESIGN, "y": TARGET}, [Prior(0.0, 2.0)]

    @property
    def n(self):
        return len(self.parts)

    @staticmethod
    def loss(r, k):
        return (r**k).sum()

    @classmethod
    def power(cls, r):
        return cls.loss(r, cls.order)

    def __call__(self, x):
        r = self.data["y"] - self.data["x"] @ x
        return self.power(r) / self.n + sum(part.log_density(x) for part in self.parts)


@dataclass
class Point:
    first: object
    rest: object = None


def test_named_tuples():
    data, options = Pair(DESIGN, TARGET), {"split": Split}

    def f(x):
        split = options["split"](x[:1], right=x[1:])
        return ((data.target - data.design @ x) ** 2).sum() + split.both().sum() + Pair(x, 2.0).target

    check(f, lambda: options.update(split=lambda left, right: Split(left * 2, right)))


def test_classes_properties_and_methods_of_classes(monkeypatch):
    posterior = Posterior()
    both = check(
        posterior,
        lambda: posterior.parts.append(Prior(1.0, 1.0)),
        lambda: setattr(posterior.parts[0], "scale", 3.0),
        lambda: posterior.data.update(y=TARGET * 3),
    )
    monkeypatch.setattr(Posterior, "order", 4)
    assert same_as_tensors(both, posterior, POINT)
    monkeypatch.setattr(Posterior, "n", property(lambda self: 7))
    assert same_as_tensors(both, posterior, POINT)
    monkeypatch.setattr(Posterior, "loss", staticmethod(lambda r, k: r.sum()))
    assert same_as_tensors(both, posterior, POINT)
    monkeypatch.setattr(Prior, "log_density", lambda self, x: x.sum())
    assert same_as_tensors(both, posterior, POINT)


def test_objects_that_are_made_in_the_call(monkeypatch):
    def f(x):
        point = Point(x[0], rest=x[1:])
        return Prior(x[0], Options.scale).log_density(x) + point.first * point.rest.sum() * len(Options.names)

    both = check(f)
    monkeypatch.setattr(Options, "scale", 5.0)
    assert same_as_tensors(both, f, POINT)
    monkeypatch.setattr(
        Prior, "__init__", lambda self, center, scale: setattr(self, "center", 0) or setattr(self, "scale", 1)
    )
    assert same_as_tensors(both, f, POINT)


class Ended:
    n = [0]

    def __init__(self, x):
        self.x = x

    def __del__(self):
        self.n[0] += 1


def test_objects_whose_end_leaves_something():
    both = prepared(weft.value_and_grad(lambda x: Ended(x).x.sum()), POINT, calls=30)
    assert both(POINT)[0] == POINT.sum() and Ended.n[0] == 31


def test_arrays_that_are_large_are_not_compared():
    large = np.ones(1 << 16)
    both = prepared(weft.value_and_grad(lambda x: x.sum() * len(large)), POINT, calls=30)
    assert "too large to compare" in both.explain() or not native_code_is_used()
    large[0] = 2.0
    assert both(POINT)[0] == POINT.sum() * len(large)


class Registered:
    all = []

    def __init__(self, x):
        self.x = x
        self.all.append(x)


def test_objects_whose_making_leaves_something():
    both = prepared(weft.value_and_grad(lambda x: Registered(x).x.sum()), POINT, calls=30)
    assert both(POINT)[0] == POINT.sum() and len(Registered.all) == 31
    Registered.all.clear()


# --- spellings --------------------------------------------------------------------------------------------------------
def with_imports(x):
    import math
    from itertools import combinations as pairs

    import weft.nn.functional as functions

    return sum(x[i] * x[j] for i, j in pairs(range(3), 2)) * math.pi + functions.softplus(x).sum()


def with_checks(x):
    if not isinstance(x, weft.Tensor) or x.dtype != weft.float64:
        raise TypeError(f"a {type(x).__name__}")
    if x.ndim != 1:
        raise weft.linalg.LinAlgError(f"{x.ndim} dimensions")
    with weft.no_grad():
        top = x.abs().max()
    return (x - top).square().sum()


def with_a_gradient_inside(x):
    return (
        weft.func.grad(lambda q: (q**3).sum())(x).sum()
        + weft.autograd.grad((x**2).sum(), x, create_graph=True)[0].sum()
    )


def with_losses(x):
    eta = DESIGN @ x
    labels = (TARGET > 0).double()
    return F.binary_cross_entropy_with_logits(eta, labels) + F.cross_entropy(
        weft.stack([eta, -eta], 1), labels.long(), reduction="sum"
    )


def with_tools(x):
    return functools.reduce(operator.mul, list(x)) + sum(itertools.chain.from_iterable([x[:1], x[1:]]))


@pytest.mark.parametrize("function", [with_imports, with_checks, with_a_gradient_inside, with_losses, with_tools])
def test_spellings_that_need_no_python(function):
    check(function)
