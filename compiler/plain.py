"""Classes of a few fields, for what `import weft` needs: dataclasses compile their methods when the class is made, half
a millisecond for each of them. Where nothing else needs the class before a program is compiled, dataclasses do.

    Plain     compares, hashes and shows the fields that its subclass lists in `__slots__`, and fills in `__init__`
    changed   another one, with some fields different
"""

from functools import cache
from operator import attrgetter


class Plain:
    """One of these is not changed once it is made."""

    __slots__ = ()

    def __eq__(self, other):
        return _fields(self) == _fields(other) if type(other) is type(self) else NotImplemented

    def __hash__(self):
        return hash(_fields(self))

    def __repr__(self):
        named = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({named})"


def _fields(x):
    return _getter(type(x))(x)


@cache
def _getter(kind):
    return attrgetter(*kind.__slots__)


def changed(x, **given):
    """Another one like x, with the fields that are given."""
    return type(x)(**{name: getattr(x, name) for name in x.__slots__} | given)
