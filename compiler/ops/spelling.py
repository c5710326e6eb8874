"""Other spellings of primitives that have a node of their own in PyTorch's graphs: the value is the primitive's.

Each states its derivative where deriving it from the decomposition would compute the value again.
"""

import math

from .. import dtypes
from . import samples
from .arithmetic import add, mul
from .comparison import cast, ge, le, where
from .contraction import bmm, check_dtypes, integers_only_eager, swap_last
from .indexing import gather, index_add, index_select, scatter_add
from .kinds import alias, number_meta
from .reduction import amax, amin, total_extreme_vjp
from .samples import Sample
from .source import arange, full, full_like, zeros_like
from .table import OpError
from .transcendental import pow_
from .view import PART, as_slices, cat, clone, expand, reshape, select, select_at, select_vjp, slice_, slice_scatter


def _matrix(seed=0, shape=(3, 4)):
    return samples.numbers(seed, shape)


# --- number ** tensor -------------------------------------------------------------------------------------------------
def _rpow(exponent, base):
    return pow_(exponent.apply_op(full, (base,), {"shape": (), "dtype": exponent.dtype}), exponent)


def _rpow_vjp(g, out, exponent, base):
    """Where the base is 0, out log(base) is 0 times -inf: its limit for exponents that are not negative is 0."""
    if base == 0:
        return where(ge(exponent, 0.0), 0.0, mul(g, mul(out, -math.inf)))
    return mul(g, mul(out, math.log(base) if base > 0 else math.nan))


rpow = alias(
    "rpow",
    _rpow,
    vjp=(_rpow_vjp,),
    node_name="PowBackward2",
    samples=lambda: [Sample((_matrix(),), {"base": b}) for b in (2.0, 0.5)],
)


# --- extremes ---------------------------------------------------------------------------------------------------------
def _all_axes(x):
    return tuple(range(len(x.shape)))


def _total_extreme(name, op):
    return alias(
        name,
        lambda x: op(x, axes=_all_axes(x), keepdim=False),
        vjp=(lambda g, out, x: total_extreme_vjp(g, out, x, _all_axes(x)),),
        node_name=f"{name.capitalize()}Backward1",
        samples=lambda: [Sample((_matrix(),)), Sample((samples.numbers(1, ()),))],
        oracle=name,
    )


max_ = _total_extreme("max", amax)
min_ = _total_extreme("min", amin)


def _column(index, axis):
    return reshape(index, shape=(*index.shape[:axis], 1, *index.shape[axis:]))


def _pick_vjp(g, out, x, index, axis, of):
    return scatter_add(zeros_like(x), _column(index, axis), _column(g, axis), axis=axis)


# The element of every row at the row's index, the axis dropped: `of` says which function chose the index.
pick = alias(
    "pick",
    lambda x, index, axis, of: reshape(gather(x, _column(index, axis), axis=axis), shape=index.shape),
    vjp=(_pick_vjp, None),
    node_name=lambda operands, attributes: f"{attributes['of'].capitalize()}Backward0",
    samples=lambda: [Sample((_matrix(), samples.integers(1, (3,), 0, 4)), {"axis": 1, "of": "max"})],
)


# --- parts ------------------------------------------------------------------------------------------------------------
# One of the results of split: `of` is Split or SplitWithSizes.
part = alias(
    "part",
    lambda x, spec, of: slice_(x, spec=spec),
    evaluate=lambda x, spec, of: x[as_slices(spec)],
    vjp=(lambda g, out, x, spec, of: slice_scatter(zeros_like(x), g, spec=spec),),
    node_name=lambda operands, attributes: f"{attributes['of']}Backward0",
    traits=PART,
    extra={"view": True},
    samples=lambda: [Sample((_matrix(),), {"spec": ((0, 1, 3), (1, 1, 2)), "of": "Split"})],
)


unbind_part = alias(
    "unbind_part",
    select_at,
    evaluate=select.evaluate,
    vjp=(select_vjp,),
    node_name="UnbindBackward0",
    traits=PART,
    extra={"view": True},
    samples=lambda: [Sample((_matrix(),), {"axis": 1, "index": 2})],
)


# The slice with steps of -1 that flip asks for, as a copy.
flip = alias(
    "flip",
    lambda x, spec: clone(slice_(x, spec=spec)),
    vjp=(lambda g, out, x, spec: flip(g, spec=spec),),
    on_complex=True,
    samples=lambda: [Sample((_matrix(),), {"spec": ((2, -1, 3), (0, 1, 4))})],
)


# x[index tensors]: `merged` is x's shape with the indexed axes as one.
def _index_vjp(g, out, x, index, axis, merged):
    return reshape(index_add(zeros_like(reshape(x, shape=merged)), index, g, axis=axis), shape=x.shape)


index_ = alias(
    "index",
    lambda x, index, axis, merged: index_select(reshape(x, shape=merged), index, axis=axis),
    vjp=(_index_vjp, None),
    on_complex=True,
    samples=lambda: [
        Sample((_matrix(), samples.integers(1, (2, 5), 0, 12)), {"axis": 0, "merged": (12,)}),
        Sample((_matrix(), samples.integers(2, (3,), 0, 4)), {"axis": 1, "merged": (3, 4)}),
    ],
)


# --- what is overwritten ----------------------------------------------------------------------------------------------
def _overwriting(name, decompose, samples_of, oracle):
    """`new` where `old` was: the derivative of what was there is 0, and it keeps its place in the graph. `node` is the
    name of the node."""
    return alias(
        name,
        decompose,
        vjp=(lambda g, out, old, new, node: zeros_like(g), lambda g, out, old, new, node: g),
        on_complex=True,
        node_name=lambda operands, attributes: attributes["node"],
        samples=lambda: [Sample((_matrix(), new), {"node": "CopyBackwards"}) for new in samples_of()],
        oracle=oracle,
    )


# By a tensor of old's type, and by a number.
overwritten = _overwriting(
    "overwritten",
    lambda old, new, node: clone(expand(new, shape=old.shape)),
    lambda: (_matrix(1), samples.numbers(2, ())),
    lambda torch, old, new, node: old.clone().copy_(new),
)
refilled = _overwriting(
    "refilled",
    lambda old, new, node: full_like(old, new),
    lambda: (0.5, 2),
    lambda torch, old, new, node: old.clone().fill_(new),
)


# --- masks ------------------------------------------------------------------------------------------------------------
def _of_category(value, x):
    """The value converted to x's type, if its category (bool, integer, floating) is higher."""
    is_number = not hasattr(value, "dtype")
    if (number_meta(value) if is_number else value).dtype.category <= x.dtype.category:
        return value
    if is_number:
        return x.apply_op(full, (value,), {"shape": (), "dtype": x.dtype})
    return cast(value, dtype=x.dtype)


masked_fill = alias(
    "masked_fill",
    lambda x, mask, value: where(mask, _of_category(value, x), x),
    vjp=(
        lambda g, out, x, mask, value: where(mask, 0.0, g),
        None,
        lambda g, out, x, mask, value: where(mask, g, 0.0),
    ),
    on_complex=True,
    node_name=lambda operands, attributes: f"MaskedFillBackward{int(hasattr(operands[2], 'shape'))}",
    samples=lambda: [Sample((_matrix(), samples.bools(1, (4,)), 0.5))],
    oracle="masked_fill",
)


def _triangle(name, keep):
    """The elements of the last two dimensions where keep(column, row + diagonal), the rest zero."""

    def decompose(x, diagonal):
        if len(x.shape) < 2:
            raise OpError(f"{name}: input must have at least 2 dimensions, got shape {x.shape}")
        rows, columns = x.shape[-2:]
        row = x.apply_op(arange, (diagonal, 1), {"shape": (rows,), "dtype": dtypes.int64})
        column = x.apply_op(arange, (0, 1), {"shape": (columns,), "dtype": dtypes.int64})
        return where(keep(column, reshape(row, shape=(rows, 1))), x, False)

    return alias(
        name,
        decompose,
        vjp=(lambda g, out, x, diagonal: decompose(g, diagonal),),
        on_complex=True,
        samples=lambda: [Sample((samples.numbers(0, (2, 3, 4)),), {"diagonal": k}) for k in (0, 1, -1)],
        oracle=name,
    )


tril = _triangle("tril", le)
triu = _triangle("triu", ge)


# --- parts that change places -----------------------------------------------------------------------------------------
def _roll(x, cuts, axes):
    """What begins at `cut` along each axis, and behind it what was before."""
    for cut, axis in zip(cuts, axes):
        parts = [
            slice_(x, spec=tuple((start, 1, length) if k == axis else (0, 1, d) for k, d in enumerate(x.shape)))
            for start, length in ((cut, x.shape[axis] - cut), (0, cut))
        ]
        x = cat(*parts, axis=axis)
    return x


# Every cut is inside of its dimension.
roll = alias(
    "roll",
    _roll,
    vjp=(lambda g, out, x, cuts, axes: _roll(g, [x.shape[k] - cut for cut, k in zip(cuts, axes)], axes),),
    on_complex=True,
    samples=lambda: [
        Sample((_matrix(),), {"cuts": cuts, "axes": axes})
        for cuts, axes in (((1,), (0,)), ((3,), (1,)), ((2, 1), (0, 1)))
    ],
    oracle=lambda torch, x, cuts, axes: torch.roll(x, [-cut for cut in cuts], axes),
)


# --- bias + x @ y -----------------------------------------------------------------------------------------------------
def _addmm(bias, x, y):
    check_dtypes("addmm", (x, y), integers=True)
    if len(x.shape) != 2 or len(y.shape) != 2:
        raise OpError(f"addmm: mat1 and mat2 must be matrices, got shapes {x.shape} and {y.shape}")
    return add(bias, bmm(x, y))


addmm = alias(
    "addmm",
    _addmm,
    vjp=(
        lambda g, out, bias, x, y: g,
        lambda g, out, bias, x, y: bmm(g, swap_last(y)),
        lambda g, out, bias, x, y: bmm(swap_last(x), g),
    ),
    on_complex=True,
    samples=lambda: [Sample((samples.numbers(0, (4,)), _matrix(1, (2, 3)), _matrix(2)))],
    oracle="addmm",
    extra={"eager_only": integers_only_eager},
)
