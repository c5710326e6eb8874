"""In-place changes through another name of a tensor, or of a part of it: `p.data.add_(...)`, `x[0].mul_(...)`.

The tensor is what changes, as if it had been changed itself, and the other name shows its new value. A change through
.data does not count as one for who has saved the tensor.

    y = x[0]; y.mul_(2)      y2 = y * 2;  x2 = x with y2 in its row;  x holds x2, and y holds x2[0]
"""

from math import prod

import numpy as np

from ...compiler.ops import view
from ...compiler.ops.parts import PARTS_AT, composed, cut, cut_at, put_at, put_cut, shown_part, without_given
from ...compiler.ops.view import data, detach
from ..programs.recording import ValueMeta
from ..state.modes import state
from ..state.references import is_held
from ..state.tensor import Tensor, storage_of
from . import frame_views
from .frame_autograd import is_op

_LARGE = 1 << 17  # elements


def changed_through(frame, target, vid, operands):
    """What is changed where a change in place is asked of `target`: (the tensor, the pending views that show it again
    afterwards, the target first if it is one of them). None if that cannot be said, or if a backward of the call would
    have to go on with what it finds there."""
    root = frame.roots.get(vid, vid)
    base, group = frame.tensors[root] if root != vid else target, frame_views.group(frame, vid)
    others = [v for v in group if v not in (root, vid) and is_alive(frame, v)]
    names = others if root == vid else [vid, *others]
    if not names or base is None or any(is_no_view(frame, v, root) for v in names):
        return None
    if others and (frame.versioned or any(is_whole(frame.step_of(v)) for v in others)):
        return None
    if _is_small_part_elsewhere(frame, names, base):
        frame_views.note_looks(frame, names)
        return None
    if root != vid and frame.step_of(vid).op is data and not group.isdisjoint(frame_views.read_by_any_backward(frame)):
        return None
    shown = tuple([frame.tensors[v] for v in names])
    flows = any(isinstance(x, Tensor) and x._requires_grad for x in (*shown, *(operands if state.grad_enabled else ())))
    if flows or base.has_history or root == vid and base._requires_grad:
        return (base, shown) if _may_get_history(frame, base, names) else None
    return base, shown


def _is_small_part_elsewhere(frame, names, base):
    """Whether a part of a large tensor from outside, at a place that only the call tells, had better be changed where
    it is: a program makes copies of the whole."""
    is_outside = base._frame is not frame or id(base) in frame.homes
    if not is_outside or prod(frame.meta(frame.identify(base)).shape) <= _LARGE:
        return False
    roots = [frame.roots[v] for v in names]
    return any(s.op in PARTS_AT for v, root in zip(names, roots) for s in _steps_between(frame, v, root) or ())


def is_alive(frame, vid):
    return frame.tensors[vid] is not None and (vid in frame.externals or is_held(frame.tensors, vid))


def is_no_view(frame, vid, root):
    """Whether the tensor of a value cannot be shown again as a view of a changed root."""
    tensor = frame.tensors[vid]
    if vid in frame.externals or tensor._frame is not frame or tensor._data is not None:
        return True
    step = frame.step_of(vid)
    return (step.op not in _PUT_BACK or step.operands != (root,)) and any_part_of(frame, vid, root) is None


def part_of(frame, vid, root):
    """(spec, axes) of `cut`, if slices, selects and diagonals alone lead from a root to one of its views; else None."""
    steps = _steps_between(frame, vid, root)
    return None if steps is None else composed(frame.meta(root).shape, steps)


def any_part_of(frame, vid, root):
    """The same of whatever leads there, if what is shown could have been taken by slices and selects."""
    steps = _steps_between(frame, vid, root)
    if steps is None or any(map(is_whole, steps)):
        return None
    found = composed(frame.meta(root).shape, steps)
    if found is not None or any(step.op in PARTS_AT for step in steps):
        return found
    base = shown = np.empty(frame.meta(root).shape, np.bool_)
    for step in steps:
        shown = frame_views.evaluate_view(step.op, shown, step.attributes)
    return shown_part(base, shown)


def _steps_between(frame, vid, root):
    """The steps that lead from a root to one of its views, the first one first; None if one is no view."""
    steps = []
    while vid != root:
        step = frame.step_of(vid)
        if step.detail != "view":
            return None
        steps.append(step)
        vid = step.operands[0]
    return steps[::-1]


def _may_get_history(frame, base, names):
    """Whether a change of what gradients flow through can be told of its base and all names of that, as eager mode
    allows it (rebase.py): not of a leaf, nor by a view that is detached. Only of what the call has made itself, which
    nobody waits for."""
    return (
        base._frame is frame
        and id(base) not in frame.homes
        and not frame.hooked
        and state.grad_enabled
        and base._requires_grad is base.has_history
        and all(frame.tensors[v]._requires_grad is base._requires_grad for v in names)
        and all(part_of(frame, v, frame.roots[v]) is not None for v in names)
    )


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
    root, step = frame.roots[vid], frame.step_of(vid)
    has_own_way = step.op in _PUT_BACK and step.operands == (root,)
    found = part_of(frame, vid, root) if has_own_way else any_part_of(frame, vid, root)
    if found is None:
        steps = _PUT_BACK[step.op](base, new, **step.attributes)
    else:
        steps = [_at(frame, put_cut, put_at, (base, None), *found)]
    for op, operands, attributes in steps:
        new = frame.apply(op, tuple(new if x is None else x for x in operands), attributes, True, True)
        # On the way nobody asks for a version, for which a view would keep what it shows alive.
        new._base = None
    return new


def _at(frame, known, given, operands, spec, axes):
    """(op, operands, attributes) of what reads or writes there: `given`, if numbers of the call say where."""
    spec, starts = without_given(spec)
    numbers = [start.among(frame.numbers) for start in starts]
    return given if starts else known, (*operands, *numbers), {"spec": spec, "axes": axes}


def numbers_again(frame, vid):
    """Which numbers of the call say where a view is that a change shows again, or was asked of: as Given."""
    root = frame.roots.get(vid)
    found = None if root is None else any_part_of(frame, vid, root)
    return () if found is None else without_given(found[0])[1]


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
    """The target, which had this number, shows what its base holds now."""
    step, root = frame.step_of(old), frame.roots[old]
    op, operands, attributes = step.op, (base,), step.attributes
    flows = base.has_history and not is_whole(step)
    if flows or step.operands != (root,):
        op, operands, attributes = _at(frame, cut, cut_at, operands, *any_part_of(frame, old, root))
    meta = ValueMeta(target._meta.shape, target._meta.dtype, flows, flows)
    show(frame, target, old, frame.take(op, operands, attributes, (meta,)))


def show(frame, target, old, step, is_changed=True):
    """The target holds the value of a step, a view of its base; another one than before, if it has changed."""
    step.detail = "view"
    frame.tensors[old] = None
    frame.tensors.append(target)
    target._vid, target._meta = step.first, step.metas[0]
    target._node, target._requires_grad = None, target._meta.requires_grad
    frame_views.note(frame, target, step.operands[0])
    if is_changed and step.op is data:
        target.bump_version()
