"""Functions on tensors in PyTorch's spelling, where that is more than calling one op (see spelled.py)."""

import builtins
from numbers import Number

import numpy as np

from .casting import lowered
from .compiler.dtypes import bool_, result_type, uint8
from .compiler.later import later
from .compiler.ops import (
    TABLE,
    arithmetic,
    comparison,
    contraction,
    derived,
    division,
    indexing,
    neural,
    spelling,
    view,
)
from .compiler.ops.kinds import number_meta
from .compiler.ops.table import OpError, OutOfRange
from .compiler.shapes import normalize_axis, whole_number
from .compiler.storage import readable, rounded
from .creation import full
from .keys import where_not_zero
from .operands import factor_first, flag, operand, require_tensors, tensor_of, tensor_of_one, to_dtype
from .out import write, write_apart, write_op
from .placement import check_memory_format
from .runtime.state.modes import array_that_sizes, state
from .runtime.state.tensor import Tensor, shape_of, wrap
from .runtime.state.tensor import tensor_of as plain_tensor
from .shaping import reshape


def add(input, other, *older, alpha=1, out=None):
    """input + alpha * other."""
    if older:
        other, alpha = factor_first("add", other, *older)
    input, other = operand(input), operand(other)
    if alpha == 1:
        input = tensor_of_one(input, other)
        if out is not None:
            return write_op("add", arithmetic.add, out, input, other)
        result = arithmetic.add(input, other)
    else:
        result = _scaled("add", arithmetic.add, derived.add_scaled, input, other, alpha)
    return result if out is None else write_apart("add", out, result, input, other)


def _scaled(name, op, scaled, input, other, alpha):
    """op(input, alpha * other). RuntimeError where the product would have a higher type than the sum without it."""
    if not isinstance(alpha, Tensor):
        metas = [x if isinstance(x, Tensor) else number_meta(x) for x in (input, other)]
        dtype = result_type(metas, state.default_dtype)
        kind = 3 if isinstance(alpha, complex) else 2 if isinstance(alpha, float) else 1
        if kind > max(dtype.category, 1):
            raise RuntimeError(f"{name}: for {dtype.name} tensors, argument alpha must not be {alpha!r}")
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        return scaled(input, other, operand(alpha))
    other = other * alpha
    return op(tensor_of_one(input, other), other)


def sub(input, other, *older, alpha=1, out=None):
    """input - alpha * other."""
    if older:
        other, alpha = factor_first("sub", other, *older)
    input, other = operand(input), operand(other)
    if alpha == 1:
        input = tensor_of_one(input, other)
        if out is not None:
            return write_op("sub", arithmetic.sub, out, input, other)
        result = arithmetic.sub(input, other)
    else:
        result = _scaled("sub", arithmetic.sub, derived.sub_scaled, input, other, alpha)
    return result if out is None else write_apart("sub", out, result, input, other)


def div(input, other, *, rounding_mode=None, out=None):
    """input / other; rounding_mode "floor" or "trunc" rounds the quotient."""
    input, other = operand(input), operand(other)
    input = tensor_of_one(input, other)
    if rounding_mode is None:
        result = arithmetic.div(input, other)
    else:
        result = _rounded_quotient(input, other, rounding_mode)
    return result if out is None else write_apart("div", out, result, input, other)


def _rounded_quotient(input, other, rounding_mode):
    if rounding_mode == "floor":
        return division.floor_divide(input, other)
    if rounding_mode != "trunc":
        raise RuntimeError(f"div: rounding_mode must be None, 'floor' or 'trunc', got {rounding_mode!r}")
    if _is_whole(input) and _is_whole(other):
        # In integers: of 64 bits no float has all. Without what is left the quotient is whole.
        left = division.fmod(input, other)
        whole = to_dtype(input, left.dtype) if isinstance(input, Tensor) else int(input)
        return division.floor_divide(arithmetic.sub(whole, left), other)
    return division.truncated_quotient(input, other)


def clone(input, *, memory_format=None):
    """A copy with memory of its own. Gradients flow through it."""
    if memory_format is not None:
        check_memory_format("clone", memory_format)
    return view.clone(tensor_of("clone", input))


def round(input, *, decimals=0):
    """To the nearest integer, halves to the even one; or to `decimals` places."""
    tensor_of("round", input)
    if decimals == 0:
        return arithmetic.round_(input)
    scale = 10.0 ** builtins.abs(decimals)
    return arithmetic.round_(input * scale) / scale if decimals > 0 else arithmetic.round_(input / scale) * scale


def square(input):
    return pow(input, 2)


def pow(input, exponent):
    """input ** exponent. Small whole powers of a number are products, as in PyTorch."""
    if input.__class__ is Tensor and (exponent.__class__ is int or exponent.__class__ is float):
        # What most powers are.
        dtype = input.dtype
        return neural.power(input, exponent=rounded(exponent, dtype) if dtype.is_half else exponent)
    input, exponent = operand(input), operand(exponent)
    if isinstance(exponent, Number):
        if isinstance(exponent, bool):
            exponent = int(exponent)
        return neural.power(tensor_of("pow", input), exponent=rounded(exponent, input.dtype))
    if _is_whole(input) and _is_whole(exponent):
        return division.integer_pow(input, exponent)
    if isinstance(input, (int, float)) and exponent.dtype.is_floating_point:
        return spelling.rpow(exponent, base=rounded(float(input), exponent.dtype))
    return TABLE["pow"](_zero_dim(input, exponent), exponent)


def _is_whole(x):
    return x.dtype.category < 2 if isinstance(x, Tensor) else isinstance(x, int)


def _zero_dim(number, like):
    """A number as a 0-d tensor of like's floating type."""
    if isinstance(number, Tensor):
        return number
    if isinstance(number, complex) or like.dtype.is_complex:
        return full((), number, dtype=like.dtype.to_complex())
    return full((), float(number), dtype=like.dtype if like.dtype.is_floating_point else state.default_dtype)


subtract, true_divide, divide = sub, div, div


def atan2(input, other):
    input, other = operand(input), operand(other)
    require_tensors("atan2", input, other)
    return TABLE["atan2"](_zero_dim(input, other), _zero_dim(other, input))


arctan2 = atan2


def where(condition, input=None, other=None):
    """input where condition holds, else other; with the condition alone, `nonzero(as_tuple=True)`."""
    if input is None:
        return nonzero(condition, as_tuple=True)
    if condition.dtype is uint8:  # what masks were before there was bool
        condition = comparison.ne(condition, 0)
    return comparison.where(condition, operand(input), operand(other))


def clamp(input, min=None, max=None):
    """Limit to [min, max]; either may be None, a number or a tensor."""
    if input.__class__ is not Tensor:
        tensor_of("clamp", input)
    if input.dtype is bool_ and min is not None and max is not None:
        # PyTorch has the extremes of bools for one bound at a time.
        bounds_are_bool = isinstance(min, bool) and isinstance(max, bool)
        dtype = bool_ if bounds_are_bool else (input + (operand(min) + operand(max))).dtype
        if dtype is bool_:
            raise NotImplementedError("clamp: not implemented for bool with two bounds; use input & max | min")
        input = comparison.cast(input, dtype=dtype)
    if input.dtype is bool_:
        # Extremes of bools are logic, which clamp's arithmetic refuses.
        bounds = ((arithmetic.maximum, min), (arithmetic.minimum, max))
        for extreme, bound in bounds:
            input = input if bound is None else extreme(input, operand(bound))
        return input
    if min is None and max is None:
        raise RuntimeError("clamp: At least one of 'min' or 'max' must not be None")
    if max is None:
        return arithmetic.clamp_min(input, operand(min))
    if min is None:
        return arithmetic.clamp_max(input, operand(max))
    return arithmetic.clamp(input, operand(min), operand(max))


def clamp_min(input, min):
    return clamp(input, min=min)


def clamp_max(input, max):
    return clamp(input, max=max)


clip = clamp


def lerp(input, end, weight):
    """input + weight * (end - input), for tensors of one floating or complex type and a number or tensor of weights."""
    for name, x in (("input", input), ("end", end), ("weight", weight)):
        if not isinstance(x, Tensor):
            if name != "weight":
                tensor_of("lerp", x, name)
        elif x.dtype is not input.dtype and (name != "weight" or x.ndim):
            raise OpError(f"lerp: expected dtype {input.dtype.name} for `{name}` but got dtype {x.dtype.name}")
    if not input.dtype.is_differentiable:
        raise NotImplementedError(f"lerp: not implemented for {input.dtype.name}; convert with .float() first")
    weight = operand(weight)
    if isinstance(weight, (Tensor, float, int)):
        return derived.lerp(input, end, weight)
    return input + weight * (end - input)


# --- products -------------------------------------------------------------------------------------------------------
def matmul(input, other, *, out=None):
    if input.__class__ is not Tensor or other.__class__ is not Tensor:
        tensor_of("matmul", input), tensor_of("matmul", other, "other")
    if state.autocast is not None:
        input, other = lowered(input, other)
    result = contraction.matmul(input, other)
    return result if out is None else write("matmul", out, result)


def mm(input, mat2, *, out=None):
    if input.__class__ is not Tensor:
        tensor_of("mm", input)
    if mat2.__class__ is not Tensor:
        tensor_of("mm", mat2, "mat2")
    if input.ndim != 2 or mat2.ndim != 2:
        raise OpError(f"mm: both arguments must be matrices, got shapes {input.shape} and {mat2.shape}")
    result = contraction.bmm(*lowered(input, mat2))
    return result if out is None else write("mm", out, result)


def spmm(input, mat2):
    """mm, under the name that programs on graphs use: their adjacency matrices are dense here."""
    return mm(input, mat2)


dsmm = spmm


def bmm(input, mat2, *, out=None):
    if input.__class__ is not Tensor:
        tensor_of("bmm", input)
    if mat2.__class__ is not Tensor:
        tensor_of("bmm", mat2, "mat2")
    if input.ndim != 3 or mat2.ndim != 3:
        raise OpError(f"bmm: both arguments must have 3 dimensions, got shapes {input.shape} and {mat2.shape}")
    result = contraction.bmm(*lowered(input, mat2))
    return result if out is None else write("bmm", out, result)


def dot(input, tensor):
    if input.__class__ is not Tensor:
        tensor_of("dot", input)
    if tensor.__class__ is not Tensor:
        tensor_of("dot", tensor, "tensor")
    if input.ndim != 1 or tensor.ndim != 1:
        raise OpError(f"dot: 1D tensors expected, got shapes {input.shape} and {tensor.shape}")
    return contraction.matmul(input, tensor)


def mv(input, vec):
    if input.__class__ is not Tensor:
        tensor_of("mv", input)
    if vec.__class__ is not Tensor:
        tensor_of("mv", vec, "vec")
    if input.ndim != 2 or vec.ndim != 1:
        raise OpError(f"mv: a matrix and a vector expected, got shapes {input.shape} and {vec.shape}")
    return contraction.matmul(input, vec)


def outer(input, vec2):
    if input.__class__ is not Tensor:
        tensor_of("outer", input)
    if vec2.__class__ is not Tensor:
        tensor_of("outer", vec2, "vec2")
    if input.ndim != 1 or vec2.ndim != 1:
        raise OpError(f"outer: Expected 1-D arguments, got shapes {input.shape} and {vec2.shape}")
    return reshape(input, -1, 1) * vec2


_sparse_gather = later("sparse.lookups:gather")


# --- positions ------------------------------------------------------------------------------------------------------
def gather(input, dim, index, *, sparse_grad=False):
    if input.__class__ is not Tensor:
        tensor_of("gather", input)
    if index.__class__ is not Tensor:
        tensor_of("gather", index, "index")
    if sparse_grad and input.requires_grad and state.grad_enabled:
        return _sparse_gather(input, dim, index)
    if not index.numel():
        # Positions that are not there may be of any type, in any dimensions.
        return reshape(reshape(input, -1)[:0], index.shape)
    if input.ndim + index.ndim == 1 and input.numel():
        # One of them is a number, which counts as a vector of one.
        normalize_axis("gather", dim, 1)
        return reshape(indexing.gather(reshape(input, -1), reshape(index, -1), axis=0), index.shape)
    return indexing.gather(input, index, axis=normalize_axis("gather", dim, input.ndim))


def of_vector(input, index, src):
    """(index, src) of a scatter into input: of a vector's, those without dimensions have one, as in PyTorch."""
    if len(shape_of(input)) != 1:
        return index, src
    return tuple(reshape(x, 1) if x.ndim == 0 else x for x in (index, src))


def check_scatter(name, input, index, src):
    """The same. OpError unless the three tensors fit in type and dimensions."""
    if input.dtype is not src.dtype:
        raise OpError(
            f"{name}(): Expected self.dtype to be equal to src.dtype, got {input.dtype.name}, {src.dtype.name}"
        )
    n_dimensions = len(shape_of(input))
    index, src = of_vector(input, index, src)
    if n_dimensions and len(shape_of(index)) != n_dimensions and index.numel():
        raise OpError(
            f"{name}(): Index tensor must have the same number of dimensions as self tensor, got {index.shape} and "
            f"{input.shape}"
        )
    return index, src


def scatter_add(input, dim, index, src):
    index, src = check_scatter("scatter_add", input, index, src)
    if src.shape != index.shape and src.ndim == index.ndim:
        # Only the corner of src that the index has is added.
        src = src[tuple(slice(d) for d in index.shape)]
    return indexing.scatter_add(input, index, src, axis=normalize_axis("scatter_add", dim, input.ndim))


def index_select(input, dim, index):
    if input.__class__ is not Tensor:
        tensor_of("index_select", input)
    if index.__class__ is not Tensor:
        tensor_of("index_select", index, "index")
    if index.ndim > 1:
        raise OutOfRange(f"index_select: Index is supposed to be a vector, got shape {index.shape}")
    axis = normalize_axis("index_select", dim, input.ndim)
    if input.ndim == 0:
        return reshape(indexing.index_select(reshape(input, 1), reshape(index, -1), axis=0), ())
    return indexing.index_select(input, index if index.ndim else reshape(index, 1), axis=axis)


def check_slices(name, input, axis, source):
    """OpError unless source has the shape of input but for the dimension that is indexed."""
    ours, theirs = shape_of(input), shape_of(source)
    if len(ours) != len(theirs) or ours[:axis] != theirs[:axis] or ours[axis + 1 :] != theirs[axis + 1 :]:
        raise OpError(
            f"{name}: source tensor shape must match self tensor shape, excluding the specified dimension. Got "
            f"self.shape = {tuple(input.shape)} source.shape = {tuple(source.shape)}"
        )


def check_added(name, input, axis, source):
    """OpError unless slices of source can be added to those of input."""
    if source.dtype is not input.dtype:
        raise OpError(
            f"{name}: self ({input.dtype.name}) and source ({source.dtype.name}) must have the same scalar type"
        )
    check_slices(name, input, axis, source)


def index_add(input, dim, index, source, *, alpha=1):
    axis = normalize_axis("index_add", dim, input.ndim)
    check_added("index_add", input, axis, source)
    source = source if alpha == 1 else source * alpha
    if input.ndim == 0:
        return reshape(index_add(reshape(input, 1), 0, reshape(index, -1), reshape(source, -1)), ())
    if index.ndim == 0:
        index = reshape(index, 1)
    return indexing.index_add(input, index, source, axis=axis)


def nonzero(input, *, as_tuple=False):
    """Positions of the elements that are not zero. Its shape depends on the data, so it is computed at once."""
    if input.__class__ is not Tensor:
        tensor_of("nonzero", input)
    if as_tuple.__class__ is not bool:
        as_tuple = flag("nonzero", "as_tuple", as_tuple)
    in_memory = state.frame is None and input._data is not None
    array = readable(input._data if in_memory else array_that_sizes(input))
    found = where_not_zero(array if array.ndim else np.atleast_1d(array))
    if array.ndim and not as_tuple and (places := _rows_of(found)) is not None:
        return plain_tensor(places)
    if as_tuple:
        return tuple([wrap(np.asarray(k, dtype=np.int64)) for k in found])
    places = np.empty((found[0].size, array.ndim), np.int64)
    for d in range(array.ndim):
        places[:, d] = found[d]
    return wrap(places)


def _rows_of(columns):
    """The positions one a row, of which NumPy gives the columns; None if they lie otherwise."""
    rows = columns[0].base
    is_whole = rows is not None and rows is columns[-1].base and rows.shape == (columns[0].size, len(columns))
    return rows if is_whole and rows.flags.c_contiguous else None


def masked_fill(input, mask, value):
    """input with `value` where the bool tensor `mask` holds."""
    if input.__class__ is not Tensor:
        tensor_of("masked_fill", input)
    if mask.__class__ is not Tensor:
        tensor_of("masked_fill", mask, "mask")
    if mask.dtype is not bool_:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype.name}")
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(f"masked_fill only supports a 0-dimensional value tensor, but got shape {value.shape}")
    value = operand(value)
    is_complex = value.dtype.is_complex if isinstance(value, Tensor) else isinstance(value, complex)
    if is_complex and not input.dtype.is_complex:
        raise RuntimeError(f"masked_fill: value cannot be converted to type {input.dtype.name} without overflow")
    return spelling.masked_fill(input, mask, value)


def tril(input, diagonal=0):
    """The lower triangle of the last two dimensions; the rest zero."""
    return spelling.tril(input, diagonal=whole_number("tril", "diagonal", diagonal))


def triu(input, diagonal=0):
    """The upper triangle of the last two dimensions; the rest zero."""
    return spelling.triu(input, diagonal=whole_number("triu", "diagonal", diagonal))


# --- types and comparison -------------------------------------------------------------------------------------------


def numel(input):
    return input.numel()


def is_tensor(x):
    return isinstance(x, Tensor)


METHODS = str.split("""
    add arctan2 atan2 bmm clamp clamp_max clamp_min clip clone div divide dot gather index_add
    index_select lerp masked_fill matmul mm mv nonzero outer pow round scatter_add square sub subtract tril
    triu true_divide
""")
INPLACE = str.split("subtract divide true_divide atan2 arctan2 tril triu clip round")
PUBLIC = [*METHODS, *str.split("where is_tensor numel spmm dsmm")]
