"""From a plan to the steps that native code takes: kernels, and where in memory their operands and results are.

Shapes, types and strides of every value are known, so all of this is found once. What has no such steps stays with
Python: ops that NumPy computes in another way than the kernels do, and conversions.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from ...compiler import eager_forms
from ...compiler.dtypes import bfloat16, bool_, complex64, complex128, float16, float32, float64, int32, int64
from ...compiler.extent import is_open
from ...compiler.ops.comparison import cast, gt, ne
from ...compiler.ops.indexing import in_range, one_hot_class, position
from ...compiler.ops.neural import class_index
from ...compiler.ops.small_matrices import succeeded
from ...compiler.ops.source import full
from ...compiler.ops.table import Meta, OnParts
from ...compiler.ops.view import cat, clone, slice_, slice_scatter
from ..code import kernels
from ..programs.array_program import Recorder
from .eager_complex import any_complex, computed, has_steps, steps_of_parts
from .eager_halves import any_half, as_they_lie, has_no_steps, steps_between_conversions, wide, wide_attributes
from .eager_loops import in_blocks, loops_over, steps_of_turned
from .eager_places import change_at_places, row_major, steps_at_places
from .eager_routines import steps_of_reduction, steps_of_routine
from .eager_scratch import places_between
from .eager_words import (
    ELEMENTWISE,
    LIMITS,
    MOST_GIVEN,
    MOST_LOOPS,
    MOST_OPERANDS,
    MOST_SLOTS,
    MOST_TABLE,
    PRODUCT,
    ROUTINE,
    NoSteps,
    Place,
    Step,
)

SCRATCH_BYTES = 1 << 21
MOST_ELEMENTS = 1 << 18  # of a result: those that are larger come from programs (fused.py)
MOST_HALVES = 1 << 22  # of 16 bits, for which there are no programs: done in a millisecond or two
MOST_WRITTEN = 1 << 20  # where nothing is computed: as many as take a third of a millisecond
MOST_SOLVED = 1 << 14  # elements of a matrix that is factorized while the interpreter's lock is held
MOST_DIVIDED = 1 << 10  # integers by a single one
MOST_ROUNDS_OF_FEW = 1 << 12  # of rounds of less than 16 elements, for which NumPy has better ways
STRIDED = eager_forms.STRIDED
_SINGLE = {0: eager_forms.ELEMENT, 1: None}
_CLASSES = {int64: int, float64: float}  # of numbers
_TYPES = (float32, float64, bool_, int64, int32)
_HELD = (*_TYPES, float16, bfloat16, complex64, complex128)
# Of integers from 0 on. What counts positions from the end is Python's business.
_CHECKS = {class_index: "classes", in_range: "size", position: "size", one_hot_class: "count"}
scratch = np.zeros(SCRATCH_BYTES + 64, np.uint8)


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
        return self.strides == row_major(self.shape)


class Builder:
    """The steps of one program. Slots: the operands, then the results, then what has a fixed address."""

    def __init__(self, metas, n_results, most=MOST_OPERANDS, layouts=()):
        if len(metas) > most:
            raise NoSteps("more operands than native code takes")
        if any(m.weak for m in metas[MOST_GIVEN:]):
            raise NoSteps("numbers behind many tensors")
        self.values = {k: _operand(k, m) for k, m in enumerate(metas)}
        for k, strides in enumerate(layouts):
            if strides is not None:
                self.values[k] = _lying(self.values[k], strides)
        self.n_given, self.n_results = len(metas), n_results
        self.steps, self.fixed, self.held, self.used = [], {}, [], (-kernels.address_of(scratch)) % 64
        has_no_programs = any(m.dtype.is_half or m.dtype.is_complex for m in metas)
        self.most = MOST_HALVES + 1 if has_no_programs else MOST_ELEMENTS
        self.takes_wholes = False  # whether integers among the operands are given as such
        self.takes_narrow = False  # whether one of them is to be one of 32 bits
        self.constants = {}  # number of a value -> what it is in all calls
        self.sizes = {}  # slot of what a step makes -> its number of elements
        self.unplaced = {}  # slot of what a step makes -> bytes, until it is known which are results

    # --- memory -----------------------------------------------------------------------------------------------------
    def _fixed_slot(self, address):
        slot = self.n_given + self.n_results + len(self.fixed)
        if slot >= MOST_SLOTS:
            raise NoSteps("more values than native code takes")
        self.fixed[slot] = address
        return slot

    def constant(self, number, x):
        self.constants[number] = array = np.asarray(x)
        dtype = next((d for d in _HELD if d.numpy == array.dtype), None)
        self.values[number] = None if dtype is None else self.hold(array, dtype)

    def hold(self, array, dtype):
        self.held.append(array)
        return Value(dtype, array.shape, row_major(array.shape), self._fixed_slot(kernels.address_of(array)))

    def _reserve(self, n_bytes):
        start = self.reserve(n_bytes)
        if start is None:
            raise NoSteps("more memory for values in between than native code has")
        return start

    def reserve(self, n_bytes):
        """The address of that much memory; None if there is no more."""
        start, end = self.used, self.used + -(-n_bytes // 64) * 64
        if end > SCRATCH_BYTES:
            return None
        self.used = end
        return kernels.address_of(scratch) + start

    def new_value(self, shape, dtype):
        slot = self._fixed_slot(None)
        self.sizes[slot] = prod(shape)
        self.unplaced[slot] = prod(shape) * dtype.size_bytes
        return Value(dtype, tuple(shape), row_major(shape), slot)

    def place(self, slot):
        """The address of what a step makes and no result is."""
        if slot in self.unplaced:
            self.fixed[slot] = self._reserve(self.unplaced.pop(slot))
        return self.fixed[slot]

    def place_all(self, but=()):
        """The fixed addresses, all of which are known now but those of results."""
        between = {slot: n_bytes for slot, n_bytes in self.unplaced.items() if slot not in but}
        self.fixed.update(places_between(self.steps, between, self._reserve))
        return [address or 0 for address in self.fixed.values()]

    def finish(self, numbers):
        """(steps, fixed addresses) of a program with these results, whose slots become those of new arrays."""
        moved = {}
        for k, number in enumerate(numbers):
            value = self.values[number]
            if not self._is_new(value) or value.slot in moved:
                value = self.copied(value)
            self.values[number] = value
            moved[value.slot] = self.n_given + k
        if any(self.sizes[slot] >= self.most for slot in moved):
            raise NoSteps("a large result")
        fixed = self.place_all(but=moved)
        for step in self.steps:
            step.places = [
                Place(slot=moved.get(p.slot, p.slot), offset=p.offset, strides=p.strides) for p in step.places
            ]
        return self.steps, fixed

    def _is_new(self, value):
        """Whether the value is all of what a step has made, and not the first part of it."""
        return self.sizes.get(value.slot) == prod(value.shape) and value.is_whole and value.offset == 0

    def copied(self, value):
        out = self.new_value(value.shape, value.dtype)
        self._cast(value, out)
        return out

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
        are_constants, operands = all(k in self.constants for k in take), [self.values[k] for k in take]
        if op.kind == "source" and are_constants and not ("positions" in op.traits and any(map(is_open, meta.shape))):
            self.values[into] = self._source(op, attributes, [self.constants[k].item() for k in take], meta)
            return
        if (
            "positions" in op.traits
            and operands
            and (are_constants or all(x is not None and x.is_number for x in operands))
        ):
            self.source(op, operands, meta, into)
            return
        if None in operands:
            raise NoSteps("an operand of another type than float32, float64, int64, int32 and bool")
        if 0 in meta.shape or any(0 in x.shape for x in operands):
            raise NoSteps("no elements")
        if op in _CHECKS:
            if operands[0].dtype is not int64:
                raise NoSteps("an index of another type than int64")
            self.values[into] = self._checked(operands[0], 0, attributes[_CHECKS[op]] - 1)
            return
        if op is succeeded:
            self.values[into] = self._succeeded(*operands)
            return
        if op.kind == "view" or "view" in op.extra:
            self.values[into] = self.view(op, attributes, operands[0], meta)
            return
        if meta.dtype not in _HELD:
            raise NoSteps(f"a result of type {meta.dtype.name}")
        if op is cast and operands[0].dtype is meta.dtype and not operands[0].is_number:
            self.values[into] = operands[0]
            return
        self.values[into] = out = self.new_value(meta.shape, meta.dtype)
        self.compute(op, attributes, types, operands, out)

    def compute(self, op, attributes, types, operands, out):
        """The steps of an op that is no view, into a value."""
        if any_complex([*(types or ()), out.dtype, *(x.dtype for x in operands)]):
            if steps_of_parts(self, op, operands, out):
                return
            if not has_steps(op):
                raise NoSteps(f"{op.name} of complex numbers")
        if op.kind == "elementwise":
            self.elementwise(op, attributes, types, operands, out)
        elif op is not cat and op is not clone and any_half([*(types or ()), out.dtype, *(x.dtype for x in operands)]):
            if has_no_steps(op):
                raise NoSteps(f"{op.name} of floats of 16 bits")
            steps_between_conversions(self, op, attributes, types, operands, out)
        elif op.kind == "reduction" and op.evaluate is None:
            steps_of_reduction(self, op, attributes, types[0], operands[0], out)
        elif op.kind == "contraction" and out.dtype in (float32, float64, int32, int64):
            self._product(operands, out)
        elif not steps_of_routine(self, op, attributes, types, operands, out):
            given = types or [x.dtype for x in operands]
            self._move(op, attributes, [self.converted(x, dtype) for x, dtype in zip(operands, given)], out)

    def source(self, op, numbers, meta, into):
        """An op of numbers that are given, the integers as such."""
        kinds = tuple([_CLASSES.get(x.dtype) for x in numbers])
        if not kernels.has_source_kernel(op, kinds, meta.dtype):
            raise NoSteps(f"{op.name} of other numbers, or of another type")
        if 0 in meta.shape or prod(meta.shape) > MOST_WRITTEN:
            raise NoSteps("no elements, or many, which need not keep the interpreter's lock")
        self.takes_wholes |= any(x.is_number for x in numbers)
        self.values[into] = out = self.new_value(meta.shape, meta.dtype)
        address = kernels.source_address(op, kinds, meta.dtype)
        places = [Place(slot=x.slot) for x in (*numbers, out)]
        self.append_step(kind=ELEMENTWISE, elementwise=address, places=places, rounds=1, size=prod(meta.shape))

    def _source(self, op, attributes, numbers, meta):
        """What is the same in all calls; of one number everywhere a single element."""
        if meta.dtype not in _TYPES or 0 in meta.shape or prod(meta.shape) > MOST_ELEMENTS and op is not full:
            raise NoSteps(f"{op.name} of another type, of no elements, or of too many")
        shape = tuple(meta.shape)
        made = np.asarray(op.evaluate(*numbers, **{**attributes, "shape": () if op is full else shape}))
        element = self.hold(made, meta.dtype)
        return element if op is not full else element._replace(shape=shape, strides=(0,) * len(shape))

    def view(self, op, attributes, x, meta):
        """Where the elements of a view are; of a copy, where no strides can say it."""
        return _view(op, attributes, x, meta) or _view(op, attributes, self.copied(x), meta)

    def _move(self, op, attributes, operands, out):
        if op is cat:
            self._join(attributes["axis"], operands, out)
        elif op is clone:
            self.write(operands[0], out)
        elif op.change is not None:
            self.write(operands[0], out)
            self.change(op, attributes, [out, *operands[1:]])
        elif op is full:
            self._cast(operands[0], out)
        elif not steps_at_places(self, op, attributes, operands, out):
            raise NoSteps(f"{op.name} has no steps")

    def change(self, op, attributes, operands):
        """The steps of an op that writes a part of its first operand, where that is."""
        if op is slice_scatter:
            target, part = operands
            self.write(part, _view(slice_, attributes, target, Meta(part.shape, target.dtype)))
        elif not change_at_places(self, op, attributes, operands):
            raise NoSteps(f"{op.name} has no steps")

    def limited(self, x, high):
        """Integers that must be from 0 to below this: else the call is Python's, before anything was changed."""
        self._checked(x, 0, high - 1)

    def fill(self, number, out):
        """The same number everywhere, given as an array of no dimensions."""
        self._cast(self.hold(number, out.dtype), out)

    def append_step(self, **facts):
        self.steps.append(Step(**facts))

    def _cast(self, x, out):
        if x.is_number and out.dtype is bool_:
            zero = self.hold(np.zeros(()), float64)
            self.elementwise(ne, {}, (float64, float64), [x, zero], out)
            return
        self.elementwise(cast, {"dtype": out.dtype}, (out.dtype,), [x], out)

    def _checked(self, x, low, high):
        """Integers that must not be beyond these limits; where they are, or are allowed to be, the call is Python's."""
        whole, found = x if x.is_whole else self.copied(x), self.new_value((), int64)
        places = [Place(slot=one.slot, offset=one.offset) for one in (whole, found)]
        rest = [prod(x.shape), low, high]
        self.append_step(kind=ROUTINE, routine=kernels.limits_address(), places=places, extents=[], rounds=1, rest=rest)
        self._refuse_where(found)
        return x

    def _refuse_where(self, found):
        """A call that has left no 0 there is Python's."""
        self.steps.append(Step(kind=LIMITS, found=self.place(found.slot)))

    def _succeeded(self, x, status):
        """x, if all that tells how it was computed is above 0; else the call is Python's, which says what is wrong."""
        if prod(x.shape) > MOST_SOLVED:
            raise NoSteps("a large matrix")
        is_above, zero = self.new_value(status.shape, bool_), self.hold(np.zeros((), status.dtype.numpy), status.dtype)
        self.elementwise(gt, {}, (status.dtype, status.dtype), [status, zero], is_above)
        self._checked(self.converted(is_above, int64), 1, 1)
        return x

    def converted(self, x, dtype):
        """The value in a type that an op computes with. Numbers are converted by the kernels."""
        if x.is_number or x.dtype is dtype:
            return x
        out = self.new_value(x.shape, dtype)
        self.elementwise(cast, {"dtype": dtype}, (x.dtype,), [x], out)
        return out

    def elementwise(self, op, attributes, types, operands, out):
        lying = ()
        if any_complex([*types, out.dtype]):
            found = computed(op, attributes, types, operands, out)
            if found is None:
                raise NoSteps(f"{op.name} of complex numbers and others")
            attributes, types, operands, out = found
        if any_half([*types, out.dtype, *(x.dtype for x in operands)]):
            if has_no_steps(op):
                raise NoSteps(f"{op.name} of floats of 16 bits")
            operands, lying = as_they_lie(self, op, types, operands)
            attributes, types, lying = wide_attributes(attributes), tuple(map(wide, types)), (*lying, out.dtype)
        require_kernel(op, types, attributes, wide(out.dtype))
        if any(x.is_number and d is bool_ for x, d in zip(operands, types)):
            raise NoSteps(f"{op.name} of a number as a bool")
        self.takes_narrow |= any(x.is_number and d is int32 for x, d in zip(operands, types))
        if not lying:
            operands = [self.converted(x, dtype) for x, dtype in zip(operands, types)]
        n, checks, loops = len(operands), eager_forms.looks_at(op, types), loops_over(operands, out)
        # Integers divided by one are NumPy's business where they are many.
        is_plain = not checks and not lying and "multiplies" not in op.traits
        if is_plain and steps_of_turned(self, op, attributes, types, operands, out, loops):
            return
        *outer, (size, inner) = loops if checks or len(loops) > MOST_LOOPS else in_blocks(loops)
        if "multiplies" in op.traits and int64 in types and size > MOST_DIVIDED and inner[n - 1] == 0:
            raise NoSteps("many integers that are divided by one, which NumPy does by multiplying")
        flags = [self.new_value((), int64)] if checks else []
        outer = [(extent, (*steps, *[0] * len(flags))) for extent, steps in outer]
        single = tuple(_number_kind(x) if x.is_number else _SINGLE.get(s, STRIDED) for x, s in zip(operands, inner))
        if inner[n] != 1:
            single = (*single, STRIDED)
        values, apart = [*operands, out, *flags], list(inner[: len(single)])
        strides, in_rows = apart if STRIDED in single else [], bool(outer) and 4 * len(values) + 2 <= MOST_TABLE
        if in_rows:
            rest, of_rows = outer[:-2], [(1, (0,) * len(values)), *outer][-2:]
            words = [word for extent, steps in of_rows for word in (extent, *_in_bytes(steps, values))]
            outer, strides = rest, [*apart, *words]
        if outer and checks:
            raise NoSteps(f"{op.name} of many dimensions, which looks at its operands")
        address = kernels.elementwise_address(op, types, attributes, single, in_rows, lying)
        self.append_in_loops(outer, values, kind=ELEMENTWISE, elementwise=address, strides=strides, size=size)
        if checks:
            self._refuse_where(flags[0])

    def append_in_loops(self, loops, values, **facts):
        """A step in loops, each an extent and strides of the values in elements."""
        extents, rounds = [n for n, _ in loops], prod(n for n, _ in loops)
        if rounds > MOST_ROUNDS_OF_FEW and facts.get("size", MOST_ROUNDS_OF_FEW) < 16 or len(loops) > MOST_LOOPS:
            raise NoSteps("many short rows")
        places = [
            Place(slot=x.slot, offset=x.offset, strides=[_in_bytes(steps, values)[k] for _, steps in loops])
            for k, x in enumerate(values)
        ]
        self.steps.append(Step(places=places, extents=extents, rounds=rounds, **facts))

    def _join(self, axis, operands, out):
        start = 0
        for x in operands:
            offset = out.offset + start * out.strides[axis] * out.dtype.size_bytes
            self.write(x, Value(out.dtype, x.shape, out.strides, out.slot, offset))
            start += x.shape[axis]

    def _product(self, operands, out):
        x, y = operands
        if x.dtype is not out.dtype or y.dtype is not out.dtype:
            raise NoSteps("a product of operands of two types")
        if not out.dtype.is_floating_point and y.strides[-1] != 1:
            y = self.copied(y)  # rows of integers are read as they lie
        *batch, m, k, n = *x.shape, out.shape[-1]
        if kernels.is_long(out.shape, k):
            raise NoSteps("a long product, in the middle of which Ctrl-C is looked for")
        address = kernels.product_address(out.dtype.numpy, out.shape)
        numbers = [*x.strides[-2:], *y.strides[-2:], m, n, k, kernels.packing_address(), 0]
        loops = list(zip(batch, zip(x.strides, y.strides, out.strides)))
        self.append_in_loops(loops, [x, y, out], kind=PRODUCT, product=address, numbers=numbers)


def require_kernel(op, types, attributes, dtype):
    """NoSteps unless native code has a kernel of an elementwise op from these types to this one, with NumPy's bits."""
    refusal = op.extra.get("eager_only")
    on_parts = op.on_complex.__class__ is OnParts
    if not on_parts and (op.lower is None or refusal is not None and refusal(types, attributes) is not None):
        raise NoSteps(f"{op.name} is computed by NumPy")
    if not {*types, dtype} <= {*_TYPES, *((complex64, complex128) if on_parts else ())}:
        raise NoSteps(f"{op.name} on other types than float32, float64, int64, int32 and bool")


def _number_kind(x):
    return eager_forms.PAIR if x.dtype.is_complex else eager_forms.NUMBER


def _operand(slot, meta):
    if meta.weak:
        return Value(meta.dtype, (), (), slot, is_number=True)
    if meta.dtype not in _HELD:
        return None
    return Value(meta.dtype, tuple(meta.shape), row_major(meta.shape), slot)


def _lying(value, strides):
    """The value with strides in bytes."""
    size = value.dtype.size_bytes if value is not None else 1
    if value is None or any(s % size for s in strides):
        raise NoSteps("elements that lie in between")
    return value._replace(strides=tuple(0 if n == 1 else s // size for n, s in zip(value.shape, strides)))


def seen_through(op, attributes, meta, strides, out):
    """Where the elements of a view of such a tensor are, as a Value; None if it has to copy."""
    x = Value(meta.dtype, tuple(meta.shape), strides or row_major(meta.shape), 0)
    return _view(op, attributes, x, out)


def _view(op, attributes, x, meta):
    """Where the elements of a view are; None if it has to copy."""
    if x.is_number:
        raise NoSteps("a view of a number")
    if op.kind != "view":
        return _alias(op, attributes, x)
    if op.lower is None:
        raise NoSteps(f"{op.name}, a view of other numbers")
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


def _in_bytes(strides, values):
    """How far a turn of a loop moves each of these values. What stands for numbers stays where it is."""
    return [0 if x.is_number else s * x.dtype.size_bytes for s, x in zip(strides, values)]
