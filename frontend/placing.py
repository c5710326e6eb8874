"""Reading and writing at positions: put, take, scatter with a reduction, masked assignment, parts written back."""

from functools import wraps

import numpy as np

from .compiler import dtypes
from .compiler.ops import arithmetic, division, indexing, scattering, view
from .compiler.ops.table import OpError, OutOfRange
from .compiler.shapes import broadcast_shapes, normalize_axis
from .composed import diagonal, select
from .creation import arange, full_like, zeros
from .functions import check_slices, gather, masked_fill, nonzero, of_vector, to_dtype, where
from .indexing import as_value, getitem, positions_of, setitem
from .runtime.state.modes import array_that_sizes
from .runtime.state.tensor import Tensor, shape_of, tensor_of
from .shaping import expand, flatten, reshape, unsqueeze


def _require_long(name, index):
    if index.dtype.category != 1:
        raise OutOfRange(f"{name}(): Expected dtype int32/int64 for index, got {index.dtype.name}")


def _same_type(name, input, source):
    if input.dtype is not source.dtype:
        raise OpError(
            f"{name}(): self and source expected to have the same dtype, but got (self) {input.dtype.name} and "
            f"(source) {source.dtype.name}; convert with .to(...)"
        )


# --- whole index tuples -----------------------------------------------------------------------------------------------
def _key(indices):
    return tuple(slice(None) if k is None else k for k in indices)


def changing(change):
    """Decorates a function that changes a part of its input, in a copy. change(input, ...) -> (op, operands behind the
    input, attributes), or None where it is not one op; the form in place makes it in the input itself (inplace.py)."""

    def mark(function):
        @wraps(function)
        def changed(input, *args, **kwargs):
            found = change(input, *args, **kwargs)
            if found is None:
                return function(input, *args, **kwargs)
            op, operands, attributes = found
            return op(input, *operands, **attributes)

        changed.change = change
        return changed

    return mark


def _put_there(input, key, values, op=indexing.index_put):
    found = positions_of(input, key, values)
    if found is None:
        return None
    index, axis, merged, values = found
    return op, (index, values), {"axis": axis, "merged": merged}


def _index_put(input, indices, values, accumulate=False):
    _same_type("index_put", input, values)
    return _put_there(input, _key(indices), values, indexing.index_add if accumulate else indexing.index_put)


@changing(_index_put)
def index_put(input, indices, values, accumulate=False):
    """A copy of input with values written at the positions of the index tensors, or added there."""
    result, key = view.clone(input), _key(indices)
    setitem(result, key, getitem(result, key) + values if accumulate else values)
    return result


def take(input, index):
    """Elements of the flattened input at the positions."""
    _require_long("take", index)
    if not input.numel() and index.numel():
        raise IndexError("take(): tried to take from an empty tensor")
    return (
        getitem(flatten(input), (index,)) if index.ndim else reshape(getitem(flatten(input), (reshape(index, 1),)), ())
    )


def _put(input, index, source, accumulate=False):
    _require_long("put", index)
    _same_type("put", input, source)
    if index.numel() != source.numel():
        raise OutOfRange(
            f"put(): Expected source and index to have the same number of elements: {source.shape}, {index.shape}"
        )
    index = indexing.position(reshape(index, -1), size=input.numel(), axis=0)
    op = indexing.index_add if accumulate else indexing.index_put
    return op, (index, reshape(source, -1)), {"axis": 0, "merged": (input.numel(),)}


@changing(_put)
def put(input, index, source, accumulate=False):
    """A copy of input with source written (or added) at positions of its flattened form."""


def take_along_dim(input, indices, dim=None):
    """Elements at the indices along dim, the other dimensions broadcast; of the flattened input without dim."""
    if dim is None:
        return take_along_dim(flatten(input), flatten(indices), 0)
    if indices.dtype is not dtypes.int64:
        raise OpError(f"take_along_dim(): dtype of indices should be Long but got {indices.dtype.name}")
    if input.ndim != indices.ndim:
        raise OpError(
            f"take_along_dim(): input and indices should have the same number of dimensions, but got {input.ndim} "
            f"dimensions for input, and {indices.ndim} dimensions for indices"
        )
    axis = normalize_axis("take_along_dim", dim, input.ndim)

    def without(x):
        return x.shape[:axis] + (1,) + x.shape[axis + 1 :]

    indices = where(indices < 0, indices + (input.shape[axis] if input.ndim else 1), indices)
    common = broadcast_shapes("take_along_dim", [without(input), without(indices)])

    def stretched(x):
        return expand(x, common[:axis] + (x.shape[axis],) + common[axis + 1 :])

    return gather(stretched(input), axis, stretched(indices)) if input.ndim else gather(input, 0, indices)


# --- slices along one dimension ---------------------------------------------------------------------------------------
def _vector_index(name, index):
    if index.ndim > 1:
        raise IndexError(f"{name}(): Index should have dimension 1 or 0 (got {index.ndim})")
    _require_long(name, index)
    return reshape(index, -1)


def _index_copy(input, dim, index, source):
    axis, index = normalize_axis("index_copy", dim, input.ndim), _vector_index("index_copy", index)
    _same_type("index_copy", input, source)
    if input.ndim == 0:
        return None
    if source.ndim == 0 and index.numel() != 1:
        raise IndexError(f"index_copy_(): When source is scalar, index should have one element (got {index.numel()})")
    if source.ndim == 0:
        source = expand(source, (*input.shape[:axis], index.numel(), *input.shape[axis + 1 :]))
    wanted = (*input.shape[:axis], index.numel(), *input.shape[axis + 1 :])
    if source.shape != wanted:
        raise IndexError(f"index_copy(): source has shape {source.shape}, the index of {input.shape} needs {wanted}")
    return _put_there(input, (*(slice(None),) * axis, index), source)


@changing(_index_copy)
def index_copy(input, dim, index, source):
    """A copy of input with slices of source written at the index along dim."""
    return view.clone(reshape(source, ()))


def _index_fill(input, dim, index, value):
    axis, index = normalize_axis("index_fill", dim, input.ndim), _vector_index("index_fill", index)
    if isinstance(value, Tensor) and value.ndim:
        raise OpError(f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dims")
    is_complex = value.dtype.is_complex if isinstance(value, Tensor) else isinstance(value, complex)
    if is_complex and not input.dtype.is_complex:
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    if input.ndim == 0 or isinstance(value, Tensor) and value._requires_grad:
        return None
    value = to_dtype(value if isinstance(value, Tensor) else as_value(input, value), input.dtype)
    return _put_there(input, (*(slice(None),) * axis, index), value)


@changing(_index_fill)
def index_fill(input, dim, index, value):
    """A copy of input with the slices at index along dim filled with a number."""
    if input.ndim == 0:
        return reshape(index_fill(reshape(input, 1), 0, index, value), ())
    # A number that requires gradients has that of every element it fills once, however often the index names it.
    axis, size = normalize_axis("index_fill", dim, input.ndim), input.shape[dim]
    hit = index_fill(zeros(size, dtype=dtypes.bool_), 0, index, True)
    return masked_fill(input, reshape(hit, (-1, *(1,) * (input.ndim - 1 - axis))), value)


def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """A copy of input, its slices at index combined with those of source: "prod", "mean", "amax" or "amin"."""
    axis, index = normalize_axis("index_reduce", dim, input.ndim), _vector_index("index_reduce", index)
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): reduce must be prod, mean, amax or amin, got {reduce!r}")
    check_slices("index_reduce", input, axis, source)
    if input.ndim == 0:
        return reshape(
            index_reduce(reshape(input, 1), 0, index, reshape(source, 1), reduce, include_self=include_self), ()
        )
    if source.ndim and source.shape[axis] != index.numel():
        raise OpError(
            f"index_reduce(): Number of indices ({index.numel()}) should be equal to source.size(dim): "
            f"({source.shape[axis]}), for dim: {axis}"
        )
    shape = tuple(-1 if k == axis else 1 for k in range(input.ndim))
    spread = expand(reshape(index, shape), source.shape)
    return scatter_reduce(input, axis, spread, source, reduce, include_self=include_self)


def select_scatter(input, src, dim, index):
    """A copy of input with src written over the slice that select(dim, index) shows."""
    axis = normalize_axis("select_scatter", dim, input.ndim)
    part = select(input, axis, index)
    if part.shape != src.shape:
        raise OpError(
            f"select_scatter: expected src to have a size equal to the slice of self: {src.shape}, {part.shape}"
        )
    spec = tuple((index % d, 1, 1) if k == axis else (0, 1, d) for k, d in enumerate(input.shape))
    return view.slice_scatter(input, unsqueeze(to_dtype(src, input.dtype), axis), spec=spec)


def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """A copy of input with src written over the slice start:end:step of dim."""
    axis = normalize_axis("slice_scatter", dim, input.ndim)
    first, stop, step = slice(start, end, step).indices(input.shape[axis])
    length = len(range(first, stop, step))
    spec = tuple((first if length else 0, step, length) if k == axis else (0, 1, d) for k, d in enumerate(input.shape))
    wanted = tuple(part[2] for part in spec)
    if src.shape != wanted:
        raise OpError(f"slice_scatter: expected src to have a size equal to the slice of self: {src.shape}, {wanted}")
    return view.slice_scatter(input, to_dtype(src, input.dtype), spec=spec)


def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy of input with src written on the diagonal."""
    positions = diagonal(reshape(arange(input.numel()), input.shape), offset, dim1, dim2)
    if positions.shape != src.shape:
        raise OpError(
            f"diagonal_scatter: expected src to have a size equal to the slice: {src.shape}, {positions.shape}"
        )
    flat = index_put(flatten(input), (reshape(positions, -1),), reshape(to_dtype(src, input.dtype), -1))
    return reshape(flat, input.shape)


# --- masks ------------------------------------------------------------------------------------------------------------
def masked_select(input, mask):
    """The elements where the mask holds, as a vector; both broadcast."""
    if mask.dtype is not dtypes.bool_:
        raise OpError(f"masked_select: expected BoolTensor for mask, got {mask.dtype.name}")
    if shape_of(mask) and shape_of(input) == shape_of(mask):
        return input[mask]
    shape = broadcast_shapes("masked_select", [input.shape, mask.shape])
    return reshape(getitem(expand(input, shape), expand(mask, shape)), -1)


def _masked_scatter(input, mask, source):
    if mask.dtype is not dtypes.bool_:
        raise OpError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype.name}")
    if input.dtype is not source.dtype:
        raise OpError(f"masked_scatter: expected self and source to have same dtypes: {input.dtype}, {source.dtype}")
    sizes = shape_of(input)
    if shape_of(mask) != sizes:
        shape = broadcast_shapes("masked_scatter", [sizes, mask.shape])
        if shape != sizes:
            return None
        mask = expand(mask, shape)
    positions = np.flatnonzero(array_that_sizes(mask))
    if len(positions) > source.numel():
        raise OpError(
            f"masked_scatter: Number of elements of source < number of ones in mask: {source.numel()}, {len(positions)}"
        )
    part = flatten(source)[: len(positions)]
    return indexing.index_put, (tensor_of(positions), part), {"axis": 0, "merged": (input.numel(),)}


@changing(_masked_scatter)
def masked_scatter(input, mask, source):
    """A copy of input with the elements of source, in order, where the mask holds."""
    return masked_scatter(expand(input, broadcast_shapes("masked_scatter", [input.shape, mask.shape])), mask, source)


def argwhere(input):
    """Positions of the elements that are not zero, one a row."""
    return nonzero(input)


# --- scatter with a reduction -----------------------------------------------------------------------------------------
_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """A copy of input, its elements at index along dim combined with src: "sum", "prod", "mean", "amax" or "amin"."""
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"scatter_reduce: reduce argument must be one of {', '.join(_REDUCTIONS)}, got {reduce!r}")
    _same_type("scatter_reduce", input, src)
    axis = normalize_axis("scatter_reduce", dim, input.ndim)
    if input.ndim == 0:
        parts = reshape(input, 1), 0, reshape(index, -1), reshape(src, -1)
        return reshape(scatter_reduce(*parts, reduce, include_self=include_self), ())
    if not index.numel():
        return view.clone(input)
    index, src = of_vector(input, index, src)
    src = src[tuple(slice(d) for d in index.shape)]
    base = input if include_self else _cleared(input, axis, index, reduce)
    if reduce == "sum":
        return indexing.scatter_add(base, index, src, axis=axis)
    if reduce == "mean":
        return _scattered_mean(base, axis, index, src, include_self)
    return scattering.scatter_reduce(base, index, src, axis=axis, reduce=reduce)


_NEUTRAL = {"sum": 0, "mean": 0, "prod": 1}


def _cleared(input, axis, index, reduce):
    """Input with the neutral number of the reduction at the positions that src takes part in."""
    hit = _counts(input, axis, index) > 0
    if reduce in _NEUTRAL:
        return where(hit, full_like(input, _NEUTRAL[reduce]), input)
    limits = np.finfo if input.dtype.is_floating_point else np.iinfo
    if input.dtype.is_floating_point:
        number = -np.inf if reduce == "amax" else np.inf
    elif input.dtype is dtypes.bool_:
        number = reduce == "amin"
    else:
        number = int(limits(input.dtype.numpy).min if reduce == "amax" else limits(input.dtype.numpy).max)
    return to_dtype(where(hit, number, input), input.dtype)


def _counts(input, axis, index):
    zeros = input.new_zeros(input.shape, dtype=dtypes.int64)
    ones = input.new_ones(index.shape, dtype=dtypes.int64)
    return indexing.scatter_add(zeros, index, ones, axis=axis)


def _scattered_mean(base, axis, index, src, include_self):
    total = indexing.scatter_add(base, index, src, axis=axis)
    counts = _counts(base, axis, index)
    counts = counts + 1 if include_self else arithmetic.maximum(counts, 1)
    if base.dtype.is_floating_point:
        return total / to_dtype(counts, base.dtype)
    return to_dtype(division.floor_divide(total, counts), base.dtype)


METHODS = str.split("""
    index_put take put take_along_dim index_copy index_fill index_reduce select_scatter slice_scatter diagonal_scatter
    masked_select masked_scatter argwhere scatter_reduce
""")
INPLACE = str.split("index_put put index_copy index_fill index_reduce masked_scatter scatter_reduce")
PUBLIC = METHODS
