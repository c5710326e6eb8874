"""What LLVM IR text is made of: registers, and the module that holds functions, tables and extents."""

import struct
from typing import NamedTuple

from ..extent import is_open
from ..target import LINE_BYTES, WIDEST
from .stored import bits_of
from .types import F32, F64, I1, I8, I32, I64, PTR, STORED, Type

__all__ = ["F32", "F64", "I1", "I8", "I32", "I64", "PTR", "Module", "Reg", "Type", "literal"]


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
        self.signatures = {}  # of the functions that are defined or called here
        # The texts of extents known at run time (or numbers), which whoever loads the code writes to @extents.
        self.extents, self.slots = [], {}
        # Functions that LLVM is to make quickly, and not well.
        self.made_quickly = set()
        # Functions that compute little of what they read and write.
        self.mostly_move = set()

    def declare(self, name, result, parameters, attributes=""):
        self.declarations[name] = f"declare {result} @{name}({', '.join(map(str, parameters))}) {attributes}".rstrip()

    def meet(self, name, result, operands):
        """A function is defined, or called: with what it is known to take. LLVM does not ask, and what is missing is
        whatever a register holds."""
        types = f"{result} ({', '.join([str(x.type) for x in operands])})"
        known = self.signatures.setdefault(name, types)
        assert known == types, f"{name} is {known} in one place and {types} in another"

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
        if name in self.made_quickly:
            return "#1"
        return "#2" if name in self.mostly_move and self.target.moved_bytes else "#0"

    def __str__(self):
        extents = [f"@extents = global [{len(self.extents)} x i64] zeroinitializer"] if self.extents else []
        parts = [*self.globals.values(), *extents, *self.declarations.values(), *self.functions]
        common = 'nounwind "no-trapping-math"="true" "prefer-vector-width"='
        attributes = f'{common}"{8 * self.target.vector_bytes}"'
        groups = [f"attributes #0 = {{ {attributes} }}"]
        if self.made_quickly:
            groups.append(f"attributes #1 = {{ noinline optnone {attributes} }}")
        if self.mostly_move and self.target.moved_bytes:
            # LLVM splits vectors that are longer than what it is to prefer, where no function says it needs them.
            width = f'"{8 * self.target.moved_bytes}" "min-legal-vector-width"="0"'
            groups.append(f"attributes #2 = {{ {common}{width} }}")
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
