"""Tensors that come into a compiled call from outside: arguments, parameters, whatever a closure reaches.

Each is an input step of the recording, checked by shape, type, flags and strides; its values are read when the program
runs.
"""

import numpy as np

from ...compiler.dtypes import from_numpy
from ..eager.gate import is_view_op
from ..eager.node import edge_of
from ..programs.evaluate import strides_in_elements
from ..programs.recording import ASSIGN, BACKWARD, GRADIENTS, INPUT, Step, TooManyPaths, ValueMeta
from ..programs.user_lines import user_line
from ..state import tensor as tensors
from ..state.aligned import owner_of
from ..state.exposure import MOST_BYTES, TOO_LARGE, are_same, copied, is_exposed
from ..state.modes import frame_hidden, state
from ..state.tensor import Tensor


def enter(frame, tensor):
    """Number a tensor that the call meets for the first time: an input step of the recording."""
    array = tensor._data
    if array is None:
        array = tensor.array
    if frame.expected is not None:
        target, met = frame.expected.jumps.get(frame.step, (None, None))
        if not _may_come_in_after(target):
            if not _may_come_in_after(frame.step):
                frame.forget_expected()
        else:
            frame.changing = True
            frame.step = target
            frame.tensors += met
            frame.changing = False
    owner = owner_of(array)
    if frame.homes and owner in frame.owners and _shares_home(frame, owner, array):
        frame.note("a tensor shares memory with one changed earlier in the call")
        frame.flush()
    step = _same_input(frame, tensor, array) or _input_step(frame, tensor, array)
    vid = len(frame.tensors)
    if frame.expected is not None and (step not in frame.expected.path or vid in frame.expected.known):
        # Another path, or another tensor than the one that was expected here.
        frame.forget_expected()
    frame.changing = True
    frame.step = step
    frame.tensors.append(tensor)
    frame.bound[id(tensor)] = vid
    if frame.turned and id(tensor) in frame.turned:
        frame.turned[id(tensor)].after = vid
    storage = tensor._storage
    frame.entered.append((vid, tensor, 0 if storage is None else storage.version))
    frame.arrays[vid] = array
    if owner in frame.owners:
        # A new list: expectations lend theirs to every call.
        frame.owners[owner] = [*frame.owners[owner], vid]
    else:
        frame.owners[owner] = [vid]
    frame.changing = False
    return vid


def go_out(frame, tensor):
    """The call forgets a tensor from outside, whose history may be another one next, as after `detach_()`: gradients of
    what it was here go where they would have gone."""
    vid = frame.bound.pop(id(tensor), None)
    if vid is not None and tensor.has_history:
        frame.outer_edges.setdefault(vid, edge_of(tensor))


def _may_come_in_after(step):
    """Whether a tensor has come in after a step, on any path."""
    return step is not None and any(following.op is INPUT for following in step.following)


def _same_input(frame, tensor, array):
    """The step that follows, if it is the input of a leaf just like this one (the usual case of an argument)."""
    following = frame.step.following
    if len(following) != 1 or tensor._node is not None or tensor._frame is not None:
        return None
    step = following[0]
    if step.op is not INPUT:
        return None
    shape, dtype, flag, leaf, strides = step.attributes
    same = array.shape == shape and array.dtype == dtype and tensor._requires_grad is flag and leaf
    return step if same and strides is None and array.flags.c_contiguous else None


def _input_step(frame, tensor, array):
    leaf = not tensor.has_history
    key = (array.shape, array.dtype, tensor._requires_grad, leaf, strides_in_elements(array))
    step = frame.step.find(INPUT, (), key, True)
    if step is None:
        meta = ValueMeta(array.shape, from_numpy(array.dtype), tensor._requires_grad, False)
        new = Step(INPUT, (), key, True, (meta,), len(frame.tensors), len(frame.numbers), user_line())
        try:
            step = frame.recording.grow(frame.step, new)
        except TooManyPaths:
            # The input alone runs nothing; whatever follows does so eagerly.
            frame.full = True
            step = new
            step.parent, step.depth = frame.step, frame.step.depth + 1
    return step


def _shares_home(frame, owner, array):
    # Some may be expected and not have come in yet.
    changed = [v for v in frame.owners[owner] if id(frame.externals.get(v)) in frame.homes]
    return any(np.may_share_memory(frame.arrays[v], array) for v in changed)


# --- memory that NumPy arrays show too (exposure.py) ------------------------------------------------------------------
def apply_exposed(frame, op, operands, attributes):
    """An op some of whose operands may be exposed: it reads what is there now."""
    exposed = [x for x in operands if isinstance(x, Tensor) and is_exposed(x)]
    if exposed and is_view_op(op):
        if frame.looks_only(exposed[0]):
            return _looked_at(op, operands, attributes)
        return frame.apply_outside("a view of memory that a NumPy array shares", op, operands, attributes)
    if any(x._data is not None and x._data.nbytes > MOST_BYTES for x in exposed):
        return frame.apply_outside(TOO_LARGE, op, operands, attributes)
    return frame.apply_shown(op, _with_copies(frame, operands, exposed), attributes)


def _looked_at(op, operands, attributes):
    """A view that the call has not to know of."""
    # Native code first, by which no Python of anybody runs.
    frame, state.frame = state.frame, None
    try:
        out = tensors._native(op, operands, attributes)
    finally:
        state.frame = frame
    if out is None:
        with frame_hidden():
            return tensors._eager(op, operands, attributes)
    return out


def read_now(frame, operands):
    """The operands, with copies in place of exposed tensors, or with copies that programs read in their place."""
    exposed = [x for x in operands if isinstance(x, Tensor) and is_exposed(x)]
    return _with_copies(frame, operands, exposed) if exposed else operands


def read_again(frame, operands):
    """The operands with copies in place of exposed tensors; None if one of them cannot be a copy."""
    copies = {id(x): frame.copy_of(x) for x in operands if isinstance(x, Tensor) and is_exposed(x)}
    if any(copies.get(id(x)) is x for x in operands):
        return None
    return tuple([copies.get(id(x), x) for x in operands])


def _with_copies(frame, operands, exposed):
    for x in exposed:
        copy = frame.copy_of(x)
        if copy is x:
            _hold(frame.recorded(), x)
        else:
            operands = tuple([copy if o is x else o for o in operands])
    return operands


def _hold(frame, tensor):
    """Programs read a copy of what is in the tensor's memory now."""
    vid = frame.identify(tensor)
    held = frame.held_copies.get(vid)
    if held is not None and not are_same(held, tensor._data):
        frame.flush()
        (frame.let_go if tensor._frame is frame else frame.lose)(tensor)
        vid, held = frame.identify(tensor), None
    if held is None:
        frame.held_copies[vid] = copied(tensor._data)


def reads_shown(frame):
    """Whether a call that has ended has read memory of its own that NumPy shows too, or a backward may: what is shown
    in the end, as results mostly are, it has not."""
    if not frame.held_copies:
        return False
    if not frame.held_copies.keys() <= frame.lent.keys() or frame.needed.differentiable or frame.walks:
        return True
    roots = {vid: frame.roots.get(vid, vid) for vid in frame.lent}
    for step in frame.steps[min(frame.lent.values()) :]:
        shown = {root for vid, root in roots.items() if frame.lent[vid] < step.depth}
        if step.op in (BACKWARD, GRADIENTS, ASSIGN) or any(frame.roots.get(k, k) in shown for k in step.operands):
            return True
    return False


def before_lending(frame, tensor):
    """Somebody gets a NumPy array of the tensor's memory, and may write to it: what is pending has not read it yet."""
    if frame.closed:
        return
    if tensor._frame is frame:
        if tensor._data is None:
            frame.compute(tensor)
        _hold(frame, tensor)
        frame.lent.setdefault(tensor._vid, frame.step.depth)
    elif id(tensor) in frame.bound:
        frame.flush()
        frame.lose(tensor)
