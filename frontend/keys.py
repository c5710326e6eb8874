"""What the keys of `x[key]` mean: slices, integers, None, Ellipsis, lists, integer and bool tensors and arrays."""

from math import prod

import numpy as np

from .compiler import dtypes
from .compiler.ops import comparison, indexing, view
from .compiler.shapes import broadcast_shapes
from .runtime.state.modes import array_that_sizes
from .runtime.state.tensor import Tensor, shape_of, tensor_of

_FULL = slice(None)
_WHOLE = (None, None, None)
_INDEX_TYPES = (dtypes.int64, dtypes.int32)
_INT_OR_NONE = (int, type(None))


def normalized(key, shape):
    """One entry per dimension: an int, a slice or an integer tensor. None and 0-d masks add a dimension."""
    ndim = len(shape)
    entries = [_entry(k) for k in (key if isinstance(key, tuple) or _is_nested(key) else (key,))]
    used = sum(_dims_used(k) for k in entries)
    if used > ndim:
        raise IndexError(f"too many indices for tensor of dimension {ndim}: got {used}")
    fill = [_FULL] * (ndim - used)
    at = next((i for i, k in enumerate(entries) if k is Ellipsis), len(entries))
    entries = [*entries[:at], *fill, *(k for k in entries[at:] if k is not Ellipsis)]
    _check_masks(entries, shape)
    return [part for k in entries for part in (_positions(k) if is_mask(k) and k.ndim else [k])]


def plain_of(parts):
    """A key of ints, slices of them, None and Ellipsis, as most are, as something that can be looked up: slices become
    tuples. None if there is anything else, such as a bool, which is equal to a number."""
    known, found = _INT_OR_NONE, []
    for part in parts:
        kind = part.__class__
        if kind is slice:
            start, stop, step = part.start, part.stop, part.step
            if start.__class__ not in known or stop.__class__ not in known or step.__class__ not in known:
                return None
            part = (start, stop, step)
        elif kind is not int and part is not None and part is not Ellipsis:
            return None
        found.append(part)
    return tuple(found)


def with_numbers(key):
    """The key with ints where NumPy's integers and integer tensors of no dimensions stand; None if there are none.
    Loops over labels read and count with such keys."""
    if key.__class__ is not tuple:
        return _whole_number(key)
    found = [*map(_whole_number, key)]
    if found.count(None) == len(found):
        return None
    return tuple([k if n is None else n for k, n in zip(key, found)])


def _whole_number(k):
    if k.__class__ is Tensor:
        return int(k.array) if not k.ndim and k.dtype in _INDEX_TYPES else None
    return int(k) if isinstance(k, np.integer) else None


def for_each_dim(plain, ndim):
    """What `plain_of` gives, without Ellipsis and with an entry for each dimension; None if there are too many."""
    used = len(plain) - plain.count(None) - plain.count(Ellipsis)
    if used > ndim or plain.count(Ellipsis) > 1:
        return None
    at = plain.index(Ellipsis) if Ellipsis in plain else len(plain)
    return [*plain[:at], *[_WHOLE] * (ndim - used), *plain[at + 1 :]]


def _is_nested(key):
    """Whether a list stands for a tuple of keys: PyTorch takes x[[[0, 1], [2, 3]]] for x[[0, 1], [2, 3]]."""
    return isinstance(key, list) and any(k is None or isinstance(k, (list, tuple, slice, Tensor)) for k in key)


def _check_masks(entries, shape):
    dim = 0
    for k in entries:
        if is_mask(k) and k.shape != shape[dim : dim + k.ndim]:
            raise IndexError(
                f"The shape of the mask {k.shape} at index {dim} does not match the shape of the indexed tensor {shape}"
            )
        dim += _dims_used(k)


def _entry(k):
    """Lists and arrays become tensors; NumPy integers and 0-d integer tensors become ints."""
    if isinstance(k, (list, range, np.ndarray)):
        array = np.asarray(k)
        k = tensor_of(array if array.dtype.kind == "b" else _as_integers(array))
    if isinstance(k, Tensor) and k.dtype is dtypes.uint8:
        # A mask of PyTorch's before it had bools.
        k = comparison.ne(k, 0)
    if isinstance(k, np.integer):
        return int(k)
    if isinstance(k, (bool, np.bool_)):
        k = tensor_of(np.asarray(k))
    if isinstance(k, Tensor) and k.ndim == 0 and k.dtype in _INDEX_TYPES:
        return int(k.array)
    known = k is None or k is Ellipsis or isinstance(k, (int, slice, Tensor))
    if not known and hasattr(k, "__array__"):
        return _entry(np.asarray(k))  # a column of pandas
    if not known:
        kind = TypeError if isinstance(k, str) else IndexError
        raise kind(f"tensors are indexed by ints, slices, None, ... and tensors, not {type(k).__name__}")
    return k


def _as_integers(array):
    if array.size and array.dtype.kind not in "iu":
        raise IndexError(f"tensors used as indices must be int64, int32 or bool, got {array.dtype}")
    return array.astype(np.int64)


def _dims_used(k):
    if k is None or k is Ellipsis:
        return 0
    return k.ndim if is_mask(k) else 1


def is_mask(k):
    return isinstance(k, Tensor) and k.dtype is dtypes.bool_


def _positions(mask):
    """A mask selects as many elements as it has True: its positions are needed, so its values are."""
    return [tensor_of(np.asarray(p, dtype=np.int64)) for p in array_that_sizes(mask).nonzero()]


def in_range(k, size, dim):
    if not -size <= k < size:
        raise IndexError(f"index {k} is out of bounds for dimension {dim} with size {size}")
    return k % size


def range_of(k, size):
    """(start, step, length) of a slice."""
    start, stop, step = k.indices(size)
    if step <= 0:
        raise ValueError("step must be greater than zero")
    length = len(range(start, stop, step))
    return (start if length else 0, step, length)


def at_positions(key, shape):
    """(index, axis, merged, shape of the part) of one mask or index, or of index tensors for neighbouring dimensions
    with whole dimensions before them, which is how most people index with tensors; None for all other keys."""
    kind = key.__class__
    if kind is list and key and {*map(type, key)} == {int}:
        return _at_neighbours((tensor_of(np.array(key, np.int64)),), 0, shape)
    if isinstance(key, Tensor):
        if key.dtype is not dtypes.bool_:
            return _at_neighbours((key,), 0, shape)
        n, sizes = key.ndim, shape_of(key)
        if not n or sizes != shape[:n]:
            return None
        # A mask selects as many elements as it has True: its positions are needed, so its values are.
        index, after = tensor_of(np.flatnonzero(array_that_sizes(key))), shape[n:]
        return index, 0, (prod(sizes), *after), (*shape_of(index), *after)
    if kind is not tuple:
        return None
    first = 0
    while first < len(key) and key[first].__class__ is slice and key[first] == _FULL:
        first += 1
    return _at_neighbours(key[first:], first, shape)


def _at_neighbours(indices, axis, shape):
    """The same for index tensors of the dimensions from axis on."""
    end = axis + len(indices)
    if end > len(shape):
        return None
    for k in indices:
        if not isinstance(k, Tensor) or k.dtype not in _INDEX_TYPES or not k.ndim:
            return None
    before, after = shape[:axis], shape[end:]
    sizes = shape[axis:end]
    checked = [indexing.position(k, size=n, axis=d) for d, (k, n) in enumerate(zip(indices, sizes), axis)]
    index = checked[0] if len(checked) == 1 else combined_index(list(zip(checked, sizes)))
    return index, axis, (*before, prod(sizes), *after), (*before, *shape_of(index), *after)


def combined_index(indices):
    """One row-major index from several, broadcast."""
    shape = broadcast_shapes("indexing", [k.shape for k, _ in indices])
    combined = None
    for k, size in indices:
        combined = k if combined is None else combined * size + k
    return combined if combined.shape == shape else view.expand(combined, shape=shape)


_MANY = 1 << 12


def where_not_zero(array):
    """The positions by dimension. Of many elements by their numbers: NumPy, which counts dimensions for each, takes
    three times as long."""
    if array.ndim < 2 or array.size < _MANY:
        return array.nonzero()
    at, found = array.ravel().nonzero()[0], []
    for n in array.shape[:0:-1]:
        rows = at // n
        at -= rows * n
        found.append(at)
        at = rows
    return (at, *found[::-1])
