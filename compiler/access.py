"""Where an operand's elements lie: strides and an offset over the value that is really in memory.

Views are index maps; this file follows a chain of them to the value it starts from (its base) and writes the map as
one `Access`. `collapsed` is its shortest form, in which two maps over the same elements compare equal.
"""

from collections import Counter
from dataclasses import dataclass
from math import prod

from .extent import divides, is_open
from .kernels.loop import reduction_shape
from .ops.panels import PRODUCT_OF_PANELS
from .ops.table import TABLE
from .rewrite import Rewriter
from .shapes import contiguous_strides
from .target import LEVEL1_BYTES, LINE_BYTES, PANEL_BYTES

# Elements in a row that make tiles worth while: one cache line of f32.
_LONG = LINE_BYTES // 4
# So many products that go across the rows of one operand are worth a copy of it.
_OFTEN = 4
# Rows of a product that take hardly longer than copying what they read.
_FEW_ROWS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """Element (i0, i1, ...) of a value of `shape` is element offset + sum(i_k * strides[k]) of the base's memory."""

    base: object
    shape: tuple
    strides: tuple
    offset: int

    @property
    def size(self):
        return prod(self.shape)

    def over(self, shape, strides):
        """The same start with other dimensions."""
        return Access(self.base, shape, strides, self.offset)

    def broadcast(self, shape):
        """Of one element: repeated over a shape. Others have the shape already."""
        return self.over(shape, (0,) * len(shape)) if self.size == 1 and self.shape != shape else self

    @property
    def collapsed(self):
        return collapse(self.shape, self.strides)

    @property
    def is_whole(self):
        """Whether it is the base itself, in its order, possibly under another shape."""
        return self.offset == 0 and self.size == prod(self.base.shape) and is_contiguous(self.collapsed)


def is_contiguous(collapsed):
    return not collapsed or (len(collapsed) == 1 and collapsed[0][1] == 1)


def collapse(shape, strides):
    """((size, stride), ...) from the outermost in: no sizes of 1, and neighbours that are one run are one entry."""
    merged = []
    for d, s in zip(shape, strides):
        if d == 1:
            continue
        if merged and merged[-1][1] == d * s:
            merged[-1] = (merged[-1][0] * d, s)
        else:
            merged.append((d, s))
    return tuple(merged)


def layout(value):
    """The strides of a value that is in memory."""
    return value.strides if value.strides is not None else contiguous_strides(value.shape)


def own_access(value):
    return Access(value, value.shape, layout(value), 0)


def view_access(access, value):
    """The access of a view op's result, given its operand's; None where no strides can say it."""
    mapped = value.op.lower(access.shape, access.strides, access.offset, **value.attributes)
    return None if mapped is None else Access(access.base, value.shape, *mapped)


def accesses(graph):
    """value number -> its Access; values that are no views are their own base."""
    result = []
    for value in graph.values:
        if value.op.kind == "view":
            result.append(view_access(result[value.operands[0].number], value))
        else:
            result.append(own_access(value))
    return result


def settle_views(graph, target):
    """graph -> the same with a clone before every reshape that strides cannot say, before reductions that would read
    their operand badly, and of matrices that many products read; and the trace.

    A product copies what it reads across into panels, every time. A recurrent weight is read so in every step: turned
    once, the 32 x 128 x 512 of a step take 19 us in place of 23 (Zen 5, one thread). A large one is copied into panels
    once for all products of few rows (ops/panels.py): with AVX2 (Zen 3) the same takes 45 us, and 52 turned; 16 rows of
    1024 x 256 take 91 and 125, of 256 x 1024, which is not read across, 87 and 111.
    """
    rewriter = Rewriter(graph)
    known, turned, panels = {}, {}, {}
    few = Counter(v.operands[1] for v in graph.values if _has_few_rows(v, target))
    uses = Counter(value.operands[k] for value in graph.values for k in value.op.kernel.packed)
    for value in graph.values:
        operands = rewriter.operands(value)
        if _has_few_rows(value, target) and few[value.operands[1]] >= _OFTEN:
            old = value.operands[1]
            if old not in panels:
                panels[old] = _in_panels(rewriter.graph, operands[1], known)
            new = rewriter.graph.apply(PRODUCT_OF_PANELS, (operands[0], panels[old]), {})
            rewriter[value], known[new.number] = new, own_access(new)
            continue
        for k in value.op.kernel.packed:
            old, new = value.operands[k], operands[k]
            if uses[old] >= _OFTEN and _is_turned(known[new.number]):
                if old not in turned:
                    turned[old] = _clone(rewriter.graph, new, known)
                operands = (*operands[:k], turned[old], *operands[k + 1 :])
        if value.op.kind == "reduction" and not _reads_well(known[operands[0].number], value):
            operands = (_clone(rewriter.graph, operands[0], known),)
        if value.op.kind == "view":
            found = view_access(known[operands[0].number], value)
            if found is None:
                operands = (_clone(rewriter.graph, operands[0], known),)
                found = view_access(known[operands[0].number], value)
        new = rewriter.graph.copy_value(value, operands)
        rewriter[value] = new
        known[new.number] = found if value.op.kind == "view" else own_access(new)
    return rewriter.finish()


def _has_few_rows(value, target):
    """Whether it is a product of few rows and a large matrix, of whole panels."""
    if not value.op.kernel.packed or value.ndim != 2 or target.warp or any(map(is_open, value.shape)):
        return False
    (depth, columns), size = value.operands[1].shape, value.dtype.size_bytes
    if is_open(depth) or columns % (PANEL_BYTES // size):
        return False
    return 1 < value.shape[0] <= _FEW_ROWS and depth * columns * size > 2 * LEVEL1_BYTES


def _in_panels(graph, value, known):
    """A copy of a matrix (k, n) as (panels, k, columns of a panel)."""
    (depth, columns), width = value.shape, PANEL_BYTES // value.dtype.size_bytes
    attributes = {"shape": (depth, columns // width, width)}, {"axes": (1, 0, 2)}
    for name, its in zip(("reshape", "permute"), attributes):
        access, value = known[value.number], graph.apply(TABLE[name], (value,), its)
        known[value.number] = view_access(access, value)
    return _clone(graph, value, known)


def _is_turned(access):
    """Whether it is one matrix, whose columns lie in a row."""
    *others, rows, columns = access.shape
    return prod(others) == 1 and rows > 1 and columns > 1 and access.strides[-1] != 1 and access.strides[-2] == 1


def _clone(graph, value, known):
    clone = graph.apply(TABLE["clone"], (value,), {})
    known[clone.number] = own_access(clone)
    return clone


def cuts(collapsed):
    """How many elements lie inside each loop but the outermost: where the stride changes on the way from the inside."""
    result, size = [], 1
    for d, _ in reversed(collapsed[1:]):
        size *= d
        result.append(size)
    return tuple(result)


def _reads_well(access, reduction):
    """Whether the run a reduction walks (of reduced elements, or of inner ones for column sums) has one stride, and a
    good one."""
    _, n, inner = reduction_shape(reduction)
    length = n if inner == 1 else inner
    collapsed = access.collapsed
    if not all(divides(length, c) for c in cuts(collapsed)):
        return False
    return not goes_across(collapsed)


def goes_across(collapsed):
    """Whether the innermost steps jump while an outer loop goes element by element: a transposed operand.

    Tiles of such reads take a quarter of the time of whole rows, so reductions work on a copy.
    """
    *outer, (_, step) = collapsed or ((1, 1),)
    # What is as long as a call has it is taken for long.
    return step > 1 and any(s == 1 and (is_open(d) or d >= _LONG) for d, s in outer)
