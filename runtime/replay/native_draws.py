"""The keys of random draws, taken in native code from the generator of a call. Of the subset (docs/native.md)."""

from ...compiler.translate.kinds import I64, Address, Borrowed, Dict, List, Object, Tuple
from ...compiler.translate.language import address_of, cast, local_array, native
from ..code.native_kinds import as_long, call_with, get_attribute, new_long, set_attribute
from ..eager.eager_words import next_item
from ..state.random import Generator

_CALLS, _READY, _SEED, _NEXT_KEYS = "_calls", "_ready", "_seed", "next_keys"  # attributes of a Generator


@native()
def generator_of(default: Object, args: Tuple, kwargs: Dict) -> Borrowed(Object):
    """The one that a call is given, which is one at most; else the default one."""
    for x in args:
        if type(x) is Generator:
            return x
    at = local_array(I64, 1)
    key = local_array(Address, 1)
    value = local_array(Address, 1)
    while next_item(kwargs, address_of(at), address_of(key), address_of(value)) != 0:
        if type(cast(Object, value[0])) is Generator:
            return cast(Object, value[0])
    return default


@native()
def put_keys(generator: Object, n: I64, values: List):
    """The keys of its next draws, as state/random.py: Generator.next_keys gives them."""
    calls = get_attribute(generator, _CALLS)
    ready = cast(Tuple, get_attribute(generator, _READY))
    seed = get_attribute(generator, _SEED)
    keys = cast(Tuple, ready[0])
    at = as_long(calls) - as_long(ready[1])
    if ready[2] is seed and at >= 0 and at + n <= len(keys):
        set_attribute(generator, _CALLS, new_long(as_long(calls) + n))
        for k in range(n):
            values.append(keys[at + k])
    else:
        next_keys = get_attribute(generator, _NEXT_KEYS)
        drawn = call_with(next_keys, (new_long(n),), None)
        for key in cast(Tuple, drawn):
            values.append(key)
