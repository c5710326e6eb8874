"""Native steps of ops that call a routine: sorting, scans, attention, small matrices; and of reductions.

A routine has all of its work in one call (compiler/kernels/library.py), of as many arguments as it takes: addresses of
the operands and of the result, sizes, and scratch memory. It is called with as many as any takes; what stands behind
its own it does not look at.
"""

from math import prod

from ...compiler.dtypes import bool_, complex64, complex128, element_of, float32, float64, int32, int64
from ...compiler.extent import whole
from ...compiler.kernels.library import GridProduct
from ..code import kernels
from ..programs.across import across
from ..programs.evaluate import runs
from .eager_words import ELEMENTWISE, MOST_ARGUMENTS, MOST_LOOPS, REDUCTION, ROUTINE, NoSteps, Place

_REDUCED = (float32, float64, bool_, int64, int32, complex64, complex128)


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


def steps_of_reduction(builder, op, attributes, dtype, x, out):
    """The builder has the steps of a reduction, computed in a type, from now on."""
    if dtype not in _REDUCED:
        raise NoSteps(f"{op.name} of {dtype.name}")
    lies = x.dtype.is_half and x.dtype.wide is dtype or x.dtype is bool_ and dtype is int64
    x = x if lies else builder.converted(x, dtype)
    parts = list(reversed(runs(attributes["axes"])))
    if not parts:
        builder.write(builder.converted(x, dtype), out)
    if not x.is_whole and _steps_across(builder, op, attributes["axes"], x, out):
        return
    x = x if x.is_whole else builder.copied(x)
    shape = x.shape
    for k, (first, count) in enumerate(parts):
        outer, n, inner = prod(shape[:first]), prod(shape[first : first + count]), prod(shape[first + count :])
        shape = (*shape[:first], *shape[first + count :])
        target = out if k == len(parts) - 1 else builder.new_value(shape, dtype)
        lying = None if x.dtype is dtype else x.dtype
        address, sizes = kernels.reduction_address(op, dtype, outer, n, inner, lying)
        places = [Place(slot=v.slot, offset=v.offset) for v in (x, target)]
        numbers = [*sizes, *[0] * (9 - len(sizes))]
        builder.append_step(kind=REDUCTION, reduction=address, places=places, numbers=numbers)
        x = target


def _steps_across(builder, op, axes, x, out):
    """Whether the operand is read as it lies."""
    found = across(op, x.dtype, x.shape, x.strides, axes)
    if found is None or len(found.loops) > MOST_LOOPS:
        return False
    words = [*found.extents, *(step * x.dtype.size_bytes for step in found.steps)]
    address = kernels.across_address(op, x.dtype, found.order, found.lies)
    loops = [] if found.loops == [(1, (0, 0))] else found.loops
    size = prod(found.extents)
    builder.append_in_loops(loops, [x, out], kind=ELEMENTWISE, elementwise=address, strides=words, size=size)
    return True
