"""The table of idioms: what each is called, where it is from, and how it is built.

An idiom is a function of the library `T`, which is weft or torch, and a Setting, which has numbers from a fixed seed,
starting weights, and the decorator of the side as `s.compile`. It returns a function without arguments: one call of
what is compiled, with whatever stands around the call in real code. That returns the tensors to compare.
"""

from collections.abc import Callable
from dataclasses import dataclass

IDIOMS = {}


@dataclass(frozen=True, slots=True)
class Idiom:
    """draws: takes random numbers of the library, so that weft and PyTorch do not agree."""

    name: str
    build: Callable
    draws: bool = False

    def compared(self, keys):
        """Which results are compared with PyTorch's."""
        return list(keys)


def idiom(build):
    """Enters a function into the table, by its name."""
    return _enter(Idiom(build.__name__, build))


def random_idiom(build):
    return _enter(Idiom(build.__name__, build, draws=True))


def _enter(made):
    assert made.name not in IDIOMS, made.name
    IDIOMS[made.name] = made
    return made.build


def flat(value):
    """The arrays in what a call returned, copied."""
    if value is None:
        return []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [array for part in value for array in flat(part)]
    return [value.detach().numpy().copy()]
