"""Whether calls like the one that has just ended can be replayed, and if not, why."""

from . import frame_usual
from .usual_entries import NotReplayed, entries_of, is_usual_key


def usual_frame(frame, arguments):
    """After a call with these arguments: what the next one can use if this one was like the one before. None if it was
    not, or if anything happened that only a Frame can follow; the recording then knows why."""
    recording, needed = frame.recording, frame.needed
    end, recording.last_end = recording.last_end, (frame.step, needed, frame.flushes)
    recording.not_replayed = None
    if end != recording.last_end:
        return None
    recording.not_replayed = _reason_against(frame, arguments)
    if recording.not_replayed is not None:
        return None
    known = frame.step.programs.get("usual")
    key = needed, frame.confirmed, frame.flushes
    if known is None or known[0] != key:
        known = frame.step.programs["usual"] = (key, *_new_frame(frame, arguments))
    _, found, recording.not_replayed = known
    return found


def _new_frame(frame, arguments):
    """(a UsualFrame for calls like this one, None), or (None, why there can be none)."""
    try:
        return frame_usual.UsualFrame(frame, frame.needed, entries_of(frame), arguments), None
    except NotReplayed as error:
        return None, error.args


def _reason_against(frame, arguments):
    """(why calls like this one cannot be replayed, the line), or None: the first condition that fails."""
    for reason, fails in _CONDITIONS:
        if fails(frame):
            return reason, frame.step.line
    if any(isinstance(a, (list, tuple, dict)) for a in arguments):
        return "an argument is a list, a tuple or a dict", frame.step.line
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
    ("nothing was computed", lambda frame: frame.last_program is None),
    ("the same tensor was passed twice", lambda frame: len(frame.start.path()) != frame.n_arguments),
    ("a tensor with a history was changed in place", lambda frame: frame.outer_edges),
    ("an update was not like the one before", lambda frame: frame.n_unusual_updates),
)
