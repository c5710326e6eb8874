"""Steps whose number only the call knows, inside a program: a loop around the calls of one step.

for t < count:  kernels of a step, on row t of the sequences, on the row before in the result, and on constants
"""

from dataclasses import dataclass
from math import prod

from ..memory import Place


@dataclass(frozen=True, slots=True, eq=False)
class StepsStep:
    """`body`: the steps of a program (program.py) that one step takes; their addresses are counted as `local` says: the
    words of its operands, of its result and of its memory. `rows`: bytes of a row of each sequence; `row`: of the
    result. `operands`: sequences, the row before the first, constants, the result, memory."""

    body: tuple
    local: tuple
    n_steps: object
    rows: tuple
    row: object
    is_reversed: bool
    operands: tuple

    units = None

    @property
    def words(self):
        """Those whose pointers are the same in all steps."""
        found = [w for s in self.body for w in (*s.words, *(a.word for a in s.operands if a.word not in self.local))]
        return tuple(dict.fromkeys(found))

    @property
    def token(self):
        return self

    def emit(self, part, pointers):
        for word in self.words:
            part.word(word)  # before the loop, and by every thread
        part.alone(lambda: self.loop(part, pointers))

    def loop(self, part, pointers):
        b, row = part.b, part.b.i64(self.row)
        *given, result, memory = pointers
        n_rows, count = len(self.rows), b.i64(self.n_steps)
        with b.loop(0, count, 1) as k:
            t = b.sub(b.sub(count, b.i64(1)), k) if self.is_reversed else k
            to = b.offset(result, b.mul(t, row), 1)
            back = b.add(t, b.i64(1 if self.is_reversed else -1))
            before = b.select(b.cmp("eq", k, b.i64(0)), given[n_rows], b.offset(result, b.mul(back, row), 1))
            read = [b.offset(p, b.mul(t, b.i64(n)), 1) for p, n in zip(given, self.rows)]
            start = dict(zip(self.local, [*read, before, *given[n_rows + 1 :], to, memory]))
            for step in self.body:
                step.emit(part, [pointer_from(part, a, start) for a in step.operands])


def pointer_from(part, address, start):
    base = start.get(address.word)
    return part.pointer(address) if base is None else part.b.offset(base, address.offset, 1)


def call_steps(program, value, body, places, memory):
    """Do what `body` (compiler/stepwise.py) says for every row of a value. `places`: of its operands and of itself."""
    n_operands, n_rows = len(places) - 1, value.attributes["n_sequences"]
    inner = program.inner(n_operands)
    for k, lowered in enumerate(body.lowered):
        lowered.emit(inner, body.memory, [body.memory.scratch[k, n] for n in range(len(lowered.scratch))])
    own = [*(Place("input", k) for k in range(n_operands)), Place("output", 0), Place("arena", 0)]
    program.steps.append(
        StepsStep(
            tuple(inner.steps),
            tuple(inner.address(place).word for place in own),
            value.shape[0],
            tuple(map(_row_bytes, value.operands[:n_rows])),
            _row_bytes(value),
            value.attributes["reverse"],
            (*map(program.address, places), program.address(memory)),
        )
    )
    return "steps"


def _row_bytes(value):
    return prod(value.shape[1:]) * value.dtype.size_bytes
