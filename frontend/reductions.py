"""Reductions beyond sums and extremes: those that ignore NaN, norms with a limit, both extremes at once."""

from .compiler.ops import comparison, derived
from .compiler.ops.table import OpError
from .compiler.shapes import normalize_axes, normalize_axis
from .functions import to_dtype, where
from .reducing import amax, amin, norm, sum
from .results import result_type

_Aminmax = result_type("aminmax", "min", "max")


def _numbers(input):
    """Where the elements are no NaN."""
    return comparison.eq(input, input)


def nansum(input, dim=None, keepdim=False, *, dtype=None):
    """The sum of the elements that are no NaN."""
    input = input if dtype is None else to_dtype(input, dtype)
    if not input.dtype.is_floating_point:
        return sum(input, dim, keepdim, dtype=dtype)
    return derived.nansum(input, axes=normalize_axes("nansum", dim, input.ndim), keepdim=bool(keepdim))


def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    """The mean of the elements that are no NaN."""
    if not input.dtype.is_floating_point:
        raise OpError(f"nanmean(): expected input to have floating point dtype but got {input.dtype.name}")
    input = input if dtype is None else to_dtype(input, dtype)
    return nansum(input, dim, keepdim) / sum(_numbers(input), dim, keepdim)


def aminmax(input, *, dim=None, keepdim=False):
    """(min, max), of all elements or along dim."""
    if dim is None and not input.numel():
        raise RuntimeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."
        )
    return _Aminmax(amin(input, dim, keepdim), amax(input, dim, keepdim))


def renorm(input, p, dim, maxnorm):
    """Slices along dim whose p-norm is above maxnorm are scaled down to it."""
    axis = normalize_axis("renorm", dim, input.ndim)
    if p <= 0:
        raise RuntimeError(f"renorm: non-positive norm not supported, got p = {p}")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim}")
    lengths = norm(input, p, tuple(k for k in range(input.ndim) if k != axis), True)
    return input * where(lengths > maxnorm, maxnorm / (lengths + 1e-7), 1.0)


METHODS = str.split("nansum nanmean aminmax renorm")
INPLACE = ["renorm"]
PUBLIC = METHODS
