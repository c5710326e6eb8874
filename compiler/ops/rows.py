"""Parts of tensors at places that are numbers of their own: calls of a compiled function take other ones each time."""

from .. import dtypes
from . import samples
from .indexing import index_put, index_select
from .kinds import composite
from .samples import Sample
from .source import full, zeros_like
from .table import Meta, OpError
from .view import reshape


def _require_place(name, place):
    if place.dtype is not dtypes.int64:
        raise OpError(f"{name}: the place of a row must be an int, got {place.dtype.name}")


def _row_infer(operands, attributes, default_float):
    x, axis = operands[0], attributes["axis"]
    _require_place("row", operands[1])
    return Meta((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype)


def _at(x, k, shape):
    return x.apply_op(full, (k,), {"shape": shape, "dtype": dtypes.int64})


def _row_vjp(g, out, x, k, axis):
    whole = reshape(g, shape=(*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return with_row(zeros_like(x), whole, k, axis=axis)


def _row_types(operands, default_float):
    return tuple(o.dtype for o in operands), operands[0].dtype


def _with_row_infer(operands, attributes, default_float):
    _require_place("with_row", operands[2])
    return Meta(operands[0].shape, operands[0].dtype)


# A copy of x with part, which has an axis of one place, as its row.
with_row = composite(
    "with_row",
    _with_row_infer,
    lambda x, part, k, axis: index_put(x, _at(x, k, (1,)), part, axis=axis, merged=x.shape),
    vjp=(
        lambda g, out, x, part, k, axis: with_row(g, zeros_like(part), k, axis=axis),
        lambda g, out, x, part, k, axis: reshape(row(g, k, axis=axis), shape=part.shape),
        None,
    ),
    node_name="SliceScatterBackward0",
    compute_dtype=_row_types,
    samples=lambda: [Sample((samples.numbers(0, (2, 3, 4)), samples.numbers(1, (2, 1, 4)), 2), {"axis": 1})],
    oracle=lambda torch, x, part, k, axis: torch.select_scatter(x, part.squeeze(axis), axis, k),
)


# x[k] along an axis, 0 <= k < size. Where calls of a compiled function take other parts of a tensor each time, k is a
# number that its program is given.
row = composite(
    "row",
    _row_infer,
    lambda x, k, axis: index_select(x, _at(x, k, ()), axis=axis),
    vjp=(_row_vjp, None),
    node_name="SelectBackward0",
    compute_dtype=_row_types,
    samples=lambda: [Sample((samples.numbers(0, (2, 3, 4)), 2), {"axis": 1})],
    oracle=lambda torch, x, k, axis: torch.select(x, axis, k),
)
