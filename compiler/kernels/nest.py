"""Ops that are kernels of their own and write their loop nest, from operands in memory."""

from math import prod

from ..conversions import convert, number_everywhere, same_types
from .kernel import Kernel

# The code generator takes long for functions of thousands of pointers: joining 2000 numbers took 4 s.
_MOST_PARTS = 64


class Nest(Kernel):
    """`write(writer)` appends the loops (compiler/writer.py); `checks`: whether they check operands while they run."""

    family = "nest"

    def __init__(self, write, checks=False):
        self.write, self.checks = write, checks

    def convert(self, graph, value, operands):
        return same_types(graph, value, operands)

    def lower(self, group, lowering):
        return lowering.nest(group, self)

    def can_fail(self, value):
        return self.checks


class Search(Nest):
    """Looks at every element of its operand."""

    def flops(self, value):
        return prod(value.operands[0].shape)


class Change(Nest):
    """The first operand with the last put in or added somewhere: itself where there is nothing to put in. If that is
    one number everywhere, as it is in derivatives, the number is written, and there is no memory to be copied. Nothing
    is checked of positions that the attributes say are `inside`."""

    def in_memory(self, value):
        return range(1 if number_everywhere(value.operands[0]) is not None else 0, len(value.operands))

    def can_fail(self, value):
        return self.checks and not value.attributes.get("inside", False)

    def convert(self, graph, value, operands):
        return operands[0] if 0 in operands[-1].shape else same_types(graph, value, operands)


class Join(Nest):
    """Operands one after the other, without those that have no elements; of very many parts, joins of some of them."""

    def convert(self, graph, value, operands):
        filled = [convert(graph, x, value.dtype) for x in operands if 0 not in x.shape]
        while len(filled) > _MOST_PARTS:
            filled = [_joined(graph, value, filled[k : k + _MOST_PARTS]) for k in range(0, len(filled), _MOST_PARTS)]
        return _joined(graph, value, filled)


def _joined(graph, value, parts):
    return parts[0] if len(parts) == 1 else graph.apply(value.op, tuple(parts), value.attributes)
