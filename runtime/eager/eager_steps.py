"""From a plan to the steps that native code takes: kernels, and where in memory their operands and results are.

Shapes, types and strides of every value are known, so all of this is found once. What has no such steps stays with
Python: ops that NumPy computes in another way than the kernels do, and conversions.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from ...compiler import eager_kernels
from ...compiler.dtypes import bool_, float32, float64
from ...compiler.ops.comparison import cast
from ...compiler.ops.source import full
from ...compiler.ops.table import Meta
from ...compiler.ops.view import cat, clone, slice_, slice_scatter
from ..code import kernels
from ..programs.array_program import Recorder
from ..programs.evaluate import contiguous, runs
from .eager_words import ELEMENTWISE, MOST_GIVEN, MOST_LOOPS, MOST_OPERANDS, MOST_SLOTS, PRODUCT, REDUCTION, Place, Step

SCRATCH_BYTES = 1 << 18
MOST_ROUNDS_OF_FEW = 1 << 10  # of rounds of less than 16 elements, for which NumPy has better ways
STRIDED = eager_kernels.STRIDED
_SINGLE = {0: eager_kernels.ELEMENT, 1: None}
WRITEABLE = 0x400  # NumPy's flag of arrays
_TYPES = (float32, float64, bool_)
scratch = np.zeros(SCRATCH_BYTES + 64, np.uint8)


class NoSteps(Exception):
    """Why an op stays with Python."""


class Value(NamedTuple):
    """What a step reads or writes: strides in elements, offset in bytes; `number` is what stands in for an array."""

    dtype: object
    shape: tuple
    strides: tuple
    slot: int
    offset: int = 0
    is_number: bool = False

    @property
    def is_whole(self):
        return self.strides == _row_major(self.shape)


class Builder:
    """The steps of one program. Slots: the operands, then the results, then what has a fixed address."""

    def __init__(self, metas, n_results, most=MOST_OPERANDS):
        if len(metas) > most:
            raise NoSteps("more operands than native code takes")
        self.values = {k: _operand(k, m) for k, m in enumerate(metas)}
        self.n_given, self.n_results = len(metas), n_results
        self.steps, self.fixed, self.held, self.used = [], {}, [], (-kernels.address_of(scratch)) % 64
        self.constants = {}  # number of a value -> what it is in all calls
        self.sizes = {}  # slot of what a step makes -> its number of elements

    # --- memory -----------------------------------------------------------------------------------------------------
    def _fixed_slot(self, address):
        slot = self.n_given + self.n_results + len(self.fixed)
        if slot >= MOST_SLOTS:
            raise NoSteps("more values than native code takes")
        self.fixed[slot] = address
        return slot

    def constant(self, number, x):
        self.constants[number] = array = np.asarray(x)
        dtype = next((d for d in _TYPES if d.numpy == array.dtype), None)
        self.values[number] = None if dtype is None else self._held(array, dtype)

    def _held(self, array, dtype):
        self.held.append(array)
        return Value(dtype, array.shape, _row_major(array.shape), self._fixed_slot(kernels.address_of(array)))

    def _reserve(self, n_bytes):
        start = self.used
        self.used += -(-n_bytes // 64) * 64
        if self.used > SCRATCH_BYTES:
            raise NoSteps("more memory for values in between than native code has")
        return kernels.address_of(scratch) + start

    def new_value(self, shape, dtype):
        slot = self._fixed_slot(self._reserve(prod(shape) * dtype.size_bytes))
        self.sizes[slot] = prod(shape)
        return Value(dtype, tuple(shape), _row_major(shape), slot)

    def finish(self, numbers):
        """(steps, fixed addresses) of a program with these results, whose slots become those of new arrays."""
        moved = {}
        for k, number in enumerate(numbers):
            value = self.values[number]
            if not self._is_new(value) or value.slot in moved:
                value = self.copied(value)
            self.values[number] = value
            moved[value.slot] = self.n_given + k
        for step in self.steps:
            step.places = [
                Place(slot=moved.get(p.slot, p.slot), offset=p.offset, strides=p.strides) for p in step.places
            ]
        return self.steps, list(self.fixed.values())

    def _is_new(self, value):
        """Whether the value is all of what a step has made, and not the first part of it."""
        return self.sizes.get(value.slot) == prod(value.shape) and value.is_whole and value.offset == 0

    def copied(self, value):
        out = self.new_value(value.shape, value.dtype)
        self._cast(value, out)
        return out

    def spread(self, meta):
        """(steps that write what is one number everywhere into memory, the address of that)."""
        slot, out = 1, self._reserve(prod(meta.shape) * meta.dtype.size_bytes)
        shape = tuple(meta.shape)
        steps, self.steps = self.steps, []
        given = Value(meta.dtype, shape, (0,) * len(shape), 0)
        self._cast(given, Value(meta.dtype, shape, _row_major(shape), slot))
        steps, self.steps = self.steps, steps
        return steps, out

    def write(self, value, target):
        if value.dtype is not target.dtype or value.shape != target.shape:
            raise NoSteps("a new value of another type or shape than its target")
        self._cast(value, target)

    def reads(self, k):
        """Whether a step reads what is given in a slot."""
        return any(place.slot == k for step in self.steps for place in step.places)

    # --- steps ------------------------------------------------------------------------------------------------------
    def add(self, op, attributes, types, meta, take, into):
        """The steps of one op. `take` are the numbers of its operands, `into` that of its result."""
        if op is full and take[0] in self.constants:
            self.values[into] = self._filled(self.constants[take[0]], meta)
            return
        operands = [self.values[k] for k in take]
        if None in operands:
            raise NoSteps("an operand of another type than floats and bools")
        if 0 in meta.shape or any(0 in x.shape for x in operands):
            raise NoSteps("no elements")
        if op.kind == "view" or "view" in op.extra:
            self.values[into] = self.view(op, attributes, operands[0], meta)
            return
        if meta.dtype not in _TYPES:
            raise NoSteps(f"a result of type {meta.dtype.name}")
        self.values[into] = out = self.new_value(meta.shape, meta.dtype)
        if op.kind == "elementwise":
            self._elementwise(op, attributes, types, operands, out)
        elif op.kind == "reduction" and op.evaluate is None:
            self._reduction(op, attributes, types[0], operands[0], out)
        elif op.kind == "contraction" and meta.dtype.is_floating_point:
            self._product(operands, out)
        else:
            self._move(op, attributes, operands, out)

    def _filled(self, number, meta):
        """One element that stands for all."""
        if meta.dtype not in _TYPES or 0 in meta.shape:
            raise NoSteps("a value of other types than floats and bools, or of no elements")
        element = self._held(full.evaluate(number.item(), (), meta.dtype), meta.dtype)
        return element._replace(shape=tuple(meta.shape), strides=(0,) * len(meta.shape))

    def view(self, op, attributes, x, meta):
        """Where the elements of a view are; of a copy, where no strides can say it."""
        return _view(op, attributes, x, meta) or _view(op, attributes, self.copied(x), meta)

    def _move(self, op, attributes, operands, out):
        if op is cat:
            self._join(attributes["axis"], operands, out)
        elif op is clone:
            self.write(operands[0], out)
        elif op is slice_scatter:
            self.write(operands[0], out)
            self.write(operands[1], _view(slice_, attributes, out, Meta(operands[1].shape, out.dtype)))
        elif op is full:
            self._cast(operands[0], out)
        else:
            raise NoSteps(f"{op.name} has no steps")

    def _cast(self, x, out):
        self._elementwise(cast, {"dtype": out.dtype}, (out.dtype,), [x], out)

    def _elementwise(self, op, attributes, types, operands, out):
        if op.lower is None or op.checks or "eager_only" in op.extra or op is cast and types != (out.dtype,):
            raise NoSteps(f"{op.name} is computed by NumPy")
        for x, dtype in zip(operands, types):
            if dtype not in _TYPES or not (x.is_number and dtype is not bool_ or x.dtype is dtype):
                raise NoSteps(f"{op.name} converts its operands")
        *outer, (size, inner) = _loops(operands, out)
        single = tuple(
            eager_kernels.NUMBER if x.is_number else _SINGLE.get(s, STRIDED) for x, s in zip(operands, inner)
        )
        strides = list(inner[:-1]) if STRIDED in single else []
        address = kernels.elementwise_address(op, types, attributes, single)
        self._append(outer, [*operands, out], kind=ELEMENTWISE, elementwise=address, strides=strides, size=size)

    def _append(self, loops, values, **facts):
        """A step in loops, each an extent and strides of the values in elements."""
        extents, rounds = [n for n, _ in loops], prod(n for n, _ in loops)
        if facts.get("size", MOST_ROUNDS_OF_FEW) < 16 and rounds > MOST_ROUNDS_OF_FEW or len(loops) > MOST_LOOPS:
            raise NoSteps("many short rows")
        places = [
            Place(slot=x.slot, offset=x.offset, strides=[steps[k] * x.dtype.size_bytes for _, steps in loops])
            for k, x in enumerate(values)
        ]
        self.steps.append(Step(places=places, extents=extents, rounds=rounds, **facts))

    def _join(self, axis, operands, out):
        start = 0
        for x in operands:
            offset = out.offset + start * out.strides[axis] * out.dtype.size_bytes
            self.write(x, Value(out.dtype, x.shape, out.strides, out.slot, offset))
            start += x.shape[axis]

    def _reduction(self, op, attributes, dtype, x, out):
        if x.dtype is not dtype:
            raise NoSteps(f"{op.name} of an operand that is converted before")
        parts = list(reversed(runs(attributes["axes"])))
        if not parts:
            self.write(x, out)
        x = x if x.is_whole else self.copied(x)
        shape = x.shape
        for k, (first, count) in enumerate(parts):
            outer, n, inner = prod(shape[:first]), prod(shape[first : first + count]), prod(shape[first + count :])
            shape = (*shape[:first], *shape[first + count :])
            target = out if k == len(parts) - 1 else self.new_value(shape, dtype)
            address, sizes = kernels.reduction_address(op, dtype, outer, n, inner)
            places = [Place(slot=v.slot, offset=v.offset) for v in (x, target)]
            numbers = [*sizes, *[0] * (9 - len(sizes))]
            self.steps.append(Step(kind=REDUCTION, reduction=address, places=places, numbers=numbers))
            x = target

    def _product(self, operands, out):
        x, y = operands
        if x.dtype is not out.dtype or y.dtype is not out.dtype:
            raise NoSteps("a product of operands of two types")
        *batch, m, k, n = *x.shape, out.shape[-1]
        address, n_bytes = kernels.product_address(out.dtype.numpy, out.shape, k)
        numbers = [*x.strides[-2:], *y.strides[-2:], m, n, k, self._reserve(n_bytes), 0]
        loops = list(zip(batch, zip(x.strides, y.strides, out.strides)))
        self._append(loops, [x, y, out], kind=PRODUCT, product=address, numbers=numbers)


def _operand(slot, meta):
    if meta.weak:
        return Value(meta.dtype, (), (), slot, is_number=True)
    if meta.dtype not in _TYPES:
        return None
    return Value(meta.dtype, tuple(meta.shape), _row_major(meta.shape), slot)


def _row_major(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step if n != 1 else 0)
        step *= n
    return tuple(reversed(strides))


def _view(op, attributes, x, meta):
    """Where the elements of a view are; None if it has to copy."""
    if x.is_number:
        raise NoSteps("a view of a number")
    if op.kind != "view":
        return _alias(op, attributes, x)
    found = op.lower(x.shape, x.strides, 0, **attributes)
    if found is None:
        return None
    strides, offset = found
    strides = tuple(0 if n == 1 else s for s, n in zip(strides, meta.shape))
    return Value(x.dtype, tuple(meta.shape), strides, x.slot, x.offset + offset * x.dtype.size_bytes)


def _alias(op, attributes, x):
    """A view that is another name for one or several."""
    recorder = Recorder([Meta(x.shape, x.dtype)], None)
    out = op.decompose(recorder.inputs[0], **attributes)
    values = {0: x}
    for _, take, into in recorder.steps:
        inner, given, _, meta = recorder.notes[into]
        values[into] = _view(inner, given, values[take[0]], meta)
        if values[into] is None:
            return None
    return values[out.number]


def _loops(operands, out):
    """[(extent, strides of the operands and of the result)] of as few loops as there can be, the innermost last."""
    strides = [_spread(x, out.shape) for x in [*operands, out]]
    loops = []
    for n, steps in zip(reversed(out.shape), zip(*map(reversed, strides))):
        if n == 1:
            continue
        if loops and all(s == before * loops[-1][0] for s, before in zip(steps, loops[-1][1])):
            loops[-1] = (loops[-1][0] * n, loops[-1][1])
        else:
            loops.append((n, steps))
    if not loops or loops[0][1][-1] != 1:
        # Elements of the result that are not in a row are written one by one.
        loops = [(1, (*[0 if x.is_number else 1 for x in operands], 1)), *loops]
    return loops[::-1]


def _spread(x, shape):
    """Strides of a value that is broadcast to a shape."""
    return (*[0] * (len(shape) - len(x.strides)), *[0 if n == 1 else s for n, s in zip(x.shape, x.strides)])


def steps_of(plan):
    """A Builder with the steps of a plan, and (steps, fixed addresses)."""
    builder, into = Builder(plan.metas, 1), len(plan.metas)
    if plan.program is None:
        types = plan.op.compute_dtype(plan.metas, plan.default_dtype)[0] if plan.op.compute_dtype else None
        builder.add(plan.op, plan.attributes, types, plan.meta, range(into), into)
    else:
        add_program(builder, plan.program)
        (into,) = plan.program.results
    found = builder.finish([into])
    if any(builder.values[k] is None for k in range(builder.n_given)):
        raise NoSteps("an operand of another type than floats and bools")
    return builder, found


def view_of(plan):
    """(strides, offset in bytes, flags that it takes over) of a view of a contiguous array."""
    meta = plan.metas[0]
    if len(plan.metas) > 1 or 0 in plan.meta.shape:
        raise NoSteps("a view of no elements, or at computed places")
    shown = np.empty(meta.shape, meta.dtype.numpy)
    found = plan.run(shown)
    if not np.may_share_memory(found, shown) or found.shape != plan.meta.shape:
        raise NoSteps("a view that copies")
    offset = kernels.address_of(found) - kernels.address_of(shown)
    return found.strides, offset, WRITEABLE if found.flags.writeable else 0


def derivative_of(recording):
    """A Builder with the steps of a derivative, (steps, fixed addresses), and the results that are new arrays."""
    plan, (program, roots) = recording.plan, recording.derivative
    given = (plan.meta, plan.meta, *plan.metas)
    if any(
        r is not None and (r < len(given) or root is not None) and r != 0 for r, root in zip(program.results, roots)
    ):
        raise NoSteps("a result that is a view, or what was given")
    new = list(dict.fromkeys(r for r in program.results if r))
    builder = Builder(given, len(new), MOST_GIVEN)
    add_program(builder, program)
    return builder, builder.finish(new), new


def update_of(program, metas):
    """(builder, steps, fixed addresses, what is written) of a rule whose results are written over what it is given."""
    builder = Builder(metas, 0, MOST_GIVEN)
    add_program(builder, program)
    written = [k for k, number in enumerate(program.results) if number is not None]
    # All new values are there before any is written.
    new = [builder.values[program.results[k]] for k in written]
    new = [value if value.slot in builder.fixed else builder.copied(value) for value in new]
    for k, value in zip(written, new):
        builder.write(value, builder.values[k])
    return builder, builder.steps, list(builder.fixed.values()), written


def add_program(builder, program):
    """The steps of an ArrayProgram."""
    if program.fused is not None:
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
