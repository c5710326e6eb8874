"""Shapes as users see them: tuples that know how many elements they stand for, and stay such when cut or joined."""

from math import prod


class Size(tuple):
    """The sizes of a tensor's dimensions: a tuple, printed as one, with `numel()`."""

    __slots__ = ()

    def numel(self):
        """How many elements a tensor of this shape has."""
        return prod(self)

    def __getitem__(self, index):
        part = _item(self, index)
        return _new(Size, part) if part.__class__ is tuple else part

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other):
        return Size((*other, *self))

    def __mul__(self, times):
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__


_new, _item = tuple.__new__, tuple.__getitem__
