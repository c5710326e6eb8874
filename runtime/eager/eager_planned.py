"""What native code is told of a plan or a derivative: steps that compute it or change its target, or a view."""

from math import prod

import numpy as np

from ...compiler.eager_forms import looks_at
from ..code import kernels
from ..programs.evaluate import contiguous, takes_long
from .eager_loops import spread
from .eager_steps import MOST_HALVES, MOST_ROUNDS_OF_FEW, MOST_WRITTEN, Builder, NoSteps
from .eager_words import MOST_GIVEN, WRITEABLE


def steps_of(plan, layouts, kind=Builder):
    """A Builder with the steps of a plan, and (steps, fixed addresses)."""
    builder, into = kind(plan.metas, 1, layouts=layouts), len(plan.metas)
    if plan.op.kind == "source":
        builder.most = MOST_WRITTEN
    elif plan.meta.dtype.is_half or plan.meta.dtype.is_complex:
        builder.most = MOST_HALVES + 1
    if plan.op.kind == "source" and kernels.has_source_kernel(plan.op, plan.kinds, plan.meta.dtype):
        builder.source(plan.op, [*builder.values.values()], plan.meta, into)
    elif plan.program is None:
        types = plan.op.compute_dtype(plan.metas, plan.default_dtype)[0] if plan.op.compute_dtype else None
        builder.add(plan.op, plan.attributes, types, plan.meta, range(into), into)
    else:
        add_program(builder, plan.program)
        (into,) = plan.program.results
    found = builder.finish([into])
    if any(builder.values[k] is None for k in range(builder.n_given)):
        raise NoSteps("an operand of another type than float32, float64, int64, int32 and bool")
    return builder, found


def is_numpys(plan):
    """Whether NumPy computes it, or a part of it, and is done soon, so that there will be no program either: functions
    of its library, and complex numbers."""
    ops = [plan.op] if plan.program is None else [op for op, *_ in plan.program.notes.values()]
    if plan.shows is not None or plan.op.change is not None or plan.op.kind in ("view", "source"):
        return False
    is_library = any(op.kind == "library" for op in ops) or any(m.dtype.is_complex for m in (*plan.metas, plan.meta))
    shapes = [m.shape for m in plan.metas]
    return is_library and not any(takes_long(op, shapes) for op in ops)


def changes_of(plan, layouts):
    """(Builder, steps, fixed addresses) of what writes the result over the first operand."""
    op, metas, meta = plan.op, plan.metas, plan.meta
    if op.kind != "elementwise" and op.change is None:
        raise NoSteps("an op that computes all elements anew, from others too")
    builder = Builder(metas, 1, layouts=layouts)
    operands = list(builder.values.values())
    if None in operands or metas[0].weak:
        raise NoSteps("a target that is no tensor of a usual type")
    if layouts[0] is not None and (op.kind != "elementwise" or not _is_apart(metas[0].shape, layouts[0])):
        raise NoSteps("a target that is not row-major, of a change that needs that, or shows elements twice")
    if (metas[0].shape, metas[0].dtype) != (meta.shape, meta.dtype) or any(0 in m.shape for m in metas):
        raise NoSteps("a result of another shape or type than the first operand, or no elements")
    most, written = (builder.most, metas) if op.kind == "elementwise" else (MOST_WRITTEN, metas[1:])
    if layouts[0] is not None and op.cost == "cheap":
        most = MOST_WRITTEN  # there is no program that writes there
    if max(prod(m.shape) for m in written) > most:
        raise NoSteps("so many elements that threads may share them, or Python go on meanwhile")
    types = op.compute_dtype(metas, plan.default_dtype)[0]
    if op.kind == "elementwise" and looks_at(op, types):
        raise NoSteps("an op that may fail when something is written already")
    if op.kind == "elementwise":
        operands = operands if layouts[0] is None else _as_target_lies(operands)
        builder.elementwise(op, plan.attributes, types, operands, operands[0])
    elif any(x.dtype is not d for x, d in zip(operands, types)):
        raise NoSteps("parts of another type")
    else:
        builder.change(op, plan.attributes, operands)
    return builder, builder.steps, builder.place_all()


def _is_apart(shape, strides):
    """Whether each place in memory is that of one element, as far as strides tell."""
    reached = 0
    for step, n in sorted((abs(s), n) for n, s in zip(shape, strides) if n > 1):
        if step <= reached:
            return False
        reached += (n - 1) * step
    return True


def _as_target_lies(operands):
    """The operands of an elementwise op, their dimensions in the order in which the elements of the first one lie."""
    target = operands[0]
    order = sorted(range(len(target.shape)), key=lambda k: -abs(target.strides[k]))
    shape = tuple(target.shape[k] for k in order)
    last = next((target.strides[k] for k in reversed(order) if target.shape[k] > 1), 1)
    if last != 1 and prod(shape) > MOST_ROUNDS_OF_FEW:
        raise NoSteps("many elements that lie apart")
    turned = []
    for x in operands:
        if not x.is_number:
            strides = spread(x, target.shape)
            x = x._replace(shape=shape, strides=tuple(strides[k] for k in order))
        turned.append(x)
    return turned


def view_of(plan, layouts):
    """(strides, offset in bytes, flags that it takes over) of a view of an array of this layout; None if it copies."""
    if len(plan.metas) > 1 or 0 in plan.meta.shape:
        raise NoSteps("a view of no elements, or at computed places")
    shown = _array_of(plan.metas[0], layouts[0])
    found = plan.run(shown)
    if not np.may_share_memory(found, shown):
        return None
    if found.shape != plan.meta.shape:
        raise NoSteps("a view of another shape")
    offset = kernels.address_of(found) - kernels.address_of(shown)
    return found.strides, offset, WRITEABLE if found.flags.writeable else 0


def _array_of(meta, strides):
    if strides is None:
        return np.empty(meta.shape, meta.dtype.numpy)
    first = sum(s * (n - 1) for n, s in zip(meta.shape, strides) if s < 0)
    last = sum(s * (n - 1) for n, s in zip(meta.shape, strides) if s > 0)
    memory = np.empty(last - first + meta.dtype.size_bytes, np.uint8)
    return np.ndarray(meta.shape, meta.dtype.numpy, memory, -first, strides)


def derivative_of(plan, program, layout, kind=Builder):
    """A Builder with the steps of a derivative of cotangents of this layout, and the results that are new arrays, and
    those that are views of the cotangent."""
    given = (plan.meta, plan.meta, *plan.metas)
    builder = kind(given, len({*program.results}), MOST_GIVEN, (layout,))
    add_program(builder, program)
    if any(m.weak and m.dtype.is_complex and builder.reads(k) for k, m in enumerate(given)):
        raise NoSteps("a complex number")
    new, shown = [], []
    for r in dict.fromkeys(r for r in program.results if r):
        value = builder.values[r]
        if value is None or r < len(given) or 0 < value.slot < len(given):
            raise NoSteps("a result that is or shows what was saved")
        (new if value.slot else shown).append(r)
    return builder, new, shown


def _is_across(builder, rule):
    """Whether there will be no program, since the operand is read as it lies."""
    given = [builder.values[k] for k in range(builder.n_given)]
    return rule.is_across([None if x is None or x.is_number or x.is_whole else x.strides for x in given])


def add_program(builder, program):
    """The steps of an ArrayProgram."""
    if program.fused is not None and program.fused.is_large and not _is_across(builder, program.fused.rule):
        raise NoSteps("large operands, for which a program is compiled")
    for k, x in enumerate(program.rest):
        if x is not None:
            builder.constant(builder.n_given + k, x)
    for function, take, into, _ in program.steps:
        if function is contiguous:
            x = builder.values[take[0]]
            builder.values[into] = x if x.is_whole else builder.copied(x)
            continue
        op, attributes, types, meta = program.notes[into]
        builder.add(op, attributes, types, meta, take, into)
