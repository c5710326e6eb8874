"""Running a function in a frame: what a compiled call does before and after the user's Python.

A frame is the one in flight until its call has ended, for whoever looks on (onlooker.py). A signal handler may raise an
exception between any two lines here.
"""

from contextlib import suppress

from ..programs.program import with_what_is_there
from ..state.modes import state
from ..state.turns import end_call, follows


def run(frame, function, args, kwargs=None, tensors=None):
    """function(*args, **kwargs) as a call in a frame, which begins with these tensors if it has not begun."""
    frame.recording.counter[0] += 1
    hidden = state.hidden
    try:
        state.frame = frame
        follows(frame)
        try:
            if tensors is not None:
                frame.begin(tensors)
            result = function(*args, **(kwargs or {}))
        except BaseException as error:
            close_after_error(frame if state.frame is None else state.frame, error)
            raise
        # A UsualFrame may have been replaced by a Frame on the way.
        state.frame.close()
        state.frame = None
    finally:
        # An exception that comes as one of its values is computed may leave the call hidden.
        frame, state.frame, state.hidden = state.frame, None, hidden
        try:
            if frame is not None and not frame.closed:
                frame.give_up()
        finally:
            end_call()
    return result


def close(frame):
    """End a call that native code has begun."""
    state.frame = frame
    try:
        frame.close()
        state.frame = None
    finally:
        frame, state.frame = state.frame, None
        try:
            if frame is not None and not frame.closed:
                frame.give_up()
        finally:
            end_call()


def close_after_error(frame, error):
    """What was computed before an exception counts, as in eager mode; its own errors must not hide the first. Who has
    pressed Ctrl-C does not wait for a compiler: where the program for that is not there, the call has not happened,
    like one whose program is interrupted."""
    with suppress(Exception):
        if isinstance(error, KeyboardInterrupt):
            with with_what_is_there():
                close(frame)
        else:
            close(frame)
