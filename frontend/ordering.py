"""Sorting, ranks, quantiles, counting and sets. What has two results returns `(values, indices)` with those names."""

import math
from math import prod

import numpy as np

from .casting import in_wide
from .compiler import dtypes
from .compiler.ops import arithmetic, comparison, ordering
from .compiler.ops.table import OpError
from .compiler.shapes import normalize_axis, whole_number
from .compiler.storage import convert, readable
from .creation import as_tensor
from .distinct import distinct
from .equality import is_one_of
from .functions import to_dtype, where
from .operands import alike, flag, tensor_of, tensors
from .results import result_type
from .runtime.eager.function import without_derivative
from .runtime.state import random
from .runtime.state.modes import array_that_sizes, state, watching
from .runtime.state.tensor import Tensor, wrap
from .shaping import flatten, movedim, narrow, reshape, squeeze, unsqueeze

_Sort, _Topk, _Kthvalue, _Median, _Nanmedian, _Mode = (
    result_type(name, "values", "indices") for name in ("sort", "topk", "kthvalue", "median", "nanmedian", "mode")
)


# --- order ------------------------------------------------------------------------------------------------------------
def argsort(input, dim=-1, descending=False, *, stable=False):
    """Positions that sort the elements along dim; equal elements keep their order."""
    axis, descending = normalize_axis("argsort", dim, input.ndim), flag("argsort", "descending", descending)
    return ordering.argsort(input, axis=axis, descending=descending)


def _along(input, index, axis, of):
    return ordering.ordered(input, index, axis=axis, of=of)


def sort(input, dim=-1, descending=False, *, stable=False):
    """(values, indices) sorted along dim; NaN counts as the largest, equal elements keep their order."""
    if input.__class__ is not Tensor:
        tensor_of("sort", input)
    index = argsort(input, dim, flag("sort", "descending", descending))
    return _Sort(_along(input, index, normalize_axis("sort", dim, input.ndim), "sort"), index)


def msort(input):
    """Sorted along the first dimension."""
    return sort(input, 0).values


def topk(input, k, dim=-1, largest=True, sorted=True):
    """(values, indices) of the k largest (or smallest) elements along dim, in order."""
    if input.__class__ is not Tensor:
        tensor_of("topk", input)
    axis, k = normalize_axis("topk", dim, input.ndim), whole_number("topk", "k", k)
    size = input.shape[axis] if input.ndim else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"topk: selected index k out of range: k is {k}, dimension {dim} has size {size}")
    index = ordering.first_positions(input, axis=axis, descending=flag("topk", "largest", largest), k=k)
    return _Topk(_along(input, index, axis, "topk"), index)


def _picked(made, input, index, axis, keepdim):
    """(values, indices) at one position of every row."""
    if input.ndim == 0:
        return made(input * 1 if input.dtype.category else input.clone(), index)
    column = unsqueeze(index, axis)
    values = _along(input, column, axis, made.of)
    return made(values, column) if keepdim else made(squeeze(values, axis), index)


def kthvalue(input, k, dim=-1, keepdim=False):
    """(values, indices) of the k-th smallest element along dim, counted from 1."""
    axis = normalize_axis("kthvalue", dim, input.ndim)
    size, k = input.shape[axis] if input.ndim else 1, whole_number("kthvalue", "k", k)
    if input.ndim and not size:
        raise IndexError(f"kthvalue(): Expected reduction dim {dim} to have non-zero size.")
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}: k is {k}, size {size}")
    index = _of_rank(input, axis, k - 1)
    if index is None:
        order = ordering.first_positions(input, axis=axis, descending=False, k=k)
        index = squeeze(narrow(order, axis, k - 1, 1), axis) if input.ndim else order
    return _picked(_Kthvalue, input, index, axis, keepdim)


_MANY, _MANY_IN_ALL = 1 << 7, 1 << 12


def _of_rank(input, axis, rank):
    """The positions of a rank in long rows outside of calls, where the rest need no order; else None. A rank is no
    median where there are NaNs."""
    shape = input.shape
    if state.frame is not None or not shape or rank < 32:
        return None
    if shape[axis] < _MANY and prod(shape) < _MANY_IN_ALL:
        return None
    is_noted = watching and getattr(state.forward, "notes_changes", False)
    array = input.array if is_noted else input._data  # an error then: the call is not one of ops alone
    if watching or array is None:
        return None
    if input.dtype not in _PARTED or array.dtype.kind == "f" and array.max() != array.max():
        return None
    return ordering.position_of_rank(input, axis=axis, rank=rank)


_PARTED = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)


def _median_index(input, axis, ignore_nan):
    index = _of_rank(input, axis, (input.shape[axis] - 1) // 2) if input.ndim else None
    return ordering.median_index(input, axis=axis, ignore_nan=ignore_nan) if index is None else index


def _median(made, ignore_nan):
    def function(input, dim=None, keepdim=False):
        if dim is None:
            if not input.numel():
                missing = math.nan if input.dtype.is_floating_point else np.iinfo(input.dtype.numpy).min
                return wrap(convert(np.asarray(missing), input.dtype)) + input.sum().to(input.dtype)
            flat = flatten(input)
            index = _median_index(flat, 0, ignore_nan)
            return ordering.one_of_equals(flat, index, of=made.of)
        axis = normalize_axis(made.of, dim, input.ndim)
        index = _median_index(input, axis, ignore_nan)
        return _picked(made, input, index, axis, keepdim)

    function.__name__ = made.of
    function.__doc__ = f"""The {made.of}, the lower one of two in the middle; along dim (values, indices)."""
    return function


median, nanmedian = _median(_Median, False), _median(_Nanmedian, True)


def mode(input, dim=-1, keepdim=False):
    """(values, indices) of the most frequent element along dim, the smallest of several."""
    axis = normalize_axis("mode", dim, input.ndim)
    return _picked(_Mode, input, ordering.mode_index(input, axis=axis), axis, keepdim)


# --- quantiles --------------------------------------------------------------------------------------------------------
_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@in_wide
def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """The q-th quantiles along dim (of all elements, if None), for a number q or a vector; NaN where there is a NaN."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@in_wide
def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """Like quantile, ignoring NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


def _check_quantile(name, input, q, interpolation):
    if not input.dtype.is_floating_point:
        raise OpError(f"{name}() input tensor must be either float or double dtype, got {input.dtype.name}")
    if q.ndim > 1:
        raise OpError(f"{name}() q must be a scalar or 1D tensor, got shape {q.shape}")
    if q.dtype is not input.dtype:
        raise OpError(f"{name}() q tensor must be same dtype as the input tensor, got {q.dtype.name}")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(f"{name}() interpolation must be one of {_INTERPOLATIONS}, got {interpolation!r}")


def _quantile(name, input, q, dim, keepdim, interpolation):
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        q = as_tensor(float(q), dtype=input.dtype if input.dtype.is_floating_point else None)
    _check_quantile(name, input, q, interpolation)
    if not input.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty, got shape {input.shape}")
    axis = None if dim is None else normalize_axis(name, dim, input.ndim)
    rows = reshape(input, 1, -1) if axis is None or input.ndim == 0 else movedim(input, axis, -1)
    values = _ranked(sort(rows).values, reshape(q, -1), interpolation, name == "nanquantile")
    return _quantile_shaped(values, input, q, axis, keepdim)


def _quantile_shaped(values, input, q, axis, keepdim):
    """(..., q) with q moved to the front, or dropped."""
    if axis is None or input.ndim == 0:
        kept = (1,) * input.ndim if keepdim else ()
    else:
        kept = tuple(1 if k == axis else d for k, d in enumerate(input.shape) if keepdim or k != axis)
    values = movedim(values, -1, 0)
    return reshape(values, (values.shape[0], *kept) if q.ndim else kept)


def _ranked(rows, q, interpolation, ignore_nan):
    """Elements of sorted rows at the ranks q (n - 1), interpolated."""
    nans = comparison.isnan(rows)
    count = rows.shape[-1] - nans.sum(-1, keepdim=True)
    last = to_dtype(arithmetic.maximum(count - 1, 0), rows.dtype)
    # A row with a NaN gives its last element, which is one.
    rank = q * last if ignore_nan else where(nans.any(-1, keepdim=True), float(rows.shape[-1] - 1), q * last)
    rank = {"lower": arithmetic.floor, "higher": arithmetic.ceil, "nearest": arithmetic.round_}.get(
        interpolation, lambda r: r
    )(rank)
    below = arithmetic.floor(rank)
    low = _along(rows, to_dtype(below, dtypes.int64), rows.ndim - 1, "gather")
    if interpolation not in ("linear", "midpoint"):
        return low
    high = _along(rows, to_dtype(arithmetic.ceil(rank), dtypes.int64), rows.ndim - 1, "gather")
    weight = rank - below if interpolation == "linear" else 0.5
    return low + weight * (high - low)


# --- counting ---------------------------------------------------------------------------------------------------------
def _values(x):
    return readable(x._data if state.frame is None and x._data is not None else x.detach().array)


def _sizing_values(x):
    """The numbers now: results whose shape they decide cannot wait."""
    return readable(x._data if state.frame is None and x._data is not None else array_that_sizes(x.detach()))


def bincount(input, weights=None, minlength=0):
    """How often each number 0, 1, 2 ... occurs in a vector of integers, or the sum of its weights."""
    if input.ndim != 1 or input.dtype.category > 1 or minlength < 0:
        raise OpError(
            f"bincount: only 1-d non-negative integral inputs and a non-negative minlength, got {input.dtype.name}"
            f"{input.shape} and minlength {minlength}"
        )
    if weights is not None and weights.shape != input.shape:
        raise OpError(f"bincount: input {input.shape} and weights {weights.shape} should have the same length")
    values = _sizing_values(input)
    try:
        counts = np.bincount(values, None if weights is None else _values(weights), minlength)
    except ValueError:
        # NumPy looks for the smallest as well, and a pass of our own would take a third as long as the counting.
        if values.size and values.min() < 0:
            raise OpError(f"bincount: input must have no negative elements, its smallest is {values.min()}") from None
        raise
    wanted = np.int64 if weights is None else np.float32 if weights.dtype is dtypes.float32 else np.float64
    counted = wrap(counts.astype(wanted, copy=False))
    return counted if weights is None else without_derivative("bincount", counted, weights)


def histc(input, bins=100, min=0, max=0):
    """Counts of the elements in equal bins from min to max (of the extremes, if both are equal)."""
    bins = whole_number("histc", "bins", bins)
    edges = _histogram_range("histc", input, bins, min, max)
    values = _values(input)
    return wrap(convert(_binned(values, bins, *edges), input.dtype))


def _histogram_range(name, input, bins, low, high):
    if bins <= 0:
        raise RuntimeError(f"{name}: bins must be > 0, but got {bins}")
    if low == high:
        values = _values(input)
        low, high = (values.min(), values.max()) if values.size else (0, 0)
        low, high = (low - 1, high + 1) if low == high else (low, high)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RuntimeError(f"{name}: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(f"{name}: max must be larger than min, got {low} and {high}")
    return float(low), float(high)


_Histogram = result_type("histogram", "hist", "bin_edges")
_Histogramdd = result_type("histogramdd", "hist", "bin_edges")


def histogram(input, bins=100, *, range=None, weight=None, density=False):
    """(hist, bin_edges): counts (or sums of weights) in bins, given by their number and range or by their edges."""
    if input.dtype.is_half:
        raise NotImplementedError(f"histogram: not implemented for {input.dtype.name}; convert with .float()")
    points = _values(input).reshape(-1, 1)
    edges = _edges("histogram", points[:, 0], bins, range, input.dtype)
    given = [x for x in (input, bins, weight) if isinstance(x, Tensor)]
    parts = _counted(points, [edges], [False], weight, density, input.dtype), wrap(edges)
    return _Histogram(*(without_derivative("histogram", part, *given) for part in parts))


def _edges(name, values, bins, range, dtype):
    if isinstance(bins, Tensor):
        return np.array(_values(bins), dtype.numpy)
    if bins <= 0:
        raise RuntimeError(f"{name}(): bins must be > 0, but got {bins}")
    low, high = (values.min(), values.max()) if range is None and values.size else range or (0.0, 1.0)
    if not (np.isfinite(low) and np.isfinite(high)) or low > high:
        raise RuntimeError(f"{name}(): range of [{low}, {high}] is not finite and rising")
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    return np.linspace(low, high, bins + 1, dtype=dtype.numpy)


def histogramdd(input, bins, *, range=None, weight=None, density=False):
    """(hist, bin_edges) of points, one a row of the last dimension: bins are numbers, or edges, of each dimension.

    Edges are taken as they are given: what does not rise is searched all the same, as in PyTorch.
    """
    points = _values(input).reshape(-1, input.shape[-1])
    count = points.shape[1]
    bins = list(bins) if isinstance(bins, (list, tuple)) else [bins] * count
    if len(bins) != count:
        raise RuntimeError(
            f"histogramdd(): the size of bins must be equal to the innermost dimension: {len(bins)}, {count}"
        )
    ranges = [None] * count if range is None else list(zip(range[::2], range[1::2]))
    edges = [_edges("histogramdd", points[:, k], b, ranges[k], input.dtype) for k, b in enumerate(bins)]
    even = [not isinstance(b, Tensor) for b in bins]
    given = [x for x in (input, *bins, weight) if isinstance(x, Tensor)]
    parts = [_counted(points, edges, even, weight, density, input.dtype), *map(wrap, edges)]
    hist, *edges = (without_derivative("histogramdd", part, *given) for part in parts)
    return _Histogramdd(hist, tuple(edges))


def _counted(points, edges, even, weight, density, dtype):
    """How many points (the sum of whose weights) lie in each of the bins between the edges of all dimensions; those
    of `even` dimensions are found by the width of the bins."""
    inside = np.ones(len(points), bool)
    for column, own in zip(points.T, edges):
        inside &= (column >= own[0]) & (column <= own[-1])
    place, shape = 0, tuple(len(own) - 1 for own in edges)
    for column, own, is_even, size in zip(points[inside].T, edges, even, shape):
        found = _steps_from(column, own) if is_even else _behind(column, own) - 1
        place = place * size + np.minimum(found, size - 1)
    weights = None if weight is None else _values(weight).reshape(-1)[inside]
    place = np.broadcast_to(place, (int(inside.sum()),))
    hist = np.bincount(place, weights, prod(shape)).reshape(shape)
    if density:
        with np.errstate(all="ignore"):
            hist = hist / hist.sum()
            for axis, own in enumerate(edges):
                hist = hist / np.diff(own).reshape(-1, *(1,) * (len(edges) - 1 - axis))
    return wrap(convert(np.asarray(hist), dtype))


def _steps_from(values, edges):
    return ((values - edges[0]) * (len(edges) - 1) / (edges[-1] - edges[0])).astype(np.int64)


def _behind(values, edges):
    """How many edges a binary search finds at or below each value, also where they do not rise."""
    if (edges[1:] >= edges[:-1]).all():
        return np.searchsorted(edges, values, "right")
    first, length = np.zeros(values.shape, np.int64), np.full(values.shape, len(edges))
    while length.any():
        half = length >> 1
        above = (length > 0) & ~(values < edges[np.minimum(first + half, len(edges) - 1)])
        first = np.where(above, first + half + 1, first)
        length = np.where(above, length - half - 1, half)
    return first


def _binned(values, bins, low, high):
    values = values.reshape(-1)
    kept = values[(values >= low) & (values <= high)]
    positions = ((kept - low) * (bins / (high - low))).astype(np.int64)
    return np.bincount(np.minimum(positions, bins - 1), minlength=bins)


# --- sets -------------------------------------------------------------------------------------------------------------
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct elements (slices along dim) in order; with them, if asked, where each input went and how many."""
    values, axis = _sizing_values(input), None if dim is None else normalize_axis("unique", dim, input.ndim)
    _check_unique_axis("unique", values, axis)
    if axis is None:
        found, inverse, counts = distinct(values, return_inverse)
    else:
        found, inverse, counts = np.unique(values, return_inverse=True, return_counts=True, axis=axis, equal_nan=False)
        inverse = inverse.reshape(-1)
    result = without_derivative("unique", wrap(np.ascontiguousarray(convert(found, input.dtype))), input)
    return _chosen(result, inverse, counts, return_inverse, return_counts)


def _check_unique_axis(name, values, axis):
    others = () if axis is None else values.shape[:axis] + values.shape[axis + 1 :]
    if 0 in others and values.shape[axis] == 0:
        raise RuntimeError(f"{name}: There are 0 sized dimensions, and they aren't selected: {values.shape}")


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The input without repetitions of the element (the slice along dim) before."""
    values = _sizing_values(input)
    axis = None if dim is None else normalize_axis("unique_consecutive", dim, input.ndim)
    rows = values.reshape(-1) if axis is None else np.moveaxis(values, axis, 0)
    new = np.ones(len(rows), bool)
    if len(rows) > 1:
        new[1:] = (rows[1:] != rows[:-1]).reshape(len(rows) - 1, -1).any(1)
    starts = np.flatnonzero(new)
    inverse, counts = np.cumsum(new) - 1, np.diff(np.append(starts, len(rows)))
    found = rows[starts] if axis is None else np.moveaxis(rows[starts], 0, axis)
    inverse = inverse.reshape(values.shape) if axis is None else inverse
    found = wrap(np.ascontiguousarray(convert(found, input.dtype)))
    result = without_derivative("unique_consecutive", found, input)
    return _chosen(result, inverse, counts, return_inverse, return_counts)


def _chosen(found, inverse, counts, return_inverse, return_counts):
    result = [found]
    if return_inverse:
        result.append(wrap(np.asarray(inverse, np.int64)))
    if return_counts:
        result.append(wrap(np.asarray(counts, np.int64)))
    return tuple(result) if len(result) > 1 else result[0]


def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Whether each element is one of test_elements."""
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise TypeError(f"isin(): needs a Tensor among its arguments, got {elements!r} and {test_elements!r}")
    if isinstance(elements, Tensor) and isinstance(test_elements, Tensor):
        found = is_one_of(elements, test_elements, bool(invert))
        if found is not None:
            return found
    arrays = [_values(x) if isinstance(x, Tensor) else np.asarray(x) for x in (elements, test_elements)]
    return wrap(np.asarray(np.isin(*arrays, invert=invert)))


# --- searching --------------------------------------------------------------------------------------------------------
def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """Where each number of input would enter the sorted rows: before equal ones, or with side="right" behind them."""
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted(): side can only be 'left' or 'right' but got {side!r}")
    if side == "left" and right:
        raise RuntimeError(
            "searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    if sorter is not None:
        _check_sorter(sorted_sequence, sorter)
        sorted_sequence = ordering.ordered(sorted_sequence, sorter, axis=sorted_sequence.ndim - 1, of="gather")
    sorted_sequence, input = alike(*tensors("searchsorted", sorted_sequence, input))
    return ordering.searchsorted(sorted_sequence, input, right=right or side == "right", narrow=bool(out_int32))


def _check_sorter(sequence, sorter):
    if sorter.shape != sequence.shape or sorter.dtype is not dtypes.int64:
        raise OpError(
            f"searchsorted(): boundary {sequence.shape} and sorter must have the same size, and the sorter type int64; "
            f"got {sorter.dtype.name}{sorter.shape}"
        )
    values = _values(sorter)
    if values.size and (values.min() < 0 or values.max() >= sequence.shape[-1]):
        raise OpError("searchsorted(): sorter index out of range")


def bucketize(input, boundaries, *, out_int32=False, right=False):
    """The number of the interval between boundaries that each element falls in."""
    if boundaries.ndim != 1:
        raise OpError(f"bucketize: boundaries tensor must be 1 dimension, but got shape {boundaries.shape}")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


# --- draws ------------------------------------------------------------------------------------------------------------
def multinomial(input, num_samples, replacement=False, *, generator=None):
    """Positions drawn with the probabilities of each row, num_samples of them."""
    weights = _checked_weights(input, num_samples, replacement)
    shape = (*input.shape[:-1], num_samples if replacement else input.shape[-1])
    draws = _values(random.uniform(shape, dtypes.float64, generator))
    if replacement:
        totals, has_rows = weights.cumsum(-1), weights.ndim > 1
        looked_for = draws * totals[..., -1:]
        rows = has_rows and ordering.searchsorted(wrap(totals), wrap(looked_for), right=True, narrow=False)
        drawn = _values(rows) if has_rows else totals.searchsorted(looked_for, "right")
        last = weights.shape[-1] - 1 - (weights[..., ::-1] > 0).argmax(-1)[..., None]
        return wrap(np.minimum(drawn, last).astype(np.int64))
    # The largest of log(u) / weight, one after the other: Efraimidis and Spirakis (2006).
    with np.errstate(divide="ignore", invalid="ignore"):
        keys = np.fmax(np.log1p(-draws) / weights, -np.inf)
    if num_samples == 1:
        return wrap(keys.argmax(-1, keepdims=True).astype(np.int64, copy=False))
    return ordering.first_positions(wrap(keys), axis=keys.ndim - 1, descending=True, k=num_samples)


def _checked_weights(input, num_samples, replacement):
    if input.ndim not in (1, 2):
        raise OpError(f"multinomial: prob_dist must be 1 or 2 dim, got shape {input.shape}")
    if not input.dtype.is_floating_point:
        raise OpError(f"multinomial only supports floating-point dtypes for input, got: {input.dtype.name}")
    if num_samples <= 0:
        raise RuntimeError(f"cannot sample n_sample <= 0 samples, got {num_samples}")
    weights = _values(input).astype(np.float64)
    if not replacement and num_samples > weights.shape[-1]:
        raise RuntimeError(f"cannot sample n_sample > prob_dist.size(-1) samples without replacement: {num_samples}")
    totals = weights.sum(-1)
    # Finite sums of what is not negative tell most; a sum of finite weights may be too large, too.
    is_sure = weights.size and weights.min() >= 0 and np.isfinite(totals).all()
    if not is_sure and (not np.isfinite(weights).all() or (weights < 0).any()):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if weights.size and (totals <= 0).any():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    return weights


METHODS = str.split("""
    argsort sort msort topk kthvalue median nanmedian mode quantile nanquantile bincount histc unique unique_consecutive
    multinomial histogram
""")
PUBLIC = [*METHODS, *str.split("isin searchsorted bucketize histogramdd")]
