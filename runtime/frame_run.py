"""Running a function in a frame: what a compiled call does before and after the user's Python."""

from .modes import state


def run(frame, function, args, kwargs=None, tensors=None):
    """function(*args, **kwargs) as a call in a frame, which begins with these tensors if it has not begun."""
    frame.recording.calls += 1
    state.frame = frame
    try:
        if tensors is not None:
            frame.begin(tensors)
        result = function(*args, **(kwargs or {}))
        # A UsualFrame may have been replaced by a Frame on the way.
        frame, state.frame = state.frame, None
    except BaseException:
        # Not left to the next function: another exception, of a signal handler, may come before its first line.
        frame, state.frame = state.frame or frame, None
        close_after_error(frame)
        raise
    frame.close()
    return result


def close_after_error(frame):
    """What was computed before an exception counts, as in eager mode; its own errors must not hide the first."""
    state.frame = None
    try:
        frame.close()
    except Exception as error:
        frame.failed = f"{type(error).__name__}: {error}"
