"""Functions of the subset that work on Python objects; test_translate_objects.py runs each natively and as Python."""

from weft.compiler.translate.kinds import (
    I32,
    I64,
    Address,
    Bool,
    Borrowed,
    Dict,
    List,
    Maybe,
    Object,
    Rows,
    Steals,
    Struct,
    Tuple,
)
from weft.compiler.translate.language import METHOD, SLOT, External, cast, keep, native, require
from weft.runtime.code.native_kinds import (
    ArrayObject,
    TensorObject,
    as_long,
    call_with,
    compare,
    get_attribute,
    has_error,
    new_long,
)
from weft.runtime.state.tensor import Tensor

NAME = "size"
MARK = object()


def set_item_in_python(pair, k, x):
    pair[k] = x


# In Python a list stands for the tuple, which could not be changed.
new_tuple = External("PyTuple_New", (I64,), Tuple, fails="null", quiet=True, python=lambda n: [None] * n)
set_tuple_item = External(
    "PyTuple_SetItem", (Tuple, I64, Steals(Object)), I32, fails="nonzero", quiet=True, python=set_item_in_python
)


class Words(Struct):
    k: I64
    op: Object
    wanted: Dict
    tensors: List(TensorObject)
    codes: Rows(I64)
    seen: List
    empty: Object
    flag: Bool
    slow: Object


@native(inline=True)
def require_equal(x: Dict, y: Dict):
    if len(x) != 0 or len(y) != 0:
        require(compare(x, y, 2) == 1)


@native(inline=True)
def require_listed(tensors: Tuple, words: Words):
    require(len(tensors) == len(words.codes))
    for i in range(len(tensors)):
        require(tensors[i] is words.tensors[words.codes[i]])


@native(form=METHOD, slow="slow", name="take")
def take(words: Words, op: Object, tensors: Object, attributes: Object) -> Object:
    """Checks a tuple of tensors, appends to a list, makes a reference."""
    require(op is words.op and type(attributes) is dict and type(tensors) is tuple)
    require_equal(attributes, words.wanted)
    require_listed(tensors, words)
    for x in tensors:
        if type(x) is Tensor and x._grad is None:
            words.seen.append(x)
    words.k += 1
    result = keep(words.tensors[0])
    if words.flag:
        result._base = words.tensors[1]
    return result


@native(form=METHOD, slow="slow", name="pairs")
def pairs(words: Words, items: Object) -> Object:
    """A list of (item, place), with owned references in a loop, of items that are not None; the slow way in between."""
    require(type(items) is list)
    found = []
    last = words.empty
    for i in range(len(items)):
        item = items[i]
        if item is None:
            continue
        require(item is not MARK)
        pair = (item, new_long(i))
        found.append(pair)
        last = pair
        if len(found) == 5:
            break
    found.append(last)
    return found


@native(form=METHOD, slow="slow", name="look_up")
def look_up(words: Words, mapping: Object, key: Object) -> Object:
    require(type(mapping) is dict)
    found = mapping.get(key)
    if found is None:
        return mapping.get(NAME, words.empty)
    found = keep(found)
    mapping["last"] = found
    return found


@native(form=METHOD, slow="slow", name="attributes")
def attributes(words: Words, x: Object, name: Object) -> Object:
    """Owned references that only some ways have, and an error that Python raises again."""
    if name is words.op:
        found = keep(x)
        words.seen.append(found)
        if words.flag:
            return found
        words.k += 1
    else:
        found = get_attribute(x, name)
        require(found is not None)
    words.seen.append(found)
    return found


@native()
def small(x: Object, limit: I64) -> Object:
    require(type(x) is int)
    value = as_long(x)
    require(value != -1 or has_error() is None)
    require(value < limit)
    return new_long(value + 1)


@native()
def check_all(items: Tuple):
    for x in items:
        small(x, 50)


@native(form=METHOD, slow="slow", name="next_number")
def next_number(words: Words, x: Object) -> Object:
    check_all((x, x))
    words.seen[0] = x
    return small(small(x, 20), 1000)


@native()
def require_even(n: I64):
    if n > 0:
        require_odd(n - 1)


@native()
def require_odd(n: I64):
    require(n > 0)
    require_even(n - 1)


@native(form=METHOD, slow="slow", name="even")
def even(words: Words, x: Object) -> Object:
    """Functions that call each other, of which the second departs."""
    require_even(as_long(x))
    return x


@native(inline=True)
def first_of(words: Words) -> Borrowed(TensorObject):
    return words.tensors[0]


@native(form=METHOD, slow="slow", name="choose")
def choose(words: Words, x: Object, y: Object) -> Object:
    made = (x, y) if words.flag else y
    other = keep(first_of(words))
    if x is True:
        made = other
    elif type(x) is str:
        require(y is not None)
    return made


@native(form=METHOD, slow="slow", name="data_of")
def data_of(words: Words, x: Object) -> Object:
    require(type(x) is Tensor)
    array = cast(ArrayObject, x._data)
    require(array.ndim == 2)
    return array.dtype


# --- slots ------------------------------------------------------------------------------------------------------------
class Shared(Struct):
    calls: I64
    active: Words


shared = Shared()


def called_in_python(this, *operands, **attributes):
    return ("python", this, operands, attributes)


@native(form=SLOT, slow="called_in_python", name="second_slot")
def second_slot(this: Object, operands: Tuple, attributes: Maybe(Dict)) -> Object:
    require(attributes is None and len(operands) == 1)
    return (operands[0], this)


@native(form=SLOT, slow="second_slot", name="first_slot")
def first_slot(this: Object, operands: Tuple, attributes: Maybe(Dict)) -> Object:
    shared.calls += 1
    require(len(operands) == 2)
    if attributes is not None:
        require(len(attributes) == 0)
        return call_with(this, (operands[1],), attributes)
    return operands[0]


@native(name="address_of_active")
def active() -> Address:
    return shared.active


@native(form=METHOD, slow="slow", name="same")
def same(words: Words, x: Object, y: Object) -> Object:
    if id(x) == id(y):
        return True
    return NAME if y is None else None


@native(form=METHOD, slow="slow", name="lists")
def lists(words: Words, items: Object, x: Object) -> Object:
    """Items are replaced, lists iterated over and made; a C function takes references over."""
    require(type(items) is list)
    n: I64 = 0
    for item in items:
        if item is x:
            n += 1
    items[0] = x
    items[1] = (x, words.empty)
    pair = new_tuple(2)
    set_tuple_item(pair, 0, x)
    set_tuple_item(pair, 1, new_long(n))
    made = [pair, items, None if n > 1 else x]
    while n > 0:
        made = [made]
        n -= 1
    return made


@native(form=METHOD, slow="slow", name="refused")
def refused(words: Words, x: Object) -> Object:
    """A key that cannot be hashed counts as absent, and the error is forgotten on the slow way."""
    found = words.wanted.get(x)
    require(found is not None)
    return found
