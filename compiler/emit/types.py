"""The types of LLVM IR text: elements, vectors of them, pointers."""

from typing import NamedTuple

from ..dtypes import SIZES

# Those that are only read, written and moved (stored.py), and what holds their bits in LLVM's words.
STORED_BITS = {"u8": "i8", "s8": "i8", "s16": "i16", "h16": "i16", "b16": "i16"}
STORED = frozenset(STORED_BITS)
_LLVM_NAMES = {
    "f16": "half",
    "f32": "float",
    "f64": "double",
    "i64": "i64",
    "i32": "i32",
    "i16": "i16",
    "i8": "i8",
    "i1": "i1",
    **STORED_BITS,
}
_SIZES = {"f16": 2, "f32": 4, "f64": 8, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "i1": 1, "ptr": 8}
_SIZES |= {name: SIZES[name] for name in STORED}


class Type(NamedTuple):
    """An element kind ("f16", only to convert from and to, "f32", "f64", "i64", "i32", "i16", "i8", "i1", "ptr", or one
    of STORED, which are moved and converted) and a lane count; 0 lanes is a scalar."""

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
