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
import weakref
from contextlib import nullcontext, suppress

from .modes import state

PATIENCE_SECONDS = 0.1  # of a thread, for another one whose call is in the user's code and that does nothing
_MOST_SECONDS = 1.0  # the same for one that does something there
_AT_ALL_SECONDS = 10.0  # for any
_PAUSE_SECONDS = 0.0005
_MOST_LOOKS = PATIENCE_SECONDS / _PAUSE_SECONDS


class _Turn:
    """block: a weak reference to the block that has it. One that an exception of a signal handler has ended between two
    lines is gone, and has it no more."""

    __slots__ = ("block",)

    def __init__(self):
        self.block = None

    def holder(self):
        """The block that has it, None if nobody has."""
        block = self.block
        return None if block is None else block()

    def take(self, block):
        """Whether it is the block's from now on, because nobody had it."""
        before, own = self.block, weakref.ref(block)
        # No other thread comes between the last look and the change: CPython looks for one after calls and jumps.
        if (before is None or before() is None) and self.block is before:
            self.block = own
            return True
        return False

    def wait(self, block):
        """`take` when the call that has it has ended; it is not waited for if others have done so in vain."""
        seen = began = place = None
        while not self.take(block):
            of_holder = self.block
            holder = of_holder and of_holder()
            if holder is not None:
                if holder.is_slow:
                    return
                if of_holder is not seen:
                    seen, began, n_idle = of_holder, time.monotonic(), 0
                is_users, at = holder.is_in_users_code(), _time_of(holder.task)
                # Looks are counted, and not seconds: on a machine that stands still nobody does anything.
                n_idle = n_idle + 1 if is_users and at == place else 0
                place, most = at, _MOST_SECONDS if is_users else _AT_ALL_SECONDS
                holder.is_slow = n_idle > _MOST_LOOKS or time.monotonic() - began > most
                del holder
            time.sleep(_PAUSE_SECONDS)

    def give(self, block):
        if self.holder() is block:
            self.block = None

    def mine(self):
        """The block of this thread that has it."""
        block = self.holder()
        return block if block is not None and block.thread == threading.get_ident() else None


def _time_of(task):
    """What a thread of this process has used of the processors so far, as Linux writes it down; None elsewhere."""
    with suppress(OSError), open(f"/proc/self/task/{task}/schedstat") as file:
        return file.read().split()[0]


_turn = _Turn()


class following:
    """A `with` block in which calls are followed in Python; one inside of another is a part of it.

    thread, and task, the system's number of it: whose it is. frame: of the call, once there is one. is_slow: whether
    somebody has waited for that in vain.
    """

    __slots__ = ("thread", "task", "frame", "is_slow", "__weakref__")

    def __init__(self):
        self.thread, self.task = threading.get_ident(), threading.get_native_id()
        self.frame, self.is_slow = None, False

    def __enter__(self):
        if not _turn.take(self) and _turn.mine() is None:
            _turn.wait(self)
        return self

    def __exit__(self, *exception):
        _turn.give(self)

    def is_in_users_code(self):
        # Before there is a frame, and after the call, what it is like is looked up and learned.
        frame = self.frame
        return frame is not None and not frame.working


class not_following:
    """A `with` block that runs the user's code as it is, in a block that follows calls: others may follow theirs."""

    __slots__ = ("block",)

    def __enter__(self):
        self.block = _turn.mine()
        if self.block is not None:
            _turn.give(self.block)

    def __exit__(self, *exception):
        if self.block is not None:
            _turn.wait(self.block)


def follows(frame):
    """The call of the thread whose turn it is goes on in this frame, which is returned."""
    block = _turn.mine()
    if block is not None:
        block.frame = frame
    return frame


def take_for_call(frame):
    """A call that native code has begun goes on in Python, in this frame. It has the turn until `end_call`."""
    if _turn.mine() is None:
        state.turn = following()
        state.turn.__enter__()
    follows(frame)


def end_call():
    """The call of this thread has ended."""
    follows(None)
    block, state.turn = state.turn, None
    if block is not None:
        _turn.give(block)


# --- what is no call --------------------------------------------------------------------------------------------------
adding = []  # an entry for each `is_adding` at work: native code leaves all to Python then
one_adds = threading.RLock()
"""With a turn, that of who adds to gradients line by line: passes of several threads may end at the same leaf, and so
may a call that is followed: `with following(), one_adds, is_adding`."""


class _Adding:
    def __enter__(self):
        adding.append(1)

    def __exit__(self, *exception):
        adding.pop()


is_adding = _Adding()
_writing = []


def set_writing(block):
    """block(array) is a `with` block in which no program changes an array (programs/writing.py)."""
    _writing[:] = [block]


def writing(tensor):
    """The same of a tensor, where there are other threads and programs."""
    if _writing and state.frame is None and threading.active_count() > 1 and tensor._data is not None:
        return _writing[0](tensor._data)
    return nullcontext()


making_late = threading.RLock()
"""Of who makes what a finished call is asked for: several threads may, since calls of each read what others change."""


def _after_fork_in_child():
    # Other threads do not exist there; this one goes on with what it was doing.
    if _turn.mine() is None:
        _turn.block = None
    one_adds._at_fork_reinit()
    making_late._at_fork_reinit()
    adding.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
