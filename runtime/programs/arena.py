"""Scratch memory of programs: one block serves all that keep the interpreter's lock, and those in flight without it
have one each."""

import os
import threading

import numpy as np

_NOTHING = 0, 0, None  # address, size, memory
_NO_ROOM = (0, 2**64 - 1)  # for native code: less than any program needs


class Arena:
    """`words` are the address and the size of the block for native code that runs programs; `words_of_writers` are
    those for programs that write into their inputs. These have none while others are in flight, and ask (flights.py).

    in_use: held while a table and the block are filled for a program, and it runs. Reentrant, because a finalizer that
    Python runs in between may call a compiled function.
    """

    def __init__(self):
        self.block = self.spare = self.next = _NOTHING
        self.words, self.words_of_writers = np.zeros(2, np.uint64), np.zeros(2, np.uint64)
        self.changing = False
        self.in_use = threading.RLock()
        self.loans = []

    @property
    def is_lent(self):
        return bool(self.loans)

    def is_used_here(self):
        """Whether this thread is in the middle of running a program, as a signal handler finds it."""
        return self.in_use._is_owned()

    def reserve(self, size):
        """A block of this size at least. Who runs a program on it holds it: a larger one may take its place."""
        if size <= self.block[1]:
            return self.block
        spare, self.spare = self.spare, _NOTHING
        block = spare if size <= spare[1] else _new_block(size)
        if not self.changing:  # else a signal handler is here, in the middle of the next lines
            self.changing, self.next = True, block
            # Other threads may run on the old memory until native code finds the new one.
            self._tell(block)
            self.block = block
            self.changing = False
        return block

    def loan(self):
        return Loan(self)

    def let_writers_ask(self, who, is_so):
        """Whether programs that write into their inputs have to ask because of somebody who has lent no block."""
        with self.in_use:
            if is_so:
                self.loans.append(who)
            elif who in self.loans:
                self.loans.remove(who)
            self._tell(self.block)

    def _tell(self, block):
        """Native code what there is."""
        self.words[:] = block[:2]
        self.words_of_writers[:] = _NO_ROOM if self.loans else block[:2]


class Loan:
    """A block that one program has for itself, between `take` and `give_back`, whatever comes in between."""

    __slots__ = ("arena", "block")

    def __init__(self, arena):
        self.arena, self.block = arena, None

    def take(self, size):
        """`in_use` is held, so nobody but native code runs a program, and that runs it as a whole."""
        arena = self.arena
        block = arena.reserve(size)
        arena.loans.append(self)
        self.block = block
        if arena.block is block:
            arena.block = _NOTHING
        arena._tell(arena.block)

    def give_back(self):
        """The larger one of two blocks stays, and one more for the next loan at the same time."""
        arena, block = self.arena, self.block
        with arena.in_use:
            if self in arena.loans:
                arena.loans.remove(self)
            if block is not None and block[1] > arena.block[1]:
                arena.block, block = block, arena.block
            if block is not None and block[1] > arena.spare[1]:
                arena.spare = block
            arena._tell(arena.block)


def _new_block(size):
    memory = np.empty(size + 64, np.uint8)
    return (memory.ctypes.data + 63) & ~63, size, memory


def _after_fork_in_child():
    # The threads that held it, or had a loan, do not exist in the child.
    arena.in_use._at_fork_reinit()
    arena.loans.clear()
    arena._tell(arena.block)


arena = Arena()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
