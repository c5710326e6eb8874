"""Arrays whose memory begins with a cache line, where that of an array begins, and which array it belongs to.

NumPy promises 16 bytes. Where rows of several megabytes do not begin with a line, every vector lies in two of them: a
layer_norm of 4096 x 768 took 0.85 ms then and 0.53 otherwise, of a core of Zen 5 that reads from afar.
"""

import ctypes
import os
import sys
from math import prod

import numpy as np

LINE_BYTES = 64
# Below, NumPy's own memory: near caches make little of it, and an op on 128 x 128 numbers took a tenth longer with the
# array that has to be made.
ALIGNED_BYTES = 1 << 18
# The C library asks the system for memory of its own for each of these, which is zeros: 64 MiB of them take 12 us, and
# filling them took 5 ms. Smaller ones it has in stock, and must clear.
PAGED_BYTES = (1 << 25) + (1 << 16)


# What the C library keeps of memory that was let go of, up to a 32nd of the machine's. By itself it gives back all
# beyond twice the largest array so far, at the end of every step that has several, and the next waits for the system
# to clear the pages again: x * x of a million floats with its backward took 7 ms so, and 0.8 otherwise.
_MOST_KEPT, _SHARE = 1 << 28, 32
_TRIM, _MAP = -1, -3  # mallopt's names: from how much on it gives back, and what is memory of its own
_SAID_BY_USERS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def _keep_memory():
    """Where the C library is GNU's, and nobody has told it what to keep."""
    if sys.platform != "linux" or any(name in os.environ for name in _SAID_BY_USERS):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        mallopt(_TRIM, min(_MOST_KEPT, memory // _SHARE))
        # Said by itself, it is what the other would have become with time.
        mallopt(_MAP, 1 << 25)


_keep_memory()
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
    return same and address_of(a) == address_of(b)
