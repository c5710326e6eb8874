"""Ops that call a routine with text of its own: matrix products."""

from math import prod

from ..conversions import full, same_types
from .kernel import Kernel


class Product(Kernel):
    """Products of matrices, for all leading dimensions."""

    family = "library"

    def convert(self, graph, value, operands):
        if 0 in operands[0].shape:
            return full(graph, 0, value.shape, value.dtype)
        return same_types(graph, value, operands)

    def lower(self, group, lowering):
        return lowering.product(group.values[0])

    def flops(self, value):
        return 2 * prod(value.shape) * value.operands[0].shape[-1]
