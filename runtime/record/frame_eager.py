"""What runs eagerly in the middle of an open call: ops that no program has, and whatever cannot be a step."""

from math import prod
from time import perf_counter

from ...compiler.dtypes import without_kernels
from ...compiler.ops import view
from ...compiler.ops.kinds import number_meta
from ...compiler.ops.parts import AT_KNOWN_PLACES, at_known_place
from ...compiler.ops.rows import row, starts_in, window, with_window
from ..eager.gate import apply
from ..programs.recording import INPUT, TOO_LARGE, EagerOp
from ..programs.user_lines import user_line
from ..state.attributes import refusal, same_attributes
from ..state.elsewhere import IN_CALL, any_elsewhere, used
from ..state.modes import frame_hidden, no_grad, state
from ..state.tensor import Tensor
from .frame_autograd import make_nodes
from .linked import link_for
from .onlooker import shown_homes

# Why an op is the same at a place that is a number of its own, given to the program.
PICKED = "picked"
# How many places of a tensor a path is recorded for, each as a path of its own.
FEW = 3
_LEFT = 4  # so many paths there must be room for, that parts which differ in size have paths as well
# Of larger parts of what is in memory a program would make a copy.
_LARGE = 1 << 14
# What takes numbers for places, in place of what does not.
AT_ANY_PLACE = {view.select: row, view.slice_: window, view.slice_scatter: with_window}
ELSEWHERE = "parts of a tensor from outside are taken here at other places than before"


def reason_of(frame, op, ids, operands, attributes):
    """Why an op is no step; None if it can be one."""
    refused = refusal(attributes) if attributes else None
    if refused is not None:
        return f"{op.name}: {refused}"
    kinds = [x.dtype if isinstance(x, Tensor) else number_meta(x).dtype for x in operands]
    reason = without_kernels([*kinds, *attributes.values(), frame.default_dtype])
    if reason is None and TOO_LARGE in ids:
        reason = "an integer does not fit into 64 bits"
    if reason is None and "eager_only" in op.extra:
        reason = op.extra["eager_only"](kinds, attributes)
    if reason is None and "checks-integers" in op.traits and _may_be_zero(operands[-1]):
        reason = "a divisor that is a tensor of integers is looked at by NumPy, since the error belongs to this line"
    return f"{op.name}: {reason}" if reason else None


def _may_be_zero(divisor):
    """A number of the program's own is known, and is another one than 0 nearly always."""
    if isinstance(divisor, Tensor):
        return not divisor.dtype.is_floating_point
    return divisor == 0


def reason_at_once(frame, op, operands, attributes):
    """The same, as far as it is known before the operands get numbers, which what comes after would have to know."""
    if used and any_elsewhere(operands):
        return IN_CALL
    if "eager_only" in op.extra or without_kernels([x.dtype for x in operands if isinstance(x, Tensor)]):
        return reason_of(frame, op, (), operands, attributes)
    if op in AT_ANY_PLACE and _is_elsewhere(frame, op, attributes):
        is_step = frame.recording.fullgraph or not _is_there(frame, operands[0])
        size = prod(op.infer(operands, attributes, frame.default_dtype).shape)
        if (is_step or size <= _LARGE) and at_any_place(frame, op, operands, attributes)[0] is not op:
            return PICKED
        if not is_step:
            return f"{op.name}: {ELSEWHERE}"
    return None


def at_any_place(frame, op, operands, attributes):
    """(op, operands, attributes) of a part of a tensor whose place is a number that the program is given, if parts like
    it were recorded here at too many places for a path each; else what was given."""
    general, known = AT_ANY_PLACE.get(op), frame.step.known
    if general is None or general in known.elsewhere or not _is_elsewhere(frame, op, attributes):
        return op, operands, attributes
    spec, axes = _varied(frame, op, operands[0].shape, attributes)
    starts = None if spec is None else starts_in(general, {"spec": spec, "axes": axes}, attributes)
    return (op, operands, attributes) if not starts else (general, (*operands, *starts), {"spec": spec, "axes": axes})


def _varied(frame, op, shape, attributes):
    """(spec, axes) as in rows.py, with all starts left out that were others in parts of these lengths."""
    if op is view.select:
        axis = attributes["axis"]
        return tuple([(None, 1, 1) if k == axis else (0, 1, d) for k, d in enumerate(shape)]), (axis,)
    spec, ops = attributes["spec"], (op, AT_ANY_PLACE[op])
    recorded = [step.attributes["spec"] for step in after_inputs(frame.step) if step.op in ops]
    recorded += frame.recording.varied.get((op, user_line()), ())
    like = [one for one in recorded if [part[1:] for part in one] == [part[1:] for part in spec]]
    varied = [any(one[k] != spec[k] for one in like) for k in range(len(spec))]
    return tuple([(None, *part[1:]) if is_varied else part for part, is_varied in zip(spec, varied)]), ()


def _is_there(frame, x):
    """Whether a tensor is in memory, and of no history: then a part of it is a tensor like those from outside."""
    return x._data is not None and x._frame is None and not are_pending(frame, (x,)) and not has_history((x,))


def _is_elsewhere(frame, op, attributes):
    """Whether a part of a tensor is one for which no path was recorded, though for others some were. Once there was
    one, all are, here and at the same line on other paths: a few places known at each of several lines would be a path
    for every combination."""
    known, varied = frame.step.known, frame.recording.varied
    if op in known.elsewhere:
        return True
    same = [step for step in after_inputs(frame.step) if step.op is op]
    is_new = len(same) >= FEW and not any(same_attributes(step.attributes, attributes) for step in same)
    is_new = is_new and not _has_own_size(op, same, attributes, frame.recording)
    if is_new:
        _note_varied(varied, same)
        # Calls go one way from now on, those at the places that have paths too.
        recording = frame.recording
        recording.replays = [replay for replay in recording.replays if not any(map(replay.takes, same))]
    if is_new or varied and (op, user_line()) in varied:
        known.elsewhere += (op,)
    return op in known.elsewhere


def _has_own_size(op, same, attributes, recording):
    """Whether what is taken has another size than all parts that a path was recorded for, as x[:n] has: whatever takes
    it, what comes next is another path."""
    if op is not view.slice_ or recording.n_branches + _LEFT >= recording.most_branches():
        return False
    sizes = [part[1:] for part in attributes["spec"]]
    return all([part[1:] for part in step.attributes["spec"]] != sizes for step in same)


def _note_varied(varied, same):
    """Parts were taken at several places by these steps; so were those of the lines after them that differ from the
    one path to the other."""
    parts = [_parts_from(step) for step in same]
    for key, first in parts[0].items():
        if any(other.get(key) != first for other in parts[1:]) and not _differ_in_size([one.get(key) for one in parts]):
            varied.setdefault(key, []).extend(one.get("spec") for other in parts for one in other.get(key, ()))


def _differ_in_size(parts):
    """Whether lists of parts are slices of other sizes each: then what comes next is another path in any case."""
    if any(one is None or "spec" not in attributes for one in parts for attributes in one or ()) or None in parts:
        return False
    sizes = [str([[part[1:] for part in attributes["spec"]] for attributes in one]) for one in parts]
    return len(set(sizes)) == len(sizes)


def _parts_from(step):
    """(op, line) -> the attributes of the parts that this step and those after it take there."""
    found, waiting = {}, [step]
    while waiting:
        one = waiting.pop()
        waiting += one.following
        if one.op in AT_ANY_PLACE:
            found.setdefault((one.op, one.line), []).append(one.attributes)
    return found


def after_inputs(step):
    """The steps that have followed, past tensors that come in."""
    for other in step.following:
        if other.op is INPUT:
            yield from after_inputs(other)
        else:
            yield other


def run_eagerly(frame, reason, function, *args):
    """Compute what is pending, then run function(*args) outside the recording."""
    line = frame.note(reason)
    frame.flush()
    return _outside(frame, reason, line, function, *args)


def apply_between(frame, reason, op, operands, attributes):
    """An op that no program has. What it gives comes in like a tensor from outside that is new in every call, so calls
    like this one can be replayed, unless it goes on with a history that no step can give it."""
    if reason is IN_CALL:
        _make_nodes_before(frame, operands)
        return run_eagerly(frame, reason, apply, op, operands, attributes)
    if reason is PICKED:
        return frame.apply(*at_any_place(frame, op, operands, attributes), True)
    if op in AT_KNOWN_PLACES:
        # There is no room for its path: in eager mode it is a view.
        op, operands, attributes = at_known_place(op, operands, attributes)
    link = None
    if has_history(operands):
        link = link_for(op, operands, attributes, frame.default_dtype)
        if link is None or frame.full:
            _make_nodes_before(frame, operands)
            return run_eagerly(frame, reason, apply, op, operands, attributes)
    line = user_line()
    frame.recording.leaves(reason, line)
    if are_pending(frame, operands):
        frame.flush_here()
    frame.eager_ops.append(EagerOp(frame.step, op, reason, line, link))
    if link is None:
        return _outside(frame, reason, line, apply, op, operands, attributes)
    given = _outside(frame, reason, line, without_history, op, operands, attributes)
    return frame.apply(link, (given, *operands), attributes, True)


def apply_left(frame, op, operands, attributes):
    """An op of a call that has been left for good."""
    if frame.flushed < frame.step.depth or frame.homes:
        frame.flush()
    _make_nodes_before(frame, operands)
    frame.working = False
    try:
        with frame_hidden():
            return apply(op, operands, attributes)
    finally:
        frame.working = True


def _make_nodes_before(frame, operands):
    """Before an op makes a node of its own: the engine adds up in the order in which nodes were made, so the steps
    before it get theirs now."""
    if frame.n_with_nodes < len(frame.steps) and has_history(operands):
        make_nodes(frame)


def without_history(op, operands, attributes):
    """What the op gives."""
    with no_grad():
        return apply(op, operands, attributes)


def has_history(operands):
    """Whether the result of an op will have one."""
    return True in [isinstance(x, Tensor) and x._requires_grad for x in operands] and state.grad_enabled


def are_pending(frame, operands):
    """Whether an operand is to be computed, or to be written into its memory."""
    tensors, homes = [x for x in operands if isinstance(x, Tensor)], frame.homes
    if not homes:
        return True in [x._data is None for x in tensors]
    return any(x._data is None or id(x) in homes or shown_homes(x, homes) for x in tensors)


def _outside(frame, reason, line, function, *args):
    # Nothing is pending that is read now, and what the function does may be anything: hooks of a user, for one.
    frame.working = False
    began = perf_counter()
    try:
        with frame_hidden():
            return function(*args)
    finally:
        frame.working = True
        frame.recording.took(reason, line, perf_counter() - began)
