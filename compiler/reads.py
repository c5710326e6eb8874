"""What an op reads, and at which of its own positions: the edges that fusion reasons about.

Ops fall in three classes. *Loop* ops work element by element over their domain and can share a loop nest. *Products*
call the matrix kernel. *Movers* (cat, scatter_add, ...) are kernels of their own. Sources and single numbers made from
scalars, constants and inputs (`inline`) are no nodes at all: every kernel that needs them computes them again.
"""

from dataclasses import dataclass
from math import prod

from .access import Access, accesses, broadcast_access, reduction_shape
from .graph import INPUT
from .ops.reduction import Combine
from .vmath import FUNCTIONS

_LOOP_NAMES = {"clone", "gather", "index_select"}


def is_loop_op(value):
    if value.op.kind == "reduction":
        return isinstance(value.op.lower, Combine)
    return value.op.kind == "elementwise" or value.op.name in _LOOP_NAMES


def is_expensive(value):
    """Whether recomputing it costs more than loading it."""
    return value.op.name in FUNCTIONS or value.op.name in ("fmod", "remainder", "gather", "index_select")


def can_fail(value):
    """Whether the op checks its operands while it runs."""
    return bool(value.op.extra.get("checks")) or value.op.kind == "indexing"


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """One operand of a loop op over the op's positions. `fusable`: element k of the op needs only the elements that the
    access names. `indexed`: (position of the index operand's read, stride, size) for reads at computed positions."""

    access: Access
    fusable: bool = True
    indexed: tuple | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """The reads of every value of a graph, which values are nodes, and which are computed inline. `exists`: numbers of
    those that are in memory however the others are fused."""

    graph: object
    accesses: list
    by_value: list
    is_inline: list
    is_node: list
    exists: set


def analyse(graph):
    """Reads of a settled graph."""
    known = accesses(graph)
    exists = _must_exist(graph, known)
    inline, nodes, reads = [], [], []
    for value in graph.values:
        inline.append(value.number not in exists and _is_inline(value, known, inline))
        kind = value.op.kind
        nodes.append(kind not in ("view", "source") and not inline[-1])
        reads.append(_reads(value, known) if nodes[-1] or inline[-1] else [])
    return Reads(graph, known, reads, inline, nodes, exists)


def _must_exist(graph, known):
    """Numbers of the values that have to be in memory: results, and what products and movers read."""
    exists = {known[v.number].base.number for v in graph.results()}
    for value in graph.values:
        if value.op.kind not in ("view", "source") and not is_loop_op(value):
            exists.update(known[o.number].base.number for o in value.operands)
        if value.op.name in ("gather", "index_select"):
            exists.add(known[value.operands[0].number].base.number)
    return exists


def _is_inline(value, known, inline):
    if value.op.kind != "elementwise" or prod(value.shape) != 1 or is_expensive(value) or can_fail(value):
        return False
    bases = [known[o.number].base for o in value.operands]
    return all(b.op.kind == "source" or inline[b.number] for b in bases)


def _reads(value, known):
    operands = [known[o.number] for o in value.operands]
    if value.op.kind == "elementwise" or value.op.name == "clone":
        return [Read(broadcast_access(a, value.shape)) for a in operands]
    if value.op.kind == "reduction" and is_loop_op(value):
        return [Read(operands[0])]
    if value.op.name == "gather":
        return _gather_reads(value, *operands)
    if value.op.name == "index_select":
        return _select_reads(value, *operands)
    return [Read(a, fusable=False) for a in operands]


def _gather_reads(value, table, index):
    if not value.shape:
        return [Read(Access(table.base, (), (), table.offset), fusable=False), Read(index)]
    axis = value.attributes["axis"]
    strides = tuple(0 if k == axis else s for k, s in enumerate(table.strides))
    at = Access(table.base, value.shape, strides, table.offset)
    return [Read(at, fusable=False, indexed=(1, table.strides[axis], table.shape[axis])), Read(index)]


def _select_reads(value, table, index):
    axis, extra = value.attributes["axis"], len(index.shape)
    before, after = table.strides[:axis], table.strides[axis + 1 :]
    at = Access(table.base, value.shape, (*before, *(0,) * extra, *after), table.offset)
    spread = (*(0,) * len(before), *index.strides, *(0,) * len(after))
    index_at = Access(index.base, value.shape, spread, index.offset)
    return [Read(at, fusable=False, indexed=(1, table.strides[axis], table.shape[axis])), Read(index_at)]


def domain_of(value):
    """(elements walked, row length or 0, independent column sums or 0, level of the result) of a loop op alone."""
    if value.op.kind != "reduction":
        return prod(value.shape), 0, 0, "full"
    outer, n, inner = reduction_shape(value)
    size = outer * n * inner
    return (size, n, 0, "row") if inner == 1 else (size, inner, outer, "column")


def is_memory(value, reads):
    """Whether a base is read from memory: inputs and nodes."""
    return value.op is INPUT or reads.is_node[value.number]
