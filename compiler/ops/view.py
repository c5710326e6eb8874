"""Views: the same elements under another index map. No data moves where an index map can say it.

A view's `lower` maps the operand's strides and offset (in elements) to the result's: (shape, strides, offset,
**attributes) -> (strides, offset), or None where no strides can say it and a copy is needed.
"""

from functools import reduce

import numpy as np

from ..dtypes import promote
from ..extent import divides
from ..kernels.kernel import View
from ..kernels.loop import Copy
from ..kernels.nest import Change, Join
from ..shapes import contiguous_strides, infer_reshape, normalize_axis
from ..storage import expanded
from . import samples
from .kinds import alias
from .samples import Sample
from .source import full, zeros_like
from .table import Meta, Op, OpError, register

VIEW = View()


# It shows some elements of its operand, each once; its derivative puts their cotangents there, into zeros.
PART = frozenset(["part"])


def _view(name, infer, evaluate, vjp, lower, make_samples, **facts):
    def checked(operands, attributes, default_float):
        return Meta(infer(operands[0].shape, **attributes), operands[0].dtype)

    return register(Op(name, "view", checked, evaluate, vjp, lower, samples=make_samples, kernel=VIEW, **facts))


# --- reshape --------------------------------------------------------------------------------------------------------
def _reshape_strides(old_shape, strides, offset, shape):
    """Strides of a reshape without a copy, or None. Walks both shapes in blocks of equal element counts."""
    shape = infer_reshape("reshape", old_shape, shape)
    if 0 in shape:
        return contiguous_strides(shape), offset
    # Merge neighbouring old dimensions that are contiguous with each other.
    merged = []
    for d, s in ((d, s) for d, s in zip(old_shape, strides) if d != 1):
        if merged and merged[-1][1] == d * s:
            merged[-1] = (merged[-1][0] * d, s)
        else:
            merged.append((d, s))
    result, k = [], 0
    remaining, step = merged[0] if merged else (1, 1)
    for d in shape:
        if d == 1:
            result.append(step)
            continue
        if remaining == 1 and k + 1 < len(merged):
            k += 1
            remaining, step = merged[k]
        if not divides(d, remaining):
            return None
        remaining //= d
        result.append(step * remaining)
    return tuple(result), offset


reshape = _view(
    "reshape",
    lambda old, shape: infer_reshape("reshape", old, shape),
    lambda x, shape: x.reshape(shape),
    (lambda g, out, x, shape: reshape(g, shape=x.shape),),
    _reshape_strides,
    lambda: [
        Sample((samples.numbers(k, s),), {"shape": t})
        for k, (s, t) in enumerate((((2, 3), (3, 2)), ((), (1, 1)), ((4, 3, 2), (12, 2)), ((0, 3), (3, 0))))
    ],
    node_name="ViewBackward0",
    traits=frozenset(["row-major"]),
)


# --- permute --------------------------------------------------------------------------------------------------------
def _permute_infer(shape, axes):
    if sorted(axes) != list(range(len(shape))):
        raise OpError(f"permute: dims {axes} is not an order of the {len(shape)} dimensions of shape {tuple(shape)}")
    return tuple(shape[a] for a in axes)


def _inverse(axes):
    return tuple(int(k) for k in np.argsort(axes))


permute = _view(
    "permute",
    _permute_infer,
    lambda x, axes: x.transpose(axes),
    (lambda g, out, x, axes: permute(g, axes=_inverse(axes)),),
    lambda shape, strides, offset, axes: (tuple(strides[a] for a in axes), offset),
    lambda: [
        Sample((samples.numbers(k, s),), {"axes": a})
        for k, (s, a) in enumerate((((2, 3), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((), ()), ((0, 3), (1, 0))))
    ],
)


# --- expand ---------------------------------------------------------------------------------------------------------
def _expand_infer(old, shape):
    if len(shape) < len(old) or any(a not in (1, b) for a, b in zip(reversed(old), reversed(shape))):
        raise OpError(f"expand: shape {tuple(old)} cannot be expanded to {tuple(shape)}: only sizes of 1 stretch")
    return tuple(shape)


def _expand_strides(old, strides, offset, shape):
    lead = len(shape) - len(old)
    kept = tuple(0 if a != b else s for a, b, s in zip(old, shape[lead:], strides))
    return (0,) * lead + kept, offset


expand = _view(
    "expand",
    _expand_infer,
    expanded,
    # The caller sums the cotangent back to the operand's shape, as after every broadcast.
    (lambda g, out, x, shape: g,),
    _expand_strides,
    lambda: [
        Sample((samples.numbers(k, s),), {"shape": t})
        for k, (s, t) in enumerate((((3,), (2, 3)), ((2, 1), (2, 4)), ((), (2,)), ((1, 1), (3, 3))))
    ],
)


# The same memory, cut from the graph: no derivative.
detach = _view(
    "detach",
    lambda old: old,
    lambda x: x.view(),
    (None,),
    lambda old, strides, offset: (strides, offset),
    samples.unary(),
)

# The same, as a leaf that gradients end at: what requires_grad_() makes of a value of a compiled call.
leaf = _view(
    "leaf",
    lambda old: old,
    lambda x: x.view(),
    (None,),
    lambda old, strides, offset: (strides, offset),
    samples.unary(),
    oracle="detach",
)

# The same, as what an autograd.Function called `name` has made of some inputs: its derivative is Python of the user.
# inputs: numbers that a recorded call has given them.
connect = _view(
    "connect",
    lambda old, **_: old,
    lambda x, **_: x.view(),
    (None,),
    lambda old, strides, offset, **_: (strides, offset),
    lambda: [Sample((samples.numbers(0, (2, 3)),), {"inputs": (), "name": "Function"})],
    oracle=lambda torch, x, **_: x.detach(),
    node_name=lambda operands, attributes: f"{attributes['name']}Backward",
)

# The same, and changes made through it do not count for the versions of others: what `x.data` is.
data = _view(
    "data",
    lambda old: old,
    lambda x: x.view(),
    (None,),
    lambda old, strides, offset: (strides, offset),
    samples.unary(),
)


# --- slice ----------------------------------------------------------------------------------------------------------
# `spec` holds (start, step, length) for every axis: start and length in range, step not 0.
def _slice_infer(shape, spec):
    return tuple(length for _, _, length in spec)


def as_slices(spec):
    """The NumPy index of a spec. It ends in an ellipsis, so that what it picks from no dimensions is an array too."""
    slices = []
    for start, step, length in spec:
        stop = start + step * length
        slices.append(slice(start, stop if stop >= 0 else None, step))
    return (*slices, ...)


slice_ = _view(
    "slice",
    _slice_infer,
    lambda x, spec: x[as_slices(spec)],
    (lambda g, out, x, spec: slice_scatter(zeros_like(x), g, spec=spec),),
    lambda shape, strides, offset, spec: (
        tuple(s * step for s, (_, step, _) in zip(strides, spec)),
        offset + sum(s * start for s, (start, _, _) in zip(strides, spec)),
    ),
    traits=PART,
    make_samples=lambda: [
        Sample((samples.numbers(k, s),), {"spec": spec})
        for k, (s, spec) in enumerate(
            (
                ((5,), ((1, 2, 2),)),
                ((4, 6), ((0, 1, 4), (5, -1, 6))),
                ((4, 6), ((1, 1, 2), (0, 3, 2))),
                ((3,), ((1, 1, 0),)),
            )
        )
    ],
)


def _slice_scatter_infer(operands, attributes, default_float):
    base, part = operands
    wanted = tuple(length for _, _, length in attributes["spec"])
    if part.shape != wanted:
        raise OpError(f"slice_scatter: the part has shape {part.shape}, the slice of {base.shape} has {wanted}")
    return Meta(base.shape, base.dtype)


def _change_slices(base, part, spec):
    base[as_slices(spec)] = part


def _write_slice_scatter(writer):
    value = writer.value
    strides = contiguous_strides(value.shape)
    spec = value.attributes["spec"]
    writer.copy_operand(0, strides, 0)
    writer.copy_operand(
        1,
        tuple(s * step for s, (_, step, _) in zip(strides, spec)),
        sum(s * start for s, (start, _, _) in zip(strides, spec)),
    )


# `base` with the slice `spec` of it replaced by `part` (same type).
slice_scatter = register(
    Op(
        "slice_scatter",
        "movement",
        _slice_scatter_infer,
        vjp=(
            lambda g, out, base, part, spec: slice_scatter(g, zeros_like(part), spec=spec),
            lambda g, out, base, part, spec: slice_(g, spec=spec),
        ),
        change=_change_slices,
        kernel=Change(_write_slice_scatter),
        traits=frozenset(["moves"]),
        compute_dtype=lambda operands, default_float: ((operands[0].dtype,) * 2, operands[0].dtype),
        node_name="SliceScatterBackward0",
        samples=lambda: [
            Sample((samples.numbers(0, (5,)), samples.numbers(1, (2,))), {"spec": ((1, 2, 2),)}),
            Sample((samples.numbers(2, (4, 6)), samples.numbers(3, (4, 2))), {"spec": ((3, -1, 4), (1, 3, 2))}),
        ],
    )
)


# --- diagonal ---------------------------------------------------------------------------------------------------------
# In the matrices that two axes span, the elements (k, k + shift), as the last axis.
def corner(rows, columns, shift):
    """(row, column) of the first element, and how many there are."""
    row, column = max(-shift, 0), max(shift, 0)
    return row, column, max(min(rows - row, columns - column), 0)


def _diagonal_shape(shape, shift, axis0, axis1):
    kept = (d for k, d in enumerate(shape) if k not in (axis0, axis1))
    return (*kept, corner(shape[axis0], shape[axis1], shift)[2])


def _diagonal(x, shift, axis0, axis1):
    row, column, length = corner(x.shape[axis0], x.shape[axis1], shift)
    matrices = np.moveaxis(x, (axis0, axis1), (-2, -1))[..., row : row + length, column : column + length]
    # Unlike np.diagonal's, this view may be written to.
    return np.einsum("...ii->...i", matrices)


def _diagonal_strides(shape, strides, offset, shift, axis0, axis1):
    row, column, _ = corner(shape[axis0], shape[axis1], shift)
    kept = (s for k, s in enumerate(strides) if k not in (axis0, axis1))
    return (*kept, strides[axis0] + strides[axis1]), offset + row * strides[axis0] + column * strides[axis1]


def _diagonal_vjp(g, out, x, shift, axis0, axis1):
    """The cotangent in matrices of zeros, in which the next element of a diagonal is a row and a column further."""
    rows, columns, lead = x.shape[axis0], x.shape[axis1], g.shape[:-1]
    row, column, length = corner(rows, columns, shift)
    start = row * columns + column if length else 0
    zeros = g.apply_op(full, (0,), {"shape": (*lead, rows * columns), "dtype": g.dtype})
    placed = slice_scatter(zeros, g, spec=(*((0, 1, d) for d in lead), (start, columns + 1, length)))
    order = [k for k in range(len(x.shape)) if k not in (axis0, axis1)] + [axis0, axis1]
    return permute(reshape(placed, shape=(*lead, rows, columns)), axes=_inverse(order))


diagonal = _view(
    "diagonal",
    _diagonal_shape,
    _diagonal,
    (_diagonal_vjp,),
    _diagonal_strides,
    traits=PART,
    make_samples=lambda: [
        Sample((samples.numbers(k, s),), {"shift": shift, "axis0": a, "axis1": b})
        for k, (s, shift, a, b) in enumerate(
            (((3, 3), 0, 0, 1), ((3, 5), 1, 0, 1), ((4, 2, 3), -1, 0, 2), ((2, 3), 0, 1, 0), ((2, 2), 5, 0, 1))
        )
    ],
)


# --- other spellings, each with PyTorch's node name -----------------------------------------------------------------
def _transpose(x, axis0, axis1):
    order = list(range(len(x.shape)))
    order[axis0], order[axis1] = order[axis1], order[axis0]
    return permute(x, axes=tuple(order))


def _matrix(seed):
    return lambda: [Sample((samples.numbers(seed, (2, 3)),))]


def along_rows(x, axis, function):
    """function of x whose rows lie along the axis, and its result turned back; a single number is a row of one."""
    if not x.shape:
        return reshape(function(reshape(x, shape=(1,))), shape=())
    if axis == len(x.shape) - 1:
        return function(x)
    axes = (*(k for k in range(len(x.shape)) if k != axis), axis)
    return permute(function(permute(x, axes=axes)), axes=tuple(np.argsort(axes).tolist()))


transpose = alias(
    "transpose",
    _transpose,
    evaluate=lambda x, axis0, axis1: x.swapaxes(axis0, axis1),
    vjp=(lambda g, out, x, axis0, axis1: transpose(g, axis0=axis0, axis1=axis1),),
    extra={"view": True},
    samples=lambda: [Sample((samples.numbers(0, (2, 3, 4)),), {"axis0": 0, "axis1": 2})],
)
t = alias(
    "t",
    lambda x: _transpose(x, 0, 1),
    evaluate=lambda x: x.T,
    vjp=(lambda g, out, x: t(g),),
    node_name="TBackward0",
    extra={"view": True},
    samples=_matrix(1),
)


def _squeeze_name(operands, attributes):
    """PyTorch's three nodes: all dimensions, one, several."""
    axes, ndim = attributes["axes"], operands[0].ndim
    return f"SqueezeBackward{1 if len(axes) == 1 else 0 if len(axes) == ndim else 2}"


def _squeeze(x, axes):
    return reshape(x, shape=tuple(d for k, d in enumerate(x.shape) if k not in axes or d != 1))


squeeze = alias(
    "squeeze",
    _squeeze,
    evaluate=lambda x, axes: x.reshape([d for k, d in enumerate(x.shape) if k not in axes or d != 1]),
    vjp=(lambda g, out, x, axes: reshape(g, shape=x.shape),),
    node_name=_squeeze_name,
    extra={"view": True},
    samples=lambda: [Sample((samples.numbers(0, (2, 1, 3, 1)),), {"axes": (1, 2)})],
)


def _unsqueeze(x, axis):
    axis = normalize_axis("unsqueeze", axis, len(x.shape) + 1)
    return reshape(x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))


unsqueeze = alias(
    "unsqueeze",
    _unsqueeze,
    evaluate=np.expand_dims,
    vjp=(lambda g, out, x, axis: reshape(g, shape=x.shape),),
    extra={"view": True},
    samples=lambda: [Sample((samples.numbers(0, (2, 3)),), {"axis": a}) for a in (0, 1, -1)],
)


def _one_place(shape, axis, index):
    return tuple((index, 1, 1) if k == axis else (0, 1, d) for k, d in enumerate(shape))


def select_at(x, axis, index):
    part = slice_(x, spec=_one_place(x.shape, axis, index))
    return reshape(part, shape=tuple(d for k, d in enumerate(x.shape) if k != axis))


def select_vjp(g, out, x, axis, index):
    whole = reshape(g, shape=(*g.shape[:axis], 1, *g.shape[axis:]))
    return slice_scatter(zeros_like(x), whole, spec=_one_place(x.shape, axis, index))


select = alias(
    "select",
    select_at,
    evaluate=lambda x, axis, index: x[(slice(None),) * axis + (index, ...)],
    vjp=(select_vjp,),
    traits=PART,
    extra={"view": True},
    samples=lambda: [Sample((samples.numbers(0, (2, 3, 4)),), {"axis": 1, "index": 2})],
)


# --- joining --------------------------------------------------------------------------------------------------------
def _cat_infer(operands, attributes, default_float):
    axis = attributes["axis"]
    first = operands[0]
    for k, o in enumerate(operands):
        same = len(o.shape) == len(first.shape) and all(
            a == b for j, (a, b) in enumerate(zip(o.shape, first.shape)) if j != axis
        )
        if not same:
            raise OpError(
                f"cat: tensor {k} has shape {o.shape}, tensor 0 has {first.shape}; "
                f"sizes must match except in dimension {axis}"
            )
    size = sum(o.shape[axis] for o in operands)
    return Meta((*first.shape[:axis], size, *first.shape[axis + 1 :]), _common(operands))


def _common(operands):
    """Dimensions do not matter here: all operands of a join have as many."""
    return reduce(promote, (o.dtype for o in operands))


def _cat_vjp(index):
    def rule(g, out, *operands, axis):
        start = sum(o.shape[axis] for o in operands[:index])
        length = operands[index].shape[axis]
        spec = tuple((start, 1, length) if k == axis else (0, 1, d) for k, d in enumerate(g.shape))
        return slice_(g, spec=spec)

    return rule


def _write_cat(writer):
    value = writer.value
    strides, start = contiguous_strides(value.shape), 0
    axis = value.attributes["axis"]
    for k, operand in enumerate(value.operands):
        writer.copy_operand(k, strides, start * strides[axis])
        start += operand.shape[axis]


cat = register(
    Op(
        "cat",
        "movement",
        _cat_infer,
        lambda *arrays, axis: np.concatenate(arrays, axis),
        _cat_vjp,
        kernel=Join(_write_cat),
        traits=frozenset(["moves", "joins"]),
        compute_dtype=lambda operands, default_float: ((_common(operands),) * len(operands), _common(operands)),
        samples=lambda: [
            Sample((samples.numbers(0, (2, 3)), samples.numbers(1, (1, 3)), samples.numbers(2, (0, 3))), {"axis": 0}),
            Sample((samples.numbers(3, (2, 3)), samples.numbers(4, (2, 5))), {"axis": 1}),
        ],
    )
)


stack = alias(
    "stack",
    lambda *tensors, axis: cat(*(_unsqueeze(x, axis) for x in tensors), axis=axis),
    vjp=lambda index: lambda g, out, *tensors, axis: select(g, axis=axis, index=index),
    on_complex=True,
    samples=lambda: [Sample((samples.numbers(0, (2, 3)), samples.numbers(1, (2, 3))), {"axis": a}) for a in (0, 2)],
    extra={"at_once": lambda *xs, axis: np.concatenate([x[(slice(None),) * axis + (None,)] for x in xs], axis)},
)


def copies(name, kernel):
    """An entry whose result is its operand, in row-major order."""

    def infer(operands, attributes, default_float):
        return Meta(operands[0].shape, operands[0].dtype)

    facts = {"kernel": kernel, "traits": frozenset(["copy"]), "samples": samples.unary(), "oracle": "clone"}
    return register(Op(name, "movement", infer, lambda x: np.array(x), (lambda g, out, x: g,), **facts))


clone = copies("clone", Copy())
