"""Programs in flight without the interpreter's lock, and which of them must not meet.

A long program lets go of the lock until it writes what outlives its call (compiler/emit/unlocked.py). Meanwhile other
threads run programs, too. What one of them writes another one must not be reading: each sees memory as it was before
the other's call, or as it is after. So a program that would write what one in flight reads, or read what one in flight
is about to write, waits for its end.
"""

import os
import threading

from ..state.aligned import owner_of

_flights = []
_ended = threading.Condition()


class Flight:
    """The arrays that a program reads, and the positions of those that it writes into."""

    __slots__ = ("arrays", "writes", "thread")

    def __init__(self, arrays, writes):
        self.arrays, self.writes, self.thread = arrays, writes, threading.get_ident()

    def begin(self, may_wait):
        """Wait for those that it must not meet. Not where this thread is in the middle of running another program, as
        a signal handler is that came then: others may be waiting for that one."""
        with _ended:
            while may_wait and any(self._meets(other) for other in _flights):
                _ended.wait()
            _flights.append(self)

    def end(self):
        with _ended:
            if self in _flights:
                _flights.remove(self)
                _ended.notify_all()

    def _meets(self, other):
        """Whether one of the two writes what the other one reads. A thread does not wait for itself: what interrupts it
        runs between two lines, when its program writes nothing."""
        if other.thread == self.thread or not (self.writes or other.writes):
            return False
        return bool(self._written() & other._read() or other._written() & self._read())

    def _read(self):
        return {owner_of(array) for array in self.arrays}

    def _written(self):
        return {owner_of(self.arrays[k]) for k in self.writes}


def _after_fork_in_child():
    global _ended
    _flights.clear()
    _ended = threading.Condition()


if hasattr(os, "register_at_fork"):
    # The threads of the others do not exist in the child.
    os.register_at_fork(after_in_child=_after_fork_in_child)
