"""`x[key]` and `x[key] = value` in native code: from the class to the ops, without a function in Python in between.

An int goes to its op at once, and so do several in a tuple. What slices, None and Ellipsis lead to depends on them and
on the tensor's shape alone: native_basic_keys.py finds it out, and Python (frontend/indexing.py) of keys that are used
again and again; it stands in a table then. All other keys are Python's business. Of the subset (docs/native.md).
"""

import ctypes
from collections import namedtuple

import numpy as np

from ...compiler.ops.view import clone, select, slice_, unsqueeze
from ...compiler.translate.kinds import (
    I64,
    Address,
    Bool,
    Dict,
    Function,
    Inline,
    Maybe,
    Object,
    Rows,
    Struct,
    Tuple,
    offset_of,
)
from ...compiler.translate.language import address_of, cast, keep, local_array, native
from ..code import translated
from ..code.native_kinds import TensorObject, as_double, call_with, compare, new_long
from ..code.packing import Packed
from ..eager.eager_words import HASH_MASK, ArrayObject, as_small, hash_of_plain, new_dict
from ..programs.recording import ValueMeta
from ..state import marks
from ..state.marks import keys_held
from ..state.tensor import Tensor
from . import native_layout
from .native import new_wrapper
from .native_basic_keys import Ops, by_dimensions, is_basic
from .native_shapes import MOST_DIMENSIONS, MetaObject, SliceObject, in_range, n_dimensions, size_at

N_KEYS = 1 << 12  # places in the table
PLACES = 4  # of them a key may stand in, one after the other
USES = 256  # so many uses later it may be worth telling native code of a key
BIGGEST = 2147483648.0  # numbers below are written as they are


class Known(Struct):
    """A key, for tensors of a shape. steps: the ops that lead to what it shows, each with its attributes.

    Of one that is written to, what is written too: a tensor of the shape `given`, which the steps make one of the
    place's shape, or a number, of a kind and between bounds that tensors of the type take."""

    hash: I64
    key: Object
    shape: Rows(I64)
    steps: Tuple
    dtype: Object
    array_dtype: Object
    given: Rows(I64)
    keeps_shape: Bool  # whether that is the shape of x[key]
    takes_float: Bool
    least: I64
    most: I64
    made: Object  # attributes of the op that makes such a number as large as its place
    change: Object  # attributes of the op that writes


class Words(Struct):
    get: Object  # what does the same in Python
    note: Object  # (x, key) is asked for again and again
    set: Object
    delete: Object
    write: Object  # (x, value, attributes): the change
    write_number: Object  # (x, number, attributes of what makes a tensor of it, attributes of the change)
    store: Function((Object, Object, Maybe(Object)), Maybe(Object))
    select: Object
    clone: Object
    zero: Object
    uses: Inline(I64, N_KEYS)
    reads: Inline(Address, N_KEYS)
    writes: Inline(Address, N_KEYS)


WORDS = Words()


# --- reading ----------------------------------------------------------------------------------------------------------
@native(name="weft_get_item")
def get_item(x: Object, key: Object) -> Object:
    if type(key) is int:
        k = in_range(key, size_at(x, 0))
        if k >= 0:
            return selected(x, k)
        return call_with(WORDS.get, (x, key), None)
    if type(key) is tuple and are_in_range(x, cast(Tuple, key)):
        return element(x, cast(Tuple, key))
    wanted = hash_of(x, key)
    at = wanted & (N_KEYS - PLACES)
    end = at + PLACES
    while at < end and not is_read(cast(Known, WORDS.reads[at]), wanted, x, key):
        at += 1
    if at < end:
        return stepped(x, cast(Known, WORDS.reads[at]).steps)
    if not is_basic(x, key):
        return call_with(WORDS.get, (x, key), None)
    at = wanted & (N_KEYS - 1)
    WORDS.uses[at] += 1
    if WORDS.uses[at] & (USES - 1) == 0:
        call_with(WORDS.note, (x, key), None)
    return by_dimensions(x, key)


@native(inline=True)
def is_read(known: Known, wanted: I64, x: Object, key: Object) -> Bool:
    return known.hash == wanted and is_key(known, x, key)


@native()
def stepped(x: Object, steps: Tuple) -> Object:
    """What the steps make of a tensor."""
    all_steps = keep(steps)  # an op may run code that takes them out of the table
    found = keep(x)
    for step in all_steps:
        found = call_with(cast(Tuple, step)[0], (found,), cast(Dict, cast(Tuple, step)[1]))
    return found


@native()
def selected(x: Object, k: I64) -> Object:
    attributes = new_dict()
    attributes["axis"] = WORDS.zero
    attributes["index"] = new_long(k)
    return call_with(WORDS.select, (x,), attributes)


@native()
def element(x: Object, key: Tuple) -> Object:
    """x[i, j, ...] of ints in range."""
    places = local_array(I64, MOST_DIMENSIONS)
    for d in range(len(key)):
        places[d] = in_range(key[d], size_at(x, d))
    found = keep(x)
    for d in range(len(key)):
        found = selected(found, places[d])
    return found


@native()
def are_in_range(x: Object, key: Tuple) -> Bool:
    """Whether there is nothing but ints, each in range."""
    n = len(key)
    if n == 0 or n > MOST_DIMENSIONS:
        return False
    d = 0
    while d < n and type(key[d]) is int and in_range(key[d], size_at(x, d)) >= 0:
        d += 1
    return d == n


# --- writing ----------------------------------------------------------------------------------------------------------
@native(name="weft_set_item")
def set_item(x: Object, key: Object, value: Maybe(Object)) -> I64:
    """0, or -1 with an exception set."""
    done = WORDS.store(x, key, value)
    if done is None:
        return -1
    return 0


@native(name="weft_store")
def store(x: Object, key: Object, value: Maybe(Object)) -> Object:
    if value is None:
        return call_with(WORDS.delete, (x, key), None)
    wanted = hash_of(x, key)
    at = wanted & (N_KEYS - PLACES)
    end = at + PLACES
    while at < end and not is_written(cast(Known, WORDS.writes[at]), wanted, x, key, value):
        at += 1
    if at == end:
        return call_with(WORDS.set, (x, key, value), None)
    known = cast(Known, WORDS.writes[at])
    if type(value) is int or type(value) is float:
        return call_with(WORDS.write_number, (x, value, known.made, known.change), None)
    change = keep(known.change)
    if known.keeps_shape and len(known.steps) != 0 and shows(value, x):
        # The end of `x[key] += y`, as in Python.
        copy = call_with(WORDS.clone, (value,), None)
        return call_with(WORDS.write, (x, stepped(copy, known.steps), change), None)
    return call_with(WORDS.write, (x, stepped(value, known.steps), change), None)


@native(inline=True)
def shows(value: Object, x: Object) -> Bool:
    """Whether both are known to be of the same memory."""
    base = cast(TensorObject, value)._base
    return base is not None and (base is x or base is cast(TensorObject, x)._base)


@native()
def is_written(known: Known, wanted: I64, x: Object, key: Object, value: Object) -> Bool:
    if known.hash != wanted or not is_key(known, x, key) or not has_type(x, known):
        return False
    if type(value) is float:
        return known.takes_float and as_double(value) > -BIGGEST and as_double(value) < BIGGEST
    if type(value) is int:
        overflow = local_array(I64, 1)
        k = as_small(value, address_of(overflow))
        return overflow[0] == 0 and k >= known.least and k <= known.most
    if type(value) is not Tensor or not has_type(value, known) or not has_sizes(value, known.given):
        return False
    return known.keeps_shape or len(known.steps) == 0 or cast(TensorObject, value)._base is None


@native()
def has_type(x: Object, known: Known) -> Bool:
    data = cast(TensorObject, x)._data
    if data is not None:
        return cast(ArrayObject, data).dtype is known.array_dtype
    meta = cast(TensorObject, x)._meta
    return type(meta) is ValueMeta and cast(MetaObject, meta).dtype is known.dtype


@native(inline=True)
def has_sizes(x: Object, shape: Rows(I64)) -> Bool:
    n = n_dimensions(x)
    d = 0
    while d < n and d < len(shape) and size_at(x, d) == shape[d]:
        d += 1
    return d == n and d == len(shape)


# --- keys -------------------------------------------------------------------------------------------------------------
@native()
def hash_of(x: Object, key: Object) -> I64:
    """The same as `_hash_of` below."""
    h = 0
    for d in range(n_dimensions(x)):
        h = (h * 31 + size_at(x, d)) & HASH_MASK
    if type(key) is tuple:
        for part in cast(Tuple, key):
            h = hash_with(h, part)
    else:
        h = hash_with(h, key)
    return h ^ (h >> 11) ^ (h >> 23)


@native()
def hash_with(h: I64, part: Object) -> I64:
    if type(part) is slice:
        found = hash_with_plain(h, cast(SliceObject, part).start)
        found = hash_with_plain(found, cast(SliceObject, part).stop)
        return hash_with_plain(found, cast(SliceObject, part).step)
    return hash_with_plain(h, part)


@native()
def hash_with_plain(h: I64, part: Object) -> I64:
    if type(part) is int:
        return (h * 31 + (hash_of_plain(part) & HASH_MASK)) & HASH_MASK
    return (h * 31 + (id(type(part)) >> 4)) & HASH_MASK


@native()
def is_key(known: Known, x: Object, key: Object) -> Bool:
    if not has_sizes(x, known.shape) or type(key) is not type(known.key):
        return False
    if type(key) is not tuple:
        return is_part(key, known.key)
    parts = cast(Tuple, key)
    wanted = cast(Tuple, known.key)
    n = len(parts)
    k = 0
    while k < n and k < len(wanted) and is_part(parts[k], wanted[k]):
        k += 1
    return k == n and k == len(wanted)


@native()
def is_part(part: Object, wanted: Object) -> Bool:
    """Of a key: what is wanted has nothing in it but ints, None, Ellipsis, and slices of ints and None."""
    if type(part) is not slice or type(wanted) is not slice:
        return is_plain(part, wanted)
    one = cast(SliceObject, part)
    other = cast(SliceObject, wanted)
    return is_plain(one.start, other.start) and is_plain(one.stop, other.stop) and is_plain(one.step, other.step)


@native()
def is_plain(part: Object, wanted: Object) -> Bool:
    if part is wanted:
        return True
    return type(part) is int and type(wanted) is int and compare(part, wanted, 2) == 1


# --- the table, from Python -------------------------------------------------------------------------------------------
_IN_PYTHON = "get", "note", "set", "write", "write_number"
_rows = {}  # (table, place) -> what stands there


def part(layout):
    """What is translated: its name, functions and layout."""
    return "keys", [get_item, set_item, store], layout_with_keys(layout)


def install(layout):
    """Keys go to native code from now on, unless somebody has replaced a method."""
    known, now = marks.methods.get(Tensor, {}), vars(Tensor)
    if keys_held or any(known.get(method) is not now[method] for method in ("__getitem__", "__setitem__")):
        return
    code = translated.load(*part(layout))
    nothing = Packed(Known(hash=-1))
    words = Words(**dict(zip(_IN_PYTHON, marks.by_key)), reads=(), writes=(), uses=())
    words.delete, words.select, words.clone = _refuse_deletion, select, clone
    words.store, words.zero = code.address("weft_store"), 0
    packed = Packed(words)
    for table in ("reads", "writes"):
        first = offset_of(Words, table) // 8
        packed.words[first : first + N_KEYS] = nothing.address
    address = code.struct_address(f"{Words.__module__}:WORDS")
    ctypes.memmove(address, packed.address, packed.words.nbytes)
    ops = Packed(Ops(select=select, slice=slice_, unsqueeze=unsqueeze, zero=0, one=1))
    ctypes.memmove(code.struct_address(f"{Ops.__module__}:OPS"), ops.address, ops.words.nbytes)
    keys_held.extend((code, packed, nothing, ops))
    for method, name in (("__getitem__", "weft_get_item"), ("__setitem__", "weft_set_item")):
        new = new_wrapper(Tensor, native_layout.base_of(np.ndarray, method), code.address(name))
        marks.take_over(method, new)


def layout_with_keys(layout):
    """Where slices and descriptions of pending values keep what is in them, too."""
    parts, meta = [object() for _ in range(3)], ValueMeta((object(),), object())
    places = {f"slice_{name}": native_layout.place(slice(*parts), id(part)) for name, part in zip(_PARTS, parts)}
    places |= {f"meta_{name}": native_layout.place(meta, id(getattr(meta, name))) for name in ("shape", "dtype")}
    places |= layout._asdict() | {"tuple_hash": layout.tuple_items - 8}  # where a tuple has it, before its items
    return namedtuple("KeysLayout", places)(**places)


def _refuse_deletion(x, key):
    raise AttributeError("__delitem__")


def note_read(shape, key, steps):
    """What leads to x[key] of tensors of this shape: (op, attributes) one after the other. key: an int, slice of ints,
    None or Ellipsis, or a tuple of such."""
    _note("reads", Known(hash=_hash_of(shape, key), key=key, shape=shape, steps=tuple(map(tuple, steps))))


def note_write(shape, key, dtype, given, steps, made, change, keeps_shape):
    """The same of x[key] = value. given: the shape of the value, if it is a tensor; steps make it one of the place's
    lengths. made: of a number, the attributes of the op that makes such a tensor of it, else None. change: the
    attributes of the op that writes."""
    known = Known(hash=_hash_of(shape, key), key=key, shape=shape, steps=tuple(map(tuple, steps)), dtype=dtype)
    known.array_dtype, known.given, known.made, known.change = dtype.numpy, given, made, change
    known.keeps_shape = keeps_shape
    known.takes_float, (known.least, known.most) = False, (1, 0)
    if made is not None:
        known.given, known.takes_float = (-1,), dtype.category == 2
        bound = min(1 << 8 * dtype.size_bytes - 1, 1 << 31) if dtype.category == 1 else 1 << 31
        known.least, known.most = (1 - bound, bound - 1) if dtype.category else (1, 0)
    _note("writes", known)


def _note(table, known):
    """In place of another one that may stand there, if there is no room."""
    first = known.hash & (N_KEYS - PLACES)
    places = [(table, first + k) for k in range(PLACES)]
    at = next((at for at in places if at not in _rows), places[known.hash >> 20 & PLACES - 1])
    packed = Packed(known)
    address = keys_held[0].struct_address(f"{Words.__module__}:WORDS")
    word = ctypes.c_int64.from_address(address + offset_of(Words, table) + 8 * at[1])
    before, word.value = _rows.get(at), packed.address
    _rows[at] = packed
    del before  # until now native code could read it


def _hash_of(shape, key):
    """The same as `hash_of`."""
    h = 0
    for size in shape:
        h = (h * 31 + size) & HASH_MASK
    for part in key if type(key) is tuple else (key,):
        for plain in (part.start, part.stop, part.step) if type(part) is slice else (part,):
            fact = hash(plain) if type(plain) is int else id(type(plain)) >> 4
            h = (h * 31 + (fact & HASH_MASK)) & HASH_MASK
    return h ^ (h >> 11) ^ (h >> 23)


_PARTS = "start", "stop", "step"
