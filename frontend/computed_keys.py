"""`x[key] = value` where numbers of the key are tensors that are yet to be computed: a place in a cache, or a ring.

    cache[:, position] = k          buffer[count % 8] = sample

In eager mode such a number is read, and the rest is as with an int. In a compiled call a read would run what is
pending, and a C function has other numbers in each call; so there the tensors are an index like others, of one place.
"""

from math import prod

from .compiler import dtypes
from .compiler.ops import indexing, source, view
from .keys import at_positions, for_each_dim, plain_of
from .runtime.eager.gate import apply_inplace
from .runtime.state.modes import captures
from .runtime.state.tensor import Tensor, shape_of

_FULL = slice(None)
_INDEX_TYPES = (dtypes.int64, dtypes.int32)


def computed(key):
    """The key as a tuple, if a compiled call cannot read a number of it as it is; else None."""
    parts = key if key.__class__ is tuple else (key,)
    return parts if any(map(_is_computed, parts)) else None


def _is_number(k):
    return k.__class__ is Tensor and not k.ndim and k.dtype in _INDEX_TYPES


def _is_computed(k):
    # What is picked from tensors that are there, as in loops over labels, is there too.
    return _is_number(k) and (bool(captures) or k._data is None and k._base is None)


def place_of(x, parts):
    """(index, axis, merged) of index_put for such a key, and the shape of the place without and with an axis for the
    index; None if there is more in the key than ints, slices, None, Ellipsis and numbers."""
    entries = _entries(parts, x.ndim)
    if entries is None:
        return None
    found = at_positions(_neighbours(x, entries), shape_of(x))
    if found is not None:
        index, axis, merged, shape = found
        return index, axis, merged, (*shape[:axis], *shape[axis + 1 :]), shape
    count = prod(shape_of(x))
    positions = _counted(x, 0, (count,), shape_of(x))
    others, numbers = _numbers_first(positions, parts)
    index = others[_one_each(x, numbers)][0]
    return index, 0, (count,), tuple(index.shape), tuple(index.shape)


def write(x, place, value):
    """Put a value of the place's shape there."""
    index, axis, merged, _, shape = place
    apply_inplace(indexing.index_put, x, (x, index, view.reshape(value, shape=shape)), {"axis": axis, "merged": merged})


def _entries(parts, ndim):
    """The key with an entry for each dimension and each None: ints, slices and numbers. None if there is anything else,
    or too much."""
    if plain_of(_with_slices(parts)) is None:
        return None
    # A tensor must not be compared with what is counted there.
    numbers = {f"number {i}": k for i, k in enumerate(parts) if _is_number(k)}
    names = iter(numbers)
    known = for_each_dim(tuple([next(names) if _is_number(k) else plain_of((k,))[0] for k in parts]), ndim)
    return known and [slice(*k) if k.__class__ is tuple else numbers.get(k, k) for k in known]


def _with_slices(parts):
    """The key with a whole slice in place of each number."""
    return tuple([_FULL if _is_number(k) else k for k in parts])


def _neighbours(x, entries):
    """The key as one of index tensors, as far as there are only whole slices and numbers, ints among them."""
    while entries[-1].__class__ is slice and entries[-1] == _FULL:
        entries = entries[:-1]
    return _one_each(x, entries)


def _one_each(x, entries):
    """Numbers and ints as index tensors of one place."""
    made = [_counted(x, k, (1,), (1,)) if k.__class__ is int and k >= 0 else k for k in entries]
    return tuple([view.reshape(k, shape=(1,)) if _is_number(k) else k for k in made])


def _counted(x, first, length, shape):
    counted = x.apply_op(source.arange, (first, 1), {"shape": length, "dtype": dtypes.int64})
    return counted if length == shape else view.reshape(counted, shape=shape)


def _numbers_first(x, parts):
    """(x at all else that the key says, with the axes of its numbers first; the numbers)."""
    axes, axis, n_used = [], 0, sum(k is not None and k is not Ellipsis for k in parts)
    for k in parts:
        if _is_number(k):
            axes.append(axis)
        axis += x.ndim - n_used if k is Ellipsis else k.__class__ is not int
    part = x[_with_slices(parts)]
    rest = [k for k in range(part.ndim) if k not in axes]
    return view.permute(part, axes=(*axes, *rest)), [k for k in parts if _is_number(k)]
