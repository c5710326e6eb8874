"""In-place changes through another name of a tensor, or of a part of it: `p.data.add_(...)`, `x[0].mul_(...)`.

The tensor is what changes, as if it had been changed itself, and the other name shows its new value. A change through
.data does not count as one for who has saved the tensor.

    y = x[0]; y.mul_(2)      y2 = y * 2;  x2 = x with y2 in its row;  x holds x2, and y holds x2[0]
"""

from ...compiler.ops import view
from ...compiler.ops.view import data, detach
from ..programs.recording import ValueMeta
from ..state.modes import state
from ..state.tensor import Tensor, storage_of
from . import frame_views
from .frame_autograd import is_op


def base_of(frame, target, vid, operands):
    """The tensor that a pending view without gradients shows, or a part of; None of any other target, or if a backward
    of the call would have to go on with what it finds there."""
    if vid not in frame.roots or target._frame is not frame or target._data is not None or target._requires_grad:
        return None
    if state.grad_enabled and any(isinstance(x, Tensor) and x._requires_grad for x in operands):
        return None
    step, root = frame.step_of(vid), frame.roots[vid]
    if step.op not in _PUT_BACK or step.operands != (root,) or frame.tensors[root] is None:
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


def put_back(frame, vid, base, new):
    """The value of the base in which what the view shows has become `new`."""
    step = frame.step_of(vid)
    for op, operands, attributes in _PUT_BACK[step.op](base, new, **step.attributes):
        new = frame.apply(op, tuple(new if x is None else x for x in operands), attributes, True, True)
        # On the way nobody asks for a version, for which a view would keep what it shows alive.
        new._base = None
    return new


def _put_slice(base, new, spec):
    return [(view.slice_scatter, (base, None), {"spec": spec})]


def _put_select(base, new, axis, index):
    shape = tuple(base.shape)
    spec = tuple([(index, 1, 1) if k == axis else (0, 1, d) for k, d in enumerate(shape)])
    lengths = (*shape[:axis], 1, *shape[axis + 1 :])
    return [(view.reshape, (None,), {"shape": lengths}), (view.slice_scatter, (base, None), {"spec": spec})]


def _put_permuted(base, new, axes):
    return [(view.permute, (None,), {"axes": tuple(map(axes.index, range(len(axes))))}), _COPIED]


def _put_transposed(base, new, axis0, axis1):
    return [(view.transpose, (None,), {"axis0": axis0, "axis1": axis1}), _COPIED]


def _put_turned(base, new):
    return [(view.t, (None,), {}), _COPIED]


def _put_reshaped(base, new, **_):
    return [(view.reshape, (None,), {"shape": tuple(base.shape)}), _COPIED]


def _put_whole(base, new):
    return []


# What a tensor holds is no view of another value.
_COPIED = (view.clone, (None,), {})

# Of a view: the ops (operands: None stands for the value so far) that lead from its new value to that of its base.
_PUT_BACK = {
    view.data: _put_whole,
    view.detach: _put_whole,
    view.slice_: _put_slice,
    view.select: _put_select,
    view.permute: _put_permuted,
    view.transpose: _put_transposed,
    view.t: _put_turned,
    view.reshape: _put_reshaped,
    view.unsqueeze: _put_reshaped,
    view.squeeze: _put_reshaped,
}


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
    meta, step = ValueMeta(target._meta.shape, target._meta.dtype), frame.step_of(old)
    show(frame, target, old, frame.take(step.op, (base,), step.attributes, (meta,)))


def show(frame, target, old, step):
    """The target holds the value of a step, a view of its base."""
    step.detail = "view"
    frame.tensors[old] = None
    frame.tensors.append(target)
    target._vid, target._meta = step.first, step.metas[0]
    frame_views.note(frame, target, step.operands[0])
    if step.op is data:
        target.bump_version()
