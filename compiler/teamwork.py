"""The steps of a program as `parallel` sees them: what each costs, how it may be cut, what memory it touches."""

from functools import partial

from .memory import Place
from .parallel import Work
from .regions import ALL, CALLER, MEMBERS, Touch

# Whether a check has failed counts as memory: checks write it, and what outlives a failed call is written after it is
# read.
_VERDICT = Place("verdict", 0)


def works(order, steps, memory, target):
    """A Work for every step of a schedule; steps have `lowered`."""
    return [_work(order, step.lowered, k, memory, target) for k, step in enumerate(steps)]


def commits(lowered, memory):
    """Whether a step writes to memory that outlives the call."""
    return any(memory.place[number].kind == "input" for number in lowered.writes)


def _work(order, lowered, k, memory, target):
    always = [Touch(memory.scratch[k, n], size, True, CALLER) for n, size in enumerate(lowered.scratch)]
    if commits(lowered, memory):
        always.append(Touch(_VERDICT, 1, False, ALL))
    if lowered.checks:
        always.append(Touch(_VERDICT, 1, True, MEMBERS))
    touches = partial(_touches, order.fusion.graph, lowered, memory, always)
    return Work(lowered.cost_ns(target), partial(lowered.cuts, target, memory), touches)


def _touches(graph, lowered, memory, always, cut):
    return always + lowered.touches(graph, memory, cut)
