"""Where CPython, NumPy and weft keep what native code reads: offsets in objects, found by looking for known values."""

import ctypes
import functools
import sys
import threading
import weakref
from typing import NamedTuple

import numpy as np

from ..state.modes import state
from ..state.storage import Storage
from ..state.tensor import Tensor, tensor_of


class Layout(NamedTuple):
    """Where CPython and NumPy keep things, in bytes from an object's start."""

    type: int
    size: int
    tuple_items: int
    list_items: int
    dict_used: int
    array_data: int
    array_ndim: int
    array_shape: int
    array_base: int
    array_dtype: int
    array_flags: int
    weak_references: int
    data: int
    frame: int
    vid: int
    requires_grad: int
    grad: int
    node: int
    accumulator: int
    storage: int
    base: int
    meta: int
    is_apart: int
    version: int
    sharers: int
    exposed: int
    changes: int
    type_version: int
    dict_version: int  # 0: there is no such number


class NotFound(Exception):
    pass


def find_layout():
    items = (object(), object())
    listed = list(items)
    slots = {name: object() for name in Tensor.__slots__ if not name.startswith("__")}
    tensor, storage = tensor_of(None), Storage()
    for name, value in slots.items():
        setattr(tensor, name, value)
    storage.version, storage.sharers, storage.exposed, storage.changes = object(), object(), object(), object()
    found = layout_of_arrays() | {
        "size": place((None,) * 1234, 1234),
        "tuple_items": place(items, id(items[0])),
        "list_items": _place_of_items(listed),
        "dict_used": place({k: k for k in range(4321)}, 4321),
        "weak_references": _place_of_weak_references(),
        "version": place(storage, id(storage.version)),
        "sharers": place(storage, id(storage.sharers)),
        "exposed": place(storage, id(storage.exposed)),
        "changes": place(storage, id(storage.changes)),
        "type_version": _place_of_type_version(),
        "dict_version": _place_of_dict_version(),
    }
    wrapper_base()
    names = (
        "data",
        "frame",
        "vid",
        "requires_grad",
        "grad",
        "node",
        "accumulator",
        "storage",
        "base",
        "meta",
        "is_apart",
    )
    found |= {name: place(tensor, id(slots[f"_{name}"])) for name in names}
    if state.__dict__ is not state.__dict__:
        raise NotFound
    longer = [None] * 777
    same_size = _words(longer)[found["size"] // 8] == 777
    held = [object()] * 99
    if not same_size or ctypes.c_int32.from_address(id(held[0])).value != len(held):
        raise NotFound
    return Layout(**found)


def layout_of_arrays():
    """NumPy's fields follow one another: data, number of dimensions, shape, strides, base, dtype, flags. And where any
    object says what it is."""
    whole = np.zeros((3, 5, 7))
    array, turned = whole[1:], whole.T
    data = place(array, array.ctypes.data)
    ndim, shape, _, base, dtype, flags = _words(array)[data // 8 + 1 : data // 8 + 7]
    shape = tuple((ctypes.c_int64 * 3).from_address(shape))
    contiguous = _words(whole)[data // 8 + 6] & 1, _words(turned)[data // 8 + 6] & 1
    if (ndim & 0xFFFFFFFF, shape, base, dtype) != (3, (2, 5, 7), id(whole), id(array.dtype)) or contiguous != (1, 0):
        raise NotFound
    names = ("array_data", "array_ndim", "array_shape", "strides", "array_base", "array_dtype", "array_flags")
    found = {name: data + 8 * k for k, name in enumerate(names)}
    del found["strides"]
    return found | {"type": place((None,), id(tuple))}


def _words(x):
    """An object's memory, to be read while the caller holds the object."""
    size = max(type(x).__basicsize__, 24)
    return (ctypes.c_size_t * (size // 8 + isinstance(x, tuple))).from_address(id(x))


def place(x, value):
    """Offset of the one word of an object that holds a value."""
    places = [8 * k for k, word in enumerate(_words(x)) if word == value]
    if len(places) != 1:
        raise NotFound
    return places[0]


def _place_of_weak_references():
    """Offset of what is not null while a weak reference to a tensor exists; before the object since Python 3.12."""
    offset, tensor = Tensor.__weakrefoffset__, tensor_of(None)
    word = ctypes.c_size_t.from_address(id(tensor) + offset)
    before, reference = word.value, weakref.ref(tensor)
    if not offset or before or not word.value or reference() is not tensor:
        raise NotFound
    return offset


_TYPE_VERSION = 384  # of tp_version_tag in CPython 3.10 to 3.14


def type_version(kind):
    """A number that no class had before, and that becomes 0 when the class or one it inherits from is changed."""
    _ = kind.__hash__  # the first look at a class that was changed gives it another one
    return _version_now(kind)


def _version_now(kind):
    return ctypes.c_uint32.from_address(id(kind) + _TYPE_VERSION).value


def _place_of_type_version():
    class Base:
        first = None

    class Other(Base):
        pass

    _ = Other.first, Base.first
    versions = _version_now(Base), _version_now(Other)
    Base.second = None
    changed = _version_now(Base), _version_now(Other)
    _ = Other.first, Base.first
    after = _version_now(Base), _version_now(Other)
    if len({*versions, *after}) != 4 or 0 in (*versions, *after) or changed != (0, 0):
        raise NotFound
    return _TYPE_VERSION


_DICT_VERSION = 24  # of ma_version_tag in CPython 3.10 to 3.13


def _place_of_dict_version():
    """Offset of a number that no dict had before and that changes with the dict; 0 if there is none, as from 3.14 on.
    What is looked at is how a thread's modes are set and read."""
    one, other, seen = threading.local(), {"a": 1}, []
    versions = [ctypes.c_uint64.from_address(id(x) + _DICT_VERSION) for x in (one.__dict__, other)]
    for value in (1.5, None, "text"):
        one.a = other["a"] = value
        seen += [version.value for version in versions]
        _ = one.a, other.get("a"), one.__dict__
        if [version.value for version in versions] != seen[-2:]:
            return 0
    del one.a
    fresh = {}
    seen += [versions[0].value, ctypes.c_uint64.from_address(id(fresh) + _DICT_VERSION).value]
    return _DICT_VERSION if len(set(seen)) == len(seen) and 0 not in seen and 2**64 - 1 not in seen else 0


def _place_of_items(x):
    """Offset of a list's pointer to its items."""
    first, second = (ctypes.c_size_t * 2).from_address(_words(x)[3])
    if (first, second) != (id(x[0]), id(x[1])):
        raise NotFound
    return 24


def wrapper_base():
    """CPython's description of the slot that calls of an object go to, as every wrapper around one points to it."""
    return base_of(type(place), "__call__")


@functools.cache
def base_of(kind, method):
    """The same of any slot that has a method's name, from a class written in C that has it."""
    owner, name, _, base = (ctypes.c_size_t * 6).from_address(id(vars(kind)[method]))[2:]
    if owner != id(kind) or name != id(sys.intern(method)) or ctypes.string_at(_first(base)) != method.encode():
        raise NotFound
    return base


def _first(address):
    return ctypes.c_void_p.from_address(address).value
