"""Public functions on tensors, in PyTorch's spelling. Most are made from the op table by the loops below."""

import builtins
from numbers import Number

import numpy as np

from .compiler.ops import TABLE, arithmetic, comparison, contraction, indexing, neural, reduction, statistics, view
from .compiler.ops.table import OpError
from .compiler.shapes import broadcast_shapes, infer_reshape, normalize_axes, normalize_axis
from .creation import as_tensor, full
from .runtime.modes import state
from .runtime.tensor import Tensor


def operand(x):
    """What an op takes: a tensor, or a Python number for a NumPy scalar. Arrays become tensors."""
    if isinstance(x, (Tensor, bool, int, float)):
        return x
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, np.ndarray):
        return as_tensor(x)
    raise TypeError(f"expected a Tensor or a number, got {type(x).__name__}")


def _tensor(name, x):
    if isinstance(x, Tensor):
        return x
    raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(x).__name__}")


def _unary(op, name):
    def function(input):
        return op(_tensor(name, input))

    return function


def _binary(op, name):
    def function(input, other):
        input, other = operand(input), operand(other)
        if not isinstance(input, Tensor) and not isinstance(other, Tensor):
            raise TypeError(f"{name}(): needs a Tensor among its arguments, got {input!r} and {other!r}")
        return op(input, other)

    return function


_UNARY = str.split("""
    neg abs sign floor ceil trunc round sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p tanh sigmoid
    erf sin cos tan atan asin acos sinh cosh relu isnan isinf isfinite logical_not bitwise_not clone silu
""")
_BINARY = str.split("""
    sub mul div maximum minimum fmod remainder floor_divide eq ne lt le gt ge logical_and logical_or logical_xor
    bitwise_and bitwise_or bitwise_xor
""")


def _generate():
    made = {}
    for names, make in ((_UNARY, _unary), (_BINARY, _binary)):
        for name in names:
            made[name] = make(TABLE[name], name)
            made[name].__name__ = made[name].__qualname__ = name
            made[name].__doc__ = f"{name}, element by element." + (" Operands broadcast." if make is _binary else "")
    return made


GENERATED = _generate()
globals().update(GENERATED)
absolute, negative, multiply, subtract = (GENERATED[n] for n in ("abs", "neg", "mul", "sub"))
true_divide = GENERATED["div"]


def add(input, other, *, alpha=1):
    """input + alpha * other."""
    input, other = operand(input), operand(other)
    if alpha != 1:
        other = other * alpha
    return arithmetic.add(input, other)


def square(input):
    return pow(input, 2)


def pow(input, exponent):
    """input ** exponent. Small whole powers of a number are products, as in PyTorch."""
    input, exponent = operand(input), operand(exponent)
    if isinstance(exponent, Number):
        if isinstance(exponent, bool):
            exponent = int(exponent)
        return neural.power(_tensor("pow", input), exponent=exponent)
    if _is_whole(input) and _is_whole(exponent):
        return arithmetic.integer_pow(input, exponent)
    return TABLE["pow"](_zero_dim(input, exponent), exponent)


def _is_whole(x):
    return x.dtype.category < 2 if isinstance(x, Tensor) else isinstance(x, int)


def _zero_dim(number, like):
    """A number as a 0-d tensor of like's floating type."""
    if isinstance(number, Tensor):
        return number
    return full((), float(number), dtype=like.dtype if like.dtype.is_floating_point else state.default_dtype)


def atan2(input, other):
    input, other = operand(input), operand(other)
    return TABLE["atan2"](_zero_dim(input, other), _zero_dim(other, input))


def where(condition, input=None, other=None):
    """input where condition holds, else other; with the condition alone, `nonzero(as_tuple=True)`."""
    if input is None:
        return nonzero(condition, as_tuple=True)
    return comparison.where(condition, operand(input), operand(other))


def clamp(input, min=None, max=None):
    """Limit to [min, max]; either may be None, a number or a tensor."""
    if min is None and max is None:
        raise RuntimeError("clamp: At least one of 'min' or 'max' must not be None")
    if max is None:
        return arithmetic.clamp_min(input, operand(min))
    if min is None:
        return arithmetic.clamp_max(input, operand(max))
    return arithmetic.clamp(input, operand(min), operand(max))


clip = clamp


def lerp(input, end, weight):
    return input + weight * (end - input)


# --- reductions -----------------------------------------------------------------------------------------------------
def _axes(name, x, dim):
    return normalize_axes(name, dim, x.ndim)


def _reduce(op, name):
    def function(input, dim=None, keepdim=False, *, dtype=None):
        if dtype is not None:
            input = to_dtype(input, dtype)
        return op(input, axes=_axes(name, _tensor(name, input), dim), keepdim=bool(keepdim))

    function.__name__ = name
    function.__doc__ = f"{name} over the dimensions `dim` (an int, a tuple, or None for all)."
    return function


sum = _reduce(reduction.sum_, "sum")
mean = _reduce(statistics.mean, "mean")
prod = _reduce(reduction.prod, "prod")
amax = _reduce(reduction.amax, "amax")
amin = _reduce(reduction.amin, "amin")
any = _reduce(reduction.any_, "any")
all = _reduce(reduction.all_, "all")


def logsumexp(input, dim, keepdim=False):
    """log(sum(exp(input))) without overflow."""
    if not input.dtype.is_floating_point:
        input = to_dtype(input, state.default_dtype)
    return statistics.logsumexp(input, axes=_axes("logsumexp", input, dim), keepdim=keepdim)


def var(input, dim=None, *, unbiased=None, correction=1, keepdim=False):
    """Sum of squared deviations over (number - correction)."""
    if unbiased is not None:
        correction = int(unbiased)
    return statistics.var(input, axes=_axes("var", input, dim), keepdim=keepdim, correction=correction)


def std(input, dim=None, *, unbiased=None, correction=1, keepdim=False):
    if unbiased is not None:
        correction = int(unbiased)
    return statistics.std(input, axes=_axes("std", input, dim), keepdim=keepdim, correction=correction)


def norm(input, p=2, dim=None, keepdim=False):
    """Vector norm: p in 1, 2 ("fro"), inf or any positive number."""
    axes = _axes("norm", input, dim)
    if p in (2, 2.0, "fro", None):
        return statistics.norm(input, axes=axes, keepdim=keepdim)
    if p == float("inf"):
        return reduction.amax(arithmetic.abs_(input), axes=axes, keepdim=keepdim)
    if p == 1:
        return reduction.sum_(arithmetic.abs_(input), axes=axes, keepdim=keepdim)
    if not isinstance(p, (int, float)) or p <= 0:
        raise ValueError(f"norm: p must be a positive number, inf or 'fro', got {p!r}")
    return reduction.sum_(arithmetic.abs_(input) ** p, axes=axes, keepdim=keepdim) ** (1.0 / p)


class Extreme(tuple):
    """(values, indices) of max or min along one dimension."""

    __slots__ = ()
    values = property(lambda self: self[0])
    indices = property(lambda self: self[1])

    def __repr__(self):
        return f"weft.return_types.max(\nvalues={self[0]!r},\nindices={self[1]!r})"


def _extreme(name, total, position, pairwise):
    def function(input, dim=None, keepdim=False):
        if isinstance(dim, Tensor):
            return pairwise(input, dim)
        if dim is None:
            return total(input, axes=tuple(range(input.ndim)), keepdim=False)
        axis = normalize_axis(name, dim, input.ndim)
        indices = position(input, axis=axis)
        values = indexing.pick(input, indices, axis=axis)
        if keepdim:
            indices, values = unsqueeze(indices, axis), unsqueeze(values, axis)
        return Extreme((values, indices))

    function.__name__ = name
    function.__doc__ = f"{name} of all elements; (values, indices) along `dim`; or of two tensors, element by element."
    return function


max = _extreme("max", reduction.amax, reduction.argmax, arithmetic.maximum)
min = _extreme("min", reduction.amin, reduction.argmin, arithmetic.minimum)


def _position(name, op):
    def function(input, dim=None, keepdim=False):
        if dim is None:
            return op(flatten(input), axis=0)
        axis = normalize_axis(name, dim, input.ndim)
        result = op(input, axis=axis)
        return unsqueeze(result, axis) if keepdim else result

    function.__name__ = name
    function.__doc__ = f"{name}: int64 position of the first extreme, in the flattened tensor or along `dim`."
    return function


argmax = _position("argmax", reduction.argmax)
argmin = _position("argmin", reduction.argmin)


def softmax(input, dim, dtype=None):
    input = input if dtype is None else to_dtype(input, dtype)
    return statistics.softmax(input, axis=normalize_axis("softmax", dim, input.ndim))


def log_softmax(input, dim, dtype=None):
    input = input if dtype is None else to_dtype(input, dtype)
    return statistics.log_softmax(input, axis=normalize_axis("log_softmax", dim, input.ndim))


# --- shapes ---------------------------------------------------------------------------------------------------------
def _sizes(shape):
    if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)):
        shape = tuple(shape[0])
    return tuple(int(d) for d in shape)


def reshape(input, *shape):
    return view.reshape(input, shape=infer_reshape("reshape", input.shape, _sizes(shape)))


def view_(input, *shape):
    """Like reshape, but never copies: RuntimeError if strides cannot say it."""
    target = infer_reshape("view", input.shape, _sizes(shape))
    data = input._data
    if data is not None and data.size and not np.may_share_memory(data.reshape(target), data):
        raise RuntimeError(
            f"view: shape {target} is not compatible with input tensor's size {input.shape} and stride "
            f"{tuple(s // data.itemsize for s in data.strides)}. Use .reshape(...) instead."
        )
    return view.reshape(input, shape=target)


def permute(input, *dims):
    dims = tuple(normalize_axis("permute", d, input.ndim) for d in _sizes(dims))
    return view.permute(input, axes=dims)


def transpose(input, dim0, dim1):
    axes = (normalize_axis("transpose", d, input.ndim) for d in (dim0, dim1))
    first, second = axes
    return view.transpose(input, axis0=first, axis1=second) if input.ndim else input


def t(input):
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return view.t(input) if input.ndim == 2 else input


def expand(input, *shape):
    shape = _sizes(shape)
    lead = len(shape) - input.ndim
    target = tuple(input.shape[k - lead] if d == -1 and k >= lead else d for k, d in enumerate(shape))
    return view.expand(input, shape=target)


def broadcast_to(input, shape):
    return expand(input, shape)


def broadcast_tensors(*tensors):
    shape = broadcast_shapes("broadcast_tensors", [x.shape for x in tensors])
    return tuple(expand(x, shape) for x in tensors)


def squeeze(input, dim=None):
    axes = tuple(range(input.ndim)) if dim is None else normalize_axes("squeeze", dim, input.ndim)
    if not builtins.any(input.shape[a] == 1 for a in axes):
        return view.squeeze(input, axes=())
    return view.squeeze(input, axes=axes)


def unsqueeze(input, dim):
    return view.unsqueeze(input, axis=normalize_axis("unsqueeze", dim, input.ndim + 1))


def flatten(input, start_dim=0, end_dim=-1):
    if input.ndim == 0:
        return reshape(input, 1)
    first, last = (normalize_axis("flatten", d, input.ndim) for d in (start_dim, end_dim))
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    return reshape(input, *input.shape[:first], -1 if 0 not in input.shape else 0, *input.shape[last + 1 :])


def movedim(input, source, destination):
    order = [k for k in range(input.ndim) if k != source % input.ndim]
    order.insert(destination % input.ndim, source % input.ndim)
    return permute(input, order)


def cat(tensors, dim=0):
    """Join tensors along an existing dimension. Empty 1-d tensors are skipped, as in PyTorch."""
    tensors = [x for x in tensors if x.shape != (0,)] or list(tensors)
    if not tensors:
        raise RuntimeError("cat: expected a non-empty list of Tensors")
    return view.cat(*tensors, axis=normalize_axis("cat", dim, tensors[0].ndim))


concat = cat


def stack(tensors, dim=0):
    """Join tensors of one shape along a new dimension."""
    tensors = list(tensors)
    if not tensors:
        raise RuntimeError("stack: expected a non-empty list of Tensors")
    for k, x in enumerate(tensors):
        if x.shape != tensors[0].shape:
            raise OpError(
                f"stack: expects each tensor to be equal size, tensor 0 has {tensors[0].shape}, {k} {x.shape}"
            )
    return view.stack(*tensors, axis=normalize_axis("stack", dim, tensors[0].ndim + 1))


def narrow(input, dim, start, length):
    axis = normalize_axis("narrow", dim, input.ndim)
    spec = tuple((start, 1, length) if k == axis else (0, 1, d) for k, d in enumerate(input.shape))
    if not 0 <= start <= start + length <= input.shape[axis]:
        raise RuntimeError(f"narrow: start ({start}) + length ({length}) exceeds dimension size ({input.shape[axis]})")
    return view.slice_(input, spec=spec)


def split(input, split_size_or_sections, dim=0):
    """Views of `split_size` (the last may be shorter), or of the given sizes, along dim."""
    size = input.shape[normalize_axis("split", dim, input.ndim)]
    if isinstance(split_size_or_sections, int):
        step = split_size_or_sections
        if step <= 0:
            raise RuntimeError(f"split expects split_size be positive, but got split_size={step}")
        sections = [builtins.min(step, size - k) for k in range(0, size, step)] or [0]
    else:
        sections = list(split_size_or_sections)
        if builtins.sum(sections) != size:
            raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {size}, but got {sections}")
    starts = np.cumsum([0, *sections])
    return tuple(narrow(input, dim, int(s), n) for s, n in zip(starts, sections))


def chunk(input, chunks, dim=0):
    size = input.shape[dim]
    return split(input, builtins.max(-(-size // chunks), 1), dim)


def unbind(input, dim=0):
    axis = normalize_axis("unbind", dim, input.ndim)
    return tuple(view.select(input, axis=axis, index=k) for k in range(input.shape[axis]))


# --- products -------------------------------------------------------------------------------------------------------
def matmul(input, other):
    return contraction.matmul(_tensor("matmul", input), _tensor("matmul", other))


def mm(input, mat2):
    if input.ndim != 2 or mat2.ndim != 2:
        raise OpError(f"mm: both arguments must be matrices, got shapes {input.shape} and {mat2.shape}")
    return contraction.bmm(input, mat2)


def bmm(input, mat2):
    if input.ndim != 3 or mat2.ndim != 3:
        raise OpError(f"bmm: both arguments must have 3 dimensions, got shapes {input.shape} and {mat2.shape}")
    return contraction.bmm(input, mat2)


def dot(input, other):
    if input.ndim != 1 or other.ndim != 1:
        raise OpError(f"dot: 1D tensors expected, got shapes {input.shape} and {other.shape}")
    return contraction.matmul(input, other)


def outer(input, vec2):
    return unsqueeze(input, 1) * vec2


def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    product = mm(mat1, mat2)
    return (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)


# --- positions ------------------------------------------------------------------------------------------------------
def gather(input, dim, index):
    return indexing.gather(input, index, axis=normalize_axis("gather", dim, input.ndim))


def scatter_add(input, dim, index, src):
    return indexing.scatter_add(input, index, src, axis=normalize_axis("scatter_add", dim, input.ndim))


def index_select(input, dim, index):
    if index.ndim > 1:
        raise OpError(f"index_select: Index is supposed to be a vector, got shape {index.shape}")
    return indexing.index_select(input, index, axis=normalize_axis("index_select", dim, input.ndim))


def index_add(input, dim, index, source):
    return indexing.index_add(input, index, source, axis=normalize_axis("index_add", dim, input.ndim))


def take_along_dim(input, indices, dim):
    return gather(input, dim, indices)


def nonzero(input, *, as_tuple=False):
    """Positions of the elements that are not zero. Its shape depends on the data, so it is computed at once."""
    found = input.array.nonzero()
    if as_tuple:
        return tuple(Tensor(np.asarray(k, dtype=np.int64)) for k in found)
    return Tensor(np.stack(found, 1).astype(np.int64) if input.ndim else np.zeros((int(found[0].size), 0), np.int64))


def masked_select(input, mask):
    return input[mask]


def masked_fill(input, mask, value):
    return comparison.where(mask, operand(value), input)


def _triangle(input, diagonal, keep):
    rows, columns = (np.arange(d) for d in input.shape[-2:])
    mask = keep(columns[None, :] - rows[:, None], diagonal)
    return comparison.where(Tensor(mask), input, 0)


def tril(input, diagonal=0):
    """The lower triangle of the last two dimensions; the rest zero."""
    return _triangle(input, diagonal, np.less_equal)


def triu(input, diagonal=0):
    return _triangle(input, diagonal, np.greater_equal)


# --- types and comparison -------------------------------------------------------------------------------------------
def to_dtype(input, dtype):
    return input if input.dtype is dtype else comparison.cast(input, dtype=dtype)


def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether |input - other| <= atol + rtol * |other| everywhere. A Python bool."""
    return bool(np.allclose(input.array, other.array, rtol=rtol, atol=atol, equal_nan=equal_nan))


def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    return Tensor(np.isclose(input.array, other.array, rtol=rtol, atol=atol, equal_nan=equal_nan))


def equal(input, other):
    """Whether shapes and all elements are equal. A Python bool."""
    return input.shape == other.shape and bool(np.array_equal(input.array, other.array))


def is_tensor(x):
    return isinstance(x, Tensor)


PUBLIC = [
    *GENERATED,
    *str.split("""
    absolute negative multiply subtract true_divide add square pow atan2 where clamp clip lerp sum mean prod
    amax amin any all logsumexp var std norm max min argmax argmin softmax log_softmax reshape permute transpose
    t broadcast_to broadcast_tensors squeeze unsqueeze flatten movedim cat concat stack narrow split chunk
    unbind matmul mm bmm dot outer addmm gather scatter_add index_select index_add take_along_dim nonzero
    masked_select masked_fill tril triu allclose isclose equal is_tensor
"""),
]
