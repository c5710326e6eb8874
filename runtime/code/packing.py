"""From structures of native functions as Python objects to the memory that native code reads.

    packed = Packed(Entry(op=add, operands=[0, 1]))
    packed.words        # a NumPy array of words: what a builtin method has for `self`
    packed.address

A number that is an extent (compiler/extent.py) is left out: `open` says where it belongs.

The memory holds addresses; `held` keeps alive what lies there. It is a copy: what native code writes is read with
`packed.read("calls")`.
"""

import ctypes
import functools
import struct

import numpy as np

from ...compiler.extent import Extent
from ...compiler.translate.kinds import (
    Atomic,
    Function,
    Inline,
    Number,
    Pointer,
    Rows,
    Struct,
    kind_of,
    places_of,
    stride_of,
    struct_bytes,
)

_NOTHING = np.zeros(1, np.int64)  # where tables without items begin
_CODES = {"i64": "<q", "i32": "<i", "f64": "<d", "ptr": "<Q"}


class Packed:
    """A structure's memory, and all that it points to."""

    def __init__(self, struct_object):
        self.kind, self.held, self._known = type(struct_object), [], {}
        self.open = []  # (address, extent) of numbers that only a call knows
        self.words = self._words(struct_bytes(self.kind))
        self.address = _address(self.words)
        self._known[id(struct_object)] = self.address
        self._fill(self.words.view(np.uint8), 0, struct_object)

    def read(self, name):
        """A number that is there now."""
        place = places_of(self.kind)[name]
        kind = kind_of(place.kind.item) if isinstance(place.kind, Atomic) else place.kind
        (value,) = struct.unpack_from(_CODES[kind.memory.element], self.words, place.offset)
        return type(kind.zero)(value) if isinstance(kind, Number) and kind.zero is not None else value

    def address_of(self, struct_object):
        """Where one of the structures lies that this points to."""
        return self._known[id(struct_object)]

    def _words(self, n_bytes):
        words = np.zeros(-(-n_bytes // 8), np.int64)
        self.held.append(words)
        return words

    def _fill(self, memory, offset, struct_object):
        self.held.append(struct_object)
        for name, at, kind, pack, is_number in _fields(type(struct_object)):
            value = getattr(struct_object, name)
            if pack is None:
                self._put(memory, offset + at, kind, value)
            elif not is_number:
                pack(memory, offset + at, self._word(kind, value))
            elif isinstance(value, Extent):
                self.open.append((_address(memory) + offset + at, value))
            elif value or value.__class__ is float:  # the memory is zeros, which -0.0 is not
                pack(memory, offset + at, value)

    def _put(self, memory, offset, kind, value):
        if isinstance(kind, Rows) and not len(value):
            struct.pack_into("<Qq", memory, offset, _address(_NOTHING), 0)
        elif isinstance(kind, Rows):
            stride = stride_of(kind.item)
            table = self._words(stride * len(value))
            struct.pack_into("<Qq", memory, offset, _address(table), len(value))
            self._put_items(table.view(np.uint8), 0, kind_of(kind.item), stride, value)
        elif isinstance(kind, Inline):
            items = [value] if kind.count is None else value
            self._put_items(memory, offset, kind_of(kind.item), stride_of(kind.item), items)
        elif isinstance(kind, Atomic):
            self._put(memory, offset, kind_of(kind.item), value.value)
        else:
            code = _CODES[kind.memory.element]
            struct.pack_into(code, memory, offset, self._word(kind, value))

    def _put_items(self, memory, offset, kind, stride, items):
        code = _CODES[kind.memory.element] if isinstance(kind, Number) else None
        if code is not None and struct.calcsize(code) == stride:
            # Tables of numbers, one after the other: one call for all of them.
            at = _address(memory) + offset
            self.open += [(at + k * stride, x) for k, x in enumerate(items) if isinstance(x, Extent)]
            numbers = [0 if x is None or isinstance(x, Extent) else x for x in items]
            struct.pack_into(f"<{len(numbers)}{code[1]}", memory, offset, *numbers)
            return
        for k, item in enumerate(items):
            if isinstance(kind, Pointer):
                self._fill(memory, offset + k * stride, item)
            else:
                self._put(memory, offset + k * stride, kind, item)

    def _word(self, kind, value):
        """What stands in the memory for a value."""
        if isinstance(kind, Number):
            return 0 if value is None else value
        if value is None and isinstance(kind, (Pointer, Function)):
            return 0
        self.held.append(value)
        if isinstance(kind, Pointer):
            return self._pointer(value)
        if isinstance(kind, Function):
            return value if isinstance(value, int) else ctypes.cast(value, ctypes.c_void_p).value
        return id(value)

    def _pointer(self, struct_object):
        """One structure lies in one place, however often it is referred to."""
        assert isinstance(struct_object, Struct), struct_object
        if id(struct_object) not in self._known:
            words = self._words(struct_bytes(type(struct_object)))
            self._known[id(struct_object)] = _address(words)
            self._fill(words.view(np.uint8), 0, struct_object)
        return self._known[id(struct_object)]


@functools.cache
def _fields(kind):
    """(name, offset, kind, what puts a word there or None if it is more than one, whether it is a number) of each field
    of a structure."""
    found = []
    for name, place in places_of(kind).items():
        is_word = not isinstance(place.kind, (Rows, Inline, Atomic))
        pack = struct.Struct(_CODES[place.kind.memory.element]).pack_into if is_word else None
        found.append((name, place.offset, place.kind, pack, isinstance(place.kind, Number)))
    return found


def _address(array):
    return array.__array_interface__["data"][0]


def put_word(at, value):
    """Write a word into memory that native code reads."""
    ctypes.c_int64.from_address(at).value = value
