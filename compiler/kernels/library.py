"""Ops that call a routine with text of its own: matrix products, and what computes rows from rows."""

from math import prod

from ..conversions import full, same_types
from .kernel import Kernel

ROUTINES = {}  # stem -> Routine


class Product(Kernel):
    """Products of matrices, for all leading dimensions."""

    family = "library"
    packed = (1,)

    def convert(self, graph, value, operands):
        if 0 in operands[0].shape:
            return full(graph, 0, value.shape, value.dtype)
        return same_types(graph, value, operands)

    def lower(self, group, lowering):
        return lowering.product(group.values[0])

    def flops(self, value):
        return 2 * prod(value.shape) * value.operands[0].shape[-1]


class PanelProduct(Product):
    """A product whose right matrix lies in panels already (ops/panels.py)."""

    packed = ()

    def lower(self, group, lowering):
        return lowering.panel_product(group.values[0])


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


class _Called(Kernel):
    """Computed by a routine, from operands that are in a row in memory. Eager mode calls the same routine
    (runtime/code/kernels.py: run_routine), with the numbers `whole(shapes, attributes)` for all of the work and memory
    of `scratch(element, shapes, attributes)` bytes; `shapes`: those of the operands."""

    family = "library"
    needs_row_major = True

    def convert(self, graph, value, operands):
        return same_types(graph, value, operands)


# What eager mode does between two looks for Ctrl-C.
_PART_NS, _PART_FLOPS = 20_000_000, 1 << 29


def _each(n, cost, most):
    """How many of n equal parts of some work may be done at once."""
    return max(1, n if cost <= most else int(n * most // cost))


class Routine(_Called):
    """Computes every row of the result from the same row of the operands. Rows are along the last axis; threads share
    them.

    emit(module, element) defines `void @weft_STEM_ELEMENT(operands ..., result, rows, sizes ..., scratch)` for operands
    of that element type. Of the first operand's shape and the op's attributes, `sizes` gives the numbers after the
    number of rows; of the element, the shape and the attributes, `scratch_bytes` the memory that a thread needs, and
    of the shape, `cost_ns` a rough time.
    """

    def __init__(self, stem, emit, sizes, scratch_bytes, cost_ns):
        self.stem, self.emit, self.sizes, self.scratch_bytes, self.cost_ns = stem, emit, sizes, scratch_bytes, cost_ns
        ROUTINES[stem] = self

    def whole(self, shapes, attributes):
        return prod(shapes[0][:-1]), *self.sizes(shapes[0], attributes)

    def parts(self, shapes, attributes):
        """All of the work as calls of some hundredths of a second: the first row of each, and what it is told."""
        n_rows, *sizes = self.whole(shapes, attributes)
        each = _each(n_rows, self.cost_ns(shapes[0]), _PART_NS)
        return [(first, (min(each, n_rows - first), *sizes)) for first in range(0, n_rows, each)]

    def longest_part_ns(self, shapes):
        """Of a row, roughly: it is never cut."""
        return self.cost_ns(shapes[0]) // max(prod(shapes[0][:-1]), 1)

    def scratch(self, element, shapes, attributes):
        return self.scratch_bytes(element, shapes[0], attributes)

    def lower(self, group, lowering):
        return lowering.routine(group.values[0], self)

    def flops(self, value):
        return prod(value.shape)


class UnitRoutine(_Called):
    """Computes the result in units of work that have nothing to do with each other; threads share them.

    emit(module, element) defines `void @weft_STEM_ELEMENT(operands ..., result, first, count, sizes ..., scratch)`: the
    units first .. first + count - 1. The other arguments are functions: of the operands' shapes and the attributes,
    `units` gives how many units there are, `sizes` the numbers after them and `n_flops` how much it computes; of the
    element, the shapes and the attributes, `scratch` the memory that a thread needs.
    """

    def __init__(self, stem, emit, units, sizes, scratch, n_flops):
        self.stem, self.emit, self.units, self.sizes, self.scratch, self.n_flops = (
            stem, emit, units, sizes, scratch, n_flops
        )  # fmt: skip
        ROUTINES[stem] = self

    def whole(self, shapes, attributes):
        return 0, self.units(shapes, attributes), *self.sizes(shapes, attributes)

    def parts(self, shapes, attributes):
        """All of the work as calls of some hundredths of a second: what each is told; all know the arrays whole."""
        _, n_units, *sizes = self.whole(shapes, attributes)
        each = _each(n_units, self.n_flops(shapes, attributes), _PART_FLOPS)
        return [(0, (first, min(each, n_units - first), *sizes)) for first in range(0, n_units, each)]

    def longest_part_ns(self, shapes):
        return 0  # parts are cut so that none is long

    def lower(self, group, lowering):
        return lowering.units(group.values[0], self)

    def flops(self, value):
        return self.n_flops(tuple(o.shape for o in value.operands), value.attributes)


class Steps(Kernel):
    """One step after the other, as many as the call tells. row_of(operands, **attributes) writes one with ops
    (ops/steps.py)."""

    family = "library"
    needs_row_major = True

    def __init__(self, row_of):
        self.row_of = row_of

    def lower(self, group, lowering):
        return lowering.steps(group.values[0], self)


class Rolled(Kernel):
    """Steps of equal form, one after the other (ops/rolled.py)."""

    family = "library"
    needs_row_major = True

    def lower(self, group, lowering):
        return lowering.rolled(group.values[0])
