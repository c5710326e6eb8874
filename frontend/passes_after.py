"""What backward passes take that come after a call that is timed: as much a part of it as its own seconds, where its
results are to be differentiated (trials.py).

`backward` and `autograd.grad` ask `listeners` first, which is empty but for the few calls that are timed.
"""

import threading
import weakref
from time import perf_counter

listeners = []  # weak references: a function that is not called again asks no more
_inside = set()  # threads that run a pass: one inside of another is part of it


class Passes:
    """The backward passes of this thread from now on. seconds: what those that have ended took in all."""

    __slots__ = ("__weakref__", "seconds", "thread")

    def __init__(self):
        self.seconds, self.thread = 0.0, threading.get_ident()
        listeners.append(weakref.ref(self, listeners.remove))

    def end(self):
        """What they took; later ones are not counted."""
        listeners[:] = [listener for listener in listeners if listener() is not self]
        return self.seconds


def begin():
    """A pass begins. Returns what `over` wants to know, None where it is part of another."""
    thread = threading.get_ident()
    if thread in _inside:
        return None
    _inside.add(thread)
    return perf_counter()


def over(began):
    """The pass that began then has ended."""
    if began is None:
        return
    seconds, thread = perf_counter() - began, threading.get_ident()
    _inside.discard(thread)
    for listener in [listener() for listener in listeners]:
        if listener is not None and listener.thread == thread:
            listener.seconds += seconds
