"""Changes of shape, parts, and joins: of indices nearly always, of values where a dimension is dense."""

import numpy as np

from ..compiler.ops.table import OutOfRange
from ..compiler.shapes import normalize_axis
from ..runtime.state.tensor import Tensor, tensor_of
from ..shaping import cat as dense_cat
from .conversion import picked, to_dense
from .tensors import Sparse, SparseTensor


def transpose(input, dim0, dim1):
    """Two dimensions in each other's place; both sparse, or both dense."""
    first, second = (normalize_axis("transpose", d, input.ndim) for d in (dim0, dim1))
    order = list(range(input.ndim))
    order[first], order[second] = second, first
    return permute(input, order)


def permute(input, *dims):
    """The dimensions in another order: sparse ones among each other, and dense ones."""
    order = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    order = [normalize_axis("permute", d, input.ndim) for d in order]
    if sorted(order) != list(range(input.ndim)):
        raise RuntimeError(f"permute: dims {tuple(order)} are no order of the {input.ndim} dimensions")
    n = input.sparse_dim()
    if any((axis < n) is not (k < n) for k, axis in enumerate(order)):
        raise RuntimeError("transpositions between sparse and dense dimensions are not supported.")
    if order == list(range(input.ndim)):
        return input
    values = input._same_values()
    if order[n:] != list(range(n, input.ndim)):
        values = values.permute(0, *(axis - n + 1 for axis in order[n:]))
    indices = np.ascontiguousarray(input._indices_kept[order[:n]])
    is_rising = input._is_rising and order[:n] == list(range(n))
    return SparseTensor.of(indices, values, tuple(input.shape[axis] for axis in order), is_rising)


def t(input):
    """The transposed matrix."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but self is {input.ndim}D")
    return transpose(input, 0, 1) if input.ndim == 2 else input


def unsqueeze(input, dim):
    """A new dimension of size 1."""
    axis = normalize_axis("unsqueeze", dim, input.ndim + 1)
    shape = (*input.shape[:axis], 1, *input.shape[axis:])
    n = input.sparse_dim()
    if axis > n:
        values = input._values_kept.unsqueeze(axis - n + 1)
        return SparseTensor.of(input._indices_kept, values, shape, input._is_rising)
    indices = np.insert(input._indices_kept, axis, 0, 0)
    return SparseTensor.of(indices, input._same_values(), shape, input._is_rising)


def squeeze(input, dim=None):
    """Without dimensions of size 1."""
    dims = range(input.ndim) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    axes = [normalize_axis("squeeze", d, input.ndim) for d in dims]
    axes = [axis for axis in axes if input.shape[axis] == 1]
    n = input.sparse_dim()
    indices = np.delete(input._indices_kept, [axis for axis in axes if axis < n], 0)
    values = input._same_values()
    for axis in sorted((axis for axis in axes if axis >= n), reverse=True):
        values = values.squeeze(axis - n + 1)
    shape = tuple(size for axis, size in enumerate(input.shape) if axis not in axes)
    return SparseTensor.of(indices, values, shape, input._is_rising)


def no_reshape(input, *args):
    """RuntimeError: as in PyTorch, the elements of a sparse tensor have no other shape."""
    raise RuntimeError("reshape is not implemented for sparse tensors; write x.to_dense().reshape(...)")


# --- parts ------------------------------------------------------------------------------------------------------------
def select(input, dim, index):
    """One position of a dimension, which is gone then; a dense tensor where no sparse dimension is left."""
    axis, n = normalize_axis("select", dim, input.ndim), input.sparse_dim()
    size = input.shape[axis]
    if not -size <= index < size:
        raise OutOfRange(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {axis}"
        )
    index = index % size
    shape = (*input.shape[:axis], *input.shape[axis + 1 :])
    if axis >= n:
        values = input._values_kept.select(axis - n + 1, index)
        return SparseTensor.of(input._indices_kept, values, shape, input._is_rising)
    kept = np.flatnonzero(input._indices_kept[axis] == index)
    indices, values = np.delete(input._indices_kept[:, kept], axis, 0), picked(input._values_kept, kept)
    if n == 1:
        return values.sum(0)
    return SparseTensor.of(np.ascontiguousarray(indices), values, shape, input._is_rising)


def index_select(input, dim, index):
    """The positions of a dimension that `index` names, in its order, repeated where it repeats them."""
    axis, n = normalize_axis("index_select", dim, input.ndim), input.sparse_dim()
    numbers = index.detach().numpy().reshape(-1)
    size = input.shape[axis]
    if numbers.size and not -size <= numbers.min() <= numbers.max() < size:
        raise OutOfRange(f"index_select(): index out of range for a dimension of size {size}")
    shape = (*input.shape[:axis], len(numbers), *input.shape[axis + 1 :])
    if axis >= n:
        values = input._values_kept.index_select(axis - n + 1, index)
        return SparseTensor.of(input._indices_kept, values, shape, input._is_rising)
    numbers = numbers % max(size, 1)
    # Of each element of `index` those of the same position.
    by_position = np.argsort(input._indices_kept[axis], kind="stable")
    sorted_positions = input._indices_kept[axis][by_position]
    first = np.searchsorted(sorted_positions, numbers, "left")
    counts = np.searchsorted(sorted_positions, numbers, "right") - first
    places = np.repeat(np.arange(len(numbers), dtype=np.int64), counts)
    offsets = np.arange(counts.sum(), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = by_position[np.repeat(first, counts) + offsets]
    indices = np.array(input._indices_kept[:, kept])
    indices[axis] = places
    return SparseTensor.of(indices, picked(input._values_kept, kept), shape, input._is_rising and axis == 0)


def narrow(input, dim, start, length):
    """`length` positions of a dimension from `start` on."""
    return _cut(input, normalize_axis("narrow", dim, input.ndim), slice(start, start + length))


def _cut(input, axis, part):
    start, stop, step = part.indices(input.shape[axis])
    if step < 1:
        raise ValueError("step must be greater than zero")
    length = max(0, -(-(stop - start) // step))
    return index_select(input, axis, tensor_of(np.arange(start, start + length * step, step, dtype=np.int64)))


def getitem(input, key):
    """x[key]: integers, slices, None and Ellipsis."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if not all(k is None or k is Ellipsis or isinstance(k, (int, slice, np.integer)) for k in keys):
        if len(keys) == 1 and isinstance(keys[0], Tensor) and not keys[0].dtype.is_floating_point and keys[0].ndim == 1:
            return index_select(input, 0, keys[0])
        raise NotImplementedError("a sparse tensor takes integers and slices in brackets; write x.to_dense()[...]")
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        n_taken = sum(k is not None for k in keys) - 1
        keys[at : at + 1] = [slice(None)] * (input.ndim - n_taken)
    axis, found = 0, input
    for k in keys:
        if k is None:
            found = unsqueeze(found, axis)
        elif isinstance(k, slice):
            found = found if k == slice(None) else _part(found, axis, k)
        else:
            found = found.select(axis, int(k)) if not isinstance(found, Sparse) else select(found, axis, int(k))
            continue
        axis += 1
    return found


def _part(x, axis, part):
    return _cut(x, axis, part) if isinstance(x, Sparse) else x[(slice(None),) * axis + (part,)]


# --- joins ------------------------------------------------------------------------------------------------------------
def cat(tensors, dim=0, **_):
    """Sparse tensors one after another along a dimension."""
    if not all(isinstance(x, SparseTensor) for x in tensors):
        raise RuntimeError("Concatenating sparse tensors, but a dense one was found among them")
    first = tensors[0]
    axis, n = normalize_axis("cat", dim, first.ndim), first.sparse_dim()
    rest = [(*x.shape[:axis], *x.shape[axis + 1 :]) for x in tensors]
    if any(r != rest[0] for r in rest) or any(x.sparse_dim() != n for x in tensors):
        raise RuntimeError(f"cat: sizes differ in another dimension than {axis}: {[tuple(x.shape) for x in tensors]}")
    sizes = [x.shape[axis] for x in tensors]
    shape = (*first.shape[:axis], sum(sizes), *first.shape[axis + 1 :])
    if axis >= n:
        return _joined_dense(tensors, axis - n + 1, sizes, shape)
    shifted = []
    for x, begin in zip(tensors, np.cumsum([0, *sizes[:-1]])):
        indices = x._indices_kept.copy()
        indices[axis] += begin
        shifted.append(indices)
    values = dense_cat([x._values_kept for x in tensors])
    return SparseTensor.of(np.concatenate(shifted, 1), values, shape)


def _joined_dense(tensors, axis, sizes, shape):
    """Along a dense dimension: each has zeros where the others' elements are."""
    total, parts = sum(sizes), []
    for x, begin in zip(tensors, np.cumsum([0, *sizes[:-1]])):
        values = x._values_kept
        size = values.shape[axis]
        blanks = [
            values.new_zeros((*values.shape[:axis], n, *values.shape[axis + 1 :]))
            for n in (begin, total - begin - size)
        ]
        parts.append(dense_cat((blanks[0], values, blanks[1]), axis))
    indices = np.concatenate([x._indices_kept for x in tensors], 1)
    return SparseTensor.of(indices, dense_cat(parts), shape)


def stack(tensors, dim=0, **_):
    """Sparse tensors along a new dimension."""
    if not all(isinstance(x, SparseTensor) for x in tensors):
        raise RuntimeError("Stacking sparse tensors, but a dense one was found among them")
    return cat([unsqueeze(x, dim) for x in tensors], dim)


def unbind(input, dim=0):
    """Every position of a dimension."""
    return tuple(select(input, dim, k) for k in range(input.shape[dim]))


def item(input):
    """The only element, as a number of Python's."""
    if input.numel() != 1:
        raise RuntimeError(f"a Tensor with {input.numel()} elements cannot be converted to Scalar")
    return to_dense(input).item()
