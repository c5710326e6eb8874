"""Compiled functions whose Python need not run, though they read caches of functions, dicts that make what they lack or
views of dicts; and that it runs again as soon as one of these has changed."""

import functools
from collections import defaultdict
from types import MappingProxyType
from typing import Protocol

import pytest
from whole_parts import N, check, runs, settled

import weft
from weft.runtime.replay.native import native_code_is_used

pytestmark = pytest.mark.skipif(not native_code_is_used(), reason="native code is not used")
FACTOR = [2.0]


@functools.lru_cache
def scale(n):
    return n * FACTOR[0]


@functools.cache
def mask(n):
    return weft.ones(n, n).tril() * FACTOR[0]


@functools.lru_cache(maxsize=2)
def few(n):
    return n * FACTOR[0]


@functools.cache
def activation(name):
    return {"relu": weft.relu, "tanh": weft.tanh}[name]


class Layer:
    def __init__(self):
        self.k = 2

    @functools.lru_cache  # noqa: B019
    def width(self):
        return self.k + 0.5

    def __call__(self, x):
        return x * self.width()


class Scales(Protocol):
    def scaled(self, x): ...


class Double(Scales):
    def __init__(self):
        self.k = 2.0

    def scaled(self, x):
        return x * self.k


@pytest.fixture(autouse=True)
def nothing_is_cached():
    FACTOR[0] = 2.0
    for function in (scale, mask, few, activation):
        function.cache_clear()


WIDE, TABLE, DOUBLE = Layer(), {"a": 2.0}, Double()
VIEW, COUNTS = MappingProxyType(TABLE), defaultdict(float, a=2.0)
USES = {
    "cached number": lambda x: x * scale(3) + 1,
    "cached tensor": lambda x: x @ mask(4) + 1,
    "cached function": lambda x: activation("tanh")(x) + 1,
    "cached method": lambda x: WIDE(x) + 1,
    "view of a dict": lambda x: x * VIEW["a"] + VIEW.get("b", 1.0),
    "all of a view": lambda x: sum(x * v for v in VIEW.values()),
    "default dict": lambda x: x * COUNTS["a"] + len(COUNTS),
    "protocol": lambda x: DOUBLE.scaled(x) + 1,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_python_need_not_run(use):
    x = weft.randn(4, 4)
    compiled = settled(lambda x: use(x), x)
    assert not runs(compiled, x)
    for _ in range(3):
        check(compiled, x)


def put(table, key, value):
    table[key] = value


def refilled():
    """Another number under the same key, in a cache as large as before."""
    scale.cache_clear()
    FACTOR[0] = 5.0
    scale(3)
    FACTOR[0] = 2.0


CHANGES = {
    "cleared after a change": ("cached number", lambda: (put(FACTOR, 0, 3.0), scale.cache_clear())),
    "changed and not cleared": ("cached number", lambda: put(FACTOR, 0, 3.0)),
    "cleared, filled, and changed back": ("cached number", refilled),
    "another entry": ("cached number", lambda: scale(7)),
    "tensor in place": ("cached tensor", lambda: mask(4).mul_(3)),
    "tensor made anew": ("cached tensor", lambda: (mask.cache_clear(), mask(4).mul_(3))),
    "cleared": ("cached function", lambda: activation.cache_clear()),
    "an attribute that was read": ("cached method", lambda: setattr(WIDE, "k", WIDE.k + 1)),
    "that of a new value": ("cached method", lambda: (setattr(WIDE, "k", WIDE.k + 1), Layer.width.cache_clear())),
    "behind a view": ("view of a dict", lambda: put(TABLE, "a", TABLE["a"] + 1)),
    "more behind a view": ("all of a view", lambda: put(TABLE, str(len(TABLE)), 3.0)),
    "less behind a view": ("all of a view", lambda: TABLE.pop(list(TABLE)[-1]) if len(TABLE) > 1 else None),
    "a default": ("default dict", lambda: COUNTS[str(len(COUNTS))]),
    "an item": ("default dict", lambda: put(COUNTS, "a", 7.0)),
    "an attribute of a protocol": ("protocol", lambda: setattr(DOUBLE, "k", DOUBLE.k + 1)),
    "a method of a protocol": ("protocol", lambda: setattr(Double, "scaled", lambda self, x: x - self.k)),
}


@pytest.mark.parametrize(("name", "change"), CHANGES.values(), ids=CHANGES)
def test_what_is_read_changes(name, change):
    use, x, before = USES[name], weft.randn(4, 4), Double.scaled
    compiled = settled(lambda x: use(x), x)
    try:
        for _ in range(3):
            change()
            for _ in range(N):
                check(compiled, x)
    finally:
        Double.scaled = before


def test_stale_values_of_a_cache():
    """What a cached function reads is another value than when its result was found: the result is what counts."""
    x = weft.randn(4, 4)
    scale(3)
    FACTOR[0] = 7.0
    compiled = settled(lambda x: x * scale(3), x)
    assert check(compiled, x).equal(x * 6.0)
    scale.cache_clear()
    assert check(compiled, x).equal(x * 21.0)


def test_a_cache_that_forgets():
    x = weft.randn(4, 4)
    few(1), few(2)
    compiled = settled(lambda x: x * few(2), x)
    assert runs(compiled, x)
    for factor in (3.0, 2.0):
        FACTOR[0] = factor
        few(4), few(2), few(1)
        check(compiled, x)


def test_what_a_default_dict_makes_is_made_in_every_call():
    counts, x = defaultdict(list), weft.randn(4, 4)

    def step(x):
        counts["seen"].append(1)
        return x * 2 + len(counts["seen"])

    compiled = settled(step, x)
    assert runs(compiled, x)
    assert len(counts["seen"]) == N + 1
