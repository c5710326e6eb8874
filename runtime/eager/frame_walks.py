"""Backward passes that an open call does node by node, because their gradients are differentiated again (create_graph):
what they began with, and the steps that this recorded.

Such a pass is the same steps whenever it begins with the same, as long as no Python of the user runs in it. So a call
that is replayed takes it as a whole (usual_walks.py).
"""

from typing import NamedTuple

from .node import AccumulateGrad


class Walk(NamedTuple):
    """One pass. operands: numbers of outputs, cotangents and inputs, -1 for None. flags: how many are outputs and
    inputs, retain_graph, create_graph, gradient mode. The steps after `depth`, up to `end`, are its own. results:
    numbers of the gradients. leaves: (leaf, gradient) numbers of those that got their first .grad. freed: indices of
    the steps whose saved values it freed."""

    operands: tuple
    flags: tuple
    depth: int
    end: int
    n_numbers: tuple
    results: tuple
    leaves: tuple
    freed: frozenset


class Walking:
    """A pass while it goes on."""

    def __init__(self, frame, operands, flags):
        self.frame, self.flags = frame, flags
        self.operands = [_number(frame, t) for t in operands]
        self.depth, self.n_numbers = frame.step.depth, len(frame.numbers)
        self.n_changed = len(frame.changed_gradients)
        self.released = {vid for vid, node in frame.nodes.items() if node.released}
        frame.walked = []

    def end(self, results):
        """The walk; None if there is something in it that steps do not say."""
        frame = self.frame
        walked, frame.walked = frame.walked, None
        own = {id(node) for node in frame.nodes.values()}
        plain = all(isinstance(node, AccumulateGrad) or id(node) in own for node in walked)
        changed = [
            pair for tensors, before in frame.changed_gradients[self.n_changed :] for pair in zip(tensors, before)
        ]
        found = [_number(frame, t) for t in results]
        leaves = [(_number(frame, leaf), _number(frame, leaf._grad)) for leaf, _ in changed]
        # If the call fails there is nothing to take back for leaves that it has made, and nothing else holds them.
        taken_back = [one for one in frame.changed_gradients[self.n_changed :] if one[0][0]._frame is not frame]
        frame.changed_gradients[self.n_changed :] = taken_back
        unknown = None in self.operands or None in found or any(None in pair or -1 in pair for pair in leaves)
        if unknown or not plain or any(_runs_python(node) for node in walked) or any(g is not None for _, g in changed):
            return None
        numbers = self.n_numbers, len(frame.numbers)
        freed = {vid for vid, node in frame.nodes.items() if node.released} - self.released
        indices = frozenset(k for k, step in enumerate(frame.steps) if step.metas and step.first in freed)
        end = frame.step.depth
        return Walk(tuple(self.operands), self.flags, self.depth, end, numbers, tuple(found), tuple(leaves), indices)


def _number(frame, tensor):
    """The number of a tensor's value; -1 for None, None for a tensor that the call has not met."""
    if tensor is None:
        return -1
    return tensor._vid if tensor._frame is frame else frame.bound.get(id(tensor))


def _runs_python(node):
    return bool(node.hooks or node.pre_hooks or node.retained or getattr(node, "post_hooks", None))
