"""How the elements of each type lie in arrays, and conversions between types as PyTorch makes them.

An array of a tensor has the NumPy type that `DType.numpy` names. NumPy has no bfloat16: its elements are the upper
halves of float32 numbers, in arrays of two bytes each. Whoever computes with NumPy asks `readable` for the numbers.
"""

from math import prod

import numpy as np

from .dtypes import bfloat16, float16, float32, from_numpy, int32, int64
from .ops.table import OpError


def convert(array, dtype):
    """The array with elements of another type; itself if it has that. Integers that do not fit wrap around."""
    if array.dtype == dtype.numpy:
        return array
    source, array = from_numpy(array.dtype), readable(array)
    if source.is_complex and dtype.category in (1, 2):
        return convert(array.real, dtype)
    with np.errstate(all="ignore"):
        if dtype is bfloat16:
            return _upper_halves(array.astype(np.float32, copy=False))
        if dtype is float16:
            # PyTorch rounds to float32 first, also what float16 could be rounded to at once.
            array = array.astype(np.float32, copy=False)
        elif dtype.category == 1 and source.category == 2 and not dtype.is_compiled:
            # By way of int64: C leaves open what a float becomes that does not fit.
            array = array.astype(np.int64)
        return array.astype(dtype.numpy, copy=False)


def ones(shape, dtype):
    """An array of ones of NumPy's type of a dtype. Of bfloat16 `np.ones` makes the smallest numbers there are: to NumPy
    it is two bytes without a meaning."""
    return convert(np.ones(shape, np.float32), bfloat16) if dtype == bfloat16.numpy else np.ones(shape, dtype)


_WORDS = {4: np.uint32, 8: np.uint64}
_FEW = 1 << 13


def chosen(condition, x, y):
    """np.where(condition, x, y). Of many elements NumPy's own guesses which comes next, and is wrong every other time:
    computed with their bits they take a tenth of that, if the condition is as good as random."""
    if condition.size < _FEW:
        return np.where(condition, x, y)
    dtype = np.result_type(x, y)
    word = _WORDS.get(dtype.itemsize)
    if word is None:
        return np.where(condition, x, y)
    y = np.asarray(y, dtype).view(word)
    mask = condition.astype(word)
    np.negative(mask, mask)
    differing = np.asarray(x, dtype).view(word) ^ y
    return ((differing & mask) ^ y).view(dtype)


def readable(array):
    """The numbers in an array of a tensor, for NumPy: itself, or float32 for bfloat16."""
    if array.dtype != bfloat16.numpy:
        return array
    return np.asarray(array.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def number(value, dtype):
    """A Python number as a NumPy scalar of the type, or of the type that it is computed in."""
    if isinstance(value, complex) and not dtype.is_complex:
        raise OpError(f"value cannot be converted to type {dtype.name} without overflow: {value}")
    if dtype.is_half:
        return float32.numpy.type(value)
    if (dtype.is_compiled and dtype is not int32) or dtype.is_complex:
        return dtype.numpy.type(value)
    return convert(np.asarray(value), dtype)[()]


def fitting(value, dtype):
    """The same for numbers that must fit into integers below 64 bits; those of arithmetic wrap around."""
    if dtype.category == 1 and dtype is not int64 and not isinstance(value, complex):
        check_fits(value, value, dtype)
    return number(value, dtype)


def check_fits(lowest, highest, dtype):
    """RuntimeError if an integer type does not hold numbers between these; unsigned ones wrap around from below."""
    limits = np.iinfo(dtype.numpy)
    # NaN is not between any two numbers.
    if not (lowest >= (-limits.max if limits.min == 0 else limits.min) and highest <= limits.max):
        raise OpError(
            f"value cannot be converted to type {dtype.name} without overflow: {lowest} to {highest} given, it holds "
            f"{limits.min} to {limits.max}"
        )


def rounded(value, dtype):
    """A Python number as a type of 16 bits has it; for all other types the number itself."""
    return readable(convert(np.asarray(float(value)), dtype)).item() if dtype.is_half else value


def _upper_halves(array):
    """float32 numbers as the nearest bfloat16, halves to even."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    up = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    upper = ((bits + up) >> np.uint32(16)).astype(np.uint16)
    # A NaN must not become an infinity.
    upper = np.where(np.isnan(array), np.uint16(0x7FC0), upper)
    return upper.reshape(array.shape).view(bfloat16.numpy)


def expanded(x, shape):
    """A view of an array in which dimensions of size 1, and new ones before the others, show an element many times."""
    # What shows an element several times may not be written to; what broadcast_to returns, not even where none is.
    if prod(shape) == x.size:
        return x.reshape(shape)
    if x.size != 1 or 1 in shape:
        return np.broadcast_to(x, shape)
    # The same of one element, as derivatives of sums need it: broadcast_to takes six times as long.
    out = np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
    out.setflags(False)
    return out
