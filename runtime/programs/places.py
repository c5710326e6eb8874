"""What a program was built to find behind the addresses it is given, and the check that it is there.

A program reads and writes as many elements as its graph says, wherever it is sent. So no array goes to one before its
shape, type and strides have been compared with those of the graph's input, and whether it may be written to.
"""

from operator import is_, itemgetter
from typing import NamedTuple

import numpy as np

from ...compiler import dtypes
from ...compiler.shapes import contiguous_strides
from .evaluate import strides_in_elements


class Place(NamedTuple):
    """An input of a program: `dtype` is NumPy's, `strides` count elements (None: row-major contiguous)."""

    shape: tuple
    dtype: object
    strides: object
    is_written: bool


def described(graph):
    """The places of a graph's inputs, for a program's meta."""
    written = {target.number for target, _ in graph.commits}
    return [[list(v.shape), v.dtype.name, v.strides and list(v.strides), v.number in written] for v in graph.inputs()]


class Places:
    """The places of a program's inputs, in the order of their addresses."""

    def __init__(self, described):
        self.items = [_place(*one) for one in described]
        self._usual = [(p.shape, p.dtype, _strides_in_bytes(p)) for p in self.items]

    def __getitem__(self, k):
        return self.items[k]

    def require(self, arrays, expected=None):
        """AssertionError unless every array is what the program was built for. Those of an Expectation are the very
        same in call after call: they are looked at once."""
        if len(arrays) != len(self.items):
            raise AssertionError(f"a program of {len(self.items)} inputs was given {len(arrays)}")
        known = None if expected is None else expected.compared.get(self)
        if known is not None and all(map(is_, known[0](arrays), known[1])):
            for k in known[2]:
                self.require_one(k, arrays[k])
            return
        for k, array in enumerate(arrays):
            self.require_one(k, array)
        if expected is not None:
            expected.compared[self] = _split(arrays, expected)

    def require_one(self, k, array):
        """The same for one."""
        place = self.items[k]
        if (array.shape, array.dtype, array.strides) == self._usual[k] and not place.is_written:
            return
        found = Place(array.shape, array.dtype, strides_in_elements(array), place.is_written and array.flags.writeable)
        if found != place:
            raise AssertionError(f"input {k} of a program is {found}, which was built for {place}")


def _split(arrays, expected):
    """(a function that picks the arrays of an Expectation, these, the positions of the others)."""
    known = set(map(id, expected.arrays))
    places = [k for k, array in enumerate(arrays) if id(array) in known]
    # Of one alone itemgetter would not make a tuple.
    pick = itemgetter(*places, *places[:1]) if places else _nothing_of
    return pick, pick(arrays), [k for k in range(len(arrays)) if k not in places]


def _nothing_of(arrays):
    return ()


def words_of(place, held):
    """The words by which native code knows whether an array is what a place says: dtype, number of dimensions, the
    address of its lengths and strides, flags of the array."""
    lengths = np.array([*place.shape, *_strides_in_bytes(place)], np.int64)
    held.append(lengths)
    flags = (_C_CONTIGUOUS if place.strides is None else STRIDED) | (WRITEABLE if place.is_written else 0)
    return id(place.dtype), len(place.shape), lengths.ctypes.data, flags


_C_CONTIGUOUS, WRITEABLE = 1, 0x400  # NumPy's flags of arrays
STRIDED = 0x40000000  # none of them: strides are compared instead


def _place(shape, dtype, strides, is_written):
    return Place(tuple(shape), dtypes.dtype_named(dtype).numpy, None if strides is None else tuple(strides), is_written)


def _strides_in_bytes(place):
    strides = contiguous_strides(place.shape) if place.strides is None else place.strides
    return tuple(step * place.dtype.itemsize for step in strides)
