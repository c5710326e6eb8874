"""Which calls can be replayed, learned from those that have ended; and if they cannot, why.

A recording remembers its last calls: where they ended and which tensors they met. A call that is like two of them gets
a UsualFrame. Calls that differ in turn (two models, both outcomes of an `if`) get one each.
"""

from collections import Counter

from ..eager.node import AccumulateGrad
from ..programs.recording import BACKWARD, GRADIENTS, INPUT, MAX_BRANCHES
from ..programs.telling import MOST_WAYS
from ..record.expectation import Expectation, Met
from ..record.frame_inputs import reads_shown
from ..state.tensor import Tensor
from . import frame_usual, native_making
from .usual_end import raise_often, set_learning_from_errors
from .usual_entries import NotReplayed, entries_of, is_leaf

_MAX_MEMORIES = 3 * MOST_WAYS
_MAX_REPLAYS = 16  # and as many as there are paths, if a number among the arguments tells which
_MANY_OF, _LEARNED_BY = 4, 160  # one of so many calls; from so many on nobody waits
# Nor from so many on where numbers tell the ways, programs serve many of them, and none of them has come twice.
_TOLD_BY = 64
_UNLIKE_BEFORE_IT_IS_SAID = 8


def usual_frame(frame, structure, types):
    """After a call that ended in a Frame, whose arguments had this structure and leaves of these types: the UsualFrame
    for calls like it. None if there were too few like it, or if anything happened that only a Frame can follow; the
    recording then knows why."""
    recording = frame.recording
    # A frame may live on, and must not keep what the call met alive with it.
    lasting, frame.lasting = frame.lasting, ()
    recording.n_followed += 1
    recording.postponed = False
    if frame.needed is None or frame.is_interim:  # what replays run is not there yet
        return None
    recording.not_replayed = reason_against(frame)
    if not all(getattr(kind, "has_array", True) for kind in types):
        recording.not_replayed = "a sparse tensor is among its arguments", frame.step.line
    if recording.not_replayed is not None:
        return None
    kinds = [None if issubclass(kind, Tensor) else kind for kind in types]
    end = frame.step, frame.needed, frame.flushes, frame.eager_ops, structure, kinds
    stable = stable_of(recording, end, lasting)
    if stable is None:
        recording.n_unlike += 1
        if recording.n_unlike > _UNLIKE_BEFORE_IT_IS_SAID:
            reason = "no three of the last calls were alike in their path, their results and the tensors they met"
            recording.not_replayed = reason, frame.step.line
        return None
    recording.n_unlike = 0
    if any(t._data is None for _, t in stable):  # by a call of another thread
        return None
    key = end, [(vid, Met(t)) for vid, t in stable]
    found = recording.refusals.get(frame.step) if recording.refusals.get(frame.step, (None,))[0] == key else None
    if found is not None:
        recording.not_replayed = found[1]
        return None
    for replay in recording.replays:
        if replay.key == key:
            return replay
    if not native_making.is_here():
        recording.postponed = True
        return None
    return _add(frame, key, stable, structure, types)


set_learning_from_errors(usual_frame)


def is_learning(recording):
    """Whether many calls are followed so far because they go several ways, some of which have come twice, and will be
    replayed when they come once more: what calls take now says nothing of those to come."""
    n_calls, n_followed = recording.calls, recording.n_followed
    if n_calls >= _LEARNED_BY or _MANY_OF * n_followed < n_calls or len(recording.replays) >= _most_replays(recording):
        return False
    if recording.telling.tells():
        has_room = n_calls <= _TOLD_BY and recording.most_branches() > MAX_BRANCHES
        if has_room or recording.telling.n_again:
            return True
    times = Counter(id(end[0]) for end, _ in recording.memories)
    return len(times) > 1 and 2 in times.values()


def _most_replays(recording):
    return max(_MAX_REPLAYS, recording.most_branches())


def stable_of(recording, end, lasting):
    """Those of the tensors that a call met from outside that calls like it meet too; None if that is not known yet.
    What the last calls were like is in `recording.memories`."""
    met = {vid: Met(t) for vid, t in lasting}
    matches = [{v for v in met if before.get(v) == met[v]} for other, before in recording.memories if other == end]
    recording.memories.append((end, met))
    del recording.memories[:-_MAX_MEMORIES]
    best = max(matches, key=len, default=None)
    if best is None or matches.count(best) < 2:
        return None
    return [(vid, t) for vid, t in lasting if vid in best]


def _add(frame, key, stable, structure, types):
    """A new UsualFrame, in place of what cannot be of use any more."""
    recording = frame.recording
    frame.confirmed = Expectation(frame, frame.start, [(vid, t, 0) for vid, t in stable])
    made, recording.not_replayed = _new_frame(frame, structure, types)
    if made is None:
        recording.refusals[frame.step] = key, recording.not_replayed
        return None
    made.key = key
    kept = [replay for replay in recording.replays if replay.expectation.may_hold_again()]
    recording.replays = [made, *kept[: _most_replays(recording) - 1]]
    return made


def _new_frame(frame, structure, types):
    """(a UsualFrame for calls like this one, None), or (None, why there can be none)."""
    try:
        return frame_usual.UsualFrame(frame, frame.needed, entries_of(frame), structure, types), None
    except NotReplayed as error:
        return None, error.args


def reason_against(frame):
    """(why calls like this one cannot be replayed, the line), or None: the first condition that fails."""
    for reason, fails in _CONDITIONS:
        if fails(frame):
            return reason, frame.uses_hooks or frame.step.line
    given = {step.first for step in frame.steps if step.op is INPUT and not is_leaf(step.attributes)}
    for step in frame.steps:
        if step.op in (BACKWARD, GRADIENTS) and not given.isdisjoint(step.detail.wanted):
            return "a backward inside the call goes on to the history of what comes in", step.line
    return None


_CONDITIONS = (
    ("the call failed", lambda frame: frame.failed),
    ("a part of it ran outside its program (see above)", lambda frame: frame.noted),
    (
        "a leaf that had been used was frozen, or changed its flags otherwise",
        lambda frame: any(edge and isinstance(edge[0], AccumulateGrad) for edge in frame.outer_edges.values()),
    ),
    ("gradients pass through nodes, in a way that steps do not say", lambda frame: None in frame.walks),
    (
        "gradients pass through nodes, and a result has some of them: it requires gradients or has hooks",
        lambda frame: frame.hooked and frame.has_nodes_out,
    ),
    ("gradients pass through nodes", lambda frame: frame.hooked and not frame.walks),
    (
        "a tensor that requires gradients, or was made in the call, has memory that a NumPy array shows too",
        reads_shown,
    ),
    ("there are too many paths", lambda frame: frame.full),
    ("a value was needed in the middle of it", lambda frame: frame.flushed_at_close and not frame.flushes),
    (
        "many of its calls raise, after a value was read in the middle and with results that require gradients",
        lambda frame: frame.flushes and frame.needed.differentiable and raise_often(frame.recording),
    ),
    ("a tensor with a history was changed in place", lambda frame: frame.outer_edges),
)
