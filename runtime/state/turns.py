"""Threads take turns at following calls in Python.

The books of a call in flight that Python keeps are written line by line, and the interpreter may go to another thread
between any two lines. Native code, which has a call for itself from its begin to its end, needs no turn; a call that is
recorded, or that goes on in Python, has one until it has ended, with the tensors that it has changed in the memory they
belong in. So what several threads add to one `.grad` is added up, whoever comes first.

    wait     until the call that has the turn ends. A thread that has it may be waiting for this very one, in the user's
             own code: where it does nothing for `PATIENCE_SECONDS`, this thread goes on without, and who comes later
             does not wait for that call any more. What it does meets tensors of the other call as an onlooker's does
             (onlooker.py).
"""

import os
import threading
import time
from contextlib import suppress

PATIENCE_SECONDS = 0.1  # of a thread, for another one whose call is in the user's code and that does nothing
_MOST_SECONDS = 1.0  # the same for one that does something there
_AT_ALL_SECONDS = 10.0  # for any: a signal's exception may have come before the turn could be given back
_PAUSE_SECONDS = 0.005


class _Turn:
    """holder: the thread whose turn it is. task: the system's number of it. depth: in how many blocks it is. frame: of
    its call, once there is one. is_slow: whether somebody has waited for that call in vain. for_call: whether a call
    that native code has begun came to need it; its end gives it back."""

    __slots__ = ("lock", "holder", "task", "depth", "frame", "is_slow", "for_call")

    def __init__(self):
        self.lock, self.holder, self.task, self.depth = threading.Lock(), None, None, 0
        self.frame, self.is_slow, self.for_call = None, False, False

    def take(self):
        """Whether it is this thread's from now on: `give` must follow then."""
        me = threading.get_ident()
        if self.holder != me:
            if not (self.lock.acquire(False) or self._waited()):
                return False
            self.task = threading.get_native_id()
            self.holder, self.depth, self.frame, self.is_slow, self.for_call = me, 0, None, False, False
        self.depth += 1
        return True

    def _waited(self):
        """Whether the call that had it has ended, and it is this thread's."""
        began = since = time.monotonic()
        before = None
        while not self.is_slow:
            if self.lock.acquire(timeout=_PAUSE_SECONDS):
                return True
            now, place, is_users = time.monotonic(), _time_of(self.task), self._is_in_users_code()
            if place != before or not is_users:
                before, since = place, now
            most = _MOST_SECONDS if is_users else _AT_ALL_SECONDS
            self.is_slow = now - since > PATIENCE_SECONDS or now - began > most
        return self.lock.acquire(False)

    def _is_in_users_code(self):
        # Before there is a frame, and after the call, what it is like is looked up and learned.
        frame = self.frame
        return frame is not None and not frame.working

    def give(self):
        if self.holder != threading.get_ident():
            return  # the rest of a block that went on without (not_following)
        self.depth -= 1
        if self.depth == 0:
            self.frame = self.holder = None
            self.lock.release()

    def is_mine(self):
        return self.holder == threading.get_ident()


def _time_of(task):
    """What a thread of this process has used of the processors so far, as Linux writes it down; None elsewhere."""
    with suppress(OSError), open(f"/proc/self/task/{task}/schedstat") as file:
        return file.read().split()[0]


_turn = _Turn()


class following:
    """A `with` block in which calls are followed in Python."""

    __slots__ = ("is_taken",)

    def __enter__(self):
        self.is_taken = _turn.take()

    def __exit__(self, *exception):
        if self.is_taken:
            _turn.give()


class not_following:
    """A `with` block that runs the user's code as it is, in a block that follows calls: others may follow theirs."""

    __slots__ = ("depth",)

    def __enter__(self):
        self.depth = _turn.depth if _turn.is_mine() else 0
        for _ in range(self.depth):
            _turn.give()

    def __exit__(self, *exception):
        # Without, if others do not let go of it: then as many are not given back.
        for _ in range(self.depth):
            _turn.take()


adding = []  # an entry for each `adding_alone` at work: native code leaves all to Python then
_one_adds = threading.RLock()


making_late = threading.RLock()
"""Of who makes what a finished call is asked for: several threads may, since calls of each read what others change."""


class adding_alone(following):
    """A `with` block that adds to gradients, line by line: passes of several threads may end at the same leaf, and so
    may a call that is followed."""

    __slots__ = ()

    def __enter__(self):
        super().__enter__()
        _one_adds.acquire()
        adding.append(1)

    def __exit__(self, *exception):
        adding.pop()
        _one_adds.release()
        super().__exit__(*exception)


def follows(frame):
    """The call of the thread whose turn it is goes on in this frame, which is returned."""
    if _turn.is_mine():
        _turn.frame = frame
    return frame


def take_for_call(frame):
    """A call that native code has begun goes on in Python, in this frame."""
    if not _turn.is_mine() and _turn.take():
        _turn.for_call = True
    follows(frame)


def end_call():
    """The call of this thread has ended."""
    if _turn.is_mine():
        _turn.frame = None
        if _turn.for_call:
            _turn.for_call = False
            _turn.give()


def _after_fork_in_child():
    # Other threads do not exist there; this one goes on with what it was doing.
    global _turn
    if not _turn.is_mine():
        _turn = _Turn()
    _one_adds._at_fork_reinit()
    making_late._at_fork_reinit()
    adding.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
