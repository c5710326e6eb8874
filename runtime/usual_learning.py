"""Whether calls like the one that has just ended can be replayed, and if not, why."""

from . import frame_usual
from .tensor import Tensor
from .usual_arguments import arguments_of
from .usual_entries import NotReplayed, entries_of, is_usual_key


def usual_frame(frame, args, kwargs):
    """After a call with these arguments: what the next one can use if this one was like the one before. None if it was
    not, or if anything happened that only a Frame can follow; the recording then knows why."""
    recording, needed = frame.recording, frame.needed
    end, recording.last_end = recording.last_end, (frame.step, needed, frame.flushes)
    recording.not_replayed = None
    if end != recording.last_end:
        return None
    recording.not_replayed = _reason_against(frame)
    if recording.not_replayed is not None:
        return None
    known = frame.step.programs.get("usual")
    structure, leaves = arguments_of(args, kwargs)
    kinds = [None if isinstance(x, Tensor) else type(x) for x in leaves]
    key = needed, frame.confirmed, frame.flushes, structure, kinds
    if known is None or known[0] != key:
        known = frame.step.programs["usual"] = (key, *_new_frame(frame, structure, leaves))
    _, found, recording.not_replayed = known
    return found


def _new_frame(frame, structure, leaves):
    """(a UsualFrame for calls like this one, None), or (None, why there can be none)."""
    try:
        return frame_usual.UsualFrame(frame, frame.needed, entries_of(frame), structure, leaves), None
    except NotReplayed as error:
        return None, error.args


def _reason_against(frame):
    """(why calls like this one cannot be replayed, the line), or None: the first condition that fails."""
    for reason, fails in _CONDITIONS:
        if fails(frame):
            return reason, frame.step.line
    for step in frame.start.path():
        if not is_usual_key(step.attributes):
            return "an argument is no leaf, or not contiguous", step.line
    return None


_CONDITIONS = (
    ("the call failed", lambda frame: frame.failed),
    ("a part of it ran outside its program (see above)", lambda frame: frame.noted),
    ("gradients pass through nodes, because of hooks or create_graph", lambda frame: frame.hooked),
    ("there are too many paths", lambda frame: frame.full),
    ("a value was needed in the middle of it", lambda frame: frame.flushed_at_close and not frame.flushes),
    (
        "a value was read in the middle of it, and a result requires gradients",
        lambda frame: frame.flushes and frame.needed.differentiable,
    ),
    ("what it met from outside was not the same in two calls", lambda frame: frame.confirmed is None),
    ("a tensor with a history was changed in place", lambda frame: frame.outer_edges),
    ("an update was not like the one before", lambda frame: frame.n_unusual_updates),
)
