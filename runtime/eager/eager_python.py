"""Steps of native code (eager_steps.py) run from Python, where native code does not know how objects lie in memory.

A composite or a derivative takes several steps on arrays in between. Found once, with memory of their own, they are
calls of kernels whose arguments are known but for the addresses of operands and results: `PythonSteps`. Taking them one
by one on new arrays (array_program.py) costs three times as much, and gives the same bits.
"""

import ctypes
from itertools import product

import numpy as np

from ..code.kernels import ARRAY_DATA_OFFSET, address_of
from ..programs.rules import LARGEST_EXACT
from ..state.aligned import new_array
from .eager_planned import derivative_of, steps_of
from .eager_steps import NoSteps, scratch
from .eager_words import ELEMENTWISE, INDEXED, LIMITS, PRODUCT, REDUCTION, ROUTINE

MOST_ROUNDS = 16  # of a step: each is a call
_MOST_FRAMES = 4  # that wait for their next use
_word, _size = ctypes.c_size_t.from_address, ctypes.c_size_t
_functions = {}  # (address, number of arguments) -> function


def use_for_plan(plan):
    """Let the program of a composite run so, if it can."""
    if plan.program is not None and plan.program.fused is None and plan.shows != "operand":
        plan.program.quick = _made(lambda: _of_plan(plan))


def use_for_derivative(recording):
    """The same for a derivative."""
    program, roots = recording.derivative
    if program.fused is None and not any(root is not None for root in roots):
        program.quick = _made(lambda: _of_derivative(recording, program))


def _made(make):
    try:
        return make()
    except NoSteps:
        return None


def _of_plan(plan):
    builder, (steps, fixed) = steps_of(plan, [None] * len(plan.metas))
    return PythonSteps(builder, steps, fixed, [(plan.meta.shape, plan.meta.dtype.numpy)], plan.program.results)


def _of_derivative(recording, program):
    builder, new, shown = derivative_of(recording, None)
    if shown or any(r is not None and r not in new for r in program.results):
        raise NoSteps("results that are no new arrays")
    steps, fixed = builder.finish(new)
    made = [(builder.values[r].shape, builder.values[r].dtype.numpy) for r in new]
    return PythonSteps(builder, steps, fixed, made, tuple(new))


class _Refused(Exception):
    """Indices beyond their limits: who has asked runs the ops, which say so."""


class PythonSteps:
    """`results`: the numbers of what `outputs` gives."""

    __slots__ = ("builder", "steps", "fixed", "made", "results", "arrays", "numbers", "frames")

    def __init__(self, builder, steps, fixed, made, results):
        if any(s.kind == INDEXED or s.rounds > MOST_ROUNDS for s in steps):
            raise NoSteps("loops, or places that are read from memory")
        self.builder, self.steps, self.fixed, self.made, self.results = builder, steps, fixed, made, results
        read = sorted({p.slot for s in steps for p in s.places if p.slot < builder.n_given})
        self.arrays = [k for k in read if not builder.values[k].is_number]
        self.numbers = [k for k in read if builder.values[k].is_number]
        # A frame is used by one call at a time: another thread, or a handler of signals, makes its own.
        self.frames = [_Frame(self)]

    def outputs(self, inputs):
        """The results; None if the ops have to be run one by one."""
        for k in self.arrays:
            if not inputs[k].flags.c_contiguous:
                return None
        try:
            frame = self.frames.pop()
        except IndexError:
            frame = _Frame(self)
        for k, cell in frame.numbers:
            x = inputs[k]
            if x.__class__ is not float and not -LARGEST_EXACT <= x <= LARGEST_EXACT:
                return None
            cell.value = x
        outputs = [new_array(shape, dtype) for shape, dtype in self.made]
        for k, cells in frame.cells:
            address = _word(id(inputs[k]) + ARRAY_DATA_OFFSET).value
            for cell, offset in cells:
                cell.value = address + offset
        for output, cells in zip(outputs, frame.results):
            address = _word(id(output) + ARRAY_DATA_OFFSET).value
            for cell, offset in cells:
                cell.value = address + offset
        try:
            for function, arguments in frame.calls:
                function(*arguments)
        except _Refused:
            return None
        if len(self.frames) < _MOST_FRAMES:
            self.frames.append(frame)
        return outputs


class _Frame:
    """Memory for values in between, and the calls on it: `cells` are the words of their arguments that are addresses in
    operands, by position; `results` those in results."""

    def __init__(self, of):
        start = address_of(scratch)
        self.memory = np.empty(of.builder.used + 128, np.uint8)
        self.moved = (-(address_of(self.memory) - start)) % 64 + address_of(self.memory) - start
        self.end, self.start = start + of.builder.used, start
        n = of.builder.n_given
        self.numbers = [(k, ctypes.c_double()) for k in of.numbers]
        slots = {k: ctypes.addressof(cell) for k, cell in self.numbers}
        slots |= {n + of.builder.n_results + k: self.at(address) for k, address in enumerate(of.fixed)}
        self.slots, self.found, self.tables = slots, {}, []
        self.calls = [call for step in of.steps for call in self._calls(step)]
        self.cells = [(k, self.found[k]) for k in of.arrays]
        self.results = [self.found.get(n + k, ()) for k in range(len(of.made))]

    def at(self, address):
        """Where in this memory what is at an address of the memory that steps are made for is."""
        return address + self.moved if self.start <= address < self.end else address

    def _calls(self, step):
        if step.kind == LIMITS:
            limits = [ctypes.c_int64.from_address(self.at(a)) for a in (step.lowest, step.highest)]
            yield _check, (*limits, *step.numbers[:2])
            return
        for turn in product(*map(range, step.extents)):
            offsets = [p.offset + sum(k * s for k, s in zip(turn, p.strides)) for p in step.places]
            table = (_size * (len(step.places) + len(step.strides)))()
            cells = [_size.from_buffer(table, 8 * k) for k in range(len(step.places))]
            for cell, place, offset in zip(cells, step.places, offsets):
                if place.slot in self.slots:
                    cell.value = self.slots[place.slot] + offset
                else:
                    self.found.setdefault(place.slot, []).append((cell, offset))
            table[len(cells) :] = [s % (1 << 64) for s in step.strides]
            yield self._call(step, table, cells)

    def _call(self, step, table, cells):
        at = step.numbers
        if step.kind == ELEMENTWISE:
            self.tables.append(table)
            return _function(step.elementwise, 2), (_size(ctypes.addressof(table)), _size(step.size))
        if step.kind == REDUCTION:
            return _function(step.reduction, 5), (*cells, *map(_size, at[:3]))
        if step.kind == PRODUCT:
            x, y, out = cells
            words = (x, at[0], at[1], y, at[2], at[3], out, at[5], at[4], at[5], at[6], self.at(at[7]))
            return _function(step.product, 12), words
        assert step.kind == ROUTINE, step.kind
        *sizes, memory = step.rest
        return _function(step.routine, len(cells) + len(step.rest)), (*cells, *sizes, self.at(memory))


def _function(address, n_arguments):
    key = address, n_arguments
    if key not in _functions:
        _functions[key] = ctypes.PYFUNCTYPE(None, *[_size] * n_arguments)(address)
    return _functions[key]


def _check(lowest, highest, low, high):
    if lowest.value < low or highest.value > high:
        raise _Refused
