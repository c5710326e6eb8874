"""Extents as what native code computes them with: a list of additions, products and whole quotients (Sizes).

tape = Tape(["u0", "u1"])
tape.place_of(polynomial)      # where the number will stand, behind those of u0 and u1
tape.sizes(scope, written)     # the Sizes
"""

import ast

from ...compiler.polynomial import polynomial_text
from ..eager.eager_steps import NoSteps
from ..eager.eager_words import (
    ADD,
    ADD_NUMBER,
    DIVIDE_NUMBER,
    EQUAL,
    LESS,
    LESS_OR_EQUAL,
    MOST_VALUES,
    MULTIPLY,
    MULTIPLY_NUMBER,
    Formula,
    Guard,
    Sizes,
    Written,
)

_COMPARISONS = {"<": LESS, "<=": LESS_OR_EQUAL, "==": EQUAL}
_OF_TWO = {ast.Add: ADD, ast.Mult: MULTIPLY}
_WITH_NUMBER = {ast.Add: ADD_NUMBER, ast.Mult: MULTIPLY_NUMBER, ast.FloorDiv: DIVIDE_NUMBER}


class Tape:
    """names: of the numbers that are given."""

    def __init__(self, names):
        self.n, self.formulas = len(names), []
        self._places = {name: k for k, name in enumerate(names)}

    def place_of(self, terms):
        return self.place_of_text(polynomial_text(terms))

    def place_of_text(self, text):
        return self._place(ast.parse(text, mode="eval").body)

    def _place(self, node):
        """A place, of what is no number."""
        text = ast.unparse(node)
        if text not in self._places:
            place = self._computed(node)
            self._places[text] = place
        return self._places[text]

    def _computed(self, node):
        operation, left, right = type(node.op), node.left, node.right
        if _number(left) is not None and operation is not ast.FloorDiv:
            left, right = right, left
        number = _number(right)
        if number is None:
            return self._append(_OF_TWO[operation], self._place(left), self._place(right))
        if number == 1 and operation is not ast.Add:
            return self._place(left)
        if number == 0 and operation is ast.Add:
            return self._place(left)
        return self._append(_WITH_NUMBER[operation], self._place(left), number)

    def _append(self, kind, first, second):
        if self.n + len(self.formulas) >= MOST_VALUES:
            raise NoSteps("more numbers that follow from sizes than native code takes")
        self.formulas.append(Formula(kind=kind, first=first, second=second))
        return self.n + len(self.formulas) - 1

    def sizes(self, scope, written, constants):
        """written: (address, extent); constants: (address, numerator or None, extent) of floats."""
        guards = [
            Guard(value=self.place_of_text(text), comparison=_COMPARISONS[comparison], answer=answer)
            for (text, comparison), answer in scope.guards.items()
        ]
        cells = [Written(at=at, value=self.place_of(x.terms)) for at, x in written]
        floats = [Written(at=at, value=self.place_of(x.terms)) for at, n, x in constants if n is None]
        divided = [Written(at=at, value=self.place_of(x.terms), numerator=n) for at, n, x in constants if n is not None]
        formulas = self.formulas
        return Sizes(n=self.n, formulas=formulas, guards=guards, written=cells, floats=floats, divided=divided)


def _number(node):
    if isinstance(node, ast.UnaryOp):
        return -node.operand.value
    return node.value if isinstance(node, ast.Constant) else None
