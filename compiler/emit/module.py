"""What LLVM IR text is made of: types, registers, and the module that holds functions, tables and extents."""

import struct
from typing import NamedTuple

from ..dtypes import SIZES
from ..extent import is_open
from ..target import LINE_BYTES, WIDEST
from .stored import STORED, bits_of, llvm_name

_LLVM_NAMES = {
    "f16": "half",
    "f32": "float",
    "f64": "double",
    "i64": "i64",
    "i32": "i32",
    "i16": "i16",
    "i8": "i8",
    "i1": "i1",
    **{name: llvm_name(name) for name in STORED},
}
_SIZES = {"f16": 2, "f32": 4, "f64": 8, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "i1": 1, "ptr": 8}
_SIZES |= {name: SIZES[name] for name in STORED}


class Type(NamedTuple):
    """An element kind ("f16", only to convert from and to, "f32", "f64", "i64", "i32", "i16", "i8", "i1", "ptr", or one
    of stored.py: STORED, which are moved and converted) and a lane count; 0 lanes is a scalar."""

    element: str
    lanes: int = 0

    @property
    def is_float(self):
        return self.element in ("f32", "f64")

    @property
    def element_bytes(self):
        return _SIZES[self.element]

    def __str__(self):
        name = "ptr" if self.element == "ptr" else _LLVM_NAMES[self.element]
        return f"<{self.lanes} x {name}>" if self.lanes else name

    @property
    def mangled(self):
        """The suffix of an overloaded intrinsic, as in llvm.fma.v16f32."""
        element = "p0" if self.element == "ptr" else self.element
        element = _LLVM_NAMES[element] if element in STORED else element
        return f"v{self.lanes}{element}" if self.lanes else element

    def of(self, element):
        """The same lane count with another element kind."""
        return Type(element, self.lanes)


I64, I32, I8, I1, F32, F64, PTR = (Type(k) for k in ("i64", "i32", "i8", "i1", "f32", "f64", "ptr"))


class Reg(NamedTuple):
    """An SSA register or a literal: its spelling in the text and its type."""

    name: str
    type: Type

    def __str__(self):
        return f"{self.type} {self.name}"


class Module:
    """The functions of one object file, and the intrinsics they declare."""

    def __init__(self, target=WIDEST):
        self.target = target
        self.functions = []
        self.declarations = {}
        self.globals = {}
        # The texts of extents known at run time (or numbers), which whoever loads the code writes to @extents.
        self.extents, self.slots = [], {}
        # Functions that LLVM is to make quickly, and not well.
        self.made_quickly = set()

    def declare(self, name, result, parameters, attributes=""):
        self.declarations[name] = f"declare {result} @{name}({', '.join(map(str, parameters))}) {attributes}".rstrip()

    def extent(self, extent):
        """The address of an extent's number, as an operand."""
        text = str(extent)
        if text not in self.slots:
            self.slots[text] = len(self.extents)
            self.extents.append(text)
        return self.extent_at(self.slots[text])

    @staticmethod
    def extent_at(k):
        return Reg(f"getelementptr (i8, ptr @extents, i64 {8 * k})", PTR)

    def constant_table(self, name, element, values):
        """A private read-only array; returns its address. The same name is emitted once."""
        if any(map(is_open, values)):
            self.extents += [str(v) if is_open(v) else v for v in values]
            return self.extent_at(len(self.extents) - len(values))
        t = Type(element)
        items = ", ".join(f"{t} {literal(v, element)}" for v in values)
        self.globals[name] = (
            f"@{name} = private unnamed_addr constant [{len(values)} x {t}] [{items}], align {LINE_BYTES}"
        )
        return Reg(f"@{name}", PTR)

    def group_of(self, name):
        """The attributes of a function."""
        return "#1" if name in self.made_quickly else "#0"

    def __str__(self):
        extents = [f"@extents = global [{len(self.extents)} x i64] zeroinitializer"] if self.extents else []
        parts = [*self.globals.values(), *extents, *self.declarations.values(), *self.functions]
        width = f'"prefer-vector-width"="{8 * self.target.vector_bytes}"'
        attributes = f'nounwind "no-trapping-math"="true" {width}'
        groups = [f"attributes #0 = {{ {attributes} }}"]
        if self.made_quickly:
            groups.append(f"attributes #1 = {{ noinline optnone {attributes} }}")
        return "\n".join([*parts, *groups, ""])


def literal(value, element):
    """How a Python number is written in LLVM text. Floats are rounded to the element type and written as bits."""
    if element == "i1":
        return "true" if value else "false"
    if element in STORED:
        return str(bits_of(value, element))
    if element not in ("f32", "f64"):
        return str(int(value))
    value = float(value)
    if element == "f32":
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
