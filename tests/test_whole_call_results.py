"""Results of compiled functions whose Python need not run: named tuples, objects of the user's, what weft names."""

import collections
import dataclasses
from typing import NamedTuple

import pytest
from whole_parts import check, runs, settled

import weft
from weft.runtime.replay.native import native_code_is_used

pytestmark = pytest.mark.skipif(not native_code_is_used(), reason="native code is not used")


class State(NamedTuple):
    mean: object
    spread: object = 1


class Pair(collections.namedtuple("Pair", "first second")):
    __slots__ = ()

    def total(self):
        return self.first + self.second


class Loose(collections.namedtuple("Loose", "first second")):
    pass


@dataclasses.dataclass(eq=False)
class Output:
    loss: object
    parts: dict


class Plain:
    kind = "plain"

    def __init__(self, a, b):
        self.a = a
        self.b = b


THERE = Plain(weft.ones(3), 2)
FUNCTIONS = {
    "a typed tuple": lambda x: State(x * 2, x.exp()),
    "by keywords and defaults": lambda x: State(mean=x * 2),
    "a class of one": lambda x: Pair(x * 2, x.exp()),
    "one with attributes": lambda x: Loose(x, x.exp()),
    "nested": lambda x: [State(x * 2, {"a": (x.exp(), Pair(x, 3))})],
    "a data class": lambda x: Output(x.sum(), {"twice": x * 2}),
    "an object": lambda x: Plain(State(x * 2), [x.exp(), None]),
    "weft's own": lambda x: (x.topk(2), x[None].max(0)),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_results_are_made_without_python(function):
    f = settled(function, weft.randn(3))
    for _ in range(3):
        x = weft.randn(3)
        check(f, x)
        assert not runs(f, x), f.explain()


def test_objects_are_new_in_every_call():
    f = settled(lambda x: Plain(x * 2, [x]), weft.randn(3))
    first, second = f(weft.ones(3)), f(weft.zeros(3))
    first.b.append(3)
    first.c = 5
    third = f(weft.ones(3))
    assert first is not second and vars(third).keys() == {"a", "b"} and len(third.b) == 1 and third.kind == "plain"


def test_an_object_that_was_there_before_stays_it():
    def given(x):
        THERE.a.sum()
        return x * 2, THERE

    f = settled(given, weft.ones(3))
    assert f(weft.ones(3))[1] is THERE
    g = settled(lambda x, p: (x * p.b, p), weft.ones(3), THERE)
    assert g(weft.ones(3), THERE)[1] is THERE


def test_a_class_that_changes():
    class Point(NamedTuple):
        x: object

    class Thing:
        def __init__(self, x):
            self.x = x

    f, g = settled(lambda x: Point(x * 2), weft.ones(3)), settled(lambda x: Thing(x * 2), weft.ones(3))
    Point.__new__ = lambda cls, x: (x, "changed")

    def other(self, x):
        self.y = x

    Thing.__init__ = other
    assert f(weft.ones(3))[1] == "changed" and vars(g(weft.ones(3))).keys() == {"y"}


def test_what_is_not_made_of_attributes_runs():
    class Slots:
        __slots__ = ("x",)

        def __init__(self, x):
            self.x = x

    class Counted:
        n = 0

        def __new__(cls, x):
            Counted.n += 1
            return object.__new__(cls)

        def __init__(self, x):
            self.x = x

    for kind in (Slots, Counted):
        f = weft.compile(lambda x, kind=kind: kind(x * 2))
        for k in range(80):
            assert f(weft.full((3,), float(k))).x.tolist() == [2.0 * k] * 3
    assert Counted.n == 80


class Holder:
    def __init__(self):
        self.inner, self.several, self.named = Plain(weft.ones(3), 3), [Plain(1, 2)], {"a": Plain(3, 4)}

    def give(self, x):
        return x * self.inner.b, self.inner, self.several[0], self.named["a"]


def test_objects_inside_of_others_stay_these():
    holder = Holder()
    f, g = settled(holder.give, weft.ones(3)), settled(lambda x, h: h.give(x), weft.ones(3), holder)
    for given in (f(weft.ones(3)), g(weft.ones(3), holder)):
        assert given[1] is holder.inner and given[2] is holder.several[0] and given[3] is holder.named["a"]


W = weft.randn(3, 3, requires_grad=True)


@weft.no_grad()
def without(x):
    return (x @ W).tanh()


@weft.no_grad
def without_brackets(x):
    return (x @ W).tanh()


@weft.enable_grad()
def with_gradients(x):
    return (x @ W).tanh()


@weft.set_grad_enabled(False)
def switched(x):
    return (x @ W).tanh()


weft.set_grad_enabled(True)


@weft.no_grad()
def inside(x):
    return with_gradients(x), without(x)


@pytest.mark.parametrize("function", [without, without_brackets, with_gradients, switched, inside])
@pytest.mark.parametrize("enabled", [True, False])
def test_functions_with_a_mode_around_them(function, enabled):
    with weft.set_grad_enabled(enabled):
        f = settled(function, weft.randn(2, 3))
        for _ in range(2):
            x = weft.randn(2, 3)
            check(f, x)
            assert not runs(f, x), f.explain()
    assert weft.is_grad_enabled()


def test_what_a_mode_is_around_may_change():
    def scaled(x):
        return x * FACTOR[0]

    FACTOR = [2.0]
    f = settled(weft.no_grad()(scaled), weft.ones(3))
    assert not runs(f, weft.ones(3))
    FACTOR[0] = 5.0
    assert f(weft.ones(3)).tolist() == [5.0] * 3
