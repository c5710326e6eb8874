"""What an op reads, and at which of its own positions: the edges that fusion reasons about.

Kernels say what they read (compiler/kernels/). Those of the loop family work element by element over their domain and
can share a loop nest; the others are kernels of their own. Sources and single numbers made from scalars, constants and
inputs (`inline`) are no nodes at all: every kernel that needs them computes them again.
"""

from dataclasses import dataclass
from math import prod

from .access import accesses

# Costs (ops/table.py) of ops that are computed once and kept, not computed again.
_DEAR = ("function", "gather")


def is_expensive(value):
    """Whether recomputing it costs more than loading it."""
    return value.op.cost in _DEAR


def can_fail(value):
    """Whether the op checks its operands while it runs."""
    return value.op.kernel.can_fail(value)


def may_fail(value):
    """The same of any graph: what has no kernel yet is made of others."""
    return not value.is_source and (value.op.kernel is None or can_fail(value))


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
    depths, nodes, reads = [], [], []
    for value in graph.values:
        depth = 0 if value.number in exists else _inline_depth(value, known, depths)
        depths.append(depth if depth <= _DEEPEST_INLINE else 0)
        kernel = value.op.kernel
        nodes.append(kernel.is_node and not depths[-1])
        operands = [known[o.number] for o in value.operands]
        reads.append(kernel.reads(value, operands) if nodes[-1] or depths[-1] else [])
    return Reads(graph, known, reads, [depth > 0 for depth in depths], nodes, exists)


def _must_exist(graph, known):
    """Numbers of the values that have to be in memory: results, and what kernels of their own read."""
    exists = {known[v.number].base.number for v in graph.results()}
    for value in graph.values:
        exists.update(known[value.operands[k].number].base.number for k in value.op.kernel.in_memory(value))
    return exists


# A recurrence of single numbers, as a filter's variance, can be longer than any stack; and every kernel that reads its
# end would compute all of it.
_DEEPEST_INLINE = 64


def _inline_depth(value, known, depths):
    """How many values the longest way to it through inline ones has, itself counted; 0 if it is not inline."""
    if not value.op.kernel.may_be_inline or prod(value.shape) != 1 or is_expensive(value) or can_fail(value):
        return 0
    bases = [known[o.number].base for o in value.operands]
    if not all(b.op.kind == "source" or depths[b.number] for b in bases):
        return 0
    return 1 + max((depths[b.number] for b in bases), default=0)
