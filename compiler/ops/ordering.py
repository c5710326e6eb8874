"""Sorting and searching: positions are computed by NumPy, and values are read at them, so derivatives are gather's.

NaN is the largest of all numbers, as in PyTorch, and equal elements keep their order.
"""

import numpy as np

from .. import dtypes
from . import samples
from .indexing import gather, scatter_add
from .kinds import alias, library
from .samples import Sample
from .source import zeros_like
from .table import Meta, OpError

_CASES = (((5,), 0), ((2, 5), 1), ((5, 2), 0), ((2, 4, 3), 1))


def _axis_samples(**attributes):
    return lambda: [
        Sample((samples.integers(k, s, 0, 4),), {"axis": a, **attributes}) for k, (s, a) in enumerate(_CASES)
    ]


def _positions_like(operands, attributes):
    return Meta(operands[0].shape, dtypes.int64)


def _evaluate_argsort(x, axis, descending):
    if x.ndim == 0:
        return np.zeros((), np.int64)
    if not descending:
        return np.argsort(x, axis, kind="stable")
    # Stable means that the last of equal elements stays last: sorted backwards, and read backwards.
    last = x.shape[axis] - 1
    return np.flip(last - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


argsort = library(
    "argsort",
    _positions_like,
    _evaluate_argsort,
    vjp=(None,),
    samples=lambda: _axis_samples(descending=False)() + _axis_samples(descending=True)(),
    oracle=lambda torch, x, axis, descending: torch.sort(x, dim=axis, descending=descending, stable=True).indices,
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


def _dropped(name):
    def infer(operands, attributes):
        shape, axis = operands[0].shape, attributes["axis"]
        if shape and shape[axis] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size, got shape {tuple(shape)}")
        return Meta(shape[:axis] + shape[axis + 1 :], dtypes.int64)

    return infer


def _evaluate_median(x, axis, ignore_nan):
    """The lower one of two in the middle; a NaN if there is one, unless NaNs are ignored."""
    if x.ndim == 0:
        return np.zeros((), np.int64)
    order = np.argsort(x, axis, kind="stable")
    numbers = (x == x).sum(axis, keepdims=True)
    middle = np.maximum(numbers - 1, 0) // 2
    if not ignore_nan:
        middle = np.where(numbers < x.shape[axis], numbers, middle)
    return np.take_along_axis(order, middle, axis).squeeze(axis)


median_index = library(
    "median_index",
    _dropped("median"),
    _evaluate_median,
    vjp=(None,),
    samples=lambda: [Sample((_distinct(k, s),), {"axis": a, "ignore_nan": False}) for k, (s, a) in enumerate(_CASES)],
    oracle=lambda torch, x, axis, ignore_nan: torch.median(x, axis).indices,
)


def _distinct(seed, shape):
    return np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape(shape)


def _evaluate_mode(x, axis):
    """The last position of the most frequent element, of equally frequent ones the smallest."""
    if x.ndim == 0:
        return np.zeros((), np.int64)
    rows = np.moveaxis(x, axis, -1)
    found = [_mode_of(row) for row in rows.reshape(-1, rows.shape[-1])]
    return np.asarray(found, np.int64).reshape(rows.shape[:-1])


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


searchsorted = library(
    "searchsorted",
    _searchsorted_infer,
    _evaluate_searchsorted,
    vjp=(None, None),
    samples=lambda: [
        Sample((np.arange(5), samples.integers(1, (2, 3), -2, 7)), {"right": r, "narrow": r}) for r in (False, True)
    ],
    oracle=lambda torch, sequence, values, right, narrow: torch.searchsorted(
        sequence, values, right=right, out_int32=narrow
    ),
)
