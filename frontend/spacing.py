"""The numbers of a linspace."""

import functools

import numpy as np

from .compiler import dtypes
from .compiler.ops.table import OpError
from .compiler.storage import check_fits, convert


@functools.lru_cache(64)
def spaced(start, end, steps, dtype):
    """The numbers of a linspace of floats. Plots and grids ask for the same again and again."""
    number = dtype.numpy.type
    first, last = number(start), number(end)
    step = (last - first) / number(max(steps - 1, 1))
    # As PyTorch: each half counted from its end, product and sum rounded once.
    wide = np.float64 if dtype is dtypes.float32 else np.longdouble
    found, half = np.empty(steps, dtype.numpy), max(steps // 2, int(steps == 1))
    positions = np.arange(min(steps, _BLOCK)).astype(wide)
    with np.errstate(over="ignore"):
        for at in range(0, half, _BLOCK):
            k = positions[: half - at] + at
            k *= wide(step)
            found[at : min(at + _BLOCK, half)] = np.add(k, wide(first), out=k)
        for at in range(half, steps, _BLOCK):
            k = (steps - 1 - at) - positions[: steps - at]
            k *= wide(step)
            found[at : at + _BLOCK] = np.subtract(wide(last), k, out=k)
    return found


def facts_of(start, end, steps):
    """The operands of the op that makes the same in float32 (compiler/ops/source.py: spaced)."""
    number = np.float32
    with np.errstate(over="ignore"):
        first, last = number(start), number(end)
        step = (last - first) / number(max(steps - 1, 1))
    return float(first), float(last), float(step), float(max(steps // 2, int(steps == 1))), float(steps - 1)


# Numbers of a linspace that are computed at once: they stay in the near caches.
_BLOCK = 1 << 12


def whole_spacing(start, end, steps, dtype):
    """linspace of integers before the fractions are cut off, as float64: both ends are whole from the start."""
    for x in (start, end):
        # Whole numbers wrap around where there is no sign, others do not.
        check_fits(x, x, dtype)
        if isinstance(x, float) and x < 0 and not dtype.is_signed:
            raise OpError(f"value cannot be converted to type {dtype.name} without overflow: {x}")
    first, last = (int(convert(np.asarray(int(x)), dtype)) for x in (start, end))
    step, k = (last - first) / max(steps - 1, 1), np.arange(steps)
    return np.where(k < max(steps // 2, steps == 1), first + step * k, last - step * (steps - 1 - k))
