"""What calls that are timed lead to after their end: backward passes, and nodes that are made of a compiled call where
somebody asks for them. That is as much a part of what a call takes as its own seconds (frontend/trials.py).

Whoever does such a thing asks `listeners` first, which is empty but for the few calls that are timed.
"""

import functools
import threading
import weakref
from time import perf_counter

listeners = []  # weak references: a function that is not called again asks no more
_inside = set()  # threads that are at it: one such thing inside of another is part of it


class Afterwards:
    """What is done in this thread from now on. seconds: what has been done by now took so long in all."""

    __slots__ = ("__weakref__", "seconds", "thread")

    def __init__(self):
        self.seconds, self.thread = 0.0, threading.get_ident()
        _inside.discard(self.thread)  # a signal's exception may have come between `begin` and `over`
        listeners.append(weakref.ref(self, listeners.remove))

    def end(self):
        """What it took; what comes later is not counted."""
        listeners[:] = [listener for listener in listeners if listener() is not self]
        return self.seconds


def begin():
    """Something of the kind begins. Returns what `over` wants to know, None where it is part of another."""
    thread = threading.get_ident()
    if thread in _inside:
        return None
    _inside.add(thread)
    return perf_counter()


def over(began):
    """What began then has ended."""
    seconds, thread = perf_counter() - began, threading.get_ident()
    _inside.discard(thread)
    for listener in [listener() for listener in listeners]:
        if listener is not None and listener.thread == thread:
            listener.seconds += seconds


def counted(function):
    """The function, which does something of the kind."""

    @functools.wraps(function)
    def done(*args):
        began = begin() if listeners else None
        try:
            return function(*args)
        finally:
            if began is not None:
                over(began)

    return done
