"""Which values of an open compiled call share memory: views and the values they are views of."""

from collections import Counter
from itertools import islice

import numpy as np

from ...compiler.ops.parts import PARTS_AT, at_known_place, cut_at
from ...compiler.ops.view import data, detach
from ..eager.gate import apply_eagerly
from ..eager.node import Saved
from ..programs.recording import ASSIGN, INPUT, UPDATE
from ..state.aligned import layout_of_array
from ..state.modes import frame_hidden, no_grad
from ..state.references import is_held
from ..state.storage import is_apart
from ..state.tensor import tensor_of
from . import frame_autograd


def note(frame, tensor, operand):
    """The value of a view step has its number: who shares its memory, and its version."""
    vid, root = tensor._vid, frame.roots.get(operand, operand)
    frame.roots[vid] = root
    frame.views.setdefault(root, []).append(vid)
    if frame.step.op is data:
        frame.versioned[vid] = vid
        tensor._base = None
        return
    if operand in frame.versioned:
        root = frame.versioned[vid] = frame.versioned[operand]
    base = frame.tensors[root]
    tensor._base = base if base._base is None or is_apart(base) else base._base


def shown_by(frame, view):
    """The tensor whose memory and version a view has. Not always its `_base`, which may have got other memory since."""
    root = None if frame.closed else frame.versioned.get(view._vid, frame.roots.get(view._vid))
    return view._base if root is None or frame.tensors[root] is None else frame.tensors[root]


def version_of_view(frame, view):
    return shown_by(frame, view)._version


def detached_above(last, root, vid, again):
    """The number of the detached value that a view of `root` is, or is a view of; None without one. After the call the
    view does not know the root, whose history is none of its own, whatever becomes of that (rebase.py: check_rebase);
    and a loop that detaches its state would keep all that was ever computed. What detach() makes of a root without a
    history knows it, as in eager mode (rebase.py: set_apart)."""
    above, maker = _detached_at(last, vid, again), last.maker_of(root)
    return None if above == vid and not maker.metas[root - maker.first].history else above


def shown_again(last):
    """number -> the number before, of views that show their base again after a change: they stay views of what they
    were views of."""
    found, path = {}, last.path()
    for k, change in enumerate(path):
        before = names_before(change)
        if before:
            shown = (step.first for step in islice(path, k + 1, None) if step.op is not INPUT)
            found.update(zip(shown, before))
    return found


def names_before(step):
    """The numbers that the names had which the steps after a change show again, in order; none after other steps."""
    if step.op is ASSIGN:
        return step.operands[2:]
    return step.attributes.shown if step.op is UPDATE else ()


def _detached_at(last, vid, again):
    """The number that what detach() has made has now, if a view is that or a view of that; else None."""
    step = last.maker_of(vid)
    while step is not None and step.detail == "view" and step.op is not detach:
        step = last.maker_of(again.get(step.first, step.operands[0]))
    if step is None or step.op is not detach:
        return None
    found = step.first
    for new, old in again.items():  # in their order
        if old == found:
            found = new
    return found


def let_go_of_roots(frame, tensors):
    """Tensors that a call leaves behind, of which detached ones know no other that they are views of."""
    # What came in anew has the number of what it was before.
    views = [t for t in tensors if t._frame is frame and t._base is not None and t._vid in frame.roots]
    if views:
        numbers, again = {t._vid: t for t in views}, shown_again(frame.step)
        for view in views:
            above = detached_above(frame.step, frame.roots[view._vid], view._vid, again)
            if above is not None:
                view._base = None if above == view._vid else numbers.get(above)


def is_of_detached(frame, view):
    """Whether a view of a call in flight has no gradients because detach() made what it is a view of."""
    if _detached_at(frame.step, view._vid, shown_again(frame.step)) is not None:
        return True
    step, vid, base = frame.step_of(view._vid), view._vid, view._base
    while step.detail == "view":
        if step.op is data:
            return True
        vid = step.operands[0]
        step = frame.step_of(vid)
    given = frame.tensors[vid]
    if step.op is INPUT and given is not None and given._base is base:
        return is_apart(given)  # a view of another argument
    # What has changed in between may be the base, or what was detached from it.
    return vid != (base._vid if base._frame is frame else frame.bound.get(id(base)))


def bases_of_detached(frame, vid):
    """(view, what detach() has made of which it is one) for the views of the call that share a value's memory, as eager
    mode knows them."""
    found, again = [], shown_again(frame.step)
    for v in frame.views.get(frame.roots.get(vid, vid), ()):
        above = None if frame.tensors[v] is None else _detached_at(frame.step, v, again)
        if above not in (None, v) and frame.tensors[above] is not None:
            found.append((frame.tensors[v], frame.tensors[above]))
    return found


def group(frame, vid):
    """Numbers of the values that share memory with one of the call's."""
    root = frame.roots.get(vid, vid)
    return {root, *frame.views.get(root, ())}


def same_version(frame, vid):
    """Those of the group whose version an in-place change of one of them bumps."""
    found = group(frame, vid)
    if frame.versioned:
        of = frame.versioned.get
        found = {v for v in found if of(v) == of(vid)}
    return found


def read_by_any_backward(frame):
    """Numbers of the values that some backward of this call may still read."""
    steps = [s for k, s in enumerate(frame.steps) if frame_autograd.is_op(s) and k not in frame.freed]
    return {v for s in steps if frame.metas[s.first].history for v in frame_autograd.needed_by(frame, s)}


def leads_to_a_backward(frame, vids):
    """Whether some backward of this call may still read these values, or what was computed from them."""
    read = read_by_any_backward(frame)
    computed = set(vids) if read else set()
    for step in frame.step.path() if read else ():
        if not computed.isdisjoint(step.operands):
            computed.update(range(step.first, step.first + len(step.metas)))
    return not computed.isdisjoint(read)


def as_view(step, numbers=None):
    """(op, attributes) that lead from what a view shows to it. Without the numbers of the call it is at any place."""
    if step.op not in PARTS_AT:
        return step.op, step.attributes
    first, n = step.first_number, len(step.operands) - 1
    starts = (0,) * n if numbers is None else numbers[first : first + n]
    op, _, attributes = at_known_place(step.op, (None, *starts), step.attributes)
    return op, attributes


def evaluate_view(op, array, attributes):
    """What a view op gives, without a record of it."""
    if op.evaluate is not None:
        return op.evaluate(array, **attributes)
    with frame_hidden(), no_grad():
        return apply_eagerly(op, (tensor_of(array),), attributes)._data


def is_view(frame, op, ids, attributes):
    """Whether the op's result will share memory with its operand. A reshape that strides cannot say will not."""
    if op in PARTS_AT:
        return True
    if op.kind != "view" and "view" not in op.extra or not ids or ids[0] < 0:
        return False
    array = _stand_in(frame, ids[0])
    view = evaluate_view(op, array, attributes)
    return view.size == 0 or np.may_share_memory(view, array)


def note_looks(frame, views):
    """These views are to be in memory: what takes numbers for places on the way to them (rows.py) is a part like
    others where it comes next (frame_eager.py)."""
    for vid in views:
        step = frame.step_of(vid)
        while step.detail == "view":
            shown = _shown_before(step) if step.op is cut_at else None
            if shown is not None:
                step = frame.step_of(shown)
                continue
            before = step.parent
            while step.op in PARTS_AT and before is not None:
                before.known.elsewhere += (step.op,)
                before = before.parent if before.op is INPUT else None
            step = frame.step_of(step.operands[0])


def _shown_before(step):
    """The number that a view had before a change after which it shows its base again; None if there was no change."""
    k, change = 0, step.parent
    while change is not None and not names_before(change):
        k, change = k + (change.op is not INPUT), change.parent
    return None if change is None else names_before(change)[k]


def _stand_in(frame, vid):
    """An array with the layout of a value, whatever is in it."""
    if vid in frame.arrays:
        return frame.arrays[vid]
    if id(frame.tensors[vid]) in frame.homes:
        return frame.homes[id(frame.tensors[vid])][1]
    if vid in frame.roots:
        step = frame.step_of(vid)
        op, attributes = as_view(step)
        return evaluate_view(op, _stand_in(frame, step.operands[0]), attributes)
    meta = frame.meta(vid)
    return np.empty(meta.shape, meta.dtype.numpy)


def layout_of(tensor):
    """`state.tensor.layout_of` of a value that the call in flight has not computed yet: its path tells it, and the
    question computes nothing."""
    frame = tensor._frame
    found = frame.layouts.get(tensor._vid)
    if found is None:
        home = frame.homes.get(id(tensor))
        array = made_like(frame.place()[0], tensor._vid) if home is None else home[1]
        found = frame.layouts[tensor._vid] = layout_of_array(array)
    return found


def made_like(last, vid):
    """An array with the layout that the steps up to the last give a value, whatever is in it."""
    step = last.maker_of(vid)
    if step.detail == "view":
        op, attributes = as_view(step)
        return evaluate_view(op, made_like(last, step.operands[0]), attributes)
    if step.op is not INPUT or step.attributes[4] is None:
        meta = step.metas[vid - step.first]
        return np.empty(meta.shape, meta.dtype.numpy)
    shape, dtype, _, _, strides = step.attributes
    extent = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides)) if 0 not in shape else 0
    return np.lib.stride_tricks.as_strided(np.empty(extent, dtype), shape, [s * dtype.itemsize for s in strides])


def drop_unseen_views(frame, target):
    """Let go of the views of the target's memory that the call has computed, and that would be gone in eager mode:
    nobody holds them, nor has an autograd node saved them that leads to something somebody holds."""
    vid = target._vid if target._frame is frame else frame.bound.get(id(target), -1)
    known = group(frame, vid).difference(frame.externals, (vid,))
    views = [v for v in known if frame.tensors[v] is not None and frame.tensors[v]._data is not None]
    by_nodes = references_by_nodes(frame)
    unseen = [v for v in views if not is_held_outside(frame, v, by_nodes)]
    unseen = set(unseen).difference(_saved(frame, by_nodes)) if unseen else ()
    for v in unseen:
        frame.tensors[v] = None


def is_held_outside(frame, vid, by_nodes):
    """Whether anything but the call's own books holds the tensor of a value."""
    return is_held(frame.tensors, vid, by_nodes[vid]) and frame.tensors[vid] is not None


def living(frame, views):
    """Those of some views that are held, by more than the call's own autograd nodes: these find out, by its version,
    that a view they have saved has been changed."""
    if not views or not frame.nodes:
        return views
    by_nodes = references_by_nodes(frame)
    return [v for v in views if v in frame.externals or is_held_outside(frame, v, by_nodes)]


def references_by_nodes(frame):
    """number of a value -> how many of the call's own autograd nodes have saved its tensor (a Function's aside)."""
    nodes = [node for node in frame.nodes.values() if not node.is_python]
    saved = [s for node in nodes for s in (*node.operands, node.out) if s.__class__ is Saved]
    return Counter(s.tensor._vid for s in saved if s.tensor._frame is frame)


def references_at_end(frame):
    """number of a value -> how many of the call's own autograd nodes and views hold its tensor, and lead nobody to its
    history: views that nobody holds, or that gradients do not flow through (a detached result holds what it shows)."""
    found = references_by_nodes(frame)
    bases = Counter(
        frame.tensors[vid]._base._vid
        for vid in frame.roots
        if _has_base_inside(frame, vid) and not (has_history(frame, vid) and is_held_outside(frame, vid, found))
    )
    return found + bases


def _has_base_inside(frame, vid):
    tensor = frame.tensors[vid]
    return tensor is not None and tensor._base is not None and tensor._base._frame is frame


def _saved(frame, by_nodes):
    """Numbers of the values that the history of what is alive has saved."""
    found = [v for v in range(len(frame.tensors)) if has_history(frame, v) and is_held_outside(frame, v, by_nodes)]
    steps = [i for i in frame_autograd.reach(frame, found)[0] if i not in frame.freed]
    return {v for i in steps for v in frame_autograd.needed_by(frame, frame.steps[i])}


def is_history_alive(frame):
    """Whether somebody holds a value that a backward can still start from."""
    inside = references_at_end(frame)
    held = [v for v in range(len(frame.tensors)) if has_history(frame, v) and is_held_outside(frame, v, inside)]
    return bool(frame_autograd.living(frame, tuple(held)))


def has_history(frame, vid):
    tensor = frame.tensors[vid]
    # One that has left the call and come in again is there under its first number, too.
    return tensor is not None and tensor._frame is frame and tensor._vid == vid and tensor._meta.history
