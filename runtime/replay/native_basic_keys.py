"""Keys of ints, slices, None and Ellipsis that were not used before, in native code: from the key to the ops, as
frontend/indexing.py has them. Of the subset (docs/native.md)."""

from ...compiler.translate.kinds import I64, Bool, Dict, Object, Struct, Tuple
from ...compiler.translate.language import address_of, cast, keep, local_array, native, quotient
from ..code.native_kinds import call_with, new_long
from ..eager.eager_words import as_small, new_dict, new_tuple, set_tuple_item
from .native_shapes import MOST_DIMENSIONS, SliceObject, in_range, n_dimensions, size_at


class Ops(Struct):
    """The ops of keys, and the names of their attributes' values."""

    select: Object
    slice: Object
    unsqueeze: Object
    zero: Object
    one: Object


OPS = Ops()


@native()
def is_basic(x: Object, key: Object) -> Bool:
    """Whether a key has nothing else in it, and fits the tensor."""
    n = n_dimensions(x)
    if type(key) is not tuple:
        return n <= MOST_DIMENSIONS and (key is None or key is Ellipsis or (n > 0 and is_basic_slice(key)))
    parts = cast(Tuple, key)
    used = n_used(parts)
    if n + len(parts) > MOST_DIMENSIONS or used < 0 or used > n:
        return False
    d = 0
    for part in parts:
        if type(part) is int:
            if in_range(part, size_at(x, d)) < 0:
                return False
            d += 1
        elif type(part) is slice:
            if not is_basic_slice(part):
                return False
            d += 1
        elif part is Ellipsis:
            d += n - used
    return True


@native()
def n_used(parts: Tuple) -> I64:
    """How many dimensions a key speaks of; -1 if there is anything else in it, or two of Ellipsis."""
    used = 0
    ellipses = 0
    for part in parts:
        if type(part) is int or type(part) is slice:
            used += 1
        elif part is Ellipsis:
            ellipses += 1
        elif part is not None:
            return -1
    if ellipses > 1:
        return -1
    return used


@native()
def is_basic_slice(part: Object) -> Bool:
    if type(part) is not slice:
        return False
    one = cast(SliceObject, part)
    if one.step is not None and (not is_small(one.step) or as_small_number(one.step) <= 0):
        return False
    return (one.start is None or is_small(one.start)) and (one.stop is None or is_small(one.stop))


@native()
def is_small(x: Object) -> Bool:
    if type(x) is not int:
        return False
    overflow = local_array(I64, 1)
    as_small(x, address_of(overflow))
    return overflow[0] == 0


@native()
def as_small_number(x: Object) -> I64:
    overflow = local_array(I64, 1)
    return as_small(x, address_of(overflow))


@native()
def by_dimensions(x: Object, key: Object) -> Object:
    """x[key] of such a key."""
    if type(key) is not tuple:
        return of_one(x, key)
    parts = cast(Tuple, key)
    sizes = local_array(I64, MOST_DIMENSIONS)
    n = n_dimensions(x)
    left = n - n_used(parts)
    for d in range(n):
        sizes[d] = size_at(x, d)
    axis = 0
    is_new = False
    found = keep(x)
    for part in parts:
        if type(part) is int:
            found = call_with(OPS.select, (found,), selecting(axis, in_range(part, sizes[axis])))
            for d in range(axis, n - 1):
                sizes[d] = sizes[d + 1]
            n -= 1
            is_new = True
        elif part is None:
            found = call_with(OPS.unsqueeze, (found,), adding(axis))
            for d in range(n - axis):
                sizes[n - d] = sizes[n - d - 1]
            sizes[axis] = 1
            n += 1
            axis += 1
            is_new = True
        elif part is Ellipsis:
            axis += left
        else:
            one = cast(SliceObject, part)
            if one.start is not None or one.stop is not None or one.step is not None:
                spec = new_tuple(n)
                for d in range(n):
                    if d == axis:
                        put_range(spec, d, part, sizes[d])
                    else:
                        put_whole(spec, d, sizes[d])
                sizes[axis] = length_of(part, sizes[axis])
                found = call_with(OPS.slice, (found,), cutting(spec))
                is_new = True
            axis += 1
    if is_new:
        return found
    # Always a tensor of its own: x[:] is not x.
    return whole(x)


@native()
def of_one(x: Object, key: Object) -> Object:
    if key is None:
        return call_with(OPS.unsqueeze, (x,), adding(0))
    if key is Ellipsis:
        return whole(x)
    n = n_dimensions(x)
    spec = new_tuple(n)
    put_range(spec, 0, key, size_at(x, 0))
    for d in range(1, n):
        put_whole(spec, d, size_at(x, d))
    return call_with(OPS.slice, (x,), cutting(spec))


@native()
def whole(x: Object) -> Object:
    n = n_dimensions(x)
    spec = new_tuple(n)
    for d in range(n):
        put_whole(spec, d, size_at(x, d))
    return call_with(OPS.slice, (x,), cutting(spec))


# --- attributes -------------------------------------------------------------------------------------------------------
@native()
def selecting(axis: I64, index: I64) -> Dict:
    attributes = new_dict()
    attributes["axis"] = new_long(axis)
    attributes["index"] = new_long(index)
    return attributes


@native()
def adding(axis: I64) -> Dict:
    attributes = new_dict()
    attributes["axis"] = new_long(axis)
    return attributes


@native()
def cutting(spec: Tuple) -> Dict:
    attributes = new_dict()
    attributes["spec"] = spec
    return attributes


@native()
def put_whole(spec: Tuple, d: I64, size: I64):
    set_tuple_item(spec, d, (OPS.zero, OPS.one, new_long(size)))


@native()
def put_range(spec: Tuple, d: I64, part: Object, size: I64):
    """What a slice picks of so many, as (start, step, length)."""
    length = length_of(part, size)
    start = 0
    if length > 0:
        start = bound(cast(SliceObject, part).start, 0, size)
    set_tuple_item(spec, d, (new_long(start), new_long(step_of(part)), new_long(length)))


@native()
def length_of(part: Object, size: I64) -> I64:
    one = cast(SliceObject, part)
    length = bound(one.stop, size, size) - bound(one.start, 0, size)
    if length <= 0:
        return 0
    return quotient(length - 1, step_of(part)) + 1


@native()
def step_of(part: Object) -> I64:
    step = cast(SliceObject, part).step
    if step is None:
        return 1
    return as_small_number(step)


@native()
def bound(x: Object, otherwise: I64, size: I64) -> I64:
    """Where a slice begins or ends."""
    if x is None:
        return otherwise
    k = as_small_number(x)
    if k < 0:
        return max(k + size, 0)
    return min(k, size)
