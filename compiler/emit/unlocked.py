"""How a long program lets other threads of Python go on: it lets go of the interpreter's lock when it begins, and takes
it again before it writes anything that outlives the call.

Until then it reads arrays that whoever runs it holds, and writes memory that nobody else knows. Whoever loads the
program binds the two routines that let go of the lock and take it, or sets the first to null where the lock must be
kept. The caller alone does either. What the first one gives the second one must be given: it lies in the closure, and
is null while the lock is held.

A program of less than LET_GO_FROM keeps the lock: that is how long the interpreter lets a thread keep it that another
one is waiting for. If there is one that never stops, who takes the lock again waits for as long.
"""

from dataclasses import dataclass

from ..conventions import LET_GO, TAKE_AGAIN
from .builder import PTR, Reg

LET_GO_FROM = 5_000_000  # nanoseconds
# Of the closure's words: the one that holds what TAKE_AGAIN is given, which is no word of the table.
LOCK = -1
_NULL = Reg("null", PTR)


class Lock:
    """Of a program that lets go of the lock."""

    def __init__(self, program):
        self.let_go_word, self.take_word = program.symbol(LET_GO), program.symbol(TAKE_AGAIN)
        self.slot, self.take_slot = program.slot(LOCK), program.slot(self.take_word)

    def let_go(self, b, table, closure):
        """When the program begins: the closure is filled."""
        place, routine = b.offset(closure, self.slot, 8), b.load(b.offset(table, self.let_go_word, 8), PTR)
        b.store(_NULL, place)
        with b.when(b.cmp("ne", routine, _NULL)):
            b.store(b.call(PTR, routine, []), place)

    def take(self, b, closure):
        """Take the lock, if it is not held."""
        place = b.offset(closure, self.slot, 8)
        given = b.load(place, PTR)
        with b.when(b.cmp("ne", given, _NULL)):
            # In a register whose name says what it is.
            routine = Reg(b.fresh("lock"), PTR)
            b.lines.append(f"  {routine.name} = load ptr, {b.offset(closure, self.take_slot, 8)}, align 8")
            b.call("void", routine, [given])
            b.store(_NULL, place)


@dataclass(frozen=True, slots=True)
class TakeLock:
    """A step: the caller takes the lock. Members must wait for that before they write what outlives the call."""

    lock: Lock

    units, words, operands, token = None, (), (), "lock"

    def emit(self, part, pointers):
        part.alone(lambda: self.lock.take(part.b, part.closure))
