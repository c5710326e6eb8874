"""Backward passes inside of each other, as when a Function's backward calls backward() itself, hundreds deep.

Each level needs a score of Python's frames, of which a thread has a thousand, and as many of C. So every so many levels
the next one runs in a thread of its own, for which this one waits: it goes on in the same modes, and the context
variables are the same.
"""

import threading
from contextvars import copy_context

from ..state.modes import state

LEVELS = 24  # that run in one thread


def is_too_deep(depth):
    """Whether a pass inside of so many others should run elsewhere. A compiled call in flight belongs to its thread."""
    return depth % LEVELS == LEVELS - 1 and state.frame is None and state.hidden is None


def elsewhere(function, *args):
    """What the function returns, or raises, when another thread calls it."""
    modes, found, context = state.__dict__, [], copy_context()

    def call():
        state.__dict__.update(modes)
        try:
            found.append((context.run(function, *args), None))
        except BaseException as error:
            found.append((None, error))
        ended = dict(state.__dict__)
        modes.update(ended)

    thread = threading.Thread(target=call, name="weft: nested backward", daemon=True)
    thread.start()
    thread.join()
    result, error = found[0]
    if error is not None:
        raise error
    return result
