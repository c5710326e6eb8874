"""Numbers as formulas of others: what a caller in C changes, or a function counts, and what follows from it.

    beta = 0.9, t a Formula of a field     lr / (1.0 - beta**t)     a Formula; with t = 3 it is what Python computes

They are made by computing with them, as with floats, and then computed again: in Python, or by code on float64.
"""

import operator
from dataclasses import dataclass

from .emit.builder import F64

_PYTHON = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}


def _binary(op):
    return lambda self, other: Formula(op, self, other), lambda self, other: Formula(op, other, self)


@dataclass(frozen=True, slots=True)
class Formula:
    """`op` of `left` and `right`, which are Formulas or numbers; or the number that has the name `left` (op "field"),
    a float or a count."""

    op: str
    left: object
    right: object = None

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("sub")
    __mul__, __rmul__ = _binary("mul")
    __truediv__, __rtruediv__ = _binary("div")
    __pow__, __rpow__ = _binary("pow")

    def evaluate(self, fields):
        """The number, with these for the names."""
        if self.op == "field":
            return fields[self.left]
        return _PYTHON[self.op](*[x.evaluate(fields) if isinstance(x, Formula) else x for x in (self.left, self.right)])

    def emit(self, b, fields):
        """The float64 register, with these float64 registers for the names."""
        if self.op == "field":
            return fields[self.left]
        operands = [x.emit(b, fields) if isinstance(x, Formula) else b.const(x, F64) for x in (self.left, self.right)]
        return _power(b, *operands) if self.op == "pow" else getattr(b, self.op)(*operands)


def _power(b, base, exponent):
    """The C library's, as Python's. It is no builtin, which LLVM would compute otherwise (`exp2` for a base of 2)."""
    b.module.declare("pow", F64, [F64, F64])
    return b.emit(F64, f"call {F64} @pow({base}, {exponent}) nobuiltin")
