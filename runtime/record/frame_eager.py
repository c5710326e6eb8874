"""What runs eagerly in the middle of an open call: ops that no program has, and whatever cannot be a step."""

from ..eager.gate import apply_eagerly
from ..programs.recording import EagerOp, user_line
from ..state.modes import frame_hidden, state
from ..state.tensor import Tensor


def run_eagerly(frame, reason, function, *args):
    """Compute what is pending, then run function(*args) outside the recording."""
    frame.note(reason)
    frame.flush()
    return _outside(frame, function, *args)


def apply_between(frame, reason, op, operands, attributes):
    """An op that no program has. What it gives comes in like a tensor from outside that is new in every call, so calls
    like this one can be replayed, unless it goes on with a history."""
    if has_history(operands):
        return run_eagerly(frame, reason, apply_eagerly, op, operands, attributes)
    line = user_line()
    frame.recording.leaves(reason, line)
    if are_pending(frame, operands):
        frame.flush_here()
    frame.eager_ops.append(EagerOp(frame.step, op, reason, line))
    return _outside(frame, apply_eagerly, op, operands, attributes)


def has_history(operands):
    """Whether the result of an op will have one."""
    return state.grad_enabled and any(isinstance(x, Tensor) and x._requires_grad for x in operands)


def are_pending(frame, operands):
    """Whether an operand is to be computed, or to be written into its memory."""
    return any(isinstance(x, Tensor) and (x._data is None or id(x) in frame.homes) for x in operands)


def _outside(frame, function, *args):
    # Nothing is pending that is read now, and what the function does may be anything: hooks of a user, for one.
    frame.working = False
    try:
        with frame_hidden():
            return function(*args)
    finally:
        frame.working = True
