"""Finished calls whose backward will read memory, and who of them reads which.

A change of memory that no version tells of, and an array of the user that comes to show it, are told to those that read
it. A program may keep thousands of results, each with its call; so calls are found by the owner of the memory. They are
entered there when somebody asks, and not when they end, which most do without being asked about.
"""

import os
import threading
import weakref

from .aligned import owner_of
from .storage import SHARERS_CHECKED

readers = []
"""Weak references. One list for ever: native code appends to it too, and drops the dead as `register_reader` does."""


def register_reader(call):
    """call.before_silent_change(tensor) or call.before_lending(tensor) is called where a tensor of memory that is among
    call.arrays_read() says so (Tensor.tell_readers). All of them have to be there by now."""
    if len(readers) & SHARERS_CHECKED == SHARERS_CHECKED:
        readers[:] = filter(weakref.ref.__call__, readers)  # in C: no other thread registers one meanwhile
    readers.append(weakref.ref(call))


class _Index:
    """by_owner: owner of memory -> weak references. entered: what of `readers` is among them, in its order, which is
    how much of its beginning; n_entered: how often that was done since those that are dead were dropped."""

    def __init__(self):
        self.lock = threading.RLock()
        self.clear()

    def clear(self):
        self.by_owner, self.entered, self.n_entered = {}, [], 0

    def of(self, array):
        """Those alive that may read an array's memory: a call may need it no more."""
        with self.lock:
            self.take_new()
            found = [reference() for reference in self.by_owner.get(owner_of(array), ())]
        return [call for call in found if call is not None]

    def take_new(self):
        entered = self.entered
        if len(readers) < len(entered) or entered and readers[len(entered) - 1] is not entered[-1]:
            self.drop_what_is_gone()
        new = readers[len(self.entered) :]
        self.n_entered += len(new)
        if self.n_entered > 2 * len(self.entered) + SHARERS_CHECKED:
            new = readers[:]
            self.clear()
        for reference in new:
            call = reference()
            for owner in () if call is None else set(map(owner_of, call.arrays_read())):
                self.by_owner.setdefault(owner, []).append(reference)
        self.entered += new

    def drop_what_is_gone(self):
        known, n = set(map(id, self.entered)), 0
        now = readers[:]
        while n < len(now) and id(now[n]) in known:
            n += 1
        self.entered = now[:n]


_index = _Index()
readers_of = _index.of

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_index.lock._at_fork_reinit)
