"""`p.data = value` inside a compiled call, of a value that the call has computed: a change of p that no version counts.

In eager mode p gets other memory, which is the value's too. In a call p keeps its own and gets the value, and the value
is another name of p from then on (frame_through.py), as if it had been `p.data` from the beginning. Nobody can tell as
long as nobody else sees what p was: who does gets other memory for p, in the middle of the call.
"""

from ...compiler.ops.view import clone, data
from ..programs.recording import ASSIGN
from ..state.modes import state
from . import frame_changes, frame_through
from .frame_autograd import is_op
from .frame_leaves import made_leaves
from .frame_views import group, leads_to_a_backward


def takes_memory(frame, target, value):
    """Whether a tensor has become another name of a value of the call, which is not in memory yet."""
    if frame.left or state.default_dtype is not frame.default_dtype or not _can_be_given(frame, value, target):
        return False
    vid, number = frame.identify(target), value._vid
    if _is_read_otherwise(frame, target, vid) or frame_changes.alias_reason(frame, target, vid) is not None:
        return False
    others = group(frame, number) - {number}
    if any(frame_through.is_alive(frame, other) for other in others):
        return False
    depth = frame.step.depth
    new = frame.apply(clone, (value,), {}, True, True)
    if new._frame is not frame or frame.left:
        return False
    unseen = tuple(sorted((group(frame, vid) | others) - {number}))
    origin = frame_changes.origin_of(frame, target)
    frame.take(
        ASSIGN, (target, new, value), None, (),
        lambda: frame_changes.InplaceDetail(data, (number,), {}, depth, unseen, origin, vid, takes_memory=True),
    )  # fmt: skip
    frame_changes.assign(frame, target, new._vid, new._meta, is_silent=True)
    step = frame.take(data, (target,), {}, (value._meta,))
    frame_through.show(frame, value, number, step, is_changed=False)
    frame.changing = False
    return True


def _can_be_given(frame, value, target):
    """Whether a value is one that an op of the call has made, without a history, and lies as the target does."""
    if value._frame is not frame or value._data is not None or value._requires_grad or value is target:
        return False
    number, meta = value._vid, value._meta
    if meta.requires_grad or number in frame.roots or id(value) in frame.homes or number in made_leaves(frame.step):
        return False
    return is_op(frame.step_of(number)) and (meta.shape, meta.dtype) == (target.shape, target.dtype)


def _is_read_otherwise(frame, target, vid):
    """Whether the memory or the history of the target is more than what it holds: it is or was a view, lies otherwise
    than a value of the call, or a backward may still read it."""
    home = frame.homes.get(id(target))
    array = target._data if home is None else home[1]
    if target._base is not None or vid in frame.roots or target.has_history:
        return True
    if array is not None and not array.flags.c_contiguous:
        return True
    return leads_to_a_backward(frame, group(frame, vid))
