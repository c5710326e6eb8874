"""Functions that change shapes, join and part tensors. Most are views: no data moves where strides can say it."""

import builtins
import functools
from math import prod

from .compiler import dtypes
from .compiler.ops import comparison, spelling, view
from .compiler.ops.reinterpreted import reinterpreted
from .compiler.ops.table import OpError
from .compiler.shapes import (
    broadcast_shapes,
    infer_reshape,
    is_whole,
    normalize_axes,
    normalize_axis,
    shape_given,
    whole_number,
)
from .kinds import answering
from .operands import tensor_of
from .runtime.state import marks
from .runtime.state.tensor import Tensor, shape_of

_INT = {int}


def sizes(shape, keyword=None):
    """x.reshape(2, 3), x.reshape((2, 3)), x.reshape([2, 3]) and x.reshape(shape=(2, 3)) alike."""
    if keyword is None and {*map(type, shape)} == _INT:
        return shape
    if keyword is not None:
        shape = (keyword,)
    return shape_given(shape)


# Of tensors, whose shapes are ints: what was inferred is remembered.
_reshaped = functools.lru_cache(4096)(infer_reshape)


def reshape(input, *numbers, shape=None):
    """The same elements in another shape; one size may be -1. A view where strides allow it."""
    if input.__class__ is not Tensor:
        tensor_of("reshape", input)
    if shape is not None or len(numbers) != 1 or numbers[0].__class__ is not int:
        numbers = sizes(numbers, shape)
    data = input._data
    return view.reshape(input, shape=_reshaped("reshape", input._meta.shape if data is None else data.shape, numbers))


def view_(input, *shape, size=None, dtype=None):
    """Like reshape, but never copies: RuntimeError if strides cannot say it. With a type in place of a shape the same
    bytes as numbers of that type, which have no gradients."""
    if input.__class__ is not Tensor:
        tensor_of("view", input)
    if dtype is not None or shape and isinstance(shape[0], dtypes.DType):
        return reinterpreted(input, dtype=dtypes.dtype_of(dtype or shape[0]))
    target = _reshaped("view", shape_of(input), sizes(shape, size))
    result = view.reshape(input, shape=target)
    if result._base is None:
        array = input._data
        strides = "" if array is None else f" {tuple(s // array.itemsize for s in array.strides)}"
        raise RuntimeError(
            f"view: shape {target} is not compatible with input tensor's size {input.shape} and stride{strides}. "
            "Use .reshape(...) instead."
        )
    return result


view_.__name__ = view_.__qualname__ = "view"  # `view` here is the op


def permute(input, *numbers, dims=None):
    """A view with the dimensions in another order."""
    if input.__class__ is not Tensor:
        tensor_of("permute", input)
    return view.permute(input, axes=tuple(_axes_of("permute", sizes(numbers, dims), len(shape_of(input)))))


def _axes_of(name, dims, ndim):
    """Dimensions counted from the beginning, as nearly all are."""
    return [d if d.__class__ is int and 0 <= d < ndim else normalize_axis(name, d, ndim) for d in dims]


def transposed_matrices(input):
    """Matrices, their rows and columns exchanged. A number stays."""
    if input.ndim == 1:
        raise OpError("tensor.mT is only supported on matrices or batches of matrices. Got 1-D tensor.")
    return transpose(input, -1, -2) if input.ndim else input


def transpose(input, dim0, dim1):
    if input.__class__ is not Tensor:
        tensor_of("transpose", input)
    ndim = len(shape_of(input))
    first, second = normalize_axis("transpose", dim0, ndim), normalize_axis("transpose", dim1, ndim)
    return view.transpose(input, axis0=first, axis1=second) if ndim else input


swapdims = transpose


def swapaxes(input, axis0, axis1):
    """transpose, by NumPy's name."""
    return transpose(input, axis0, axis1)


def t(input):
    if input.__class__ is not Tensor:
        tensor_of("t", input)
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return view.t(input) if input.ndim == 2 else view.permute(input, axes=tuple(range(input.ndim)))


def expand(input, *shape, size=None):
    if input.__class__ is not Tensor:
        tensor_of("expand", input)
    shape = sizes(shape, size)
    if -1 in shape:
        given = shape_of(input)
        lead = len(shape) - len(given)
        if -1 in shape[: max(lead, 0)]:
            raise RuntimeError(f"expand: The size -1 isn't allowed in a leading, non-existing dimension of {shape}")
        shape = tuple([given[k - lead] if d == -1 and k >= lead else d for k, d in enumerate(shape)])
    return view.expand(input, shape=shape)


def broadcast_to(input, *shape, size=None):
    return expand(input, *shape, size=size)


def broadcast_tensors(*tensors):
    shape = broadcast_shapes("broadcast_tensors", [x.shape for x in tensors])
    # What has the shape stays, and so is the leaf whose gradient is asked for.
    return tuple(x if x.shape == shape else expand(x, shape) for x in tensors)


def squeeze(input, dim=None, *dims, axis=None):
    if input.__class__ is not Tensor:
        tensor_of("squeeze", input)
    if dims:
        dim = (dim, *dims)
    dim = dim if axis is None else axis
    if isinstance(dim, tuple) and not dim:
        return view.reshape(input, shape=input.shape)
    return view.squeeze(input, axes=normalize_axes("squeeze", dim, input.ndim))


def unsqueeze(input, dim=None, *, axis=None):
    if input.__class__ is not Tensor:
        tensor_of("unsqueeze", input)
    dim = dim if axis is None else axis
    return view.unsqueeze(input, axis=normalize_axis("unsqueeze", dim, input.ndim + 1))


def flatten(input, start_dim=0, end_dim=-1):
    if input.__class__ is not Tensor:
        tensor_of("flatten", input)
    if start_dim.__class__ is not int or end_dim.__class__ is not int:
        # What is remembered by it must not be a tensor, which may have another number next time.
        start_dim, end_dim = (whole_number("flatten", "dim", d) for d in (start_dim, end_dim))
    target = _flattened(tuple(shape_of(input)), start_dim, end_dim)
    return input if target is None else view.reshape(input, shape=target)


@functools.lru_cache(4096, typed=True)
def _flattened(shape, start_dim, end_dim):
    """The shape of what is flattened; None if that changes nothing."""
    if not shape:
        return (1,)
    first, last = (normalize_axis("flatten", d, len(shape)) for d in (start_dim, end_dim))
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    return None if first == last else (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])


def ravel(input):
    return reshape(input, -1)


def unflatten(input, dim, sizes):
    """One dimension as several, of the given sizes; one of them may be -1."""
    axis = normalize_axis("unflatten", dim, input.ndim)
    parts = infer_reshape("unflatten", (input.shape[axis],), sizes)
    return reshape(input, (*input.shape[:axis], *parts, *input.shape[axis + 1 :]))


def movedim(input, source, destination):
    """Dimensions moved to other places; the others keep their order."""
    moved = source if isinstance(source, (list, tuple)) else [source]
    places = destination if isinstance(destination, (list, tuple)) else [destination]
    if len(moved) != len(places):
        raise OpError(f"movedim: source {source} should contain the same number of dims as destination {destination}")
    ndim = len(shape_of(input))
    moved, places = _axes_of("movedim", moved, ndim), _axes_of("movedim", places, ndim)
    if len(set(moved)) < len(moved) or len(set(places)) < len(places):
        raise OpError(f"movedim: repeated dim in source {source} or destination {destination}")
    order = [k for k in range(ndim) if k not in moved]
    for place, dim in sorted(zip(places, moved)):
        order.insert(place, dim)
    return view.permute(input, axes=tuple(order))


moveaxis = movedim


def cat(tensors, dim=0, *, axis=None):
    """Join tensors along an existing dimension. Empty 1-d tensors are skipped, as in PyTorch."""
    dim = dim if axis is None else axis
    if tensors.__class__ is not list:
        if hasattr(tensors, "apply_op"):
            raise TypeError("cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
        tensors = list(tensors)
    if not tensors:
        raise OpError("cat: expected a non-empty list of Tensors")
    for x in tensors:
        data = x._data if x.__class__ is Tensor else None
        if data is None or not data.ndim or not data.size:
            return _cat(tensors, dim)
    # Most often nothing is to be skipped, and nothing pending.
    axis = dim if dim.__class__ is int and 0 <= dim < data.ndim else normalize_axis("cat", dim, tensors[0]._data.ndim)
    return view.cat(*tensors, axis=axis)


def _cat(tensors, dim):
    """Of whatever there may be in the list."""
    kept = []
    for k, x in enumerate(tensors):
        if not hasattr(x, "apply_op"):
            raise TypeError(f"cat: expected Tensor as element {k} in argument 0, but got {type(x).__name__}")
        shape = shape_of(x)
        if not shape:
            raise RuntimeError(f"cat: zero-dimensional tensor (at position {k}) cannot be concatenated")
        if shape != (0,):
            kept.append(x)
    if not kept:
        # Vectors of nothing have every dimension.
        kept, dim = tensors, 0
    if len(kept) < len(tensors):
        # What is skipped counts for the type.
        dtype = functools.reduce(dtypes.promote, (x.dtype for x in tensors))
        kept = [x if x.dtype is dtype else comparison.cast(x, dtype=dtype) for x in kept]
    return view.cat(*kept, axis=normalize_axis("cat", dim, len(shape_of(kept[0]))))


concat = concatenate = cat


def stack(tensors, dim=0, *, axis=None):
    """Join tensors of one shape along a new dimension."""
    dim = dim if axis is None else axis
    if tensors.__class__ is not list:
        if isinstance(dim, Tensor) and isinstance(tensors, Tensor):
            raise TypeError(
                "stack(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor: stack([x, y])"
            )
        tensors = list(tensors)
    if not tensors:
        raise RuntimeError("stack: expected a non-empty list of Tensors")
    first = tensors[0]._data.shape if tensors[0].__class__ is Tensor and tensors[0]._data is not None else None
    for x in tensors:
        data = x._data if x.__class__ is Tensor else None
        if data is None or data.shape != first:
            return _stack(tensors, dim)
    # Most often they are alike, and nothing is pending.
    ndim = len(first) + 1
    axis = dim if dim.__class__ is int and 0 <= dim < ndim else normalize_axis("stack", dim, ndim)
    return view.stack(*tensors, axis=axis)


def _stack(tensors, dim):
    """Of whatever there may be in the list."""
    for k, x in enumerate(tensors):
        if not hasattr(x, "apply_op"):
            raise TypeError(f"stack: expected Tensor as element {k} in argument 0, but got {type(x).__name__}")
    first = shape_of(tensors[0])
    for k, x in enumerate(tensors):
        if shape_of(x) != first:
            raise OpError(f"stack: expects each tensor to be equal size, tensor 0 has {first}, {k} {x.shape}")
    return view.stack(*tensors, axis=normalize_axis("stack", dim, len(first) + 1))


def hstack(tensors):
    """Side by side: along the second dimension, vectors along the first."""
    tensors = [x if tensor_of("hstack", x, "tensors").ndim else reshape(x, 1) for x in tensors]
    if not tensors:
        raise RuntimeError("hstack expects a non-empty TensorList")
    return cat(tensors, 0 if tensors[0].ndim == 1 else 1)


def vstack(tensors):
    """One above the other: vectors as rows."""
    return cat([x if tensor_of("vstack", x, "tensors").ndim > 1 else reshape(x, 1, -1) for x in tensors], 0)


def narrow(input, dim, start, length):
    if input.__class__ is not Tensor:
        tensor_of("narrow", input)
    sizes = tuple(input.shape)
    if not sizes:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    axis = normalize_axis("narrow", dim, len(sizes))
    size = sizes[axis]
    if isinstance(start, Tensor) and (start.ndim or start.dtype.category != 1):
        raise RuntimeError(f"narrow: start must be an 0-dim integral Tensor, got {start.dtype.name}{start.shape}")
    length = whole_number("narrow", "length", length)
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative, got {length}")
    if not -size <= start <= size:
        raise IndexError(f"narrow: start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    start = int(start) + (size if start < 0 else 0)
    if not 0 <= start <= start + length <= size:
        raise RuntimeError(f"narrow: start ({start}) + length ({length}) exceeds dimension size ({size})")
    return view.slice_(input, spec=range_spec(input, axis, start, length))


def split(input=None, split_size=None, dim=0, *, split_size_or_sections=None, tensor=None):
    """Views of `split_size` (the last may be shorter), or of the given sizes, along dim."""
    input = input if tensor is None else tensor
    split_size = split_size if split_size_or_sections is None else split_size_or_sections
    if input.__class__ is not Tensor:
        tensor_of("split", input)
    shape = shape_of(input)
    axis = normalize_axis("split", dim, len(shape))
    size = shape[axis]
    if is_whole(split_size):
        step = whole_number("split", "split_size", split_size)
        if step <= 0:
            raise RuntimeError(f"split expects split_size be positive, but got split_size={step}")
        made = marks.cut(input, axis, step)
        return _of_length(input, axis, step) if made is None else made
    sections = tuple([whole_number("split", "split_sizes", n) for n in split_size])
    if builtins.sum(sections) != size:
        raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {size}, but got {[*sections]}")
    return _of_lengths(input, axis, sections)


# What autograd has to know of is as many ops as there are parts.
@answering
def _of_length(input, axis, length):
    specs = _even_parts(shape_of(input), axis, length)
    return tuple([spelling.part(input, spec=spec, of="Split") for spec in specs])


@answering
def _of_lengths(input, axis, lengths):
    specs = _parts(shape_of(input), axis, lengths)
    return tuple([spelling.part(input, spec=spec, of="SplitWithSizes") for spec in specs])


@answering
def _single_parts(input, axis):
    return tuple([spelling.unbind_part(input, axis=axis, index=k) for k in range(shape_of(input)[axis])])


@functools.lru_cache(1024)
def _even_parts(shape, axis, step):
    """What slice_ cuts to have parts of `step` along an axis, the last one shorter if it has to be."""
    size = shape[axis]
    return _parts(shape, axis, [builtins.min(step, size - k) for k in range(0, size, step)] or [0])


def _parts(shape, axis, lengths):
    """The same for parts of these lengths."""
    whole, specs, start = [(0, 1, d) for d in shape], [], 0
    for length in lengths:
        specs.append((*whole[:axis], (start, 1, length), *whole[axis + 1 :]))
        start += length
    return specs


def range_spec(x, axis, start, length):
    spec = [(0, 1, d) for d in tuple(x.shape)]
    spec[axis] = (start, 1, length)
    return tuple(spec)


def chunk(input, chunks, dim=0):
    is_recorded = input.__class__ is Tensor and input._requires_grad
    return (_recorded_chunk if is_recorded else _chunk)(input, chunks, dim)


def _chunk(input, chunks, dim):
    if input.__class__ is not Tensor:
        tensor_of("chunk", input)
    shape = shape_of(input)
    if chunks.__class__ is not int:
        chunks = whole_number("chunk", "chunks", chunks)
    size = shape[normalize_axis("chunk", dim, len(shape))]
    if chunks < 1:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    if size == 0:
        return split(input, [0] * chunks, dim)
    return split(input, -(-size // chunks), dim)


_recorded_chunk = answering(_chunk)


def unbind(input, dim=0):
    if input.__class__ is not Tensor:
        tensor_of("unbind", input)
    axis = normalize_axis("unbind", dim, input.ndim)
    made = marks.cut(input, axis, 0)
    return _single_parts(input, axis) if made is None else made


# --- moving elements --------------------------------------------------------------------------------------------------
def flip(input, *numbers, dims=None):
    """A copy with the order of the elements along `dims` reversed."""
    dims = sizes(numbers, dims)
    axes = normalize_axes("flip", dims, input.ndim) if dims else ()
    spec = tuple((d - 1, -1, d) if k in axes and d else (0, 1, d) for k, d in enumerate(input.shape))
    return spelling.flip(input, spec=spec)


def roll(input, shifts, dims=None):
    """Elements moved by `shifts` places along `dims` (all as one if None); those that fall off re-enter."""
    shifts = tuple(shifts) if isinstance(shifts, (list, tuple)) else (shifts,)
    if dims is None or isinstance(dims, tuple) and not dims:
        if len(shifts) != 1:
            raise RuntimeError(f"roll: `shifts` {shifts} and dims {dims} must align")
        shape = shape_of(input)
        if len(shape) != 1:
            return view.reshape(_rolled(view.reshape(input, shape=(prod(shape),)), shifts, (0,)), shape=shape)
        dims = 0
    if 0 in shape_of(input):
        return view.clone(input)
    return _rolled(input, shifts, tuple(dims) if isinstance(dims, (list, tuple)) else (dims,))


def _rolled(input, shifts, dims):
    is_plain = {*map(type, shifts), *map(type, dims)} == _INT
    cuts, axes = (_cuts if is_plain else _cuts.__wrapped__)(shape_of(input), shifts, dims)
    return spelling.roll(input, cuts=cuts, axes=axes) if cuts else view.clone(input)


@functools.lru_cache(1024)
def _cuts(shape, shifts, dims):
    """Where `roll` cuts a tensor of this shape, and along which axes."""
    if len(shifts) != len(dims):
        raise RuntimeError(f"roll: shifts and dimensions must align. shifts: {[*shifts]}, dims: {[*dims]}")
    cuts, axes = [], []
    for shift, dim in zip(shifts, dims):
        axis = normalize_axis("roll", dim, len(shape))
        size = shape[axis]
        cut = size - int(shift) % size if size else 0
        if 0 < cut < size:
            cuts.append(cut)
            axes.append(axis)
    return tuple(cuts), tuple(axes)


def tile(input, *counts, dims=None):
    """Copies of the tensor side by side: dims[k] of them along dimension k."""
    counts = sizes(counts, dims)
    if any(n < 0 for n in counts):
        raise RuntimeError(f"Trying to create tensor with negative dimension: tile of {counts}")
    counts = (1,) * (input.ndim - len(counts)) + counts
    shape = (1,) * (len(counts) - input.ndim) + input.shape
    # (a, b) -> (1, a, 1, b) -> (m, a, n, b) -> (m a, n b)
    spread = reshape(input, tuple(d for size in shape for d in (1, size)))
    spread = expand(spread, tuple(d for pair in zip(counts, shape) for d in pair))
    result = reshape(spread, tuple(n * size for n, size in zip(counts, shape)))
    # Where nothing had to move, strides of 0 have made the copies, and they would share the tensor's memory.
    return view.clone(result) if all(n == 1 or size == 1 for n, size in zip(counts, shape)) else result


def repeat(input, *counts, repeats=None):
    """Like tile; as many counts as dimensions at least."""
    counts = sizes(counts, repeats)
    if len(counts) < input.ndim:
        raise RuntimeError(
            "repeat: Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: "
            f"{len(counts)} counts for shape {input.shape}"
        )
    return tile(input, *counts)


METHODS = str.split("""
    reshape permute transpose swapaxes swapdims t broadcast_to squeeze unsqueeze flatten ravel unflatten movedim
    moveaxis narrow split chunk unbind flip roll tile expand repeat
""")
_NO_FUNCTIONS = ("expand", "repeat")
PUBLIC = [
    *(name for name in METHODS if name not in _NO_FUNCTIONS),
    *str.split("broadcast_tensors cat concat concatenate stack hstack vstack"),
]
