"""A finished compiled call that goes over to the nodes eager mode would have made: its steps are run once more.

From then on the call's own node is no more than a name for them. What arrives at one of its outputs goes to the node of
that value at once (engine.py), so all contributions meet where they meet in eager mode, in its order.
"""

import math

import numpy as np

from ...compiler.storage import ones
from ..eager import engine
from ..eager.gate import apply_eagerly
from ..eager.node import Saved, edge_of, next_sequence
from ..eager.saved_hooks import with_history
from ..state.modes import frame_hidden, grad_mode, state
from ..state.tensor import tensor_of
from . import frame_autograd
from .own_results import note_node

RUN_AGAIN = (
    "a compiled call cannot be differentiated this way: it would have to run again, but {reason}. Call the undecorated "
    "function instead."
)


class Between(int):
    """The place in the order of nodes of one that stands for a part of a call: after all that was made before the call,
    before the call's own node, and by rank among those of the call."""

    def __new__(cls, call, rank):
        place = super().__new__(cls, call)
        place.rank = rank
        return place

    def _key(self):
        return int(self), self.rank

    def __eq__(self, other):
        return self._key() == _key(other)

    def __lt__(self, other):
        return self._key() < _key(other)

    def __gt__(self, other):
        return self._key() > _key(other)

    __hash__ = int.__hash__


def _key(sequence):
    return sequence._key() if isinstance(sequence, Between) else (sequence, math.inf)


# --- the steps once more ----------------------------------------------------------------------------------------------
def values_of_steps(node):
    """number -> eager tensor with a node of its own, of the results of a call and what they were computed from."""
    frame, metas = node.frame, node.frame.metas
    if frame.rewritten:
        raise RuntimeError(RUN_AGAIN.format(reason="memory it has read was changed through .data since"))
    written = {v: saved.tensor for v, saved in node.written.items() if not metas[v].history}
    before = {v: tensor_of(array) for v, array in node.before().items()}
    # Of memory that NumPy arrays show too: what was there when an op read it.
    held = {v: tensor_of(array) for v, array in frame.held_copies.items() if v in node.externals}
    gone = {v: stand_in(metas[v]) for v in node.gone}
    given = {**gone, **node.externals, **written, **held, **before}
    steps = frame_autograd.leading_to(frame, node.needed.differentiable, given)
    check_unchanged(node, steps, given.keys() - before.keys())
    first = next_sequence()
    with frame_hidden(frame.default_dtype), grad_mode(state.grad_enabled):
        values = _run_again(frame, steps, _as_they_were(node, given), node.kept)
    for tensor in before.values():
        # A node that has saved it raises, as it would in eager mode after the change.
        tensor.bump_version()
    for vid in frame.overwritten.intersection(values).difference(given, node.kept):
        _count_change(values[vid])
    _stand_at(values.values(), first, node.sequence)
    free(frame, values, node.freed_steps)
    return values


def check_unchanged(node, steps, given):
    """That steps would read what they have read, of values that are not computed by them."""
    frame = node.frame
    changed = frame.overwritten.union(frame.same.values())
    for vid in {k for step in steps for k in step.operands if k in given}:
        if vid in changed:
            raise RuntimeError(RUN_AGAIN.format(reason="a tensor that it has read was changed in the middle of it"))
        node.check(vid)


def values_of_gradients(node):
    """The same of a call that has computed the gradients of another one (closed_again.py), which goes over too."""
    first, cotangents, numbers = node.again
    first.open()
    # Its own gradients pass through the nodes of the call that it is a derivative of, if there is one.
    within, call = set(), first
    while call is not None:
        within.update(map(id, made_for(call)))
        call = call.again and call.again[0]
    roots = [(edge, c) for edge, c in zip(first.stands_for, cotangents) if c is not None]
    before = next_sequence()
    with frame_hidden(node.frame.default_dtype):
        found = engine.run(roots, retain_graph=True, create_graph=True, wanted=first.ends, within=within)
    _stand_at(found, before, node.sequence)
    values = {v: x for v, x in zip(numbers, found) if v is not None}
    # A gradient that is a view keeps what it is a view of, which is a result then too.
    roots = {node.frame.roots[v]: x._base for v, x in values.items() if v in node.frame.roots and x._base is not None}
    return {**roots, **values}


def free(frame, values, indices):
    """Release the nodes of these steps."""
    for index in indices:
        made = values.get(frame.steps[index].first)
        if made is not None and made._node is not None:
            made._node.release()


def stand_in(meta):
    """In place of a tensor that was let go of, since all nodes that would read it are freed: of no particular values,
    and without memory of its own."""
    made = ones((), meta.dtype.numpy) if meta.dtype.is_floating_point else np.zeros((), meta.dtype.numpy)
    return tensor_of(np.broadcast_to(made, meta.shape))


def _as_they_were(node, given):
    """Gradients go where they went when the call was made, also if requires_grad has been set or taken away since."""
    edges = dict(zip(node.frame.last_program.meta["reached"], node.ends))
    return {v: t if edge_of(t) == edges.get(v) else with_history(t, edges.get(v)) for v, t in given.items()}


def _run_again(frame, steps, given, kept):
    values, changed = dict(given), []
    for step in steps:
        numbers = iter(frame.numbers[step.first_number :])
        operands = [next(numbers) if k < 0 else _value(frame, values, k) for k in step.operands]
        state.grad_enabled = step.grad_enabled
        values[step.first] = apply_eagerly(step.op, operands, step.attributes)
        note_node(step.op, values[step.first], operands)
        if step.first in kept and values[step.first]._base is None:
            saved = kept[step.first]
            if saved.version != saved.tensor._version:
                changed.append(values[step.first])
            else:
                _take_memory(values[step.first], saved.tensor)
    for tensor in changed:
        _count_change(tensor)
    return values


def _count_change(tensor):
    """What this has been computed again as was changed, by the call or since: nodes that have saved it raise."""
    tensor.bump_version()
    out = getattr(tensor._node, "out", None)
    if out.__class__ is Saved and out.tensor._version == out.version:
        out.tensor.bump_version()


def _take_memory(tensor, result):
    """What is computed again takes the memory of the first result, which its user sees and may change."""
    tensor._data, tensor._storage = result._data, result._storage
    out = getattr(tensor._node, "out", None)
    if out.__class__ is Saved:
        out.tensor._data, out.tensor._storage, out.version = result._data, result._storage, result._version


def _value(frame, values, vid):
    """A value made by an op before, or by a backward or an update of the call if it was kept."""
    if vid not in values:
        if vid not in frame.arrays:
            raise RuntimeError(
                RUN_AGAIN.format(reason="a gradient or an updated tensor it computed on the way is gone")
            )
        values[vid] = tensor_of(frame.arrays[vid])
    return values[vid]


def made_for(node):
    """The nodes that have taken the place of a call's."""
    found, stack = {}, [edge[0] for edge in node.stands_for]
    while stack:
        made = stack.pop()
        if id(made) not in found and isinstance(made.sequence, Between) and int(made.sequence) == int(node.sequence):
            found[id(made)] = made
            stack += [edge[0] for edge in made.edges if edge is not None]
    return found.values()


def _stand_at(tensors, first, place):
    """Nodes behind the tensors that were made since `first` was next stand at that place, in their order."""
    stack = [x._node for x in tensors if x is not None and x._node is not None]
    while stack:
        node = stack.pop()
        if not isinstance(node.sequence, Between) and node.sequence > first:
            node.sequence = Between(place, node.sequence - first)
            stack += [edge[0] for edge in node.edges if edge is not None]
