"""x[...] and x[...] = value: slices, integers, None, Ellipsis, integer and bool tensors.

Keys are applied one dimension after the other, as PyTorch does, so graphs have the same nodes: an integer selects, a
slice cuts, None adds a dimension. Index tensors come last, all at once.
"""

from functools import lru_cache
from math import inf, prod

import numpy as np

from .compiler import dtypes
from .compiler.later import later
from .compiler.ops import comparison, indexing, source, spelling, view
from .compiler.ops.table import OpError
from .computed_keys import computed, place_of, write
from .keys import (
    at_positions,
    combined_index,
    for_each_dim,
    in_range,
    is_mask,
    normalized,
    plain_of,
    range_of,
    with_numbers,
)
from .kinds import answering
from .runtime.eager.gate import apply_inplace
from .runtime.state import marks
from .runtime.state.elsewhere import is_elsewhere
from .runtime.state.modes import state
from .runtime.state.storage import shows_twice
from .runtime.state.tensor import Tensor, _apply, shape_of, tensor_of
from .usual_keys import note_write

_note_key = later("runtime.replay.native_keys:note_read")
_FULL = slice(None)
_WHOLE = (None, None, None)
_INDEX_TYPES = (dtypes.int64, dtypes.int32)
_INT_OR_NONE = (int, type(None))
_BESIDE_TENSORS = {Tensor, slice, int, type(None), type(Ellipsis)}
_NUMBERS, _PUT = (float, int), (Tensor, float, int)
_SURELY_FITS, _FEW = 2**31, 1 << 12


# --- reading ----------------------------------------------------------------------------------------------------------
def getitem(x, key):
    data = x._data
    shape = x._meta.shape if data is None else data.shape
    # What loops read: nothing to be put in order.
    if key.__class__ is int and shape:
        return view.select(x, axis=0, index=key if 0 <= key < shape[0] else in_range(key, shape[0], 0))
    if key.__class__ is slice and shape:
        return view.slice_(x, spec=_spec_of(shape, 0, key)[0])
    if key.__class__ is tuple:
        one = _element(x, shape, key)
        if one is not None:
            return one
        plain = plain_of(key)
    else:
        plain = plain_of((key,))
    steps = None if plain is None else _steps_to(shape, plain)
    if steps is not None:
        for op, attributes in steps:
            x = op(x, **attributes)
        return x
    if plain is None and key.__class__ is Tensor and _is_number_in_memory(key) and shape:
        return view.select(x, axis=0, index=in_range(int(key._data), shape[0], 0))
    if plain is None:
        # A mask selects as many elements as it has True, which is another number every time.
        return _at_tensors(x, key) if is_mask(key) else _answered_at_tensors(x, key)
    return _by_dimensions(x, key, shape)


def _is_number_in_memory(k):
    """Whether an integer tensor of no dimensions is there to be read, outside of calls in flight."""
    data = k._data
    return data is not None and not data.ndim and state.frame is None and k.dtype in _INDEX_TYPES


def _note_read(x, key):
    """A key of numbers, slices, None and Ellipsis is asked for again and again: native code is told of it."""
    shape = tuple(x._meta.shape if x._data is None else x._data.shape)
    if key.__class__ is slice:
        steps = [(view.slice_, {"spec": _spec_of(shape, 0, key)[0]})]
    else:
        steps = _steps_to(shape, plain_of(key if key.__class__ is tuple else (key,)))
    _note_key(shape, key, steps)


def _at_tensors(x, key):
    """x[key] of a key with something else than numbers, slices, None and Ellipsis."""
    numbers = with_numbers(key)
    if numbers is not None:
        return getitem(x, numbers)
    found = at_positions(key, shape_of(x))
    if found is not None:
        index, axis, merged, _ = found
        return spelling.index_(x, index, axis=axis, merged=merged)
    return _by_dimensions(x, key, shape_of(x))


_answered_at_tensors = answering(_at_tensors)


def _by_dimensions(x, key, shape):
    """x[key], one dimension after the other."""
    key = normalized(key, shape)
    result, tensors, axis, dim = x, {}, 0, 0
    for k in key:
        if isinstance(k, int):
            result = view.select(result, axis=axis, index=in_range(k, shape[dim], dim))
            dim += 1
            continue
        if isinstance(k, slice):
            result = result if k == _FULL else _cut(result, axis, range_of(k, shape[dim]))
            dim += 1
        elif k is None:
            result = view.unsqueeze(result, axis=axis)
        elif is_mask(k):
            # 0-d: a new dimension, of which the one slice is taken or not.
            result = view.unsqueeze(result, axis=axis)
            tensors[axis] = tensor_of(np.zeros(int(k.array), np.int64))
        else:
            tensors[axis] = _checked(k, shape[dim], dim)
            dim += 1
        axis += 1
    if tensors:
        return _advanced(result, tensors)
    # Always a tensor of its own: x[:] is not x.
    return _cut(result, 0, None) if result is x else result


def _element(x, shape, key):
    """x[i, j, ...] of ints in range, which loops read at more places than are worth remembering; else None."""
    if not 0 < len(key) <= len(shape):
        return None
    for k, size in zip(key, shape):
        if k.__class__ is not int or not -size <= k < size:
            return None
    for k, size in zip(key, shape):
        x = view.select(x, axis=0, index=k if k >= 0 else k + size)
    return x


@lru_cache(4096)
def _steps_to(shape, plain):
    """The ops, with their attributes, that lead to what such a key picks from a tensor of this shape, one dimension
    after the other; None if it has too many entries. Found once, it is a third of the time of `x[1:-1, 0]`."""
    entries = for_each_dim(plain, len(shape))
    if entries is None:
        return None
    steps, axis, dim = [], 0, 0
    for entry in entries:
        if entry is None:
            steps.append((view.unsqueeze, {"axis": axis}))
            shape = (*shape[:axis], 1, *shape[axis:])
            axis += 1
            continue
        if entry.__class__ is int:
            steps.append((view.select, {"axis": axis, "index": in_range(entry, shape[axis], dim)}))
            shape = (*shape[:axis], *shape[axis + 1 :])
        else:
            if entry != _WHOLE:
                spec, shape = _known_spec(shape, axis, *entry)
                steps.append((view.slice_, {"spec": spec}))
            axis += 1
        dim += 1
    # Always a tensor of its own: x[:] is not x.
    return steps or [(view.slice_, {"spec": tuple([(0, 1, d) for d in shape])})]


def _spec_of(shape, axis, key):
    """(what slice_ is to cut at an axis of a tensor of this shape, the shape then)."""
    start, stop, step = key.start, key.stop, key.step
    known = _INT_OR_NONE
    if start.__class__ in known and stop.__class__ in known and step.__class__ in known:
        return _known_spec(shape, axis, start, stop, step)
    return _known_spec.__wrapped__(shape, axis, start, stop, step)


@lru_cache(4096)
def _known_spec(shape, axis, start, stop, step):
    part = range_of(slice(start, stop, step), shape[axis])
    spec = [(0, 1, d) for d in shape]
    spec[axis] = part
    return tuple(spec), (*shape[:axis], part[2], *shape[axis + 1 :])


def _cut(x, axis, part):
    spec = [(0, 1, d) for d in tuple(x.shape)]
    if part:
        spec[axis] = part
    return view.slice_(x, spec=tuple(spec))


def _checked(k, size, dim):
    """The index with negative entries counted from the end, checked."""
    if k.dtype not in _INDEX_TYPES:
        raise IndexError(f"tensors used as indices must be int64, int32 or bool, got {k.dtype.name}")
    return indexing.position(k, size=size, axis=dim)


def _advanced(x, tensors):
    """Index tensors by axis: the axes become one, with one index. Axes that are not neighbours go to the front."""
    axes = list(tensors)
    if axes != list(range(axes[0], axes[0] + len(axes))):
        x = view.permute(x, axes=(*axes, *(k for k in range(x.ndim) if k not in tensors)))
        tensors = dict(enumerate(tensors.values()))
        axes = list(tensors)
    first, last = axes[0], axes[-1]
    index = combined_index([(tensors[a], x.shape[a]) for a in axes])
    merged = (*x.shape[:first], prod(x.shape[a] for a in axes), *x.shape[last + 1 :])
    return spelling.index_(x, index, axis=first, merged=merged)


# --- writing ----------------------------------------------------------------------------------------------------------
def _filled(x, mask, number):
    """Whether a number was written where a mask holds: outside of calls in flight, if x has nothing to do with autograd
    and the number surely fits, one op and no tensor of the number. The mask is of x's shape; of few elements also of
    its first dimensions, so that nobody has to look where it holds."""
    array, places = x._data, mask._data
    if array is None or places is None or state.frame is not None or x._requires_grad and state.grad_enabled:
        return False
    if places.dtype != np.bool_ or array.dtype.char not in ("fd" if number.__class__ is float else "fdlq"):
        return False
    if _SURELY_FITS <= abs(number) < inf:
        return False
    if places.shape != array.shape:
        n = places.ndim
        if not n or places.shape != array.shape[:n] or array.size > _FEW:
            return False
        mask = view.reshape(mask, shape=(*places.shape, *(1,) * (array.ndim - n)))
    apply_inplace(spelling.masked_fill, x, (x, mask, number), {})
    return True


def _is_of_indices(key):
    """Whether a key is an index tensor, or has some beside what other keys are of."""
    if key.__class__ is tuple:
        kinds = {*map(type, key)}
        return Tensor in kinds and kinds <= _BESIDE_TENSORS and not any(map(_is_no_index, key))
    return key.__class__ is Tensor and not _is_no_index(key)


def _is_no_index(k):
    return k.__class__ is Tensor and (k.dtype not in _INDEX_TYPES or not k.ndim)


@answering
def _put_at_(x, key, value):
    """x[key] = value of such a key."""
    value = value if isinstance(value, Tensor) else as_value(x, value)
    value = value if value.dtype is x.dtype else comparison.cast(value, dtype=x.dtype)
    index, axis, merged, value = positions_of(x, key, value)
    apply_inplace(indexing.index_put, x, (x, index, value), {"axis": axis, "merged": merged})
    return x


def setitem(x, key, value):
    if value.__class__ in _NUMBERS and key.__class__ is Tensor and _filled(x, key, value):
        return
    if x._data is not None and state.frame is None and value.__class__ in _PUT and _is_of_indices(key):
        _put_at_(x, key, value)
        return
    if key.__class__ is Tensor and _is_number_in_memory(key):
        x[int(key._data)] = value  # which native code knows
        return
    sizes, frame, made, given = shape_of(x), state.frame, None, value
    plain = (key,) if key.__class__ is int else plain_of(key if key.__class__ is tuple else (key,))
    if plain is None:
        if frame is not None and _set_at_computed(x, key, value):
            return
        numbers = with_numbers(key)
        if numbers is not None:
            key, plain = numbers, plain_of(numbers if numbers.__class__ is tuple else (numbers,))
    place = None if plain is None else _place(sizes, plain)
    if not isinstance(value, Tensor):
        if place is not None and frame is not None:
            # As large as its place at once: a program has no array for it.
            made = _number(x, value, place[2])
        value = as_value(x, value) if made is None else made
    if x._data is None and is_elsewhere(x) and value._data is not None:
        value = value.to(x.device)
    dtype = x.dtype
    if value.dtype is not dtype:
        value = comparison.cast(value, dtype=dtype)
    if place is None:
        if is_mask(key) and key.shape == x.shape and value.ndim == 0:
            apply_inplace(spelling.masked_fill, x, (x, key, value), {})
            return
        found = positions_of(x, key, value) if is_mask(key) else _answered_positions(x, key, value)
        if found is not None:
            index, axis, merged, value = found
            apply_inplace(indexing.index_put, x, (x, index, value), {"axis": axis, "merged": merged})
            return
        place = _basic(sizes, normalized(key, sizes))
    spec, shape, lengths = place
    if marks.keys_held and plain is not None:
        note_write(x, sizes, key, plain, given, place)
    if made is None:
        value = _fitted(value, shape)
        if shape != lengths:
            if value._base is not None and (frame is not None or value.requires_grad) and _shows(value, x):
                # The end of `x[key] += y`: a compiled call knows what other names x has, if they are parts of it.
                value = view.clone(value)
            value = view.reshape(value, shape=lengths)
    _write(x, value, {"spec": spec})


def _set_at_computed(x, key, value):
    """Whether this was x[key] = value at numbers that a compiled call cannot read as they are."""
    parts = computed(key)
    place = None if parts is None else place_of(x, parts)
    if place is None:
        return False
    value = value if isinstance(value, Tensor) else as_value(x, value)
    write(x, place, _fitted(value if value.dtype is x.dtype else comparison.cast(value, dtype=x.dtype), place[3]))
    return True


def positions_of(x, key, value):
    """(index, axis, merged, the value expanded to its place) for a key with index tensors; None if it has none."""
    found = at_positions(key, shape_of(x))
    if found is not None:
        index, axis, merged, shape = found
        return index, axis, merged, _fitted(value, shape)
    if not any(isinstance(k, Tensor) for k in normalized(key, shape_of(x))):
        return None
    # In row-major order of the index the last write to a position wins.
    count = prod(shape_of(x))
    numbers = x.apply_op(source.arange, (0, 1), {"shape": (count,), "dtype": dtypes.int64})
    positions = getitem(view.reshape(numbers, shape=shape_of(x)), key)
    return positions, 0, (count,), _fitted(value, positions.shape)


_answered_positions = answering(positions_of)


def _write(x, value, attributes):
    if _is_expanded(x):
        # What is written may be there once only.
        view.slice_(x, spec=attributes["spec"]).copy_(value)
        return
    apply_inplace(view.slice_scatter, x, (x, value), attributes)


def _write_number(x, number, made, attributes):
    _write(x, _apply(source.full, (number,), made), attributes)


def _is_expanded(x):
    """Whether elements of x lie at one place of its memory."""
    array = x._data
    if array is None:
        return x._base is not None and any(step == 0 and n > 1 for step, n in zip(x.stride(), shape_of(x)))
    return not array.flags.writeable and shows_twice(array)


def _shows(value, x):
    return value._base is x or value._base is x._base


def as_value(x, value):
    """What is written, as a tensor of x's type."""
    made = _number(x, value, ())
    return x.new_tensor(value) if made is None else made


def _number(x, value, shape):
    """A number that surely fits, made by an op: a compiled call then has no new tensor from outside. None for all else
    that may be written."""
    kind, dtype = value.__class__, x.dtype
    category = dtype.category
    if not dtype.is_compiled:
        return None
    if category == 1 and (kind is float or kind is int):
        _require_fits(value, dtype)
    if kind is float and category == 2:
        # Infinities and NaN fit, too.
        fits = not _SURELY_FITS <= abs(value) < inf
    elif kind is bool or kind is int and category == 0:
        fits, value = True, bool(value) if category == 0 else int(value)
    else:
        fits = kind is int and abs(value) < _SURELY_FITS
    return _apply(source.full, (value,), {"shape": shape, "dtype": dtype}) if fits else None


def _require_fits(value, dtype):
    bound = 1 << 8 * dtype.size_bytes - 1
    if not -bound <= value < bound:
        raise RuntimeError(
            f"value cannot be converted to type {dtype.name} without overflow: given {value}, to be written into a "
            f"tensor of numbers from {-bound} to {bound - 1}; convert the tensor with .to(...) first"
        )


@lru_cache(4096)
def _place(sizes, plain):
    """What `_basic` gives for a key that can be looked up; None if it has too many entries."""
    entries = for_each_dim(plain, len(sizes))
    return None if entries is None else _basic(sizes, [slice(*k) if k.__class__ is tuple else k for k in entries])


def _basic(sizes, entries):
    """Slices, integers and None: (spec for slice_scatter, shape of the place, its lengths) in a tensor of a shape."""
    spec, shape = [], []
    for k in entries:
        if k is None:
            shape.append(1)
        elif k.__class__ is slice:
            part = range_of(k, sizes[len(spec)])
            spec.append(part)
            shape.append(part[2])
        else:
            spec.append((in_range(k, sizes[len(spec)], len(spec)), 1, 1))
    return tuple(spec), tuple(shape), tuple([length for _, _, length in spec])


def _fitted(value, shape):
    """The value expanded to the shape of its place; leading dimensions of size 1 are dropped."""
    given = shape_of(value)
    while len(given) > len(shape) and given[0] == 1:
        given = given[1:]
        value = view.reshape(value, shape=given)
    if given == shape:
        return value
    if len(given) > len(shape) or any(g not in (1, d) for g, d in zip(reversed(given), reversed(shape))):
        raise OpError(
            f"x[key] = value: the value has shape {tuple(given)}, what is replaced {tuple(shape)}; sizes must be "
            "equal, or 1 in the value"
        )
    return view.expand(value, shape=shape)


marks.by_key[:] = getitem, _note_read, setitem, _write, _write_number
