"""Ops that work element by element and share loop nests: elementwise ops, reductions, copies, lookups."""

from math import prod

from ..conversions import broadcast, convert, full, operand_types, reshape, same_types
from ..dtypes import bool_
from ..ops.table import TABLE
from .kernel import Kernel, Read, Source


class Loop(Kernel):
    family = "loop"

    def in_memory(self, value):
        return ()

    def lower(self, group, lowering):
        return lowering.loop(group)

    def domain(self, value):
        """(elements walked, row length or 0, independent column sums or 0, level of the result) of the op alone."""
        return prod(value.shape), 0, 0, "full"

    def compute(self, nest, value, reads, level):
        """The register of the value in a nest that is being written (registers.py)."""
        return nest.apply(value, [nest.read(r, level) for r in reads])


class Elementwise(Loop):
    """f(x, y, ...) of broadcast operands of one shape."""

    may_be_inline = True

    def convert(self, graph, value, operands):
        converted = [convert(graph, x, d) for x, d in zip(operands, operand_types(graph, value))]
        return graph.apply(value.op, tuple(broadcast(graph, x, value.shape) for x in converted), value.attributes)

    def reads(self, value, operands):
        return [Read(a.broadcast(value.shape)) for a in operands]

    def flops(self, value):
        return prod(value.shape)

    def can_fail(self, value):
        return value.op.checks_on(value.dtype.is_floating_point)


class Conversion(Elementwise):
    """To another type. The operand is taken as it is."""

    def convert(self, graph, value, operands):
        (x,) = operands
        if x.op.is_number:
            return full(graph, x, (), value.dtype)
        return graph.apply(value.op, (broadcast(graph, x, value.shape),), value.attributes)


class Copy(Loop):
    """The same elements, in row-major order."""

    def reads(self, value, operands):
        return [Read(a.broadcast(value.shape)) for a in operands]

    def compute(self, nest, value, reads, level):
        return nest.pass_on(value, nest.read(reads[0], level))


class CopyApart(Copy):
    """The same. What is read across, a line of memory for every element, is turned in tiles; with operands beside it
    that are read along their rows, and with results, each tile would touch as many lines of each of them."""

    is_apart = True


class Lookup(Loop):
    """Elements of a table at computed positions. `reads_of`: (value, table, index) -> the Reads of both."""

    def __init__(self, reads_of):
        self.reads_of = reads_of

    def convert(self, graph, value, operands):
        return same_types(graph, value, operands)

    def in_memory(self, value):
        return (0,)

    def reads(self, value, operands):
        return self.reads_of(value, *operands)

    def can_fail(self, value):
        return True

    def compute(self, nest, value, reads, level):
        table, index = reads
        return nest.pass_on(value, nest.look_up(table, index, level))


class Reduction(Loop):
    """Elements along axes combined to one, by the op's Combine. `of_bool`: the op that does the same on bools."""

    def __init__(self, of_bool=None):
        self.of_bool = of_bool

    def convert(self, graph, value, operands):
        x, op = convert(graph, operands[0], operand_types(graph, value)[0]), value.op
        if x.dtype is bool_ and self.of_bool:
            op = TABLE[self.of_bool]
        for first, count in reversed(runs(value.attributes["axes"])):
            x = _one_run(graph, op, x, tuple(range(first, first + count)))
        return reshape(graph, x, value.shape)

    def reads(self, value, operands):
        return [Read(operands[0])]

    def flops(self, value):
        return prod(value.operands[0].shape)

    def domain(self, value):
        outer, n, inner = reduction_shape(value)
        size = outer * n * inner
        return (size, n, 0, "row") if inner == 1 else (size, inner, outer, "column")


def runs(axes):
    """Neighbouring axes together: (0, 1, 3) -> [(0, 2), (3, 1)], each (first axis, how many)."""
    result = []
    for a in axes:
        if result and sum(result[-1]) == a:
            result[-1] = (result[-1][0], result[-1][1] + 1)
        else:
            result.append((a, 1))
    return result


def _one_run(graph, op, x, axes):
    kept = tuple(d for k, d in enumerate(x.shape) if k not in axes)
    n = prod(x.shape[a] for a in axes)
    if n == 0:
        return full(graph, op.lower.identity, kept, x.dtype)
    if n > 1:
        return graph.apply(op, (x,), {"axes": axes, "keepdim": False})
    if op.lower.compensated and x.dtype.is_floating_point:
        x = graph.apply(TABLE["add"], (x, full(graph, 0.0, (), x.dtype)), {})
    return reshape(graph, x, kept)


def reduction_shape(value):
    """(outer, n, inner) of a reduction over one run of axes of its operand."""
    shape = value.operands[0].shape
    axes = value.attributes["axes"] if "axes" in value.attributes else (value.attributes["axis"],)
    if not axes:
        return prod(shape), 1, 1
    return prod(shape[: axes[0]]), prod(shape[a] for a in axes), prod(shape[axes[-1] + 1 :])


class Fill(Source):
    """One number everywhere. A computed one is converted and repeated; constants and run-time scalars stay."""

    def convert(self, graph, value, operands):
        if operands[0].op.is_number:
            return None
        return graph.apply(TABLE["expand"], (convert(graph, operands[0], value.dtype),), {"shape": value.shape})
