"""In-place changes through another name of a tensor, or of a part of it: `p.data.add_(...)`, `x[0].mul_(...)`.

The tensor is what changes, as if it had been changed itself, and the other name shows its new value. A change through
.data does not count as one for who has saved the tensor.

    y = x[0]; y.mul_(2)      y2 = y * 2;  x2 = x with y2 in its row;  x holds x2, and y holds x2[0]
"""

from math import prod

import numpy as np

from ...compiler.ops import view
from ...compiler.ops.parts import PARTS_AT, composed, cut, cut_at, put_at, put_cut, shown_part, without_given
from ...compiler.ops.view import data, detach, leaf
from ..programs.recording import ValueMeta
from ..state.modes import state
from ..state.references import is_held
from ..state.tensor import Tensor, storage_of
from . import frame_views

_LARGE = 1 << 17  # elements


def changed_through(frame, target, vid, operands):
    """What is changed where a change in place is asked of `target`: (the tensor, the pending views that show it again
    afterwards, in the order in which they were made). None if that cannot be said, or if a backward of the call would
    have to go on with what it finds there."""
    root = frame.roots.get(vid, vid)
    base, group = frame.tensors[root] if root != vid else target, frame_views.group(frame, vid)
    names = sorted(v for v in group if v != root and (v == vid or is_alive(frame, v)))
    if not names or base is None or not _can_be_shown(frame, names, root):
        return None
    if root != vid and _way_back(frame, vid) is None:
        return None
    if _is_small_part_elsewhere(frame, names, base):
        frame_views.note_looks(frame, names)
        return None
    if is_silent(frame, vid) and not group.isdisjoint(frame_views.read_by_any_backward(frame)):
        return None
    shown = tuple([frame.tensors[v] for v in names])
    flows = any(isinstance(x, Tensor) and x._requires_grad for x in (*shown, *(operands if state.grad_enabled else ())))
    if not state.grad_enabled and not base.has_history:
        return (base, shown) if _keep_their_history(frame, names, root) else None
    if flows or base.has_history or root == vid and base._requires_grad:
        return (base, shown) if _may_get_history(frame, base, names) else None
    return base, shown


def names_of(frame, vid):
    """Numbers of the living names of a tensor that changes without a history, which are to show it again; None if one
    cannot be. It is no view itself."""
    if vid in frame.roots:
        return None
    alive = sorted(v for v in frame_views.group(frame, vid) if v != vid and is_alive(frame, v))
    names = frame_views.living(frame, alive)
    if not _can_be_shown(frame, names, vid) or not _keep_their_history(frame, names, vid):
        return None
    return tuple(names)


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


def _can_be_shown(frame, names, root):
    """Whether the tensors of these values, all living views of a root, can be shown again when that has changed."""
    externals, tensors = frame.externals, [frame.tensors[v] for v in names]
    if any(v in externals or t._frame is not frame or t._data is not None for v, t in zip(names, tensors)):
        return False
    return all(_way_to(frame, v, root, names) is not None for v in names)


def _way_to(frame, vid, root, names):
    """(op, number of its operand, attributes) of the step that shows a view again, or (None, root, (spec, axes)) of a
    part of the root: as it was made, if what it was made of is shown again too, else from the root, past those that
    nobody holds. None if there is no way."""
    step = frame.step_of(vid)
    operand = step.operands[0]
    is_as_made = len(step.operands) == 1 and (operand == root or operand in names)
    if is_as_made and (step.op in _PUT_BACK or any_part_of(frame, vid, operand) is not None):
        return step.op, operand, step.attributes
    steps = _steps_between(frame, vid, root)
    if steps is None:
        return None
    apart = [step for step in steps if not _shows_all(step)]
    if not apart:
        return step.op, root, step.attributes
    if vid in frame.versioned or step.op is leaf:
        return None  # the version of a view of a .data is that of a name between
    if len(apart) == 1 and apart[0].op in _PUT_BACK:
        return apart[0].op, root, apart[0].attributes
    part = any_part_of(frame, vid, root)
    return None if part is None else (None, root, part)


def _keep_their_history(frame, names, root):
    """Whether names that gradients flow through still have the history they had after a change under no_grad of a leaf:
    they are made of it by the same op."""
    for vid in names:
        tensor, step = frame.tensors[vid], frame.step_of(vid)
        is_plain = tensor._node is None and vid not in frame.hooked_values
        way = _way_to(frame, vid, root, names)
        as_made = way == (step.op, step.operands[0], step.attributes) or way[0] is leaf
        if tensor._requires_grad and not (is_plain and as_made):
            return False
    return True


def part_of(frame, vid, root):
    """(spec, axes) of `cut`, if slices, selects and diagonals alone lead from a root to one of its views; else None."""
    steps = _steps_between(frame, vid, root)
    return None if steps is None else composed(frame.meta(root).shape, steps)


def any_part_of(frame, vid, root):
    """The same of whatever leads there, if what is shown could have been taken by slices and selects. Whole names on
    the way show what they are names of."""
    steps = _steps_between(frame, vid, root)
    steps = steps and [step for step in steps if not _shows_all(step)]
    if not steps:
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


def _shows_all(step):
    """The same, or a leaf that the tensor of its operand has become."""
    return is_whole(step) or step.op is leaf


def put_back(frame, vid, base, new):
    """The value of the base in which what the view shows has become `new`."""
    step, part = _way_back(frame, vid)
    if part is None:
        steps = _PUT_BACK[step.op](base, new, **step.attributes)
    else:
        steps = [_at(frame, put_cut, put_at, (base, None), *part)]
    for op, operands, attributes in steps:
        new = frame.apply(op, tuple(new if x is None else x for x in operands), attributes, True, True)
        # On the way nobody asks for a version, for which a view would keep what it shows alive.
        new._base = None
    return new


def _way_back(frame, vid):
    """(the step whose opposite leads from what a view shows back to its root, None), or (None, the part of the root
    that it is); None if neither does."""
    root = frame.roots[vid]
    steps = _steps_between(frame, vid, root)
    if steps is None:
        return None
    apart = [step for step in steps if not _shows_all(step)] or steps[-1:]
    has_own_way = len(apart) == 1 and apart[0].op in _PUT_BACK
    part = part_of(frame, vid, root) if has_own_way and apart == steps else any_part_of(frame, vid, root)
    if part is not None:
        return None, part
    return (apart[0], None) if has_own_way else None


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
    leaf: _put_whole,
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
    """Results whose backward reads what was computed from it before need nodes, which go on with what they have saved:
    a program would compute again what it has not saved, from what is in memory then."""
    if frame_views.leads_to_a_backward(frame, frame_views.group(frame, vid)):
        frame.rewritten = True


def show_again(frame, names, numbers, changed, version=None):
    """The names of what has just changed, which had these numbers, show what that holds now. changed: number before ->
    the tensor that has changed. version: the number that the .data had whose version counts the change, if one does."""
    known = changed | dict(zip(numbers, names))
    for name, number in zip(names, numbers):
        root = frame.roots[number]
        op, operand, attributes = _way_to(frame, number, root, numbers)
        flows = changed[root].has_history and not is_whole(frame.step_of(number))
        operands = (known[operand],)
        if flows or op is None:
            part = any_part_of(frame, number, root) if flows else attributes
            op, operands, attributes = _at(frame, cut, cut_at, (changed[root],), *part)
        flags = (flows, flows) if flows or not name._requires_grad else (True, name._meta.history)
        meta = ValueMeta(name._meta.shape, name._meta.dtype, *flags)
        show(frame, name, number, frame.take(op, operands, attributes, (meta,)), number == version)


def show(frame, target, old, step, is_changed=True):
    """The target holds the value of a step, a view of its base; another one than before, if it has changed."""
    step.detail = "view"
    if step.op is leaf:
        frame.changed_leaves[old] = target
    frame.tensors[old] = None
    frame.tensors.append(target)
    target._vid, target._meta = step.first, step.metas[0]
    target._node, target._requires_grad = None, target._meta.requires_grad
    frame_views.note(frame, target, step.operands[0])
    if is_changed and step.op is data:
        target.bump_version()
