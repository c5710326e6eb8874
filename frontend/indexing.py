"""x[...] and x[...] = value: slices, integers, None, Ellipsis, integer and bool tensors."""

import numpy as np

from .compiler.ops import comparison, indexing, view
from .compiler.shapes import broadcast_shapes
from .runtime.gate import apply_inplace
from .runtime.tensor import Tensor


def _as_key(key):
    return key if isinstance(key, tuple) else (key,)


def _expanded(key, ndim):
    """The key with Ellipsis written out and every dimension named; None stays (it adds a dimension)."""
    used = sum(_dims_used(k) for k in key if k is not None and k is not Ellipsis)
    if used > ndim:
        raise IndexError(f"too many indices for tensor of dimension {ndim}: got {used}")
    fill = [slice(None)] * (ndim - used)
    if any(k is Ellipsis for k in key):
        at = next(i for i, k in enumerate(key) if k is Ellipsis)
        return [*key[:at], *fill, *key[at + 1 :]]
    return [*key, *fill]


def _dims_used(k):
    return k.ndim if isinstance(k, Tensor) and k.dtype.category == 0 else 1


def _normalized(key, ndim):
    """NumPy arrays, lists and bool tensors become integer tensors; NumPy integers become ints."""
    result = []
    for k in _as_key(key):
        if isinstance(k, (list, np.ndarray)):
            array = np.asarray(k)
            k = Tensor(array.astype(np.int64) if array.dtype.kind in "iu" else array)
        if isinstance(k, np.integer):
            k = int(k)
        if isinstance(k, Tensor) and k.ndim == 0 and k.dtype.category == 1:
            k = int(k.array)
        result.append(k)
    result = _expanded(result, ndim)
    return [t for k in result for t in (_positions(k) if _is_mask(k) else [k])]


def _is_mask(k):
    return isinstance(k, Tensor) and k.dtype.category == 0


def _positions(mask):
    """A mask selects as many elements as it has True: its positions are needed, so its values are."""
    return [Tensor(np.asarray(p, dtype=np.int64)) for p in mask.array.nonzero()]


def _basic(x, key):
    """Slices, integers and None: (spec for slice, shape after dropping and adding dimensions, only one integer?)."""
    spec, shape, axis = [], [], 0
    for k in key:
        if k is None:
            shape.append(1)
            continue
        size = x.shape[axis]
        if isinstance(k, slice):
            start, stop, step = k.indices(size)
            if step <= 0:
                raise ValueError("step must be greater than zero")
            length = len(range(start, stop, step))
            spec.append((start if length else 0, step, length))
            shape.append(length)
        elif isinstance(k, Tensor):
            spec.append((0, 1, size))
            shape.append(size)
        elif isinstance(k, int):
            if not -size <= k < size:
                raise IndexError(f"index {k} is out of bounds for dimension {axis} with size {size}")
            spec.append((k % size, 1, 1))
        else:
            raise TypeError(f"tensors are indexed by ints, slices, None, ... and tensors, not {type(k).__name__}")
        axis += 1
    return tuple(spec), tuple(shape)


def getitem(x, key):
    key = _normalized(key, x.ndim)
    tensors = [k for k in key if isinstance(k, Tensor)]
    if len(key) == x.ndim and not tensors and isinstance(key[0], int) and all(k == slice(None) for k in key[1:]):
        size = x.shape[0]
        if not -size <= key[0] < size:
            raise IndexError(f"index {key[0]} is out of bounds for dimension 0 with size {size}")
        return view.select(x, axis=0, index=key[0] % size)
    if not key and not tensors:
        return x
    spec, shape = _basic(x, key)
    part = view.slice_(x, spec=spec)
    if part.shape != shape:
        part = view.reshape(part, shape=shape)
    return _advanced(part, key) if tensors else part


def _advanced(part, key):
    """Integer tensors: one axis by index_select; several neighbouring axes merged into one first."""
    kept = [k for k in key if not isinstance(k, int)]
    axes = [axis for axis, k in enumerate(kept) if isinstance(k, Tensor)]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise NotImplementedError("indexing with tensors in dimensions that are not next to each other")
    flat, index = _merged(part, axes, [kept[a] for a in axes])
    return indexing.index_select(flat, index, axis=axes[0])


def _merged(part, axes, indices):
    """(the tensor with the indexed axes as one, the combined index, negative entries counted from the end)."""
    shape = broadcast_shapes("indexing", [k.shape for k in indices])
    combined = None
    for axis, k in zip(axes, indices):
        size = part.shape[axis]
        array = _checked(k, size, axis)
        combined = array if combined is None else combined * size + array
    if combined.shape != shape:
        combined = view.expand(combined, shape=shape)
    first, last = axes[0], axes[-1]
    if len(axes) > 1:
        merged = 1
        for a in axes:
            merged *= part.shape[a]
        part = view.reshape(part, shape=(*part.shape[:first], merged, *part.shape[last + 1 :]))
    return part, combined


def _checked(k, size, axis):
    """The index with negative entries counted from the end; range errors before axes are merged."""
    if k.dtype.category != 1:
        raise IndexError(f"tensors used as indices must be int64, int32 or bool, got {k.dtype.name}")
    wrapped = comparison.where(comparison.lt(k, 0), k + size, k)
    return indexing.in_range(wrapped, size=size, axis=axis)


def setitem(x, key, value):
    key = _normalized(key, x.ndim)
    if not isinstance(value, Tensor):
        value = x.new_tensor(value)
    if value.dtype is not x.dtype:
        value = comparison.cast(value, dtype=x.dtype)
    if any(isinstance(k, Tensor) for k in key):
        _set_positions(x, key, value)
        return
    spec, shape = _basic(x, key)
    lengths = tuple(length for _, _, length in spec)
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = view.reshape(value, shape=value.shape[1:])
    if value.shape != shape:
        value = view.expand(value, shape=shape)
    if shape != lengths:
        value = view.reshape(value, shape=lengths)
    apply_inplace(view.slice_scatter, x, (x, value), {"spec": spec})


def _set_positions(x, key, value):
    """x[index tensors] = value: the last write to a position wins, in row-major order of the index."""
    spec, shape = _basic(x, key)
    if shape != x.shape or any(isinstance(k, int) for k in key):
        setitem_part = getitem(x, tuple(slice(None) if isinstance(k, Tensor) else k for k in key))
        _set_positions(setitem_part, [k for k in key if not isinstance(k, int) and k is not None], value)
        return
    axes = [axis for axis, k in enumerate(key) if isinstance(k, Tensor)]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise NotImplementedError("assignment through tensors in dimensions that are not next to each other")
    first = axes[0]
    flat, index = _merged(x, axes, [key[a] for a in axes])
    wanted = (*flat.shape[:first], *index.shape, *flat.shape[first + 1 :])
    if value.shape != wanted:
        value = view.expand(value, shape=wanted)
    apply_inplace(indexing.index_put, x, (x, index, value), {"axis": first, "merged": flat.shape})
