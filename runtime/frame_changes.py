"""In-place changes inside a compiled call, kept functional: the target holds a new value from then on.

A tensor from outside gets its new value into its own memory when the program ends, so a call happens whole or not at
all. Where another living tensor sees the memory (views, shared arrays) nothing of this is proven, and the change runs
eagerly, with the reason noted for `explain`.
"""

from sys import getrefcount

import numpy as np

from ..compiler.graph import Graph
from ..compiler.ops.comparison import cast
from .gate import check_fits, inplace_eagerly
from .modes import state
from .recording import ASSIGN, NUMBER_DTYPES, UPDATE, Step, TooManyPaths, ValueMeta, user_line
from .update import update_eagerly


def _references_in_variable():
    items = [object()]
    item = items[0]
    return getrefcount(item)


# References to a tensor that only its frame's list and a variable here hold, as getrefcount counts them. Measured,
# because interpreters count their own references differently.
_UNUSED_REFERENCES = _references_in_variable()


def apply_inplace(frame, op, target, operands, attributes):
    """target becomes op(*operands). Returns the target."""
    vid = frame.identify(target)
    reason = alias_reason(frame, target, vid)
    if reason is not None:
        return _inplace_eagerly(frame, reason, target, inplace_eagerly, op, target, operands, attributes)
    new = frame.apply(op, operands, attributes)
    check_fits(op.name, target, new)
    if new.dtype is not target.dtype:
        new = frame.apply(cast, (new,), {"dtype": target.dtype})
    if new._frame is not frame:
        return _inplace_eagerly(frame, f"{op.name}: no kernel", target, _copy_into, target, new)
    frame.take(ASSIGN, (frame.identify(target), new._vid), None, ())
    _assign(frame, target, new._vid, new._meta)
    return target


def _copy_into(target, new):
    np.copyto(target.array, new.array, casting="unsafe")
    target.bump_version()
    return target


def _inplace_eagerly(frame, reason, target, function, *args):
    frame.forget_expected()
    vids = _group(frame, target._vid if target._frame is frame else frame.bound[id(target)])
    result = frame.run_eagerly(reason, function, *args)
    frame.overwritten |= vids
    frame.leave(target)
    frame.bound.pop(id(target), None)
    return result


def _group(frame, vid):
    root = frame.roots.get(vid, vid)
    return {root, *frame.views.get(root, ())}


def alias_reason(frame, target, vid):
    """Why changing the target in place must run eagerly: other living tensors see its memory. Else None."""
    if frame.views:
        externals = frame.externals
        for other in _group(frame, vid):
            t = frame.tensors[other]
            if other != vid and t is not None and (other in externals or getrefcount(t) > _UNUSED_REFERENCES):
                return "in-place change of a tensor that has living views (or is one)"
    meta = target._meta
    if meta is not None and meta.history and not state.grad_enabled and target._frame is frame:
        return "in-place change under no_grad of a tensor that has a history"
    if target._frame is frame:
        return None
    array = frame.arrays[vid]
    neighbours = frame.owners[owner_of(array)]
    if len(neighbours) > 1 and any(o != vid and np.may_share_memory(frame.arrays[o], array) for o in neighbours):
        return "in-place change of memory that another tensor of the call shares"
    storage = target._storage
    if storage is not None and storage.sharers is not None and not storage.only_shared_by(target):
        return "in-place change of a tensor whose memory another living tensor shares"
    return None


def owner_of(array):
    """id of the array that owns the memory."""
    base = array.base
    return id(array) if base is None else id(base)


def _assign(frame, target, new, meta):
    """The target holds value `new` from now on; a tensor from outside gets it into its memory at the flush."""
    if target._frame is frame:
        old = target._vid
        was_leaf = target._meta is None or not target._meta.history
    else:
        old = frame.bound[id(target)]
        was_leaf = True
    if target._data is not None:
        if id(target) in frame.bound:
            frame.homes[id(target)] = (target, target._data)
        target._frame = frame
        target._data = None
    if target._requires_grad and was_leaf and not meta.history:
        # A leaf changed under no_grad stays a leaf that requires gradients, for what is computed from it later.
        if not meta.requires_grad:
            meta = frame.changed_metas[new] = ValueMeta(meta.shape, meta.dtype, True, False)
        frame.changed_leaves[new] = target
    target._node = None
    target._vid = new
    target._meta = meta
    target._requires_grad = meta.requires_grad
    target.bump_version()
    frame.overwritten.add(old)
    frame.tensors[old] = None
    frame.tensors[new] = target


# --- updates ----------------------------------------------------------------------------------------------------------
class UpdateDetail:
    """Which elements of a row an update rule replaces, found by running it on shapes alone."""

    __slots__ = ("targets", "metas", "row_length", "n_numbers")

    def __init__(self, rule, rows, numbers, flags):
        graph = Graph("update", state.default_dtype)
        row = [graph.input(x.shape, x.dtype) for x in rows[0]]
        new = rule(*row, *(graph.scalar(NUMBER_DTYPES[-3]) for _ in numbers), **flags)
        self.targets = tuple(k for k, v in enumerate(new) if v is not None)
        self.row_length = len(row)
        self.n_numbers = len(numbers)
        self.metas = tuple(
            ValueMeta(r[k].shape, r[k].dtype, r[k]._requires_grad, False) for r in rows for k in self.targets
        )


def update(frame, rule, rows, numbers, flags):
    """`runtime.update.update` as one step."""
    identify, bound = frame.identify, frame.bound
    ids = []
    for row in rows:
        for x in row:
            vid = x._vid if x._frame is frame else bound.get(id(x))
            ids.append(identify(x) if vid is None else vid)
    key = (rule, len(rows), tuple(sorted(flags.items())) if flags else ())
    ids = tuple(ids)
    step = frame.follow(UPDATE, ids, key, state.grad_enabled)
    if step is None:
        # What was expected may not have been met: number everything anew.
        ids = tuple([identify(x) for row in rows for x in row])
        step = frame.follow(UPDATE, ids, key, state.grad_enabled)
    try:
        if step is None:
            step = _record_update(frame, ids, key, UpdateDetail(rule, rows, numbers, flags))
        reason = _update_reason(frame, step, rows)
    except TooManyPaths:
        reason = "too many paths"
    if reason is not None:
        _update_eagerly(frame, reason, rule, rows, numbers, flags)
        return
    for n in numbers:
        frame.numbers.append(float(n))
    frame.step = step
    _apply_update(frame, step, rows)


def _update_eagerly(frame, reason, rule, rows, numbers, flags):
    frame.forget_expected()
    for row in rows:
        frame.run_eagerly(reason, update_eagerly, rule, row, numbers, flags)
        for x in row:
            if x._frame is frame:
                frame.leave(x)
            frame.bound.pop(id(x), None)


def _record_update(frame, ids, key, detail):
    line, first_number = user_line(), len(frame.numbers)
    step = Step(UPDATE, ids, key, state.grad_enabled, detail.metas, len(frame.tensors), first_number, line, detail)
    return frame.recording.grow(frame.step, step)


def _apply_update(frame, step, rows):
    targets, metas, tensors = step.detail.targets, step.metas, frame.tensors
    bound, homes, changed_leaves, overwritten = frame.bound, frame.homes, frame.changed_leaves, frame.overwritten
    first = new = len(tensors)
    tensors.extend([None] * len(metas))
    for row in rows:
        for position in targets:
            target = row[position]
            meta = metas[new - first]
            storage = target._storage
            if target._frame is frame or storage is None:
                _assign(frame, target, new, meta)
            else:
                # What _assign does, for a tensor from outside that the call changes for the first time.
                key = id(target)
                old = bound[key]
                homes[key] = (target, target._data)
                target._frame = frame
                target._data = None
                target._node = None
                target._vid = new
                target._meta = meta
                storage.version += 1
                if meta.requires_grad:
                    changed_leaves[new] = target
                overwritten.add(old)
                tensors[old] = None
                tensors[new] = target
            new += 1


def _update_reason(frame, step, rows):
    owners, views = frame.owners, frame.views
    for row in rows:
        for position in step.detail.targets:
            x = row[position]
            if x._frame is not frame and not views:
                # alias_reason, for the usual case of memory of its own.
                storage, data = x._storage, x._data
                base = data.base
                alone = len(owners[id(data) if base is None else id(base)]) == 1
                if alone and (storage is None or storage.sharers is None):
                    continue
            reason = alias_reason(frame, x, x._vid if x._frame is frame else frame.bound[id(x)])
            if reason is not None:
                return reason
    return None
