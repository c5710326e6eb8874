"""Steps of equal form inside a program (ops/rolled.py): a loop around the calls of one step, with moving addresses.

for k < count:  kernels of a step, on reads that move on, on what the step before has left, and on scalars of its own
"""

from dataclasses import dataclass
from itertools import chain

from ..memory import Place
from ..ops.rolled import regions
from .program import SCALARS
from .stepwise import pointer_from


@dataclass(frozen=True, slots=True, eq=False)
class RolledStep:
    """`body`: the steps of a program (program.py) that one step takes; their addresses are counted as `local` says: the
    words of its inputs, of its outputs and of its memory. `size`: bytes of an element; `regions`: first byte and bytes
    of a row of each output; `n_scalars`: of one step. `operands`: those of the value, the result, memory."""

    body: tuple
    local: tuple
    facts: dict
    size: int
    regions: tuple
    n_scalars: int
    operands: tuple

    units = None

    @property
    def words(self):
        """Those whose pointers are the same in all steps."""
        own = {*self.local, SCALARS}
        found = [w for s in self.body for w in (*s.words, *(a.word for a in s.operands if a.word not in own))]
        return tuple(dict.fromkeys([*found, SCALARS]))

    @property
    def token(self):
        return self

    def emit(self, part, pointers):
        for word in self.words:
            part.word(word)  # before the loop, and by every thread
        part.alone(lambda: self.loop(part, pointers))

    def loop(self, part, pointers):
        b, count = part.b, part.b.i64(self.facts["count"])
        *given, result, memory = pointers
        with b.loop(0, count, 1) as k:
            left = b.sub(count, k)  # steps from this one on
            read = [self.moved(b, given[o], k, first, step, size) for o, first, step, size in self.facts["reads"]]
            before = [
                b.select(
                    b.cmp("eq", k, b.i64(0)),
                    b.offset(given[o], b.i64(first), size),
                    self.row(b, result, output, b.sub(k, b.i64(1)), left),
                )
                for o, first, output, size in self.facts["carried"]
            ]
            after = b.sub(left, b.i64(1))
            made = [self.row(b, result, output, k, after) for output in range(len(self.regions))]
            start = dict(zip(self.local, [*read, *before, *made, memory]))
            scalar = b.add(b.i64(self.facts["scalars"]), b.mul(k, b.i64(self.n_scalars)))
            start[SCALARS] = b.offset(part.word(SCALARS), scalar, 8)
            for step in self.body:
                step.emit(part, [pointer_from(part, a, start) for a in step.operands])

    @staticmethod
    def moved(b, pointer, k, first, step, size):
        return b.offset(pointer, b.add(b.i64(first), b.mul(k, b.i64(step))), size)

    def row(self, b, result, output, k, left):
        """The row of an output in step k, after which `left` steps follow: the last of two is the first of its room."""
        start, row = self.regions[output]
        which = k if self.facts["kept"][output] else b.and_(left, b.i64(1))
        return b.offset(result, b.add(b.i64(start), b.mul(which, b.i64(row))), 1)


def call_rolled(program, value, body, places, memory):
    """Do what `body` (compiler/stepwise.py) says `count` times. `places`: of the value's operands and of itself."""
    facts, graph = value.attributes, value.attributes["body"].graph
    n_inputs, size = len(graph.inputs()), value.dtype.size_bytes
    inner = program.inner(n_inputs)
    for k, lowered in enumerate(body.lowered):
        lowered.emit(inner, body.memory, [body.memory.scratch[k, n] for n in range(len(lowered.scratch))])
    own = chain(
        (Place("input", k) for k in range(n_inputs)),
        (Place("output", k) for k in range(len(graph.outputs))),
        [Place("arena", 0)],
    )
    sizes = [o.dtype.size_bytes for o in value.operands]
    sized = {
        **facts,
        "reads": [(o, first, step, sizes[o]) for o, first, step in facts["reads"]],
        "carried": [(o, first, output, sizes[o]) for o, first, output in facts["carried"]],
    }
    program.steps.append(
        RolledStep(
            tuple(inner.steps),
            tuple(inner.address(place).word for place in own),
            sized,
            size,
            tuple((start * size, row * size) for start, row in regions(facts)),
            len(graph.scalars()),
            (*map(program.address, places), program.address(memory)),
        )
    )
    return "rolled"
