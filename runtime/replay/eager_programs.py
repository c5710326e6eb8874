"""Programs of large operands (fused.py) that native code of eager mode calls, as large.py does it.

It holds the interpreter's lock meanwhile, so it takes those only that are done soon; and it makes no memory, so the
result comes from arrays that were made before and that nobody holds any more.
"""

from ..code.kernels import address_of
from ..eager.eager_steps import SCRATCH_BYTES, scratch
from ..eager.eager_words import MOST_GIVEN, MOST_TABLE
from ..programs.large import results_of

# What it computes in all its steps, roughly: a third of a millisecond.
MOST_ELEMENTS = 1 << 20
_AS_FLOAT = -3  # of a number in a program's table


def program_of(plan, layouts):
    """The LargeProgram of a plan, if it has one for operands that are row-major, and native code can call it."""
    steps = plan.program
    if steps is None or steps.fused is None or any(layouts) or steps.fused.worth > MOST_ELEMENTS:
        return None
    found = steps.fused.programs.get(())
    return found if found is not None and _is_simple(found, steps, plan.meta) else None


def _is_simple(found, steps, meta):
    program = found.program
    results = [(tuple(shape), dtype) for shape, dtype in program.outputs]
    n_words = len(found.words) + len(found.inputs) + 1
    return (
        steps.results == tuple(steps.fused.results)
        and results == [(tuple(meta.shape), meta.dtype.numpy)]
        and all(code == _AS_FLOAT for _, code in program.numbers)
        and len(program.numbers) <= MOST_GIVEN
        and n_words <= MOST_TABLE
        and program.arena_bytes + 64 <= SCRATCH_BYTES
    )


def facts_of(found, meta, numbers_at):
    """The fields of a Routine."""
    head = list(found.words)
    head[0], head[1] = (address_of(scratch) + 63) & ~63, numbers_at
    return {
        "is_program": True,
        "program": found.program.address,
        "head": head,
        "arrays": list(found.inputs),
        "as_numbers": [position for position, _ in found.program.numbers],
        "kept": results_of(meta.shape, meta.dtype.numpy),
    }
