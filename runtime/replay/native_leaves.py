"""The leaves of the arguments of a compiled call, in native code: containers taken apart as usual_arguments.py does.

Of the subset (docs/native.md). What is found on the way is not held: nothing here runs code of users.
"""

from ...compiler.translate.kinds import I32, I64, Address, Bool, Dict, Inline, List, Maybe, Object, Rows, Struct, Tuple
from ...compiler.translate.language import External, address_of, cast, local_array, native
from ..eager.eager_words import new_tuple, next_item, set_tuple_item
from .usual_arguments import AGAIN, LEAF, LISTED, NAMED, ORDERED

MOST_PARTS = 64
AS_GIVEN, UNKNOWN = -1, -2

iterator_of = External("PyObject_GetIter", (Object,), Maybe(Object), quiet=True, python=iter)
next_of = External("PyIter_Next", (Object,), Maybe(Object), quiet=True, python=lambda names: next(names, None))
stop_collecting = External("PyGC_Disable", (), I32, quiet=True, python=lambda: 0)
go_on_collecting = External("PyGC_Enable", (), I32, quiet=True, python=lambda: 0)


class Part(Struct):
    """A part of the arguments (usual_arguments.py: parts_of)."""

    role: I64
    place: I64
    size: I64
    kind: Object
    keys: Object


class Steady(Struct):
    """call: the frame's function. n_leaves: AS_GIVEN where the arguments are the leaves, UNKNOWN where native code
    cannot take them out."""

    call: Object
    departed: Address
    n_leaves: I64
    parts: Rows(Part)


class Found(Struct):
    """The parts of the arguments of a call."""

    parts: Inline(Address, MOST_PARTS)


@native()
def leaves_of(steady: Steady, args: Tuple, kwargs: Maybe(Dict)) -> Object:
    """A tuple, or None if they are not in what they are in usually."""
    if steady.n_leaves < 0:
        return args if steady.n_leaves == AS_GIVEN and (kwargs is None or len(kwargs) == 0) else None
    memory = local_array(Address, MOST_PARTS)
    found = cast(Found, address_of(memory))
    found.parts[0] = cast(Address, args)
    if kwargs is not None:
        found.parts[1] = cast(Address, kwargs)
    leaves = new_tuple(steady.n_leaves)
    for j in range(len(steady.parts)):
        part = steady.parts[j]
        if j == 1 and kwargs is None:
            if part.size != 0:
                return None
        elif part.role == LEAF:
            set_tuple_item(leaves, part.place, cast(Object, found.parts[j]))
        elif part.role == AGAIN:
            if cast(Object, found.parts[j]) is not cast(Object, found.parts[part.place]):
                return None
        elif not take_apart(part, cast(Object, found.parts[j]), found):
            return None
    return leaves


@native(inline=True)
def take_apart(part: Part, x: Object, found: Found) -> Bool:
    """Whether a container is the usual one, whose items are in their places now."""
    if type(x) is not part.kind:
        return False
    if part.role == NAMED:
        return take_values(part, cast(Dict, x), found)
    if part.role == ORDERED:
        return take_in_order(part, cast(Dict, x), found)
    if part.role == LISTED:
        listed = cast(List, x)
        if len(listed) != part.size:
            return False
        for k in range(part.size):
            found.parts[part.place + k] = cast(Address, listed[k])
        return True
    items = cast(Tuple, x)
    if len(items) != part.size:
        return False
    for k in range(part.size):
        found.parts[part.place + k] = cast(Address, items[k])
    return True


@native()
def take_values(part: Part, named: Dict, found: Found) -> Bool:
    if len(named) != part.size:
        return False
    at = local_array(I64, 1)
    key = local_array(Address, 1)
    value = local_array(Address, 1)
    for k in range(part.size):
        if next_item(named, address_of(at), address_of(key), address_of(value)) == 0:
            return False
        if cast(Object, key[0]) is not cast(Tuple, part.keys)[k]:
            return False
        found.parts[part.place + k] = value[0]
    return True


@native()
def take_in_order(part: Part, ordered: Dict, found: Found) -> Bool:
    """Of an OrderedDict, whose order only it knows. Nothing may be collected meanwhile: what is found is not held."""
    if len(ordered) != part.size:
        return False
    collects = stop_collecting()
    is_same = has_keys(ordered, cast(Tuple, part.keys))
    if collects != 0:
        go_on_collecting()
    if not is_same:
        return False
    for k in range(part.size):
        value = ordered.get(cast(Tuple, part.keys)[k])
        if value is None:
            return False
        found.parts[part.place + k] = cast(Address, value)
    return True


@native()
def has_keys(ordered: Dict, keys: Tuple) -> Bool:
    """Whether these are all keys there are, in this order."""
    names = iterator_of(ordered)
    if names is None:
        return False
    for k in range(len(keys)):
        name = next_of(names)
        if name is None or name is not keys[k]:
            return False
    return True
