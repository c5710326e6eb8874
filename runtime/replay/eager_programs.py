"""Programs (fused.py) that native code of eager mode calls, as large.py does it: of large operands, and of plans on
small ones that are called often and have no steps.

It holds the interpreter's lock meanwhile, so it takes those only that are done soon: in a millisecond or two, where
CPython lets other threads wait five for the end of a bytecode. Large results come from arrays that were made before and
that nobody holds any more.
"""

import functools
from math import prod

import numpy as np

from ...compiler.ops.steps import STEPS
from ...compiler.translate.kinds import offset_of
from ..eager.eager_words import MOST_GIVEN, MOST_TABLE, Words
from ..programs.array_program import whole
from ..programs.large import results_of
from ..state.aligned import address_of

# Elements that its steps compute, and bytes that it reads and writes. Calling it from Python costs 10 us: reading and
# writing 4 MB takes 66. Of 4 million elements sines take two milliseconds.
MOST_ELEMENTS, MOST_BYTES = 1 << 22, 1 << 25
# Of ops that are done in time with elements; sorts and factors take more.
_BY_ELEMENT = {"elementwise", "source", "view", "movement", "reduction", "indexing", "scan"}
MOST_ELEMENTS_OF_OTHERS = 1 << 20
# Memory for what programs keep in between. They run one after the other, as long as they keep the interpreter's lock.
ARENA_BYTES = 1 << 22
# Results of fewer elements are new arrays.
_FEW = 1 << 12
# After so many calls of a plan without steps a program is looked for on disk, and compiled.
CALLS_BEFORE_FINDING, CALLS_BEFORE_COMPILING = 1 << 9, 1 << 13
_AS_FLOAT = -3  # of a number in a program's table


def program_of(plan, layouts, few=None):
    """The LargeProgram of a plan, if it has one for operands that lie so, and native code can call it. `few`: what
    program_of_few has found."""
    steps = few or plan.program
    if steps is None or steps.fused is None:
        return None
    found = steps.fused.programs.get(_in_elements(plan, layouts, steps.fused.read) if any(layouts) else ())
    return found if found is not None and _is_simple(found, steps, plan.meta) else None


def lent_to(plan, layouts):
    """For how many calls native code takes the plan's steps before it asks for a program again (fused.py: lend)."""
    fused = None if plan.program is None else plan.program.fused
    if fused is None or fused.is_large:
        return 0
    return fused.lend(_in_elements(plan, layouts, fused.read) if any(layouts) else ())


def _in_elements(plan, layouts, read):
    """The same as fused.py says it: of the operands that are read. None where no program can say it."""
    given = [(layouts[k], plan.metas[k].dtype.size_bytes) for k in read]
    if any(step % size for strides, size in given for step in strides or ()):
        return None
    return tuple([strides and tuple([step // size for step in strides]) for strides, size in given])


def program_of_few(plan, n_calls):
    """An ArrayProgram with a program for a plan on small operands that Python has run so often; None if it is not time
    to look for one, or there is none."""
    # At once, after twice as many and so on.
    if (
        n_calls < CALLS_BEFORE_FINDING
        or n_calls & (n_calls - 1)
        or any(m.shape and 0 in m.shape for m in (plan.meta, *plan.metas))
    ):
        return None
    if plan.shows is not None or max(map(_n_elements, (plan.meta, *plan.metas))) > _FEW:
        return None
    steps = whole(plan.op, plan.metas, plan.meta, plan.attributes, plan.default_dtype)
    if steps is None or steps.fused.ready(n_calls >= CALLS_BEFORE_COMPILING) is None:
        return None
    return steps


def _n_elements(meta):
    return prod(meta.shape)


def _is_simple(found, steps, meta):
    results = [(tuple(shape), dtype) for shape, dtype in found.program.outputs]
    return (
        steps.results == tuple(steps.fused.results)
        and results == [(tuple(meta.shape), meta.dtype.numpy)]
        and is_callable(found, steps)
    )


def is_callable(found, steps):
    """Whether native code has all that this LargeProgram of an ArrayProgram needs, and it is done soon."""
    program = found.program
    n_words = len(found.words) + len(found.inputs) + len(program.outputs)
    return (
        _is_short(program, steps)
        and len({code == _AS_FLOAT for _, code in program.numbers}) < 2
        and len(program.numbers) <= MOST_GIVEN
        and n_words <= MOST_TABLE
        and program.arena_bytes <= ARENA_BYTES
    )


def _is_short(program, steps):
    places = [(place.shape, place.dtype) for place in program.places.items]
    n_bytes = sum(prod(shape) * dtype.itemsize for shape, dtype in (*places, *program.outputs))
    return steps.fused.worth <= most_elements(steps.notes) and n_bytes <= MOST_BYTES


def most_elements(notes, by_terms=True):
    """How many elements a program with such steps computes at most; `by_terms`: those of products are counted so."""
    ops = [op for op, *_ in notes.values()]
    # Recording a loop's steps for every number of them keeps the lock for much longer than running it.
    kinds = _BY_ELEMENT | {"contraction"} if by_terms else _BY_ELEMENT
    by_element = STEPS in ops or all(op.kind in kinds for op in ops)
    return MOST_ELEMENTS if by_element else MOST_ELEMENTS_OF_OTHERS


def is_by_element(plan):
    """Whether the program of a plan may write over an operand of the result's shape: every element of what it writes
    comes of the operands' elements there, or of none, and it writes nothing before something fails."""
    if plan.op.kind == "elementwise":
        return True
    if plan.program is None or not plan.program.steps:
        return False
    of_operands = set(range(len(plan.metas)))
    for _, take, into, _ in plan.program.steps:
        note = plan.program.notes.get(into)
        if note is None or note[0].checks_on(True):
            return False
        comes_of_them = not of_operands.isdisjoint(take)
        if note[0].kind != "elementwise" and (comes_of_them or note[0].kind not in ("source", "view")):
            return False
        if comes_of_them:
            of_operands.add(into)
    return True


@functools.cache
def _arena():
    return np.empty(ARENA_BYTES + 64, np.uint8)


def facts_of(found, meta, numbers_at):
    """The fields of a Routine."""
    kept = None if prod(meta.shape) <= _FEW else results_of(meta.shape, meta.dtype.numpy)
    return {"is_program": True, "kept": kept, **table_of(found, numbers_at)}


def table_of(found, numbers_at):
    """How native code calls a program: the fields that Routine and Derivative have in common."""
    head = list(found.words)
    has_wholes = any(code != _AS_FLOAT for _, code in found.program.numbers)
    if has_wholes:
        numbers_at += offset_of(Words, "wholes") - offset_of(Words, "numbers")
    head[0], head[1] = (address_of(_arena()) + 63) & ~63, numbers_at
    return {
        "program": found.program.address,
        "head": head,
        "arrays": list(found.inputs),
        "as_numbers": [position for position, _ in found.program.numbers],
        "has_wholes": has_wholes,
    }
