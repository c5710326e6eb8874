"""Conversions between element types, as PyTorch makes them: the one place that knows how each type lies in an array.

An array of a tensor has the NumPy type `DType.numpy` names, and is converted here and nowhere else.
"""

import numpy as np

from .dtypes import from_numpy


def convert(array, dtype):
    """The array with elements of another type; itself if it has that. Integers that do not fit wrap around."""
    if array.dtype == dtype.numpy:
        return array
    source = from_numpy(array.dtype)
    with np.errstate(all="ignore"):
        if dtype.category == 1 and source.category == 2 and not dtype.is_compiled:
            # By way of int64: C leaves open what a float becomes that does not fit.
            array = array.astype(np.int64)
        return array.astype(dtype.numpy)


def number(value, dtype):
    """A Python number as a NumPy scalar of the type."""
    if dtype.is_compiled:
        return dtype.numpy.type(value)
    return convert(np.asarray(value), dtype)[()]
