"""Composites become primitives: `softmax(x)` -> `amax, sub, exp, sum, div`.

A composite's entry in the op table writes it with other ops; running that on graph values gives the decomposition.
"""

from .graph import Graph, Value
from .rewrite import Rewriter
from .widen import composite_in_float32


class _ExpandingGraph(Graph):
    """A graph that never holds a composite: applying one applies what it is made of."""

    def apply(self, op, operands, attributes):
        if op.decompose is None:
            return super().apply(op, operands, attributes)
        values = [x if isinstance(x, Value) else self.constant(x) for x in operands]
        rounded_once = composite_in_float32(op, values, attributes, self)
        return op.decompose(*values, **attributes) if rounded_once is None else rounded_once


def decompose(graph):
    """graph -> the same with primitives only, and the trace (rewrite.py)."""
    rewriter = Rewriter(graph, _ExpandingGraph(graph.name, graph.default_float))
    for value in graph.values:
        if value.op.decompose is None:
            rewriter.copy(value)
            continue
        new = rewriter.graph.apply(value.op, rewriter.operands(value), value.attributes)
        assert (new.shape, new.dtype) == (value.shape, value.dtype), f"{value!r} decomposes to {new!r}"
        rewriter[value] = new
    return rewriter.finish()
