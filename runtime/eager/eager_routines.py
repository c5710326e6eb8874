"""Native steps of ops that call a routine: sorting, scans, attention, small matrices.

A routine has all of its work in one call (compiler/kernels/library.py), of as many arguments as it takes: addresses of
the operands and of the result, sizes, and scratch memory. It is called with as many as any takes; what stands behind
its own it does not look at.
"""

from ...compiler.dtypes import bool_, element_of
from ...compiler.extent import whole
from ...compiler.kernels.library import GridProduct
from ..code import kernels
from .eager_words import MOST_ARGUMENTS, ROUTINE


def steps_of_routine(builder, op, attributes, types, operands, out):
    """Whether the op is one that has a routine of this kind, which the builder has steps for now."""
    if "along_rows" in op.extra:
        return _along_rows(builder, op, attributes, types, operands, out)
    if op.kind != "routine" or op.checks or isinstance(op.kernel, GridProduct) or any(x.is_number for x in operands):
        return False
    operands = [builder.converted(x, dtype) for x, dtype in zip(operands, types or [x.dtype for x in operands])]
    operands = [x if x.is_whole else builder.copied(x) for x in operands]
    kernel, shapes = op.kernel, tuple(x.shape for x in operands)
    element = element_of(operands[0].dtype)
    scratch = builder.reserve(max(kernel.scratch(element, shapes, attributes), 1))
    rest = [*map(whole, kernel.whole(shapes, attributes)), scratch]
    if scratch is None or len(operands) + 1 + len(rest) > MOST_ARGUMENTS:
        return False
    builder.append_in_loops([], [*operands, out], kind=ROUTINE, routine=kernels.routine_address(op, element), rest=rest)
    return True


def _along_rows(builder, op, attributes, types, operands, out):
    """What a routine does along the last axis, along another one: of a copy in which that is the last, and back."""
    axis, n = attributes["axis"], len(out.shape)
    if any(x.is_number or x.shape != out.shape for x in operands) or out.dtype is bool_:
        return False
    order = [k for k in range(n) if k != axis] + [axis]
    made = builder.new_value([out.shape[k] for k in order], out.dtype)
    if not steps_of_routine(builder, op.extra["along_rows"], {}, types, [_turned(x, order) for x in operands], made):
        return False
    builder.write(_turned(made, [order.index(k) for k in range(n)]), out)
    return True


def _turned(x, order):
    """The value with its dimensions in another order."""
    return x._replace(shape=tuple(x.shape[k] for k in order), strides=tuple(x.strides[k] for k in order))
