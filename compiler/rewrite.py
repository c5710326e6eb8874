"""Building a new graph from an old one, keeping track of where every old value went.

A pass is a function `Graph -> (Graph, trace)`; `trace[k]` is the new value that stands for old value k, or None where
the pass dropped it. Inputs and run-time scalars are always carried over: their order is the program's signature.
"""

from .graph import Graph


class Rewriter:
    """The new graph while it grows. `self[v]` is the new value of the old value v."""

    __slots__ = ("old", "graph", "trace")

    def __init__(self, old, graph=None):
        self.old = old
        self.graph = graph if graph is not None else Graph(old.name, old.default_float)
        self.trace = [None] * len(old.values)

    def __getitem__(self, value):
        return self.trace[value.number]

    def __setitem__(self, value, new):
        self.trace[value.number] = new

    def operands(self, value):
        return tuple(self.trace[o.number] for o in value.operands)

    def copy(self, value):
        """Carry a value over unchanged."""
        new = self.graph.copy_value(value, self.operands(value))
        self.trace[value.number] = new
        return new

    def finish(self):
        """The new graph with its results, and the trace."""
        self.graph.outputs = [self[v] for v in self.old.outputs]
        self.graph.commits = [(self[target], self[new]) for target, new in self.old.commits]
        return self.graph, self.trace


def follow(first, second):
    """The trace of two passes, one after the other."""
    return [None if new is None else second[new.number] for new in first]
