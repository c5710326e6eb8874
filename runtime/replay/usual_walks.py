"""Backward passes of a usual call: those that are one entry, and those that a recorded call did node by node
(frame_walks.py), of which all between two meetings with Python of the user is taken as a whole."""

from operator import is_

from ...compiler.ops.random import uniform
from ..eager import engine
from ..eager.frame_walks import Kind, flags_of
from ..eager.node import AccumulateGrad, edge_of
from ..eager.owned import is_owned
from ..programs.recording import BACKWARD, GRADIENTS, UPDATE
from ..record.frame_autograd import accumulate_all, give_first
from ..state.attributes import same
from ..state.exposure import has_exposed
from ..state.modes import state
from .usual_books import at_work
from .usual_entries import NotReplayed
from .usual_hooks import go_on_in_frame


class WalkAgain:
    """A pass that begins at an entry. end: the position after it. n_before: how many run-time numbers were met until
    then; before: (place among them, number) of those on which numbers that the pass itself adds may depend. pieces: of
    what lies between meetings, (the position after it, the numbers it adds, (view, base) numbers); ends: the positions
    after the meetings; steps_only: of which pieces there is no more to do than to go to their end; waiting: numbers of
    the cotangents that have arrived at other nodes then; quiet: whether nothing was recorded at a meeting, which is a
    leaf's."""

    __slots__ = ("walk", "end", "n_before", "before", "pieces", "ends", "steps_only", "waiting", "quiet")

    def __init__(self, frame, entries, walk):
        first, last = walk.n_numbers
        self.walk, self.n_before = walk, first
        begin, self.pieces, self.ends = _position(entries, walk.depth), [], []
        position, number = begin, first
        for meeting in (*walk.meetings, None):
            depth, n_numbers = (walk.end, last) if meeting is None else meeting.begin
            end = _position(entries, depth)
            self.pieces.append((end, frame.numbers[number:n_numbers], _views(entries[position:end], frame.step.line)))
            if meeting is not None:
                position, number = _position(entries, meeting.end[0]), meeting.end[1]
                self.ends.append((position, number))
        self.end = end
        adds = any(numbers for _, numbers, _ in self.pieces)
        self.before = _used_again(entries, begin, end, frame.numbers[:first]) if adds else ()
        self.steps_only = [bool(walk.meetings) and not numbers and not views for _, numbers, views in self.pieces]
        self.waiting = [_waiting(meeting) for meeting in walk.meetings]
        self.quiet = [_is_quiet(meeting) for meeting in walk.meetings]
        if begin == end:
            raise NotReplayed("a backward through nodes computes nothing", frame.step.line)
        entries[begin].walk = self

    @property
    def accumulates(self):
        return self.walk.flags[-1]

    def begins(self, call, operands, flags):
        """Whether a pass that begins with these is this one."""
        tensors, numbers = call.tensors, self.walk.operands
        if flags != self.walk.flags or len(operands) != len(numbers):
            return False
        if not all(map(is_, operands, [tensors[k] if k >= 0 else None for k in numbers])):
            return False
        if not self.walk.meetings:
            leaves = [tensors[leaf] for leaf, _ in self.walk.leaves]
            inputs = [x for x in operands if x is not None]
            if any(leaf._grad is not None for leaf in leaves) or any(map(may_be_watched, (*leaves, *inputs))):
                return False
        if len(call.numbers) != self.n_before:
            return False
        return all(call.numbers[k] is x or same(call.numbers[k], x) for k, x in self.before)

    def give_gradients(self, call):
        """All leaves get their first one. Those that are not given here, see `give_first`."""
        pairs = [(call.tensors[leaf], call.tensors[gradient]) for leaf, gradient in self.walk.leaves]
        pairs = [(leaf, gradient) for leaf, gradient in pairs if leaf._requires_grad]
        before = [leaf for leaf, _ in pairs if leaf._frame is not call]
        call.changed_gradients.append((before, [None] * len(before)))
        return give_first(*zip(*pairs)) if pairs else ()

    def results(self, call):
        return [call.tensors[k] if k >= 0 else None for k in self.walk.results]


def _used_again(entries, begin, end, numbers):
    """(place, number) of the numbers before a pass that its own may depend on. What a draw is made of is used again by
    draws alone, and what an update has by nobody: both differ in every call."""
    if any(entry.op is uniform for entry in entries[begin:end]):
        return list(enumerate(numbers))
    apart = set()
    for entry in entries[:begin]:
        if entry.op is uniform or entry.op is UPDATE:
            apart.update(range(entry.step.first_number, entry.step.numbers_count()))
    return [(k, x) for k, x in enumerate(numbers) if k not in apart]


def _waiting(meeting):
    arrived = [n for _, _, numbers in meeting.pending for n in numbers]
    return tuple([n for n in (*arrived, *meeting.captured) if n >= 0])


def _is_quiet(meeting):
    is_leaf = meeting.kind is Kind.LEAF and len(meeting.given) == 1 and meeting.given[0] >= 0
    return is_leaf and meeting.begin == meeting.end and meeting.left == meeting.given


def _position(entries, depth):
    return sum(entry.step.depth <= depth for entry in entries)


def _views(entries, line):
    """(view, base) numbers of what a piece of a pass makes."""
    if any(entry.fresh or entry.change or entry.update for entry in entries):
        raise NotReplayed("a backward through nodes is not only ops", line)
    return [(entry.vid, entry.root) for entry in entries if entry.root is not None]


def _accumulate(found):
    """leaf.grad += gradient, for pairs of them; hooks of leaves may be called."""
    accumulate_all((leaf, None if leaf._accumulator is None else edge_of(leaf), g) for leaf, g in found)


def may_be_watched(tensor):
    accumulator = tensor._accumulator and tensor._accumulator()
    return accumulator is not None and bool(accumulator.pre_hooks or accumulator.post_hooks or accumulator.hooks)


class GoesBack:
    """The part of a UsualFrame that does backward passes."""

    def backward_again(self, outputs, gradients, retain_graph, create_graph, inputs):
        """backward() of these outputs, if it is the one expected here. Else False, and nothing is done."""
        walk = self._walk_here(outputs, gradients, inputs, retain_graph, create_graph, inputs is not None)
        if walk is not None:
            self._walk_again(walk, outputs, gradients, inputs)
            return True
        found = self._take_backward(outputs, gradients, retain_graph, create_graph, inputs)
        if found is None:
            other = self.elsewhere("backward")
            return other is not None and other.backward_again(outputs, gradients, retain_graph, create_graph, inputs)
        _accumulate(found)
        return True

    def _accumulate_rest(self, position, n_done):
        """What is left to do of the backward at a position, when native code has given so many gradients."""
        entry, tensors = self.entries[position], self.tensors
        numbers = list(zip(entry.step.detail.wanted, entry.numbers))[n_done:]
        _accumulate([(tensors[leaf], tensors[gradient]) for leaf, gradient in numbers])

    @at_work
    def _take_backward(self, outputs, gradients, retain_graph, create_graph, inputs):
        """(leaf, gradient) pairs of a backward that is the one expected here; else None."""
        entry = self.entries[self.position.value]
        if entry.op is not BACKWARD or create_graph or inputs is not None or entry.attributes[1] is not retain_graph:
            return None
        if entry.grad_enabled is not state.grad_enabled:
            return None
        operands = outputs + (gradients or (None,) * len(outputs))
        if has_exposed(operands):
            return None
        if len(operands) != len(entry.operands) or (entry.fresh and not self._enter_fresh(entry, operands)):
            return None
        tensors = self.tensors
        for x, number in zip(operands, entry.operands):
            if x is not (tensors[number] if number >= 0 else None):
                return None
        leaves = [tensors[vid] for vid in entry.step.detail.wanted]
        self.position.value += 1
        return [(leaf, tensors[vid]) for leaf, vid in zip(leaves, entry.numbers)]

    def gradients_again(self, outputs, cotangents, inputs, retain_graph, create_graph):
        """What autograd.grad returns, if it is the one expected here; else None."""
        walk = self._walk_here(outputs, cotangents, inputs, retain_graph, create_graph, False)
        if walk is not None:
            return self._walk_again(walk, outputs, cotangents, inputs)
        found = self._take_gradients(outputs, cotangents, inputs, retain_graph, create_graph)
        if found is None:
            other = self.elsewhere("gradients")
            return other and other.gradients_again(outputs, cotangents, inputs, retain_graph, create_graph)
        return found

    @at_work
    def _take_gradients(self, outputs, cotangents, inputs, retain_graph, create_graph):
        entry = self.entries[self.position.value]
        if entry.op is not GRADIENTS:
            return None
        used = self._used(entry, inputs)
        operands = outputs + (cotangents or (None,) * len(outputs)) + used
        if (
            not has_exposed(operands)
            and entry.attributes[0] == len(outputs)
            and entry.attributes[1] is retain_graph
            and not create_graph
            and entry.grad_enabled is state.grad_enabled
            and len(operands) == len(entry.operands)
            and (not entry.fresh or self._enter_fresh(entry, operands))
            and all(x is (self.tensors[k] if k >= 0 else None) for x, k in zip(operands, entry.operands))
            and not any(map(_has_end, inputs))
        ):
            self.position.value += 1
            found = map(self.tensors.__getitem__, entry.numbers)
            return list(found) if used is inputs else _spread(found, used, inputs)
        return None

    def _used(self, entry, inputs):
        """Those of the inputs of an autograd.grad that its outputs depend on, if there are as many as are expected;
        else all."""
        wanted, tensors = entry.step.detail.wanted, self.tensors
        if len(inputs) <= len(wanted) or entry.fresh:
            return inputs
        reached = {id(tensors[vid]) for vid in (*entry.step.detail.leaves, *wanted)}
        used = tuple(x for x in inputs if id(x) in reached)
        left = [x for x in inputs if id(x) not in reached]
        return used if len(used) == len(wanted) and all(map(_is_leaf_outside, left)) else inputs

    @at_work
    def _walk_here(self, outputs, cotangents, inputs, *flags):
        """The backward pass through nodes that is expected here, if it is this one."""
        walk = self.entries[self.position.value].walk
        if walk is None:
            return None
        operands = (*outputs, *(cotangents or (None,) * len(outputs)), *(inputs or ()))
        return walk if walk.begins(self, operands, flags_of(outputs, inputs, *flags)) else None

    def _walk_again(self, walk, outputs, cotangents, inputs):
        """The results of a backward pass through nodes, which has been done."""
        if not walk.walk.meetings:
            self._pass_over(walk, 0)
            return walk.results(self)
        sweep = engine.Sweep(lambda: [(edge_of(x), None) for x in outputs], None, None, *walk.walk.flags[2:4])
        sweep.captured = None if inputs is None or walk.accumulates else {}
        for x in inputs or ():
            if walk.accumulates and not x.is_leaf:
                self.hook_again(x).retain(0, x)
        before, sweep.around = state.grad_enabled, state.sweep
        state.grad_enabled, state.sweep = sweep.create_graph, sweep
        try:
            stopped = self._walk_to_an_end(walk, sweep)
        finally:
            state.grad_enabled, state.sweep = before, sweep.around
        if stopped is None:
            for callback in sweep.callbacks:
                callback()
            return walk.results(self)
        return go_on_in_frame(self, walk, sweep, *stopped, outputs, inputs)

    def _walk_to_an_end(self, walk, sweep):
        """(the meeting at which the pass went another way, the cotangents it left), or None."""
        for k, meeting in enumerate(walk.walk.meetings):
            self._pass_over(walk, k)
            if sweep.captured is None and walk.quiet[k] and self._has_first_gradient(meeting):
                continue
            self.walking = walk, k
            # What waits is held by whoever walks, if users read values meanwhile.
            self.waiting = [self.tensors[n] for n in walk.waiting[k]]
            node, do = self._node_at(meeting), sweep.run_function if meeting.kind is Kind.FUNCTION else sweep.arrive
            try:
                left = do(node, [self.tensors[n] if n >= 0 else None for n in meeting.given])
            except BaseException:
                self._walk_failed()
                raise
            if not self._is_as_usual(meeting, walk.ends[k], left):
                return k, left
            self.walking = self.waiting = None
        self._pass_over(walk, len(walk.walk.meetings))
        return None

    def _has_first_gradient(self, meeting):
        """Whether a leaf without a gradient has got one, as engine.accumulate gives it, and nobody is told."""
        leaf, found = self.tensors[meeting.number], [self.tensors[meeting.given[0]]]
        if leaf._grad is not None or not leaf._requires_grad or may_be_watched(leaf) or not is_owned(found):
            return False
        self.changed_gradients.append(((leaf,), (None,)))
        leaf._grad = found[0]
        return True

    def _node_at(self, meeting):
        if meeting.kind is Kind.FUNCTION:
            return self.functions[meeting.number][0]
        if meeting.kind is Kind.VALUE:
            return self.hooked[meeting.number]
        leaf = self.tensors[meeting.number]
        # Not the leaf's own, if it has none: making that would be a door of this frame.
        return AccumulateGrad(leaf) if leaf._accumulator is None else edge_of(leaf)[0]

    def _is_as_usual(self, meeting, end, left):
        if self.departed.value or (self.position.value, len(self.numbers)) != end or len(left) != len(meeting.left):
            return False
        tensors = self.tensors
        return all(map(is_, left, [tensors[n] if n >= 0 else None for n in meeting.left]))

    def _walk_failed(self):
        """A hook has raised. The call may go on, but nobody needs to know the way."""
        if not self.working:
            self.depart(asked="fail")
            frame = self.ended_by()
            frame.walked = self.walking = None
            frame.walks.append(None)

    def _pass_over(self, walk, k):
        """Do all that is done up to the k-th meeting, or the end."""
        if walk.steps_only[k]:
            self.position.value = walk.pieces[k][0]
        else:
            accumulate_all(self._pass_with_more(walk, k) or ())

    @at_work
    def _pass_with_more(self, walk, k):
        end, numbers, views = walk.pieces[k]
        self.changing = True
        self.numbers += numbers
        for view, root in views:
            self.tensors[view]._base = self.tensors[root]
        late = () if walk.walk.meetings else walk.give_gradients(self)
        self.position.value = end
        self.changing = False
        return late


def _has_end(x):
    """Whether gradients that reach a leaf end in a node which somebody holds."""
    return x._accumulator is not None and x._accumulator() is not None


def _is_leaf_outside(x):
    return x._frame is None and x._node is None and x._requires_grad


def _spread(found, used, inputs):
    """The gradients of those that are used, None for the others."""
    known = set(map(id, used))
    return [next(found) if id(x) in known else None for x in inputs]
