"""Parts of tensors at places that are numbers of their own: calls of a compiled function take other ones each time."""

from .. import dtypes
from . import samples
from .indexing import index_put, index_select
from .kinds import composite
from .samples import Sample
from .source import full, zeros_like
from .table import Meta
from .view import reshape


def _row_infer(operands, attributes, default_float):
    x, axis = operands[0], attributes["axis"]
    return Meta((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype)


def _at(x, k, shape):
    return x.apply_op(full, (k,), {"shape": shape, "dtype": dtypes.int64})


def _row_vjp(g, out, x, k, axis):
    return with_row(zeros_like(x), g, k, axis=axis)


def _with_row(x, part, k, axis):
    whole = reshape(part, shape=(*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return index_put(x, _at(x, k, (1,)), whole, axis=axis, merged=x.shape)


def _row_types(operands, default_float):
    return tuple(o.dtype for o in operands), operands[0].dtype


# A copy of x with part as its row.
with_row = composite(
    "with_row",
    lambda operands, attributes, default_float: Meta(operands[0].shape, operands[0].dtype),
    _with_row,
    vjp=(
        lambda g, out, x, part, k, axis: with_row(g, zeros_like(part), k, axis=axis),
        lambda g, out, x, part, k, axis: row(g, k, axis=axis),
        None,
    ),
    node_name="SliceScatterBackward0",
    compute_dtype=_row_types,
    samples=lambda: [Sample((samples.numbers(0, (2, 3, 4)), samples.numbers(1, (2, 4)), 2), {"axis": 1})],
    oracle=lambda torch, x, part, k, axis: torch.select_scatter(x, part, axis, k),
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
