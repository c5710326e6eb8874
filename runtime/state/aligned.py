"""Arrays whose memory begins with a cache line, where that of an array begins, and which array it belongs to.

NumPy promises 16 bytes. Where rows of several megabytes do not begin with a line, every vector lies in two of them: a
layer_norm of 4096 x 768 took 0.85 ms then and 0.53 otherwise, of a core of Zen 5 that reads from afar.
"""

import ctypes
from math import prod

import numpy as np

LINE_BYTES = 64
# Below, NumPy's own memory: near caches make little of it, and an op on 128 x 128 numbers took a tenth longer with the
# array that has to be made.
ALIGNED_BYTES = 1 << 18
# The C library asks the system for memory of its own for each of these, which is zeros: 64 MiB of them take 12 us, and
# filling them took 5 ms. Smaller ones it has in stock, and must clear.
PAGED_BYTES = (1 << 25) + (1 << 16)


ARRAY_DATA_OFFSET = 16
_word = ctypes.c_size_t.from_address
_probe = np.zeros(3)
if _word(id(_probe) + ARRAY_DATA_OFFSET).value != _probe.ctypes.data:
    raise ImportError(f"NumPy {np.__version__} keeps an array's data pointer elsewhere than weft's programs expect it")


def address_of(array):
    """Where an array's elements begin. `array.ctypes.data` says the same at ten times the cost."""
    return _word(id(array) + ARRAY_DATA_OFFSET).value


class Memory(np.ndarray):
    """The bytes of one array that `new_array` has made, and of no other one.

    A class of its own, so that for NumPy too the array is what owns the memory: views of it have it for their base, and
    hold it. A plain array of bytes would become their base itself, and the array would look as if nobody held it.
    """

    __slots__ = ()


def is_large(shape, dtype):
    """Whether arrays of this shape and type begin with a line."""
    return prod(shape) * dtype.itemsize >= ALIGNED_BYTES and not dtype.hasobject


def new_array(shape, dtype):
    """An array of any contents that nobody else knows; a large one begins with a cache line."""
    if not is_large(shape, dtype):
        return np.empty(shape, dtype)
    return _in_lines(shape, dtype, Memory(prod(shape) * dtype.itemsize + LINE_BYTES, np.uint8))


def zeroed_array(shape, dtype):
    """The same of zeros. From PAGED_BYTES on the system has given none of the pages before they are touched."""
    if not is_large(shape, dtype):
        return np.zeros(shape, dtype)
    return _in_lines(shape, dtype, np.zeros(prod(shape) * dtype.itemsize + LINE_BYTES, np.uint8).view(Memory))


def _in_lines(shape, dtype, memory):
    return np.ndarray(shape, dtype, memory, -memory.__array_interface__["data"][0] % LINE_BYTES)


def owned_copy(array):
    """A copy in C order that shares nothing with the array."""
    copy = new_array(array.shape, array.dtype)
    copy[...] = array
    return copy


def owner_of(array):
    """id of the array, or of the object, that owns the memory: equal for all views of an array and itself."""
    base = array.base
    return id(array) if base is None or base.__class__ is Memory else id(base)


def layout_of_array(array):
    """(strides in elements, whether elements are in order)."""
    return tuple([s // array.itemsize for s in array.strides]), array.flags.c_contiguous


def is_same_memory(a, b):
    """Whether two arrays are one view of one memory."""
    if a is b or a is None or b is None:
        return a is b
    same = a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
    return same and a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
