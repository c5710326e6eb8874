"""Leaves made inside an open call: `x = x.detach().requires_grad_()`, whose gradients the call itself asks for.

The tensor goes on as another value, the result of an op that changes nothing, where gradients end. So what was computed
from it before knows nothing of the gradients that are asked for after.
"""

from dataclasses import dataclass
from types import SimpleNamespace

from ...compiler.ops.view import leaf
from ..eager.node import edge_of, leaf_edge
from ..programs.recording import TooManyPaths, ValueMeta
from ..state.modes import state
from ..state.references import held, is_held
from .frame_autograd import reach
from .frame_views import has_history, is_held_outside, read_by_any_backward, references_at_end


def make_leaf(frame, tensor):
    """Whether a pending tensor, which requires no gradients, is a leaf that does from now on; if not, nothing has been
    done."""
    old = tensor._vid
    if not _may_be_leaf(frame, tensor, old):
        return False
    before = tensor._meta
    try:
        step = frame.take(leaf, (tensor,), {}, (ValueMeta(before.shape, before.dtype, True, False),))
    except TooManyPaths:
        return False
    move(frame, tensor, old, step)
    frame.changing = False
    return True


def _may_be_leaf(frame, tensor, old):
    if tensor._data is not None or tensor._node is not None or id(tensor) in frame.homes or frame.full:
        return False
    if old in frame.versioned or frame.default_dtype is not state.default_dtype:
        return False
    # What a backward reads of it has the number it had, and would not see a change of the new one.
    return not held(frame.tensors, frame.views.get(old, ())) and old not in read_by_any_backward(frame)


def move(frame, tensor, old, step):
    """The tensor holds the value of a step that makes a leaf of it. It shows the memory that it showed before."""
    new = step.first
    root = frame.roots.get(old)
    if root is not None:
        step.detail = "view"
        frame.roots[new] = root
        frame.views[root].append(new)
    frame.tensors[old] = None
    frame.tensors.append(tensor)
    tensor._vid, tensor._meta, tensor._requires_grad = new, step.metas[0], True


def made_leaves(step):
    """Numbers of the leaves made up to a step. Asked at every change, so what an earlier step knows is not looked for
    again."""
    found, met, last = step.leaves, [], step
    while found is None:
        if step.op is leaf:
            met.append(step.first)
        step = step.parent
        found = () if step is None else step.leaves
    if step is not last:
        found = last.leaves = found + tuple(reversed(met))
    return found


def are_reached(frame):
    """Whether somebody holds a value whose backward would reach a leaf made in the call."""
    leaves = set(made_leaves(frame.step))
    if not leaves:
        return False
    freed, inside = frame.freed.union(*(walk.freed for walk in frame.walks if walk)), references_at_end(frame)
    for vid in range(len(frame.tensors)):
        if has_history(frame, vid) and is_held_outside(frame, vid, inside):
            steps, reached = reach(frame, [vid])
            if freed.isdisjoint(steps) and not leaves.isdisjoint(reached):
                return True
    return False


def ends_of(tensor):
    """The leaves and tensors from outside that gradients of a value of the call in flight reach; None of other tensors,
    and if that must be asked of their nodes. All calls that have come as far have the same."""
    call = tensor._frame
    if call is None or call is not state.frame or call.working:
        return None
    (step, _), vid = call.place(), tensor._vid
    known = step.known.ends
    if vid not in known:
        known[vid] = reach(SimpleNamespace(steps=step.path(), metas=step.metas_so_far()), [vid])[1]
    found = [call.tensors[v] for v in known[vid]]
    return None if any(x is None for x in found) else found


def drop_gradients(tensors, numbers):
    """Gradients of leaves, or kept of values, that nobody holds are nobody's."""
    for vid in numbers:
        if tensors[vid] is not None and not is_held(tensors, vid):
            tensors[vid]._grad = None


def forget(frame, tensor):
    """A tensor from outside is about to change its flags: where it is used next, it comes in anew. What was computed
    from a leaf before leads there still, also if that needs no gradient any more."""
    vid = frame.bound.get(id(tensor))
    frame.lose(tensor)
    if vid in frame.externals and tensor._requires_grad and not tensor.has_history:
        frame.outer_edges.setdefault(vid, leaf_edge(tensor))


def edge_of_leaf(frame, vid):
    """Where gradients go of a value that a leaf had when it came in, or got by a change in place."""
    leaf = frame.leaf(vid)
    if leaf._requires_grad or not frame.metas[vid].requires_grad:
        return edge_of(leaf)
    # Frozen since. Calls that do not freeze it go another way, of which its edge is the only sign.
    frame.outer_edges[vid] = leaf_edge(leaf)
    return frame.outer_edges[vid]


def turn(frame, tensor):
    """A tensor from outside is about to become a leaf that requires gradients."""
    vid = frame.bound.get(id(tensor))
    if vid is not None and vid < len(frame.tensors):
        frame.turned[id(tensor)] = Turned(frame.step, vid)
    forget(frame, tensor)


@dataclass(slots=True)
class Turned:
    """What became a leaf after a step and had this number before; under the other it came in anew, if it has."""

    step: object
    before: int
    after: int | None = None
