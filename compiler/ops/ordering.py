"""Sorting and searching: positions are computed first, and values are read at them, so derivatives are gather's.

NaN is the largest of all numbers, as in PyTorch, and equal elements keep their order.
"""

from math import prod

import numpy as np

from .. import dtypes
from ..extent import is_open
from ..kernels.library import Routine
from ..later import later
from . import samples
from .arithmetic import div, maximum, sub
from .comparison import cast, eq, logical_and, logical_or, lt, ne, where
from .indexing import gather, scatter_add
from .kinds import alias, composite, library, routine
from .pointwise import bitwise_right_shift
from .reduction import sum_
from .samples import Sample
from .source import zeros_like
from .table import Meta, OpError
from .view import along_rows, reshape, slice_

_CASES = (((5,), 0), ((2, 5), 1), ((5, 2), 0), ((2, 4, 3), 1))


def _axis_samples(**attributes):
    return lambda: [
        Sample((samples.integers(k, s, 0, 4),), {"axis": a, **attributes}) for k, (s, a) in enumerate(_CASES)
    ]


def _positions_like(operands, attributes):
    return Meta(operands[0].shape, dtypes.int64)


def _with_keys(operands, default_float):
    """bools are sorted as integers."""
    (x,) = operands
    return (dtypes.int32 if x.dtype is dtypes.bool_ else x.dtype,), dtypes.int64


def _sort(name):
    return later(f"compiler.emit.sort:{name}")


_buffer_length, _selects = _sort("buffer_length"), _sort("selects")


def _cost_ns(shape):
    """Passes over records, which take about 1.5 ns each."""
    return 8.0 * prod(shape)


sort_rows = routine(
    "sort_rows",
    _positions_like,
    Routine(
        "argsort",
        _sort("emit_argsort"),
        lambda shape, a: (shape[-1], a["descending"]),
        _sort("argsort_scratch"),
        _cost_ns,
    ),
    compute_dtype=_with_keys,
    vjp=(None,),
    samples=lambda: [Sample((samples.integers(d, (3, 5), 0, 4),), {"descending": d}) for d in (False, True)],
    oracle=lambda torch, x, descending: torch.sort(x, descending=descending, stable=True).indices,
)
# The first k of those positions, for k that is small beside the length of a row.
top_rows = routine(
    "top_rows",
    lambda operands, attributes: Meta((*operands[0].shape[:-1], attributes["k"]), dtypes.int64),
    Routine(
        "top",
        _sort("emit_top"),
        lambda shape, a: (shape[-1], a["descending"], a["k"]),
        _sort("top_scratch"),
        lambda s: 0.5 * prod(s),
    ),
    compute_dtype=_with_keys,
    vjp=(None,),
    samples=lambda: [Sample((samples.integers(d, (3, 90), 0, 9),), {"descending": d, "k": 4}) for d in (False, True)],
    oracle=lambda torch, x, descending, k: torch.sort(x, descending=descending, stable=True).indices[:, :k],
)


# Of every element along the axis, where it was; in order, equal ones as they were. NaN is the largest.
argsort = alias(
    "argsort",
    lambda x, axis, descending: along_rows(x, axis, lambda rows: sort_rows(rows, descending=descending)),
    vjp=(None,),
    samples=lambda: _axis_samples(descending=False)() + _axis_samples(descending=True)(),
    oracle=lambda torch, x, axis, descending: torch.sort(x, dim=axis, descending=descending, stable=True).indices,
)


def _first_along(x, axis, descending, k):
    size = x.shape[axis] if x.shape else 1
    if k > 0 and (2 * _buffer_length(k) <= size or _selects(x.dtype.size_bytes, size, k)):
        return along_rows(x, axis, lambda rows: top_rows(rows, descending=descending, k=k))
    found = argsort(x, axis=axis, descending=descending)
    kept = tuple((0, 1, k if a == axis else d) for a, d in enumerate(x.shape))
    return slice_(found, spec=kept) if x.shape else found


# The first k of those positions.
first_positions = alias(
    "first_positions",
    _first_along,
    vjp=(None,),
    samples=lambda: (
        [Sample((samples.integers(0, (3, 90), 0, 9),), {"axis": 1, "descending": True, "k": k}) for k in (2, 60)]
        + [Sample((samples.integers(1, (90, 3), 0, 9),), {"axis": 0, "descending": False, "k": 5})]
    ),
    oracle=lambda torch, x, axis, descending, k: torch.sort(
        x, dim=axis, descending=descending, stable=True
    ).indices.narrow(axis, 0, k),
)


# x read at positions that an ordering chose: gather under the name of the function that asked, as PyTorch's nodes have.
ordered = alias(
    "ordered",
    lambda x, index, axis, of: gather(x, index, axis=axis),
    vjp=(lambda g, out, x, index, axis, of: scatter_add(zeros_like(x), index, g, axis=axis), None),
    node_name=lambda operands, attributes: f"{attributes['of'].capitalize()}Backward0",
    samples=lambda: [
        Sample((samples.numbers(0, (3, 4)), samples.integers(1, (3, 2), 0, 4)), {"axis": 1, "of": "sort"})
    ],
    oracle=lambda torch, x, index, axis, of: x.gather(axis, index),
)


def _evenly(g, out, x, index, of):
    """The cotangent in equal parts for all that equal the element, as PyTorch has it of the median of all elements."""
    hits = logical_or(eq(x, out), logical_and(ne(x, x), ne(out, out)))
    count = sum_(cast(hits, dtype=g.dtype), axes=(0,), keepdim=False)
    return where(hits, div(g, count), 0.0)


# The element of a vector at a position of shape (), which stands for all that equal it.
one_of_equals = alias(
    "one_of_equals",
    lambda x, index, of: reshape(gather(x, reshape(index, shape=(1,)), axis=0), shape=()),
    vjp=(_evenly, None),
    node_name=lambda operands, attributes: f"{attributes['of'].capitalize()}Backward0",
    samples=lambda: [Sample((samples.numbers(0, (5,)), samples.integers(1, (), 0, 5)), {"of": "median"})],
    oracle=lambda torch, x, index, of: x[index],
)


def _dropped(name):
    def infer(operands, attributes):
        shape, axis = operands[0].shape, attributes["axis"]
        if shape and shape[axis] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size, got shape {tuple(shape)}")
        return Meta(shape[:axis] + shape[axis + 1 :], dtypes.int64)

    return infer


def _position_of_median(x, axis, ignore_nan):
    """The lower one of two in the middle; a NaN if there is one, unless NaNs are ignored."""
    if not x.shape:
        return argsort(x, axis=0, descending=False)
    numbers = sum_(cast(eq(x, x), dtype=dtypes.int64), axes=(axis,), keepdim=False)
    middle = bitwise_right_shift(maximum(sub(numbers, 1), 0), 1)
    if not ignore_nan:
        middle = where(lt(numbers, x.shape[axis]), numbers, middle)
    at = reshape(middle, shape=(*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return reshape(gather(argsort(x, axis=axis, descending=False), at, axis=axis), shape=middle.shape)


median_index = composite(
    "median_index",
    lambda operands, attributes, default_float: _dropped("median")(operands, attributes),
    _position_of_median,
    vjp=(None,),
    samples=lambda: [Sample((_distinct(k, s),), {"axis": a, "ignore_nan": False}) for k, (s, a) in enumerate(_CASES)],
    oracle=lambda torch, x, axis, ignore_nan: torch.median(x, axis).indices,
)


def _evaluate_rank(x, axis, rank):
    """Where the element of a rank is in the stable order of each row, without ordering the rest."""
    rows = np.moveaxis(x, axis, -1)
    largest = rows.max() if rows.size else 0
    if largest != largest:
        return np.asarray(np.argsort(rows, -1, kind="stable")[..., rank], np.int64)
    parted = np.partition(rows, rank, -1)
    found = parted[..., rank : rank + 1]
    equal, before = rows == found, rank - np.count_nonzero(parted[..., :rank] < found, -1)
    if not before.any():
        return np.asarray(equal.argmax(-1), np.int64)
    return np.asarray((np.cumsum(equal, -1) > before[..., None]).argmax(-1), np.int64)


# The position of the element of rank `rank`, counted from 0, that argsort gives: for eager mode, where orders of rows
# are not needed for anything else.
position_of_rank = library(
    "position_of_rank",
    _dropped("kthvalue"),
    _evaluate_rank,
    vjp=(None,),
    samples=lambda: [Sample((samples.integers(0, (3, 9), 0, 4),), {"axis": a, "rank": 1}) for a in (0, 1)],
    oracle=lambda torch, x, axis, rank: torch.sort(x, dim=axis, stable=True).indices.select(axis, rank),
)


def _distinct(seed, shape):
    return np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape(shape)


def _evaluate_mode(x, axis):
    """The last position of the most frequent element, of equally frequent ones the smallest."""
    if x.ndim == 0:
        return np.zeros((), np.int64)
    rows = x if axis == x.ndim - 1 else np.moveaxis(x, axis, -1)
    if 0 < x.size <= _FEW:
        found = [_mode_of_few(row) for row in rows.reshape(-1, rows.shape[-1]).tolist()]
        if None not in found:
            return np.array(found, np.int64).reshape(rows.shape[:-1])
    if x.size and not (x != x).any():
        return (_modes_of if x.size * x.shape[axis] <= _FEW_PAIRS else _modes_of_sorted)(rows)
    found = [_mode_of(row) for row in rows.reshape(-1, rows.shape[-1])]
    return np.asarray(found, np.int64).reshape(rows.shape[:-1])


_FEW, _FEW_PAIRS = 1 << 5, 1 << 12


def _mode_of_few(row):
    """The same of a list of so few numbers that NumPy's functions take longer to be called; None if one is NaN."""
    counts = {}
    for x in row:
        if x != x:
            return None
        counts[x] = counts.get(x, 0) + 1
    most = max(counts.values())
    smallest = min([x for x, n in counts.items() if n == most])
    return max([k for k, x in enumerate(row) if x == smallest])


def _modes_of(rows):
    """The same of short rows without NaN, all at once: every element is compared with every other of its row."""
    counts = (rows[..., None] == rows[..., None, :]).sum(-1)
    is_frequent = counts == counts.max(-1, keepdims=True)
    smallest = np.where(is_frequent, rows, rows.max(-1, keepdims=True)).min(-1, keepdims=True)
    return np.asarray(rows.shape[-1] - 1 - (is_frequent & (rows == smallest))[..., ::-1].argmax(-1), np.int64)


def _modes_of_sorted(rows):
    """The same of longer rows: equal elements of a sorted row are runs, of which the first of the longest is wanted."""
    n = rows.shape[-1]
    ordered = np.sort(rows, -1).reshape(-1, n)
    begins = np.ones(ordered.shape, bool)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=begins[:, 1:])
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=ordered.size)
    of_rows = np.searchsorted(starts, np.arange(0, ordered.size, n))  # the first run of each row
    longest = np.maximum.reduceat(lengths, of_rows)
    is_longest = lengths == np.repeat(longest, np.diff(of_rows, append=len(starts)))
    candidates = np.flatnonzero(is_longest)
    chosen = starts[candidates[np.searchsorted(candidates, of_rows)]]
    values = ordered.reshape(-1)[chosen].reshape(*rows.shape[:-1], 1)
    return np.asarray(n - 1 - (rows == values)[..., ::-1].argmax(-1), np.int64)


def _mode_of(row):
    order = np.argsort(row, kind="stable")
    ends = np.flatnonzero(np.append(row[order][1:] != row[order][:-1], True))
    return order[ends[np.argmax(np.diff(ends, prepend=-1))]]


mode_index = library(
    "mode_index",
    _dropped("mode"),
    _evaluate_mode,
    vjp=(None,),
    samples=_axis_samples(),
    oracle=lambda torch, x, axis: torch.mode(x, axis).indices,
)


# --- searching --------------------------------------------------------------------------------------------------------
def _searchsorted_infer(operands, attributes):
    sequence, values = operands
    if len(sequence.shape) != 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise OpError(
            f"searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor "
            f"and input value tensor must match, but we got boundaries tensor {sequence.shape} and input value tensor "
            f"{values.shape}"
        )
    return Meta(values.shape, dtypes.int32 if attributes["narrow"] else dtypes.int64)


def _evaluate_searchsorted(sequence, values, right, narrow):
    side, dtype = "right" if right else "left", np.int32 if narrow else np.int64
    if sequence.ndim == 1:
        return np.asarray(np.searchsorted(sequence, values, side), dtype)
    if not values.size:
        return np.zeros(values.shape, dtype)
    rows = sequence.reshape(-1, sequence.shape[-1]), values.reshape(-1, values.shape[-1])
    found = [np.searchsorted(s, v, side) for s, v in zip(*rows)]
    return np.asarray(found, dtype).reshape(values.shape)


_by_numpy = library(
    "searchsorted_by_numpy",
    _searchsorted_infer,
    _evaluate_searchsorted,
    vjp=(None, None),
    samples=lambda: [Sample((np.arange(5), samples.integers(1, (2, 3), -2, 7)), {"right": False, "narrow": False})],
    oracle=lambda torch, sequence, values, right, narrow: torch.searchsorted(sequence, values),
)


def _halvings(shape, attributes):
    # Too many do nothing, so where the length is known at run time only they are as many as any needs.
    n = attributes["n"]
    return (shape[-1], n, int(attributes["right"]), _LONGEST if is_open(n) else int(n).bit_length())


_LONGEST = 48
# Positions of values in sorted rows of n elements.
search_rows = routine(
    "search_rows",
    _positions_like,
    Routine(
        "search",
        later("compiler.emit.search:emit_search"),
        _halvings,
        lambda element, shape, a: 0,
        lambda s: 10.0 * prod(s),
    ),
    compute_dtype=lambda operands, default_float: (tuple(x.dtype for x in operands), dtypes.int64),
    vjp=(None,),
    samples=lambda: [
        Sample((samples.integers(r, (2, 6), -2, 9), np.arange(14).reshape(2, 7)), {"right": r, "n": 7})
        for r in (False, True)
    ],
    oracle=lambda torch, values, sequence, right, n: torch.searchsorted(sequence, values, right=right),
)


def _search(sequence, values, right, narrow):
    shape, n = values.shape, sequence.shape[-1]
    if len(sequence.shape) == 1:
        sequence, values = reshape(sequence, shape=(1, n)), reshape(values, shape=(1, prod(shape)))
    found = reshape(search_rows(values, sequence, right=right, n=n), shape=shape)
    return cast(found, dtype=dtypes.int32) if narrow else found


_searched = composite(
    "searchsorted",
    lambda operands, attributes, default_float: _searchsorted_infer(operands, attributes),
    _search,
    vjp=(None, None),
    samples=lambda: [
        Sample((np.arange(5), samples.integers(1, (2, 3), -2, 7)), {"right": r, "narrow": r}) for r in (False, True)
    ],
    oracle=lambda torch, sequence, values, right, narrow: torch.searchsorted(
        sequence, values, right=right, out_int32=narrow
    ),
)


def searchsorted(sequence, values, right, narrow):
    """Where values would enter sorted rows: by a routine, if it knows their type."""
    known = sequence.dtype.element in _SEARCHED and sequence.dtype is values.dtype
    is_own = known and 0 not in sequence.shape and 0 not in values.shape
    return (_searched if is_own else _by_numpy)(sequence, values, right=right, narrow=narrow)


_SEARCHED = ("f32", "f64", "i32", "i64")
