"""Backward passes that an open call does node by node, because their gradients are differentiated again (create_graph)
or because Python of the user runs in them: what they began with, and the steps that this recorded.

Between two places where Python of the user may run (hooks of values and of leaves) such a pass is the same steps
whenever it begins with the same. So a call that is replayed takes these as a whole and runs the user's Python in
between (usual_walks.py):

    mul  sum | (hook) clamp | matmul  add | (leaf: .grad, its hooks) |
             meeting                       meeting

If the user's Python does something else this time, the pass goes on node by node; where it stands at a meeting is
known from here too.
"""

from enum import Enum
from typing import NamedTuple

from ..state.modes import state
from .node import AccumulateGrad, TensorHook


class Kind(Enum):
    """What Python of the user runs at a node: hooks of its value, all that happens at a leaf, or the node itself."""

    VALUE, LEAF, FUNCTION = range(3)


class Meeting(NamedTuple):
    """A node that a pass comes to, where Python of the user may run. number: of the leaf or the value. begin, end:
    (depth, how many run-time numbers) before and after what users and the leaf do. given, left: numbers of the
    cotangents before and after (what a function gives). pending, captured: (is it a leaf, number, numbers of what has
    arrived) of the nodes waiting then, and the numbers of the wanted gradients. n_freed: how many of the walk's freed
    steps were that."""

    kind: Kind
    number: int
    begin: tuple
    given: tuple
    pending: tuple
    captured: tuple
    n_freed: int
    end: tuple = None
    left: tuple = None


class Walk(NamedTuple):
    """One pass. operands: numbers of outputs, cotangents and inputs, -1 for None. flags: how many are outputs and
    inputs, retain_graph, create_graph, gradient mode, whether .grad of the inputs is added to. The steps after `depth`,
    up to `end`, are its own. results: numbers of the gradients. leaves: (leaf, gradient) numbers of those that got
    their first .grad. freed: indices of the steps whose saved values it freed, in order. meetings: where Python may
    run; none if nothing but leaves is met that had no gradient."""

    operands: tuple
    flags: tuple
    depth: int
    end: int
    n_numbers: tuple
    results: tuple
    leaves: tuple
    freed: tuple
    meetings: tuple


class Walking:
    """A pass while it goes on."""

    def __init__(self, frame, operands, flags):
        self.frame, self.flags = frame, flags
        self.operands = [_number(frame, t) for t in operands]
        self.depth, self.n_numbers = frame.step.depth, len(frame.numbers)
        self.n_changed = len(frame.changed_gradients)
        self.freed, self.meetings, self.runs_python = [], [], False
        self.node, self.numbers = None, {}  # the node that has run last; id of a node -> number of its value
        self.released = {vid for vid, node in frame.nodes.items() if node.is_freed}
        self.is_plain, self.around = None not in self.operands, None

    @classmethod
    def resumed(cls, frame, walk, k):
        """Of a walk that went on as usual up to and with what users do at its k-th meeting."""
        walking = cls(frame, (), walk.flags)
        walking.operands, walking.depth, walking.n_numbers = list(walk.operands), walk.depth, walk.n_numbers[0]
        walking.freed, walking.runs_python = list(walk.freed[: walk.meetings[k].n_freed]), True
        walking.meetings = [*walk.meetings[:k], walk.meetings[k]._replace(end=None)]
        return walking

    def noted(self, run):
        """What a function that does the pass returns; the frame notes down what it was."""
        frame = self.frame
        self.around, frame.walked, found = frame.walked, self, None
        if self.around is not None:
            self.around.is_plain = False  # a pass within a pass
        try:
            found = run()
        except BaseException:
            self.is_plain = False
            raise
        finally:
            frame.walked = self.around
            frame.walks.append(self._end(found or ()) if self.is_plain else None)
        return found

    def meet(self, sweep, node, cotangents):
        """A node is about to run that these have arrived at."""
        self._note_freed()
        self.node, is_leaf = node, isinstance(node, AccumulateGrad)
        hooked = bool(node.pre_hooks or node.retained)
        if self._number_of(node) is None or _is_unknown(node) or (hooked and node.n_outputs > 1):
            self.is_plain = False
        elif is_leaf or hooked:
            self.runs_python |= hooked or (is_leaf and bool(node.post_hooks))
            self._note(Kind.LEAF if is_leaf else Kind.VALUE, sweep, node, cotangents)

    def meet_function(self, sweep, node, cotangents):
        """The derivative that a user has written is about to be asked for."""
        self.runs_python = True
        self._note(Kind.FUNCTION, sweep, node, cotangents)

    def _note(self, kind, sweep, node, cotangents):
        if self.is_plain:
            order = (*(node for _, node in sweep.queue.waiting), *sweep.queue.leaves)
            pending = [(isinstance(n, AccumulateGrad), self._number_of(n), self._of(sweep.pending[n])) for n in order]
            captured = () if sweep.captured is None else self._of(sweep.captured.values())
            number, given, place = self._number_of(node), self._of(cotangents), self._place()
            self.meetings.append(Meeting(kind, number, place, given, tuple(pending), captured, len(self.freed)))

    def leave(self, cotangents):
        """The user's Python has run, and these are what goes on."""
        if self.is_plain and self.meetings and self.meetings[-1].end is None:
            self.meetings[-1] = self.meetings[-1]._replace(end=self._place(), left=self._of(cotangents))

    def _place(self):
        return self.frame.step.depth, len(self.frame.numbers)

    def _of(self, tensors):
        return tuple([_number(self.frame, t) for t in tensors])

    def _number_of(self, node):
        if isinstance(node, AccumulateGrad):
            return _number(self.frame, node.variable)
        if self.is_plain and id(node) not in self.numbers:
            self.numbers = {id(node): vid for vid, node in self.frame.nodes.items()}
        return self.numbers.get(id(node))

    def _note_freed(self):
        if self.is_plain and self.node is not None and self.node.is_freed:
            vid = self._number_of(self.node)
            if vid is not None and vid not in self.released:
                self.released.add(vid)
                self.freed.append(self.frame.step_of(vid).depth - 1)

    def _end(self, results):
        """The walk; None if there is something in it that steps do not say."""
        frame = self.frame
        self._note_freed()
        changed = [
            pair for tensors, before in frame.changed_gradients[self.n_changed :] for pair in zip(tensors, before)
        ]
        found, meetings = self._of(results), ()
        leaves = [(_number(frame, leaf), _number(frame, leaf._grad)) for leaf, _ in changed]
        # If the call fails there is nothing to take back for leaves that it has made, and nothing else holds them.
        taken_back = [one for one in frame.changed_gradients[self.n_changed :] if one[0][0]._frame is not frame]
        frame.changed_gradients[self.n_changed :] = taken_back
        if self.runs_python or any(g is not None for _, g in changed):
            leaves, meetings = [], tuple(self.meetings)
        if None in found or any(None in pair or -1 in pair for pair in leaves) or any(map(_has_unknown, meetings)):
            return None
        numbers, end = (self.n_numbers, len(frame.numbers)), frame.step.depth
        operands, freed = tuple(self.operands), tuple(self.freed)
        return Walk(operands, self.flags, self.depth, end, numbers, found, tuple(leaves), freed, meetings)


def flags_of(outputs, inputs, retain_graph, create_graph, accumulates):
    n_inputs = None if inputs is None else len(inputs)
    return len(outputs), n_inputs, bool(retain_graph), bool(create_graph), state.grad_enabled, accumulates


def _number(frame, tensor):
    """The number of a tensor's value; -1 for None, None for a tensor that the call has not met."""
    if tensor is None:
        return -1
    return tensor._vid if tensor._frame is frame else frame.bound.get(id(tensor))


def _is_unknown(node):
    """Whether Python of the user runs that is no hook of a tensor."""
    return bool(node.hooks) or any(not isinstance(hook, TensorHook) for hook in (node.pre_hooks or {}).values())


def _has_unknown(meeting):
    numbers = (*meeting.given, *meeting.left, *meeting.captured, *(n for one in meeting.pending for n in one[2]))
    return None in numbers or any(number is None for _, number, _ in meeting.pending)
