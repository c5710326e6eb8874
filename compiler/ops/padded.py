"""Padding with a number, as ops that are there for everybody: a part of a blank tensor becomes x."""

from .source import full
from .view import slice_, slice_scatter


def padded(x, padding, value=0.0):
    """x with `value` around its last dimensions; padding holds (before, after) of each of them. Negative ones cut."""
    lead = len(x.shape) - len(padding)
    whole = tuple((0, 1, d) for d in x.shape[:lead])
    kept = [(max(-a, 0), 1, d + min(a, 0) + min(b, 0)) for d, (a, b) in zip(x.shape[lead:], padding)]
    # More may be cut than there is, and something added on the other side.
    kept = [(first, 1, n) if n > 0 else (0, 1, 0) for first, _, n in kept]
    shape = (*x.shape[:lead], *(d + a + b for d, (a, b) in zip(x.shape[lead:], padding)))
    if any(a < 0 or b < 0 for a, b in padding):
        x = slice_(x, spec=(*whole, *kept))
    padding = [(max(a, 0), max(b, 0)) for a, b in padding]
    if not any(a or b for a, b in padding):
        return x
    blank = x.apply_op(full, (value,), {"shape": shape, "dtype": x.dtype})
    placed = tuple((a if n > 0 else 0, 1, n) for (_, _, n), (a, _) in zip(kept, padding))
    return slice_scatter(blank, x, spec=(*whole, *placed))
