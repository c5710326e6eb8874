"""The distinct elements of an array, as `weft.unique` has them."""

import numpy as np


def distinct(values, with_inverse):
    """(the distinct elements in order, which of them each element is or None, how often each occurs). Of zeros that
    differ in sign the first one stands for all, and every NaN for itself, in the order in which they come."""
    flat = values.reshape(-1)
    if flat.size == 0 or flat.dtype.kind not in "iubf":
        return _by_numpy(values)
    ordered = np.sort(flat)
    if ordered[-1] != ordered[-1]:
        return _by_numpy(values)
    first = np.empty(flat.size, bool)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    found = ordered[starts]
    if flat.dtype.kind == "f":
        _take_first_zero(flat, found)
    counts = np.empty(starts.size, np.int64)
    counts[-1] = flat.size - starts[-1]
    np.subtract(starts[1:], starts[:-1], out=counts[:-1])
    inverse = np.searchsorted(found, flat).reshape(values.shape) if with_inverse else None
    return found, inverse, counts


def _by_numpy(values):
    found, inverse, counts = np.unique(values, return_inverse=True, return_counts=True, equal_nan=False)
    return found, inverse.reshape(values.shape), counts


def _take_first_zero(flat, found):
    """Orders of numbers alone leave open which of equal ones comes first."""
    k = int(np.searchsorted(found, 0))
    if k < found.size and found[k] == 0:
        found[k] = flat[(flat == 0).argmax()]
