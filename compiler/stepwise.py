"""What steps of equal form are lowered to (ops/steps.py, ops/rolled.py): the kernels of one, and a loop around."""

from dataclasses import dataclass

from .emit.rolled import call_rolled
from .emit.stepwise import call_steps
from .extent import estimated
from .lowered import _Call, touch
from .regions import CALLER


@dataclass(frozen=True, slots=True, eq=False)
class StepBody:
    """One step: what its groups are lowered to, where its values lie, in memory of its own, and how long it takes."""

    lowered: tuple
    memory: object
    cost_ns: float


@dataclass(frozen=True, slots=True, eq=False)
class _LoopOfSteps(_Call):
    """One thread does it: a step waits for the one before. `operands`: in memory in row-major order."""

    value: object
    operands: tuple
    body: StepBody
    cut: None = None

    @property
    def scratch(self):
        return [self.body.memory.arena_bytes]

    def cost_ns(self, target):
        return estimated(self.n_steps) * self.body.cost_ns

    def cuts(self, target, memory, owners):
        return []

    def touches(self, graph, memory, cut):
        return [touch(v, memory, v is self.value, CALLER) for v in (*self.operands, self.value)]

    def emit(self, program, memory, scratch):
        places = [memory.place[v.number] for v in (*self.operands, self.value)]
        return self.call(program, self.value, self.body, places, scratch[0])


class StepsCall(_LoopOfSteps):
    """The steps of ops/steps.py. `operands`: the sequences, the row before the first step, the constants."""

    __slots__ = ()
    call = staticmethod(call_steps)

    @property
    def n_steps(self):
        return self.value.shape[0]


class RolledCall(_LoopOfSteps):
    """A loop that was written out (ops/rolled.py)."""

    __slots__ = ()
    call = staticmethod(call_rolled)

    @property
    def n_steps(self):
        return self.value.attributes["count"]
