"""Gradients of a finished compiled call that are to be differentiated again, as a compiled call of their own.

The recorded steps are run once more, and their gradients taken with create_graph=True: in eager mode the first times,
then inside a compiled call, whose results can be differentiated like those of any other.
"""

from dataclasses import dataclass

from ...compiler.ops.view import detach, leaf
from ..eager import engine
from ..eager.gate import apply
from ..eager.node import edge_of
from ..eager.reach import between
from ..state.modes import state, watching
from .frame_autograd import is_op

TIMES_BEFORE = 6
MOST_FAILED = 12
_compile = None


def set_compile(function):
    """The frontend says how a function is compiled (it imports this package, so it cannot be imported here)."""
    global _compile
    _compile = function


@dataclass(slots=True)
class Again:
    """How the gradients of all calls that did the same are found: a compiled function of (tensors, cotangents, run-time
    numbers of every step). read: the numbers of the tensors that it is given. wanted: positions of the edges that get
    a gradient, of n_edges.

    failed: how often all had to be found by nodes after all, mostly because the call itself took part in the same pass.
    left_out: how often it will not be run before the next try. Twice as often each time, since what comes after a call
    is mostly what came after it before.
    """

    function: object
    read: list
    steps: list
    default_dtype: object
    wanted: tuple
    n_edges: int
    read_set: frozenset
    failed: int = 0
    left_out: int = 0

    def is_due(self):
        if self.function._is_waiting():
            return False
        self.left_out -= self.left_out > 0
        return not self.left_out

    def has_failed(self):
        self.failed += 1
        self.left_out = 2 ** min(self.failed, MOST_FAILED)

    def run(self, externals, cotangents, numbers):
        """Gradients for all edges, None for those that are not wanted. externals: number -> tensor; numbers: all
        run-time numbers of the call."""
        inputs = [externals[v] for v in self.read]
        own = [list(numbers[step.first_number :])[: sum(k < 0 for k in step.operands)] for step in self.steps]
        before = state.grad_enabled, state.default_dtype
        state.grad_enabled, state.default_dtype = True, self.default_dtype
        try:
            found = self.function(inputs, cotangents, own)
        finally:
            state.grad_enabled, state.default_dtype = before
        of_edges = [None] * self.n_edges
        for k, gradient in zip(self.wanted, found):
            of_edges[k] = gradient
        return of_edges


def wanted_edges(node):
    """Positions of the edges of a node to which the pass in flight takes what the node gives."""
    return tuple([k for k, edge in enumerate(node.edges) if edge is not None and state.sweep.is_wanted(edge)])


def gradients(node, steps, cotangents):
    """Cotangents of a CallNode's edges, with a history, of those that the pass in flight wants; None if they must be
    found by its eager nodes."""
    frame = node.frame
    if state.frame is not None or _compile is None or watching or node.freed_steps:
        return None
    # Hooks of what the gradients are for are called by the pass around this.
    if frame.rewritten or are_watched(node.edges):
        return None
    made = {step.first for step in steps}
    read = dict.fromkeys(v for step in steps for v in step.operands if v >= 0 and v not in made)
    wanted = wanted_edges(node)
    if not wanted or any(v not in node.externals for v in read):
        return None
    reached = frame.last_program.meta["reached"]
    if any(reached[k] in read and not node.externals[reached[k]]._requires_grad for k in wanted):
        # It has been frozen since: what is run again would not lead to it.
        return None
    key, known = (node.needed, node.present, wanted), frame.step.known.again
    again = known.get(key, 0)
    if isinstance(again, int):
        known[key] = again + 1
        if again < TIMES_BEFORE:
            return None
        found = _again(steps, list(read), node.present, [reached[k] for k in wanted])
        function = _compile(found, background=frame.recording.in_background)
        frame.recording.derivatives.append(function)
        again = known[key] = Again(
            function, list(read), steps, frame.default_dtype, wanted, len(reached), frozenset(read)
        )
    if not again.is_due():
        return None
    found = again.run(node.externals, [c for c in cotangents if c is not None], frame.numbers)
    if is_told(node, cotangents, found, steps):
        return found
    again.has_failed()
    return None


def has_met_relatives(node):
    """The call that these gradients are of takes part in the same backward pass, so that a call of their own was of no
    use."""
    first, cotangents, _ = node.again
    present = tuple(v for v, c in zip(first.needed.differentiable, cotangents) if c is not None)
    for (*whose, _), again in first.frame.step.known.again.items():
        if whose == [first.needed, present] and isinstance(again, Again):
            again.has_failed()


def are_watched(edges):
    """Whether a user's hook, or a .grad that is kept, is at the end of one."""
    return any(edge is not None and (edge[0].pre_hooks or edge[0].retained) for edge in edges)


def is_told(node, cotangents, found, steps):
    """Whether the call that has made these gradients, and has run these steps once more for that, knows whose they are,
    or they have no history."""
    made = [x for x in found if x is not None and x._requires_grad]
    if not made:
        return True
    frame = made[0]._frame
    if frame is None or any(x._frame is not frame or x._node is not None for x in made):
        return False
    call = getattr(made[0], "_call_node", None) or frame
    if not hasattr(call, "again"):
        return False
    call.derives(node, cotangents, [None if x is None else x._vid for x in found])
    frame.recording.copies = tuple(steps)
    return True


def of_first(recording, steps, indices):
    """The call that these gradients are of, and they, have steps in common, which have one node in eager mode: of steps
    of the gradients' call, the indices that such have in the other."""
    copied = dict(zip((i for i, step in enumerate(steps) if is_op(step)), recording.copies))
    return frozenset(copied[i].depth - 1 for i in indices if i in copied)


def _again(steps, read, present, reached):
    """A function of (tensors from outside, cotangents, run-time numbers of every step)."""

    def gradients_again(inputs, cotangents, numbers):
        values = dict(zip(read, inputs))
        before = state.grad_enabled
        try:
            for step, own in zip(steps, numbers):
                own = iter(own)
                operands = tuple([next(own) if k < 0 else values[k] for k in step.operands])
                state.grad_enabled = step.grad_enabled
                # Leaves made in the call are none in this one: gradients end there as well.
                values[step.first] = apply(detach if step.op is leaf else step.op, operands, step.attributes)
        finally:
            state.grad_enabled = before
        outputs, leaves = tuple(values[v] for v in present), tuple(values[v] for v in reached)
        frame, cotangents = state.frame, tuple(cotangents)
        found = None if frame is None else frame.gradients_again(outputs, cotangents, leaves, True, True)
        if found is not None:
            return found
        wanted, roots = [edge_of(x) for x in leaves], list(zip(map(edge_of, outputs), cotangents))
        # One of the leaves may have a history that leads to another one: that is for the pass around this.
        within = between(roots, wanted)
        return engine.walk(outputs, cotangents, leaves, lambda: roots, wanted, True, True, within)

    return gradients_again
