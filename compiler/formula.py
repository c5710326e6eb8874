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
    "least": min,
    "most": max,
    "exceeds": lambda a, b: float(a > b),
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

    def as_list(self):
        """The same for a file: [op, left, right]."""
        return [self.op, *[x.as_list() if isinstance(x, Formula) else x for x in (self.left, self.right)]]

    @staticmethod
    def of_list(found):
        """What `as_list` gave."""
        return Formula(*map(Formula.of_list, found)) if isinstance(found, list) else found

    def emit(self, b, fields):
        """The float64 register, with these float64 registers for the names."""
        if self.op == "field":
            return fields[self.left]
        operands = [x.emit(b, fields) if isinstance(x, Formula) else b.const(x, F64) for x in (self.left, self.right)]
        return _EMITTED[self.op](b, *operands) if self.op in _EMITTED else getattr(b, self.op)(*operands)


def least(a, b):
    """The smaller of two numbers, of which each may be a Formula."""
    return _of_two("least", a, b)


def most(a, b):
    """The larger of two."""
    return _of_two("most", a, b)


def exceeds(a, b):
    """1.0 if a > b, else 0.0."""
    return _of_two("exceeds", a, b)


def _of_two(op, a, b):
    is_open = isinstance(a, Formula) or isinstance(b, Formula)
    return Formula(op, a, b) if is_open else _PYTHON[op](a, b)


def _power(b, base, exponent):
    """The C library's, as Python's. It is no builtin, which LLVM would compute otherwise (`exp2` for a base of 2)."""
    b.module.declare("pow", F64, [F64, F64])
    return b.emit(F64, f"call {F64} @pow({base}, {exponent}) nobuiltin")


# As Python's: the first of two that are equal.
_EMITTED = {
    "pow": _power,
    "least": lambda b, x, y: b.select(b.cmp("lt", y, x), y, x),
    "most": lambda b, x, y: b.select(b.cmp("gt", y, x), y, x),
    "exceeds": lambda b, x, y: b.select(b.cmp("gt", x, y), b.const(1.0, F64), b.const(0.0, F64)),
}
