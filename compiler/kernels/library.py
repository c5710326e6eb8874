"""Ops that call a routine with text of its own: products, and what computes rows from rows."""

from math import prod

from ..conversions import full, same_types
from .kernel import Kernel

ROUTINES = {}  # stem -> Routine


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


class GridProduct(Kernel):
    """Products over grids (compiler/grids.py). products_of(operands, shape of the result, attributes, bytes of an
    element) gives the Products; `order`: which operands are their a and b. Eager mode calls the same routine."""

    family = "library"
    needs_row_major = True

    def __init__(self, products_of, order):
        self.products_of, self.order = products_of, order

    def convert(self, graph, value, operands):
        return same_types(graph, value, operands)

    def lower(self, group, lowering):
        return lowering.grid_product(group.values[0], self)

    def flops(self, value):
        return self.products_of(value.operands, value.shape, value.attributes, value.dtype.size_bytes).flops


class Routine(Kernel):
    """Computes every row of the result from the same row of the operands. Rows are along the last axis, in a row in
    memory; threads share them. Eager mode calls the same routine (runtime/code/kernels.py: run_routine).

    emit(module, element) defines `void @weft_STEM_ELEMENT(operands ..., result, rows, sizes ..., scratch)` for operands
    of that element type. Of the first operand's shape and the op's attributes, `sizes` gives the numbers after the
    number of rows; of the element, the shape and the attributes, `scratch_bytes` the memory that a thread needs, and
    of the shape, `cost_ns` a rough time.
    """

    family = "library"
    needs_row_major = True

    def __init__(self, stem, emit, sizes, scratch_bytes, cost_ns):
        self.stem, self.emit, self.sizes, self.scratch_bytes, self.cost_ns = stem, emit, sizes, scratch_bytes, cost_ns
        ROUTINES[stem] = self

    def convert(self, graph, value, operands):
        return same_types(graph, value, operands)

    def lower(self, group, lowering):
        return lowering.routine(group.values[0], self)

    def flops(self, value):
        return prod(value.shape)
