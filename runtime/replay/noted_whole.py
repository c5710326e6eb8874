"""What a call of a function comes to (noting.py) as one op, where no gradients are asked for.

Each op that native code calls makes an array and a tensor. Of a composite they are steps of one plan, with the same
kernels in the same order and memory that stays where it is: the vector product of two 3 x 3 tensors is fifteen ops,
which take 4.4 us, and one plan that takes one.
"""

from math import prod

import numpy as np

from ...compiler.ops.table import Meta, Op
from ...compiler.ops.view import data, detach
from ..eager import plan as plans
from ..eager.eager_planned import steps_of
from ..eager.eager_steps import NoSteps
from ..eager.plan import is_view_op
from ..state.modes import state
from .noting import OF_TENSORS, Noted

FEWEST_STEPS = 2
MOST_ELEMENTS = 1 << 12  # of an operand: of more an op may have a program, which its steps here have not


def whole_of(noter, flat, made):
    """(op, which of the arguments are its operands); None if there is none. flat: the arguments, one by one as native
    code compares them. made: what the function has returned."""
    if made.__class__ is not Noted or made.place[0] != "step" or not _are_steps(noter):
        return None
    if is_view_op(noter.steps[made.place[1]].op):
        return None  # it shows memory of what is made before, or of an argument, and is known to
    places = [k for k, x in enumerate(flat) if hasattr(x, "_data")]
    op = _composite(noter, places, made)
    arrays = [flat[k]._data for k in places]
    if not arrays or any(x is None or x.size > MOST_ELEMENTS for x in arrays) or prod(made.shape) > MOST_ELEMENTS:
        return None
    return (op, tuple(places)) if _has_steps(op, [np.empty(x.shape, x.dtype) for x in arrays]) else None


def _are_steps(noter):
    if noter.n_drawn or noter.is_in_place or len(noter.steps) < FEWEST_STEPS:
        return False
    if any(hasattr(x, "apply_op") for x in noter.constants):
        return False
    return all(step.how == OF_TENSORS and step.op not in (detach, data) for step in noter.steps)


def _composite(noter, places, made):
    """An op of the tensors in these places among the arguments, which takes the steps."""
    steps, constants, result = tuple(noter.steps), tuple(noter.constants), made.place
    meta = Meta(made.shape, made.dtype)

    def decompose(*tensors):
        values = dict(zip((("given", k) for k in places), tensors))
        values.update((("constant", k), x) for k, x in enumerate(constants))
        for k, step in enumerate(steps):
            values["step", k] = step.op(*[values[place] for place in step.places], **step.attributes)
        return values[result]

    # As it is alone it has no program, whose place on disk its name would be.
    extra = {"alone": decompose}
    return Op("ops of a function", "composite", lambda *_: meta, decompose=decompose, extra=extra)


def _has_steps(op, arrays):
    """Whether native code can take all of them, and they are those that the ops take by themselves."""
    plan = plans.plan_of(op, arrays, state.default_dtype)
    if plan is None or any(m.dtype.is_half for m in (*plan.metas, *(note[-1] for note in plan.program.notes.values()))):
        return False
    try:
        steps_of(plan, (None,) * len(arrays))
    except NoSteps:
        return False
    return True
