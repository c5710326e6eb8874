"""Calls that are taken without their Python read attributes of what people keep numbers in: objects with slots,
namespaces, enumerations, classes with abstract methods. Whatever changes there is seen."""

import argparse
import dataclasses
import enum
import types
from abc import ABC, abstractmethod

import pytest
from whole_parts import check, runs, settled

import weft
from weft.runtime.replay.native import native_code_is_used

pytestmark = pytest.mark.skipif(not native_code_is_used(), reason="native code is not used")


@dataclasses.dataclass(slots=True)
class Slotted:
    scale: float
    power: int

    @property
    def twice(self):
        return 2 * self.scale


class WithMore(Slotted):
    """Slots of what it inherits from, and a dict."""

    def __init__(self):
        super().__init__(3.0, 2)
        self.shift = 0.5


class Force(ABC):
    @abstractmethod
    def at(self, x): ...

    def work(self, x):
        return (self.at(x) * x).sum()


class Spring(Force):
    def __init__(self, stiffness):
        self.stiffness = stiffness

    def at(self, x):
        return -self.stiffness * x


class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"

    def of(self, x):
        return x.sum() if self is Mode.SUM else x.mean()


class Planet(enum.Enum):
    EARTH = (5.97, 6.37)
    MARS = (0.64, 3.39)

    def __init__(self, mass, radius):
        self.mass, self.radius = mass, radius

    @property
    def gravity(self):
        return self.mass / self.radius**2


class Level(enum.IntEnum):
    LOW = 2
    HIGH = 3


def changes(function, *args, change):
    """Whether a change of what a settled function reads is seen at once."""
    compiled = settled(function, weft.randn(4))
    x = weft.randn(4)
    assert not runs(compiled, x)
    before = compiled(x)
    change()
    check(compiled, x)
    return not weft.equal(compiled(x), before)


@pytest.mark.parametrize("make", [lambda: Slotted(2.0, 3), WithMore])
def test_slots(make):
    options = make()
    assert changes(lambda x: options.scale * x**options.power, change=lambda: setattr(options, "scale", 7.0))
    assert changes(lambda x: options.twice * x, change=lambda: setattr(options, "scale", 5.0))
    held = Slotted(weft.ones(4), 1)
    assert changes(lambda x: held.scale * x, change=lambda: held.scale.mul_(3))
    assert changes(lambda x: held.scale * x, change=lambda: setattr(held, "scale", weft.zeros(4)))


def test_a_slot_without_a_value():
    options = Slotted(2.0, 3)
    compiled = settled(lambda x: options.scale * x, weft.randn(4))
    del options.scale
    with pytest.raises(AttributeError, match="scale"):
        compiled(weft.randn(4))
    options.scale = 4.0
    check(compiled, weft.randn(4))


@pytest.mark.parametrize("kind", [types.SimpleNamespace, argparse.Namespace])
def test_namespaces(kind):
    options = kind(scale=2.0, layers=3, inner=kind(shift=1.0))

    def function(x):
        for _ in range(options.layers):
            x = options.scale * x + options.inner.shift
        return x

    assert changes(function, change=lambda: setattr(options.inner, "shift", 2.0))
    assert changes(function, change=lambda: setattr(options, "layers", 4))
    assert changes(function, change=lambda: setattr(options, "inner", kind(shift=9.0)))
    assert changes(function, change=lambda: vars(options).update(scale=0.5))


def test_classes_with_abstract_methods(monkeypatch):
    spring = Spring(2.0)
    assert changes(lambda x: spring.work(x), change=lambda: setattr(spring, "stiffness", 3.0))
    assert changes(
        lambda x: spring.work(x), change=lambda: monkeypatch.setattr(Force, "work", lambda self, x: self.at(x).sum())
    )


def test_enumerations(monkeypatch):
    chosen = types.SimpleNamespace(mode=Mode.SUM, planet=Planet.MARS, level=Level.LOW)

    def function(x):
        x = x * chosen.planet.gravity * int(chosen.level)
        return Mode.SUM.of(x) if chosen.mode is Mode.SUM else chosen.mode.of(x) * (1 + len(Mode.MEAN.value))

    assert changes(function, change=lambda: setattr(chosen, "mode", Mode.MEAN))
    assert changes(function, change=lambda: setattr(chosen, "planet", Planet.EARTH))
    assert changes(function, change=lambda: setattr(chosen, "level", Level.HIGH))
    monkeypatch.setattr(Planet.EARTH, "radius", 6.0)
    assert changes(function, change=lambda: monkeypatch.setattr(Planet.EARTH, "radius", 1.0))
    assert changes(function, change=lambda: monkeypatch.setattr(Mode.MEAN, "_value_", "average"))


def test_frozen_sets():
    skipped = frozenset(("b", 3, None))
    named = {"a": 2.0, "b": 3.0}

    def function(x):
        return sum((x * v for k, v in named.items() if k not in skipped), x)

    assert changes(function, change=lambda: named.update(a=4.0))


class Found(enum.Enum):
    A = 1

    @classmethod
    def _missing_(cls, value):
        return cls.A


class Asked:
    __slots__ = ("scale",)

    def __getattr__(self, name):
        return 2.0


class Drawn:
    __slots__ = ()

    @property
    def scale(self):
        return weft.rand(())


@pytest.mark.parametrize("kept", [Asked(), Drawn(), types.SimpleNamespace(scale=Asked())])
def test_what_may_do_more_runs_every_time(kept):
    assert runs(settled(lambda x: x * 1.0 if kept.scale is None else x, weft.randn(4)), weft.randn(4))
    assert runs(settled(lambda x: x * Found.A.value, weft.randn(4)), weft.randn(4))
