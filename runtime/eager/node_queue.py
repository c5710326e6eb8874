"""The nodes that a backward pass has still to run, in their order."""

from bisect import insort

from .node import ACCUMULATE_SEQUENCE


class Queue:
    """Nodes that cotangents have arrived at. The latest made comes out first; leaves come after all others, in the
    order in which their sums were complete, as in PyTorch: hooks of leaves show it."""

    __slots__ = ("waiting", "leaves")

    def __init__(self):
        self.waiting, self.leaves = [], {}  # (sequence, node) in order; the leaves

    def add(self, node):
        if node.sequence == ACCUMULATE_SEQUENCE:
            self.leaves[node] = None
        else:
            insort(self.waiting, (node.sequence, node))

    def put_last(self, leaf):
        self.leaves[leaf] = self.leaves.pop(leaf)

    def take(self):
        if self.waiting:
            return self.waiting.pop()[1]
        leaf = next(iter(self.leaves))
        del self.leaves[leaf]
        return leaf
