"""In-place changes through another name of a whole tensor: `p.data.add_(...)`, `x.detach().mul_(...)`.

The tensor is what changes, as if it had been changed itself, and the other name shows its new value. A change through
.data does not count as one for who has saved the tensor.
"""

from ...compiler.ops.view import data, detach
from ..programs.recording import ValueMeta
from ..state.modes import state
from ..state.tensor import Tensor, storage_of
from . import frame_views
from .frame_autograd import is_op


def base_of(frame, target, vid, operands):
    """The tensor that a pending view without gradients shows as a whole; None of any other target, or if a backward of
    the call would have to go on with what it finds there."""
    if vid not in frame.roots or target._frame is not frame or target._data is not None or target._requires_grad:
        return None
    if state.grad_enabled and any(isinstance(x, Tensor) and x._requires_grad for x in operands):
        return None
    step, root = frame.step_of(vid), frame.roots[vid]
    if not is_whole(step) or step.operands != (root,) or frame.tensors[root] is None:
        return None
    if step.op is data and not frame_views.group(frame, vid).isdisjoint(frame_views.read_by_any_backward(frame)):
        return None
    base = frame.tensors[root]
    return None if base.has_history else base


def shows_whole(frame, view, tensor):
    """Whether a pending view is another name of a tensor, so that giving its memory to the tensor changes nothing."""
    if frame.working or view._frame is not frame or view._vid not in frame.roots:
        return False
    step = frame.step_of(view._vid)
    return is_whole(step) and frame.tensors[step.operands[0]] is tensor


def is_whole(step):
    """Whether a step makes another name of all that its operand is."""
    return step.op in (data, detach)


def is_silent(frame, vid):
    """Whether changes through a view do not count for who has saved what it shows."""
    return vid in frame.versioned


def tell(base):
    """Before a silent change: finished calls that will read the memory are told."""
    storage = storage_of(base)
    storage.changes = storage.changes or [0]
    base.tell_readers()
    storage.changes[0] += 1


def note_silent_change(frame, vid):
    """Results with a history that was computed before need nodes, which go on with what they have saved: a program
    would compute again what it has not saved, from what is in memory then."""
    vids, steps = frame_views.group(frame, vid), frame.step.path()
    if any(is_op(s) and frame.metas[s.first].history and not vids.isdisjoint(s.operands) for s in steps):
        frame.rewritten = True


def show_again(frame, target, old, base):
    """The target shows what its base holds now."""
    meta = ValueMeta(target._meta.shape, target._meta.dtype)
    show(frame, target, old, frame.take(frame.step_of(old).op, (base,), {}, (meta,)))


def show(frame, target, old, step):
    """The target holds the value of a step, a view of its base."""
    step.detail = "view"
    frame.tensors[old] = None
    frame.tensors.append(target)
    target._vid, target._meta = step.first, step.metas[0]
    frame_views.note(frame, target, step.operands[0])
    if step.op is data:
        target.bump_version()
