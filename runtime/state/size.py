"""Shapes as users see them: tuples that know how many elements they stand for, and stay such when cut or joined."""

from math import prod
from operator import index


class Size(tuple):
    """The sizes of a tensor's dimensions: a tuple, printed as one, with `numel()`."""

    __slots__ = ()

    def __new__(cls, sizes=()):
        made = _new(cls, sizes)
        return made if {*map(type, made)} <= _WHOLE else _new(cls, map(_size, range(len(made)), made))

    def numel(self):
        """How many elements a tensor of this shape has."""
        return prod(self)

    def __getitem__(self, key):
        part = _item(self, key)
        return _new(Size, part) if part.__class__ is tuple else part

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other):
        return Size((*other, *self))

    def __mul__(self, times):
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__


_new, _item = tuple.__new__, tuple.__getitem__
_WHOLE = {int}


def _size(place, x):
    """A size as PyTorch takes it: a tensor of one whole number is that number. TypeError for what is none."""
    if hasattr(type(x), "__index__"):
        try:
            return index(x) if isinstance(x, bool) or hasattr(x, "shape") and hasattr(x, "requires_grad") else x
        except TypeError:
            pass
    raise TypeError(f"Size() takes an iterable of 'int' (item {place} is '{type(x).__name__}')")
