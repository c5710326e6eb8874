"""The types of native functions, as their sources write them, and where the fields of structures lie.

    class Entry(Struct):                 a block of memory; here, an object with these attributes
        op: Object                       a reference that somebody else holds
        operands: Rows(I64)              two words: the address of a table, and how many there are
        calls: Atomic(I64)               read and written with memory orders
        lines: Inline(Line, 64)          64 of them, one after the other
        last: At(192, I64)               at this byte; else fields follow each other

In Python a structure is an ordinary object: `Entry(op=add)`; what is not given is 0, None, or empty.
"""

import functools
from typing import NamedTuple

from ..emit.types import F64 as IR_F64
from ..emit.types import I1, PTR
from ..emit.types import I32 as IR_I32
from ..emit.types import I64 as IR_I64


class Kind:
    """A type of the subset. `ir` is what a register of it is, `memory` what a field of it is.

    Kinds are equal if what they are made of is. (No dataclass: those would add 5 ms to importing weft.)
    """

    parts = ()

    def __init__(self, *values):
        for name, value in zip(self.parts, values, strict=True):
            setattr(self, name, value)

    def _values(self):
        return tuple(getattr(self, name) for name in self.parts)

    def __eq__(self, other):
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self):
        return hash((type(self), self._values()))

    def __str__(self):
        return self.name

    def __repr__(self):
        return str(self)


class InPointer(Kind):
    """What a register holds the address of."""

    ir = memory = PTR


class Number(Kind):
    parts = ("name", "ir", "memory", "zero")


I64 = Number("I64", IR_I64, IR_I64, 0)
I32 = Number("I32", IR_I64, IR_I32, 0)  # 32 bits in memory, I64 in registers
F64 = Number("F64", IR_F64, IR_F64, 0.0)
Bool = Number("Bool", I1, IR_I64, False)  # a word in memory, which is not 0 if it holds
Address = Number("Address", PTR, PTR, None)


class ObjectKind(InPointer):
    """A Python object. cls: the class that `type(x) is cls` narrows to; fields: name -> (name in the layout, kind);
    item: what it holds."""

    parts = ("name", "cls", "fields", "item")

    def __init__(self, name, cls=None, fields=None, item=None):
        super().__init__(name, cls, fields or {}, item)

    # One that is like another is not the same: a layout may have other offsets for it.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __call__(self, item):
        """A list or tuple of objects of one kind."""
        return _container_of(self, item)


@functools.cache
def _container_of(kind, item):
    return ObjectKind(f"{kind.name}({item})", kind.cls, kind.fields, item)


Object = ObjectKind("Object")
Tuple = ObjectKind("Tuple", tuple, item=Object)
List = ObjectKind("List", list, item=Object)
Dict = ObjectKind("Dict", dict)


class Wrapped(InPointer):
    """A kind that something is said about."""

    parts = ("item",)

    def __str__(self):
        return f"{type(self).__name__}({kind_of(self.item)})"


class Maybe(Wrapped):
    """An object that may be missing: null, which is None in Python. `is None` asks which."""


class Borrowed(Wrapped):
    """A result: an object that somebody else holds. Without it, results are references of the caller's own."""


class Steals(Wrapped):
    """A parameter of a C function that takes over the reference."""


class Rows(Wrapped):
    """A table and its length."""


class Atomic(Wrapped):
    """A word that several threads use."""


class Inline(InPointer):
    """In the structure itself: `count` items, or one structure if there is no count."""

    parts = ("item", "count")

    def __init__(self, item, count=None):
        super().__init__(item, count)

    def __str__(self):
        return f"Inline({kind_of(self.item)}{'' if self.count is None else f', {self.count}'})"


class At(NamedTuple):
    """Of a field: at which byte it is."""

    offset: int
    kind: object


class Function(InPointer):
    """The address of a C function. variadic: how many of its parameters are declared, if there are more."""

    parts = ("parameters", "result", "variadic")

    def __init__(self, parameters, result=None, variadic=None):
        super().__init__(parameters, result, variadic)

    def __str__(self):
        return "Function"


class Struct:
    """A structure; subclasses declare fields by annotations. A field that was not given is made when it is asked for:
    tables in place have thousands of items, and native code has memory of its own for them."""

    _size_bytes = 0

    def __init_subclass__(cls, size_bytes=0):
        cls._size_bytes = size_bytes

    def __init__(self, **values):
        places = places_of(type(self))
        if unknown := values.keys() - places.keys():
            raise TypeError(f"{type(self).__name__}: has no field {sorted(unknown)[0]}")
        for name, value in values.items():
            setattr(self, name, value)

    def __getattr__(self, name):
        place = None if name[:2] == "__" else places_of(type(self)).get(name)
        if place is None:
            raise AttributeError(f"{type(self).__name__}: has no field {name}")
        value = default_of(place.kind)
        setattr(self, name, value)
        return value


class Pointer(InPointer):
    """The address of a structure."""

    parts = ("cls",)

    def __str__(self):
        return self.cls.__name__


class Place(NamedTuple):
    """Where a field lies."""

    offset: int
    kind: Kind


class Cell:
    """An atomic word in Python, where one instruction of the interpreter follows another."""

    def __init__(self, value=0):
        self.value = value

    def load(self, order):
        return self.value

    def store(self, value, order):
        self.value = value

    def add(self, value, order):
        """Returns what was there before."""
        self.value += value
        return self.value - value

    def swap_if(self, expected, value, order):
        """Store `value` if the word is as expected; whether it was."""
        if self.value != expected:
            return False
        self.value = value
        return True


def kind_of(annotation):
    """The kind that an annotation means. Raises TypeError if it is none."""
    if isinstance(annotation, Kind):
        return annotation
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return Pointer(annotation)
    raise TypeError(annotation)


@functools.cache
def places_of(cls):
    """{name: Place} of a structure's fields."""
    places, end = {}, 0
    for name, annotation in cls.__annotations__.items():
        if isinstance(annotation, At):
            assert annotation.offset >= end, f"{cls.__name__}.{name}: byte {annotation.offset} is taken"
            end, annotation = annotation.offset, annotation.kind
        kind = kind_of(annotation)
        alignment = _alignment(kind)
        end = -(-end // alignment) * alignment
        places[name] = Place(end, kind)
        end += size_of(kind)
    return places


def offset_of(cls, name):
    return places_of(cls)[name].offset


@functools.cache
def struct_bytes(cls):
    end = max((place.offset + size_of(place.kind) for place in places_of(cls).values()), default=0)
    assert end <= (cls._size_bytes or end), f"{cls.__name__}: needs {end} bytes, has {cls._size_bytes}"
    return cls._size_bytes or -(-end // 8) * 8


def size_of(kind):
    """Bytes of a field."""
    if isinstance(kind, Inline):
        return (1 if kind.count is None else kind.count) * stride_of(kind.item)
    if isinstance(kind, Atomic):
        return size_of(kind_of(kind.item))
    return 16 if isinstance(kind, Rows) else kind.memory.element_bytes


def stride_of(item):
    """Bytes from one item of a table to the next."""
    kind = kind_of(item)
    return struct_bytes(kind.cls) if isinstance(kind, Pointer) else size_of(kind)


def _alignment(kind):
    inner = kind_of(kind.item) if isinstance(kind, (Atomic, Inline)) else kind
    return inner.memory.element_bytes if isinstance(inner, Number) else 8


def default_of(kind):
    """What a field is in Python if it is not given."""
    if isinstance(kind, Number):
        return kind.zero
    if isinstance(kind, Atomic):
        return Cell(default_of(kind_of(kind.item)))
    if isinstance(kind, Inline):
        one = functools.partial(_inline_default, kind_of(kind.item))
        return one() if kind.count is None else [one() for _ in range(kind.count)]
    return [] if isinstance(kind, Rows) else None


def _inline_default(kind):
    return kind.cls() if isinstance(kind, Pointer) else default_of(kind)


def is_object(kind):
    return isinstance(kind, (ObjectKind, Maybe))


def is_kind(kind, wanted):
    """Whether what is of one kind may stand where another is wanted."""
    if kind == wanted:
        return True
    if isinstance(wanted, Maybe):
        return is_kind(kind.item if isinstance(kind, Maybe) else kind, kind_of(wanted.item))
    if isinstance(kind, ObjectKind) and isinstance(wanted, ObjectKind):
        same_container = kind.cls is wanted.cls and wanted.cls is not None and kind.item is not None
        return wanted is Object or (same_container and is_kind(kind.item, wanted.item))
    return wanted is Address and isinstance(kind, (Pointer, Inline, Atomic))


def common_kind(kinds):
    """The narrowest of the kinds that all may stand for, or None."""
    first, *others = kinds
    for kind in others:
        if is_kind(first, kind):
            first = kind
        elif not is_kind(kind, first):
            first = Maybe(Object) if any(isinstance(k, Maybe) for k in kinds) else Object
            if not all(is_kind(k, first) for k in kinds):
                return None
    return first
