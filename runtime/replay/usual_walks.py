"""Backward passes of a usual call that a recorded call did node by node (frame_walks.py): taken as a whole."""

from ..state.attributes import same
from ..state.modes import state
from .usual_entries import NotReplayed


class WalkAgain:
    """A pass that begins at an entry. end: the position after it. before: the run-time numbers met until then, which
    those that the pass itself adds may depend on."""

    __slots__ = ("walk", "end", "before", "added", "views")

    def __init__(self, frame, entries, walk):
        position, self.end = (sum(e.step.depth <= depth for e in entries) for depth in (walk.depth, walk.end))
        within = entries[position : self.end]
        if not within or any(entry.fresh or entry.change or entry.update for entry in within):
            raise NotReplayed("a backward through nodes is not only ops", frame.step.line)
        first, last = walk.n_numbers
        self.walk, self.before, self.added = walk, frame.numbers[:first], frame.numbers[first:last]
        self.views = [(entry.vid, entry.root) for entry in within if entry.root is not None]
        within[0].walk = self

    def begins(self, call, operands, flags):
        """Whether a pass that begins with these is this one."""
        tensors, numbers = call.tensors, self.walk.operands
        if flags != self.walk.flags or len(operands) != len(numbers):
            return False
        if any(x is not (tensors[k] if k >= 0 else None) for x, k in zip(operands, numbers)):
            return False
        leaves = [tensors[leaf] for leaf, _ in self.walk.leaves]
        inputs = [x for x in operands if x is not None]
        if any(leaf._grad is not None for leaf in leaves) or any(map(_may_be_watched, (*leaves, *inputs))):
            return False
        return len(call.numbers) == len(self.before) and all(map(same, call.numbers, self.before))

    def take(self, call):
        """All that the pass does. Returns its results."""
        tensors = call.tensors
        call.numbers += self.added
        for view, root in self.views:
            tensors[view]._base = tensors[root]
        leaves = [tensors[leaf] for leaf, _ in self.walk.leaves]
        for leaf, (_, gradient) in zip(leaves, self.walk.leaves):
            leaf._grad = tensors[gradient]
        before = [leaf for leaf in leaves if leaf._frame is not call]
        call.changed_gradients.append((before, [None] * len(before)))
        call.position.value = self.end
        return [tensors[k] if k >= 0 else None for k in self.walk.results]


def flags_of(outputs, inputs, retain_graph, create_graph):
    n_inputs = None if inputs is None else len(inputs)
    return len(outputs), n_inputs, bool(retain_graph), bool(create_graph), state.grad_enabled


def _may_be_watched(tensor):
    accumulator = tensor._accumulator and tensor._accumulator()
    return accumulator is not None and bool(accumulator.pre_hooks or accumulator.post_hooks or accumulator.hooks)
