"""How a long program lets itself be interrupted: it looks now and then whether Ctrl-C was pressed, and leaves.

It looks while nothing was written that outlives the call, about every LOOK_EVERY of estimated work: between steps, and
in the middle of long steps whose work is cut into units. Only the caller looks, through two routines that whoever loads
the program binds, or sets to null where they must not be called; who lets the program go on without the interpreter's
lock (unlocked.py) binds such that do without it. What was seen
is noted where failed checks are noted, as INTERRUPTED, so all members leave together (program.py).
"""

from dataclasses import dataclass

from ..conventions import INTERRUPTED
from .builder import I32, I64, PTR, Reg
from .pool_memory import MOST_WAITS

LOOK_EVERY = 20_000_000  # nanoseconds: what a person does not notice
MOST_LOOKS = MOST_WAITS  # of a team, which waits after each look


@dataclass(frozen=True, slots=True)
class Look:
    """A step: the caller looks. `words`: of the two routines."""

    words: tuple

    units, operands, token = None, (), "look"

    def emit(self, part, pointers):
        routines = [part.word(k) for k in self.words]
        part.alone(lambda: self._look(part, *routines))

    def _look(self, part, seen, again):
        b = part.b
        goes_on = b.cmp("eq", b.load(part.closure, I64), b.i64(0))
        with b.when(b.and_(goes_on, b.cmp("ne", seen, Reg("null", PTR)))):
            number = b.call(I32, seen, [])
            with b.when(b.cmp("ne", number, b.const(0, I32))):
                b.call("void", again, [])
                part.note(INTERRUPTED)


@dataclass(frozen=True, slots=True)
class InTurns:
    """A long step of units: its work is done in `n_turns` parts, with a look after each."""

    step: object
    n_turns: int
    look: Look

    @property
    def units(self):
        return self.step.units

    @property
    def operands(self):
        return self.step.operands

    @property
    def words(self):
        return (*self.step.words, *self.look.words)

    @property
    def token(self):
        return "turns", self.n_turns, self.step.token

    def emit(self, part, pointers):
        part.turns = self
        self.step.emit(part, pointers)
        part.turns = None

    def some(self, part, first, stop, emit):
        """emit(first, stop) in turns. After a failure no more of it is done."""
        b = part.b
        count = b.sub(stop, first)

        def one(turn):
            edges = [b.div(b.mul(count, k), b.i64(self.n_turns)) for k in (turn, b.add(turn, b.i64(1)))]
            begin, end = (b.add(first, edge) for edge in edges)
            with b.when(b.cmp("lt", begin, end)):
                emit(begin, end)

        self.each(part, one)

    def each(self, part, emit):
        """emit(number of the turn) of every turn, until there is a failure."""
        b = part.b
        for word in self.look.words:
            part.word(word)  # before the loop
        with b.loop(0, self.n_turns, 1) as turn, b.when(b.cmp("eq", b.load(part.closure, I64), b.i64(0))):
            emit(turn)
            self.look.emit(part, [])
