"""Hooks on values of a usual call, and backward passes that go another way where users' Python runs in them."""

from weakref import ref

from ..eager import engine
from ..eager.frame_walks import Kind, Walking
from ..eager.node import BaseNode, edge_of
from ..record import frame_autograd


class HookedValue(BaseNode):
    """Carries the hooks of a value in place of the node that the call has not made. It holds no tensor: what holds one
    makes the call compute it."""

    __slots__ = ("call", "number")

    def __init__(self, call, number):
        super().__init__(())
        self.call, self.number = call, number

    def retain(self, index, tensor):
        self.retained = {index: self._value}

    def _value(self):
        # A hook may have made the call depart just now.
        return self.call.ended_by().tensors[self.number]


class TakesHooks:
    """The part of a UsualFrame that takes hooks of its values."""

    def hook_again(self, tensor):
        """What hooks of a value of the call are to be registered with, if it had some in the calls before."""
        if self.working or tensor._vid not in self.hookable or self.tensors[tensor._vid] is not tensor:
            return None
        return self.hooked.setdefault(tensor._vid, HookedValue(self, tensor._vid))


def move_hooks(call, frame):
    """In a Frame that a call departs to, its values have nodes, with the hooks that were set before."""
    if not call.hooked and not call.functions and call.walking is None:
        return
    if call.walking is not None:
        again, k = call.walking
        frame.freed.update(again.walk.freed[: again.walk.meetings[k].n_freed])
        frame.walked = Walking.resumed(frame, again.walk, k)
    frame_autograd.make_nodes(frame)
    for node in {id(node): node for node, _ in call.functions.values()}.values():
        node.edges = tuple([None if n is None else frame_autograd.edge_to(frame, n) for n in node.edges])
    for number, carrier in call.hooked.items():
        tensor, node = frame.tensors[number], frame.nodes.get(number)
        frame.hooked_values.add(number)
        frame.uses_hooks = frame.step.line
        if node is not None:
            tensor._node, node.pre_hooks = node, carrier.pre_hooks
            node.retained = carrier.retained and {index: ref(tensor) for index in carrier.retained}


def go_on_in_frame(call, again, sweep, k, left, outputs, inputs):
    """What the rest of a pass finds that was as usual up to its k-th meeting, which left these cotangents."""
    if not call.departed.value:
        call.depart(asked="walk")
    frame, walk, meeting = call.ended_by(), again.walk, again.walk.meetings[k]
    walking, frame.walked, call.walking, call.waiting = frame.walked, None, None, None
    given = [frame.tensors[n] if n >= 0 else None for n in walk.operands[len(outputs) : 2 * len(outputs)]]
    roots = [(edge_of(x), c) for x, c in zip(outputs, given)]
    wanted = None if inputs is None else [edge_of(x) for x in inputs]
    within = engine.accumulating_into(roots, wanted) if again.accumulates else None
    wanted = None if again.accumulates else wanted
    rest = engine.Sweep(roots, wanted, within, sweep.retain_graph, sweep.create_graph)
    rest.callbacks = sweep.callbacks
    for is_leaf, number, arrived in meeting.pending:
        node = _node_of(frame, is_leaf, number)
        rest.pending[node] = _tensors(frame, arrived)
        rest.queue.add(node)
    if wanted is not None:
        rest.captured = dict(zip(rest.captured, _tensors(frame, meeting.captured)))
    node = _node_of(frame, meeting.kind is Kind.LEAF, meeting.number)
    walking.leave(left)
    walking.node = node
    go_on = rest.pass_on if meeting.kind is Kind.FUNCTION else rest.go_on
    return walking.noted(lambda: rest.run(lambda: go_on(node, left)))


def _node_of(frame, is_leaf, number):
    return edge_of(frame.leaf(number))[0] if is_leaf else frame.nodes[number]


def _tensors(frame, numbers):
    return [frame.tensors[n] if n >= 0 else None for n in numbers]
