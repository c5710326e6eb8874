"""autograd.Function inside an open call: what forward has returned goes on as the output of a node.

The ops of forward are recorded as any others; then the tensor gets the next number, that of a value whose history is
the Function's node. Gradients pass through nodes from there on, and the ops of backward are recorded as they come.
"""

from ...compiler.ops.view import connect
from ..programs.recording import TooManyPaths, ValueMeta
from ..state.modes import state
from ..state.references import held
from . import frame_leaves
from .frame_autograd import is_op, make_nodes
from .onlooker import door


def may_connect(frame, outputs):
    """Whether these are values that the call has not computed yet, and that nothing else has as an output."""
    if frame.full or frame.default_dtype is not state.default_dtype or len(set(map(id, outputs))) < len(outputs):
        return False
    return all(_is_own(frame, x) and not held(frame.tensors, frame.views.get(x._vid, ())) for x in outputs)


def _is_own(frame, tensor):
    pending = tensor._frame is frame and tensor._data is None and id(tensor) not in frame.homes
    return pending and tensor._node is None and not tensor._requires_grad


def connect_outputs(frame, node, outputs, inputs, name):
    """(index, tensor) of the outputs go on as what the node has made of the inputs. Whether that could be recorded."""
    attributes = {"inputs": tuple([frame.identify(x) for x in inputs]), "name": name}
    for index, tensor in outputs:
        old, before = tensor._vid, tensor._meta
        try:
            step = frame.take(connect, (tensor,), attributes, (ValueMeta(before.shape, before.dtype, True, True),))
        except TooManyPaths:
            return False
        go_on_as_output(frame, node, index, tensor, old, step)
        frame.changing = False
    return True


def go_on_as_output(frame, node, index, tensor, old, step):
    frame_leaves.move(frame, tensor, old, step)
    frame.hooked, frame.nodes[step.first], tensor._node = True, node, node
    frame.hooked_values.add(step.first)
    if node.n_outputs > 1:
        frame.places[step.first] = index


def order_nodes(frame):
    """Before a Function makes a node that is no step: the engine adds up in the order in which nodes were made, so the
    steps before it get theirs now."""
    if frame.n_with_nodes < len(frame.steps) and any(
        frame.metas[step.first].history for step in frame.steps if is_op(step)
    ):
        make_nodes(frame)


class Connects:
    """The part of a Frame that does this."""

    may_connect, connect_outputs, order_nodes = door(may_connect), door(connect_outputs), door(order_nodes)
