"""Functions written with others, for the spellings people know. Their graphs are those of what they are made of."""

from functools import partial

import numpy as np

from .casting import widened
from .compiler.dtypes import bool_, dtype_of, promote
from .compiler.ops import arithmetic, comparison, derived, indexing, scattering, spelling, view
from .compiler.ops.kinds import number_meta
from .compiler.ops.table import Meta, OpError
from .compiler.shapes import normalize_axis, whole_number
from .creation import as_tensor
from .functions import check_added, check_scatter, clamp, index_add, matmul, operand, require_tensors
from .half_floats import both_in_float32
from .limits import finfo, iinfo  # noqa: F401
from .operands import alike, factor_first, tensor_of
from .reducing import mean, std, var
from .runtime.eager.gate import apply_inplace
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor, shape_of, wrap
from .shaping import cat, expand, flatten, range_spec, reshape


# --- arithmetic -------------------------------------------------------------------------------------------------------
def addcmul(input, tensor1, tensor2, *older, value=1):
    """input + value * tensor1 * tensor2."""
    if older:
        tensor1, tensor2, value = factor_first("addcmul", tensor1, tensor2, *older)
    return _with_scaled(derived.addcmul, input, tensor1, tensor2, value)


def addcdiv(input, tensor1, tensor2, *older, value=1):
    """input + value * tensor1 / tensor2."""
    if older:
        tensor1, tensor2, value = factor_first("addcdiv", tensor1, tensor2, *older)
    if all(isinstance(x, Tensor) and x.dtype.category < 2 for x in (tensor1, tensor2)):
        raise RuntimeError("Integer division with addcdiv is no longer supported; convert with .float(), or use //")
    return _with_scaled(derived.addcdiv, input, tensor1, tensor2, value)


def _with_scaled(op, input, tensor1, tensor2, value):
    """A number may stand for a tensor, as everywhere."""
    operands = [operand(x) for x in (input, tensor1, tensor2)]
    if value == 1:
        return op(*operands)
    value = operand(value)
    if isinstance(value, float) and not any(isinstance(x, float) or _has_fractions(x) for x in operands):
        value = int(value)  # the number has the type of the tensors
    return op(*operands, value)


def _has_fractions(x):
    return isinstance(x, Tensor) and x.dtype.is_differentiable


def frac(input):
    """The part after the point, with the sign of the number."""
    if input.__class__ is not Tensor:
        tensor_of("frac", input)
    return derived.frac(input) if input.dtype.is_floating_point else input - input.trunc()


def logit(input, eps=None):
    """log(p / (1 - p)); p is limited to [eps, 1 - eps] if eps is given."""
    if input.__class__ is not Tensor:
        tensor_of("logit", input)
    input = input if input.dtype.is_floating_point else input * 1.0
    if eps is not None and eps > 0.5:
        # The lower end comes first, as in PyTorch; of clamp the upper one wins.
        input = comparison.where(input < eps, eps, comparison.where(input > 1 - eps, 1 - eps, input))
    elif eps is not None:
        input = clamp(input, eps, 1 - eps)
    return derived.logit(input)


@both_in_float32
def logaddexp(input, other):
    """log(exp(input) + exp(other)) without overflow."""
    input, other = operand(input), operand(other)
    require_tensors("logaddexp", input, other)
    return derived.logaddexp(*alike(input, other))


def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    """NaN and infinities replaced by numbers: by default 0 and the largest of the type."""
    if not input.dtype.is_floating_point:
        return input.clone()
    limits = finfo(input.dtype)
    largest, smallest = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    return derived.nan_to_num(input, nan=float(nan), posinf=float(largest), neginf=float(smallest))


# --- reductions -------------------------------------------------------------------------------------------------------
def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=1):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return var(input, dim, unbiased, keepdim, correction=correction), mean(input, dim, keepdim)


def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=1):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return std(input, dim, unbiased, keepdim, correction=correction), mean(input, dim, keepdim)


def count_nonzero(input, dim=None):
    if input.__class__ is not Tensor:
        tensor_of("count_nonzero", input)
    return (input if input.dtype is bool_ else input != 0).sum(dim)


def inner(input, other):
    """Sum of products over the last dimensions."""
    if input.__class__ is not Tensor:
        tensor_of("inner", input)
    if other.__class__ is not Tensor:
        tensor_of("inner", other, "other")
    if input.ndim == 0 or other.ndim == 0:
        return input * other
    if input.ndim == 1 or other.ndim < 3:
        return matmul(input, other if other.ndim == 1 else other.mT)
    if input.shape[-1] != other.shape[-1]:
        raise OpError(f"inner: the last dimensions must match, but the shapes are {input.shape} and {other.shape}")
    # Every vector of one with every vector of the other: no dimension is common but the last.
    pairs = matmul(input, other.flatten(0, -2).mT)
    return reshape(pairs, (*shape_of(input)[:-1], *shape_of(other)[:-1]))


def trace(input):
    """Sum of the diagonal of a matrix."""
    if input.ndim != 2:
        raise OpError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    (input,) = widened(input)
    return diagonal(input).sum()


def diff(input, n=1, dim=-1, prepend=None, append=None):
    """Differences of neighbours along dim, n times, after joining what is to be prepended and appended."""
    if input.__class__ is not Tensor:
        tensor_of("diff", input)
    joined = [x for x in (prepend, input, append) if x is not None]
    if n < 0:
        raise RuntimeError(f"diff: order must be non-negative but got {n}")
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if any(x.ndim != input.ndim for x in joined):
        raise OpError("diff expects prepend or append to be the same dimension as input")
    if n == 0:
        # Nothing is joined to what stays as it is.
        return input.clone()
    input = cat(joined, dim) if len(joined) > 1 else input
    axis = normalize_axis("diff", dim, input.ndim)
    for _ in range(n):
        size = shape_of(input)[axis]
        rest = max(size - 1, 0)
        after, before = (view.slice_(input, spec=range_spec(input, axis, k, rest)) for k in (size - rest, 0))
        input = arithmetic.sub(after, before) if input.dtype.category else comparison.ne(after, before)
    return input


def repeat_interleave(input, repeats=None, dim=None, *, output_size=None):
    """Every slice along dim (every element, if None) so many times, one copy after the other.

    With repeats alone: the position k repeated repeats[k] times.
    """
    if repeats is None:
        return wrap(np.repeat(np.arange(input.numel(), dtype=input.array.dtype), input.array))
    if dim is None:
        return repeat_interleave(flatten(input), repeats, 0)
    if input.ndim == 0:
        return repeat_interleave(reshape(input, 1), repeats, dim)
    axis = normalize_axis("repeat_interleave", dim, input.ndim)
    counts = repeats.array if isinstance(repeats, Tensor) else repeats
    positions = np.repeat(np.arange(input.shape[axis], dtype=np.int64), counts)
    return indexing.index_select(input, wrap(positions), axis=axis)


# --- positions --------------------------------------------------------------------------------------------------------
def select(input, dim, index):
    """One slice along dim, the dimension dropped."""
    if input.__class__ is not Tensor:
        tensor_of("select", input)
    axis = normalize_axis("select", dim, input.ndim)
    size = input.shape[axis]
    if not -size <= index < size:
        raise IndexError(f"select(): index {index} out of range for tensor of size {input.shape} at dimension {dim}")
    return view.select(input, axis=axis, index=index % size)


def diagonal(input, offset=0, dim1=0, dim2=1):
    """A view of the elements (k, k + offset) of the matrices that two dimensions span, as the last dimension."""
    if input.__class__ is not Tensor:
        tensor_of("diagonal", input)
    axes = [normalize_axis("diagonal", d, input.ndim) for d in (dim1, dim2)]
    if axes[0] == axes[1]:
        raise OpError(f"diagonal: diagonal dimensions cannot be identical {dim1}, {dim2}")
    return view.diagonal(input, shift=whole_number("diagonal", "offset", offset), axis0=axes[0], axis1=axes[1])


def diag(input, diagonal=0):
    """A copy of the diagonal of a matrix, or the matrix with a vector on its diagonal."""
    if input.__class__ is not Tensor:
        tensor_of("diag", input)
    if input.ndim not in (1, 2):
        raise OpError(f"diag: expects a vector or a matrix, got shape {input.shape}")
    if input.ndim == 2:
        return _diagonal(input, diagonal).clone()
    diagonal, (length,) = whole_number("diag", "diagonal", diagonal), input.shape
    size = length + abs(diagonal)
    first = (diagonal if diagonal >= 0 else -diagonal * size) if length else 0
    written = view.slice_scatter(input.new_zeros(size * size), input, spec=((first, size + 1, length),))
    return view.reshape(written, shape=(size, size))


_diagonal = diagonal


def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """A copy of input with src (a number, or the tensor's elements) written at index along dim, or added there."""
    axis, index, src = _scattered("scatter", input, dim, index, value if src is None else src, reduce)
    if input.ndim == 0:
        return reshape(scatter(reshape(input, 1), 0, index, src, reduce=reduce), ())
    if reduce == "multiply":
        return scattering.scatter_reduce(input, index, src, axis=axis, reduce="prod")
    return (indexing.scatter if reduce is None else indexing.scatter_add)(input, index, src, axis=axis)


def _scattered(name, input, dim, index, src, reduce):
    """(axis, index, src) of a scatter, src as a tensor of the index's shape; of a single number they are vectors."""
    axis = normalize_axis(name, dim, input.ndim)
    if reduce not in (None, "add", "multiply"):
        raise RuntimeError(f"{name}: reduce argument must be either add or multiply, got {reduce!r}")
    if not isinstance(src, Tensor):
        src = expand(input.new_full((), src), index.shape)
    index, src = check_scatter(name, input, index, src)
    if input.ndim == 0:
        return 0, reshape(index, -1), reshape(src, -1)
    if src.shape != index.shape:
        src = src[tuple(slice(d) for d in index.shape)]
    return axis, index, src


def _vector(x):
    if x.ndim > 1:
        raise OpError(f"meshgrid: Expected 0D or 1D tensors, got shape {x.shape}")
    return x if x.ndim else reshape(x, 1)


def meshgrid(*tensors, indexing="ij"):
    """Coordinates of a grid from the coordinates of its axes ("ij": the first tensor varies along dimension 0)."""
    vectors = [
        _vector(x) for x in (tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors)
    ]
    if not vectors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if any(x.dtype is not vectors[0].dtype for x in vectors):
        raise OpError(f"meshgrid expects all tensors to have the same dtype, got {[x.dtype.name for x in vectors]}")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    if indexing == "xy" and len(vectors) > 1:
        swapped = meshgrid(vectors[1], vectors[0], *vectors[2:])
        return (swapped[1], swapped[0], *swapped[2:])
    shape = tuple(x.shape[0] for x in vectors)
    placed = [reshape(x, *(-1 if k == j else 1 for j in range(len(shape)))) for k, x in enumerate(vectors)]
    return tuple(view.expand(x, shape=shape) for x in placed)


# --- in place ---------------------------------------------------------------------------------------------------------
def scatter_add_(input, dim, index, src):
    index, src = check_scatter("scatter_add_", input, index, src)
    axis = normalize_axis("scatter_add_", dim, input.ndim)
    shape = shape_of(index)
    if shape_of(src) != shape:
        src = src[tuple(slice(d) for d in shape)]
    return apply_inplace(indexing.scatter_add, input, (input, index, src), {"axis": axis})


def scatter_(input, dim, index, src=None, *, value=None, reduce=None):
    if input.ndim == 0 or reduce == "multiply":
        return input.copy_(scatter(input, dim, index, src, value=value, reduce=reduce))
    axis, index, src = _scattered("scatter_", input, dim, index, value if src is None else src, reduce)
    op = indexing.scatter if reduce is None else indexing.scatter_add
    return apply_inplace(op, input, (input, index, src), {"axis": axis})


def index_add_(input, dim, index, source, *, alpha=1):
    axis = normalize_axis("index_add_", dim, input.ndim)
    check_added("index_add_", input, axis, source)
    if input.ndim == 0:
        return input.add_(index_add(input * 0, 0, index, source, alpha=alpha))
    source = source if alpha == 1 else source * alpha
    index = index if index.ndim else reshape(index, 1)
    return apply_inplace(indexing.index_add, input, (input, index, source), {"axis": axis})


def fill_diagonal_(input, fill_value, wrap=False):
    """Write a number where all indices are equal. wrap: of a matrix with more rows than columns, on after each square
    and a row between."""
    if input.ndim < 2:
        raise RuntimeError(f"fill_diagonal_: input must have at least 2 dimensions, got shape {input.shape}")
    if input.ndim > 2 and len(set(input.shape)) > 1:
        raise RuntimeError(f"fill_diagonal_: all dimensions of input must be of equal length, got shape {input.shape}")
    rows, columns = input.shape[:2]
    for start in range(0, rows, columns + 1) if wrap and input.ndim == 2 else (0,):
        shown = input[start:] if start else input
        while shown.ndim > 1:
            shown = diagonal(shown)
        shown.fill_(fill_value)
    return input


def addcmul_(input, tensor1, tensor2, *older, value=1):
    if older:
        tensor1, tensor2, value = factor_first("addcmul_", tensor1, tensor2, *older)
    return _with_scaled(partial(_into, derived.addcmul), input, tensor1, tensor2, value)


def addcdiv_(input, tensor1, tensor2, *older, value=1):
    if older:
        tensor1, tensor2, value = factor_first("addcdiv_", tensor1, tensor2, *older)
    return _with_scaled(partial(_into, derived.addcdiv), input, tensor1, tensor2, value)


def _into(op, input, *others):
    """The op over its first operand."""
    return apply_inplace(op, input, (input, *others), {})


def masked_fill_(input, mask, value):
    return apply_inplace(spelling.masked_fill, input, (input, mask, operand(value)), {})


# --- questions about types --------------------------------------------------------------------------------------------
def result_type(tensor1, tensor2):
    """The dtype that arithmetic on the two gives."""
    return arithmetic.add.infer([_kind_of(tensor1), _kind_of(tensor2)], {}, state.default_dtype).dtype


def _kind_of(x):
    """What of an operand its type depends on: whether it is a number, or a tensor without dimensions."""
    if isinstance(x, (bool, int, float, complex)):
        return number_meta(x)
    x = as_tensor(x)
    return Meta((1,) if x.ndim else (), x.dtype)


def promote_types(type1, type2):
    """The smallest dtype to which both convert: category first, then width."""
    return promote(dtype_of(type1), dtype_of(type2))


def can_cast(from_, to):
    """Whether a conversion keeps the category (bool, integer, floating) or raises it."""
    return dtype_of(to).category >= dtype_of(from_).category


def is_floating_point(input):
    return input.dtype.is_floating_point


METHODS = str.split("""
    addcmul addcdiv frac logit logaddexp nan_to_num count_nonzero inner trace diff repeat_interleave select
    diagonal diag scatter scatter_add_ scatter_ index_add_ addcmul_ addcdiv_ masked_fill_ fill_diagonal_
""")
PUBLIC = str.split("""
    addcmul addcdiv frac logit logaddexp nan_to_num var_mean std_mean count_nonzero inner trace diff
    repeat_interleave select diagonal diag scatter meshgrid result_type promote_types can_cast is_floating_point
    finfo iinfo
""")
INPLACE = str.split("frac logit nan_to_num")
