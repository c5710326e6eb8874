"""Rearranging: diagonals, triangles, rotations, grids, windows, and joining and parting by dimension."""

import itertools
from functools import lru_cache

import numpy as np

from .compiler import dtypes
from .compiler.dtypes import dtype_of
from .compiler.later import later
from .compiler.ops import view
from .compiler.ops.strided import nested, strided
from .compiler.ops.table import OpError
from .compiler.shapes import broadcast_shapes as broadcast
from .compiler.shapes import is_whole, normalize_axis
from .composed import meshgrid
from .creation import zeros
from .functions import to_dtype
from .placement import check_placement
from .runtime.state.marks import of_numbers
from .runtime.state.modes import state
from .runtime.state.size import Size
from .runtime.state.tensor import Tensor, tensor_of
from .shaping import cat, flatten, flip, movedim, narrow, reshape, sizes, split, stack, transpose, unsqueeze, vstack

_unfolded = later("compiler.ops.windows:unfold")


# --- diagonals --------------------------------------------------------------------------------------------------------
def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """Matrices, spanned by dim1 and dim2 of the result, with the last dimension of input on a diagonal."""
    ndim = input.ndim + 1
    first, second = (normalize_axis("diag_embed", d, ndim) for d in (dim1, dim2))
    if first == second:
        raise OpError(f"diag_embed: diagonal dimensions cannot be identical {dim1}, {dim2}")
    length, lead = input.shape[-1], input.shape[:-1]
    size = length + abs(offset)
    start = (offset if offset >= 0 else -offset * size) if length else 0
    blank = input.new_zeros(()).expand((*lead, size * size))
    spec = (*((0, 1, d) for d in lead), (start, size + 1, length))
    matrices = reshape(view.slice_scatter(blank, input, spec=spec), (*lead, size, size))
    return movedim(matrices, (-2, -1), (first, second))


def diagflat(input, offset=0):
    """A matrix with the elements of input on its diagonal."""
    return diag_embed(flatten(input), offset)


def tril_indices(row, col, offset=0, *, dtype=None, **placement):
    """(2, n): rows and columns of the lower triangle of a matrix."""
    check_placement("tril_indices", placement)
    return _triangle_indices(np.greater_equal, row, col, offset, dtype)


def triu_indices(row, col, offset=0, *, dtype=None, **placement):
    """(2, n): rows and columns of the upper triangle of a matrix."""
    check_placement("triu_indices", placement)
    return _triangle_indices(np.less_equal, row, col, offset, dtype)


of_numbers(tril_indices, triu_indices)


def _triangle_indices(is_in, row, col, offset, dtype):
    if row < 0 or col < 0:
        raise RuntimeError(f"row and col must be non-negative, got {row} and {col}")
    # What row + offset is compared with is the column.
    found = is_in(np.arange(offset, row + offset)[:, None], np.arange(col)).nonzero()
    return tensor_of(np.array(found, dtype=dtype_of(dtype or dtypes.int64).numpy))


# --- order of elements ------------------------------------------------------------------------------------------------
def fliplr(input):
    """Columns in reverse."""
    if input.ndim < 2:
        raise RuntimeError(f"Input must be >= 2-d, got shape {input.shape}")
    return flip(input, 1)


def flipud(input):
    """Rows in reverse."""
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d, got a 0-d tensor")
    return flip(input, 0)


def rot90(input, k=1, dims=(0, 1)):
    """Turned k times by 90 degrees, from the first of dims towards the second."""
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    first, second = (normalize_axis("rot90", d, input.ndim) for d in dims)
    if first == second:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    k %= 4
    if k == 1:
        return transpose(flip(input, second), first, second)
    if k == 2:
        return flip(input, (first, second))
    return flip(transpose(input, first, second), second) if k == 3 else view.clone(input)


# --- shapes -----------------------------------------------------------------------------------------------------------
def broadcast_shapes(*shapes):
    """The shape that tensors of these shapes broadcast to."""
    shapes = [(s,) if is_whole(s) else tuple(s) for s in shapes]
    if any(d < 0 for s in shapes for d in s):
        raise RuntimeError(f"broadcast_shapes: Trying to create tensor with negative dimension: {shapes}")
    return Size(broadcast("broadcast_shapes", shapes) if shapes else ())


def _each(function):
    """Of one tensor, or of several (or a list of them) as a tuple."""

    def on_all(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], Tensor):
            return function(tensors[0])
        given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
        return tuple(function(x) for x in given)

    on_all.__name__, on_all.__doc__ = function.__name__, function.__doc__
    return on_all


@_each
def atleast_1d(input):
    """A number as a vector."""
    return input if input.ndim else reshape(input, 1)


@_each
def atleast_2d(input):
    """A vector as a row."""
    return input if input.ndim > 1 else reshape(input, 1, -1)


@_each
def atleast_3d(input):
    """A matrix as many rows of one element each, a vector as one row of them."""
    if input.ndim > 2:
        return input
    return unsqueeze(input, -1) if input.ndim == 2 else reshape(input, 1, -1, 1)


def sum_to_size(input, *size):
    """Summed over the dimensions that were broadcast from the given size."""
    size = sizes(size)
    lead = input.ndim - len(size)
    if lead < 0 or any(a not in (1, b) for a, b in zip(size, input.shape[lead:])):
        raise OpError(f"size {size} is not expandable to size {input.shape}")
    axes = [k for k, d in enumerate(input.shape) if k < lead or size[k - lead] == 1 != d]
    return reshape(input.sum(tuple(axes)), size) if axes else input


# --- joining ----------------------------------------------------------------------------------------------------------
row_stack = vstack


def dstack(tensors):
    """Joined along the third dimension."""
    return cat([atleast_3d(x) for x in _listed("dstack", tensors)], 2)


def column_stack(tensors):
    """Vectors as columns of a matrix, matrices side by side."""
    return cat([x if x.ndim > 1 else reshape(x, -1, 1) for x in _listed("column_stack", tensors)], 1)


def _listed(name, tensors):
    tensors = list(tensors)
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return tensors


def block_diag(*tensors):
    """A matrix with the given ones on its diagonal and zeros elsewhere."""
    blocks = []
    for k, x in enumerate(tensors):
        if x.ndim > 2:
            raise OpError(
                f"block_diag: Input tensors must have 2 or fewer dimensions. Input {k} has {x.ndim} dimensions"
            )
        blocks.append(atleast_2d(x))
    if not blocks:
        return zeros(1, 0)
    width, start, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        sides = [(x.shape[0], start), (x.shape[0], width - start - x.shape[1])]
        left, right = ([x.new_zeros(side)] if side[1] else [] for side in sides)
        rows.append(cat([*left, x, *right], 1))
        start += x.shape[1]
    return cat(rows, 0)


def cartesian_prod(*tensors):
    """All combinations of the elements of vectors, one a row."""
    if any(x.ndim != 1 for x in tensors):
        raise OpError(f"cartesian_prod: Expect a 1D vector, but got shapes {[tuple(x.shape) for x in tensors]}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([flatten(x) for x in meshgrid(*tensors, indexing="ij")], 1)


def combinations(input, r=2, with_replacement=False):
    """All combinations of r elements of a vector, one a row."""
    if input.ndim != 1:
        raise OpError(f"Expect a 1D vector, but got shape {input.shape}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    if r == 0:
        return zeros(0, dtype=input.dtype)
    rows = np.array(list(choose(range(input.shape[0]), r)), np.int64).reshape(-1, r)
    return input[tensor_of(rows)]


# --- parting ----------------------------------------------------------------------------------------------------------
def tensor_split(input, indices_or_sections, dim=0):
    """Views: that many of about equal size along dim, or those between the given positions."""
    if input.ndim == 0:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    axis = normalize_axis("tensor_split", dim, input.ndim)
    size = input.shape[axis]
    if isinstance(indices_or_sections, Tensor):
        _check_split_tensor(indices_or_sections)
        indices_or_sections = indices_or_sections.tolist()
    if is_whole(indices_or_sections):
        count = int(indices_or_sections)
        if count <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {count}")
        return split(input, [size // count + (k < size % count) for k in range(count)], axis)
    cuts = [min(max(c + size if c < 0 else c, 0), size) for c in indices_or_sections]
    spans = zip([0, *cuts], [*cuts, size])
    return tuple(narrow(input, axis, start, max(stop - start, 0)) for start, stop in spans)


def _check_split_tensor(given):
    if given.dtype is not dtypes.int64 or given.ndim > 1:
        raise OpError(
            "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional int64 "
            f"tensor, got {given.dtype.name}{given.shape}"
        )


def _directed_split(name, least, axis_of):
    def function(input, indices_or_sections):
        if input.ndim < least:
            raise RuntimeError(
                f"{name} requires a tensor with at least {least} dimension, got a tensor with {input.ndim}"
            )
        axis = axis_of(input)
        parts = indices_or_sections
        if is_whole(parts) and (parts <= 0 or input.shape[axis] % parts):
            raise RuntimeError(
                f"{name} attempted to split along dimension {axis}, but the size of the dimension "
                f"{input.shape[axis]} is not divisible by the split_size {parts}!"
            )
        return tensor_split(input, indices_or_sections, axis)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "tensor_split along one dimension, into equal parts or at the given positions."
    return function


hsplit = _directed_split("hsplit", 1, lambda x: min(x.ndim - 1, 1))
vsplit = _directed_split("vsplit", 2, lambda x: 0)
dsplit = _directed_split("dsplit", 3, lambda x: 2)


def split_with_sizes(input, split_sizes, dim=0):
    """Views of the given sizes along dim."""
    if any(size < 0 for size in split_sizes):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes have only non-negative entries, but got {split_sizes}"
        )
    return split(input, list(split_sizes), dim)


# --- windows ----------------------------------------------------------------------------------------------------------
def unfold(input, dimension, size, step):
    """A view of windows of `size` elements, `step` apart along the dimension, as a new last dimension."""
    axis = normalize_axis("unfold", dimension, input.ndim)
    length = input.shape[axis] if input.ndim else 1
    if size < 0 or size > length:
        raise RuntimeError(f"maximum size for tensor at dimension {dimension} is {length} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if input.ndim == 0:
        return narrow(reshape(input, 1), 0, 0, size)
    if not size:
        return _no_windows(input, axis, length // step + 1)
    return _unfolded(input, axis=axis, size=size, step=step)


def _no_windows(input, axis, count):
    rest = tuple(n for d, n in enumerate(input.shape) if d != axis)
    return reshape(narrow(input, axis, 0, 0), (*rest[:axis], count, *rest[axis:], 0))


def as_strided(input, size, stride, storage_offset=None):
    """Elements of the memory that input shows, at offset + sum of index times stride: a view, but a copy where an
    element is shown twice or input does not lie in order."""
    size, stride = tuple(size), tuple(stride)
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: {size} and {stride}")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {stride}")
    if state.frame is None and input._data is not None and _lies_once(input, size, stride, storage_offset or 0):
        row = input if input._data.ndim == 1 else view.reshape(input, shape=(input._data.size,))
        return strided(row, size=size, stride=stride, start=storage_offset or 0)
    known = _elements_at(input)
    # The offset counts from the beginning of the memory, which other elements than those of input may be at.
    start = 0 if storage_offset is None else storage_offset - (0 if input._base is None else input.storage_offset())
    if known is None and _are_whole(size, stride, start) and _shows_once(size, stride, start, input.numel()):
        return strided(flatten(input), size=size, stride=stride, start=start)
    positions, n_known = _sums(start, size, stride), input.numel() if known is None else len(known)
    if positions.size and not 0 <= positions.min() <= positions.max() < n_known:
        if known is None and input._base is None:
            raise RuntimeError(
                f"as_strided: sizes {size}, strides {stride} and storage offset {start} are out of bounds for "
                f"{input.numel()} elements"
            )
        raise _beyond(input, size, stride, storage_offset)
    if known is None and len(np.unique(positions)) == positions.size:
        return strided(flatten(input), size=size, stride=stride, start=start)
    if known is not None and positions.size:
        positions = known[positions]
        if positions.min() < 0:
            raise _beyond(input, size, stride, storage_offset)
    return reshape(flatten(input).index_select(0, tensor_of(positions.reshape(-1))), size)


def _lies_once(input, size, stride, start):
    """Whether this is known to be each element once of a tensor that lies in order from the beginning of its memory."""
    if input._base is not None or not input._data.flags.c_contiguous or not _are_whole(size, stride, start):
        return False
    return _shows_once(size, stride, start, input._data.size)


def _are_whole(size, stride, start):
    return {*map(type, (*size, *stride, start))} == {int}


@lru_cache(4096)
def _shows_once(size, stride, start, n):
    """Whether these are places below n, none of them twice."""
    if nested(size, stride) is not None:
        return start >= 0 and start + sum((count - 1) * step for count, step in zip(size, stride)) < n
    positions = _sums(start, size, stride)
    is_within = positions.size == 0 or 0 <= positions.min() <= positions.max() < n
    return is_within and len(np.unique(positions)) == positions.size


def _beyond(input, size, stride, storage_offset):
    return NotImplementedError(
        f"as_strided: sizes {size}, strides {stride} and storage offset {storage_offset or 0} reach elements of the "
        f"memory that the tensor of shape {input.shape} and strides {input.stride()} does not show; call it on the "
        "tensor that this is a view of, or index instead"
    )


def _sums(start, size, stride):
    """start + sum of index times stride, for all indices."""
    positions = np.full(size, start, np.int64)
    for axis, (count, step) in enumerate(zip(size, stride)):
        positions += step * np.arange(count).reshape([-1 if k == axis else 1 for k in range(len(size))])
    return positions


def _elements_at(input):
    """For places in memory, counted from the first that input shows, which of its elements is there (-1: none); None
    where these are the same numbers."""
    if input.is_contiguous() or input.numel() == 0:
        return None
    shown = _sums(0, input.shape, input.stride()).reshape(-1)
    known = np.full(shown.max() + 1, -1, np.int64)
    known[shown[::-1]] = np.arange(len(shown))[::-1]
    return known


def unravel_index(indices, shape):
    """The coordinates, in a tensor of the shape, of positions in its flattened form: one tensor per dimension."""
    shape = (shape,) if is_whole(shape) else tuple(shape)
    if indices.dtype.category != 1:
        raise ValueError(f"expected 'indices' to be integer dtype, but got {indices.dtype.name}")
    parts, indices = [], to_dtype(indices, dtypes.int64)
    for d in reversed(shape):
        parts.append(indices % d)
        indices = indices // d
    return tuple(reversed(parts))


METHODS = str.split("""
    diag_embed diagflat fliplr flipud rot90 sum_to_size tensor_split hsplit vsplit dsplit split_with_sizes unfold
    as_strided
""")
PUBLIC = [
    *(name for name in METHODS if name not in ("sum_to_size", "unfold")),
    *str.split("""
        tril_indices triu_indices broadcast_shapes atleast_1d atleast_2d atleast_3d dstack column_stack row_stack
        block_diag cartesian_prod combinations unravel_index
    """),
]
