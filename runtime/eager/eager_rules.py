"""The native steps of optimizers' rules: one kernel where the rule is elementwise, which passes over memory once; else
the kernels of its ops one after the other, if the values in between find room.
"""

from math import prod

import numpy as np

from ...compiler import eager_forms
from ..code import kernels
from .eager_planned import add_program
from .eager_steps import Builder, NoSteps, require_kernel
from .eager_words import ELEMENTWISE, LIMITS, MOST_GIVEN, Place

MOST_ADDRESSES = 2 * MOST_GIVEN  # in the table of a kernel


def update_of(program, metas):
    """(Builder, the fields of an Update but for `given`) of a rule whose results are written over what it is given."""
    builder, written = Builder(metas, 0, MOST_GIVEN), [k for k, _ in _results(program)]
    if _is_elementwise(program, metas):
        _append_kernel(builder, program, metas)
        lengths = [m.dtype.size_bytes if m.shape else 0 for m in metas if not m.weak]
        extent = {"n_elements": prod(metas[0].shape), "item_bytes": lengths}
    else:
        _append_steps(builder, program)
        extent = {}
    return builder, {"written": written, "steps": builder.steps, "fixed": builder.place_all(), **extent}


def _results(program):
    """(which operand is written, the number of its new value)"""
    return [(k, number) for k, number in enumerate(program.results) if number is not None]


def _append_steps(builder, program):
    """All new values are there before any is written."""
    add_program(builder, program)
    if any(step.kind == LIMITS for step in builder.steps):
        raise NoSteps("a rule that may find an index beyond its limits when something is written already")
    new = [(k, builder.values[number]) for k, number in _results(program)]
    new = [(k, value if value.slot in builder.fixed else builder.copied(value)) for k, value in new]
    for k, value in new:
        builder.write(value, builder.values[k])


# --- one kernel -------------------------------------------------------------------------------------------------------
def _is_elementwise(program, metas):
    """Whether all values are numbers, or have the shape of what is written, which has their types."""
    shape = metas[0].shape
    notes = {into: program.notes.get(into) for _, _, into, _ in program.steps}
    if any(n is None or n[0].kind != "elementwise" or n[3].shape != shape for n in notes.values()):
        return False
    made = {**dict(enumerate(metas)), **{into: note[3] for into, note in notes.items()}}
    fits = all(metas[k].shape == shape and metas[k].dtype is made[number].dtype for k, number in _results(program))
    plain = all(m.weak or m.shape in (shape, ()) for m in metas) and all(np.ndim(x) == 0 for x in program.rest)
    return fits and plain and prod(shape) > 1


def _append_kernel(builder, program, metas):
    table = _Table(builder, program, metas)
    steps, made = [], {}
    for _, take, into, _ in program.steps:
        op, attributes, types, meta = program.notes[into]
        require_kernel(op, types, attributes, meta.dtype)
        if eager_forms.looks_at(op, types):
            raise NoSteps("a rule that may fail when something is written already")
        # What a step makes is numbered downwards from -1, until it is known how much is given.
        numbers = tuple([made[k] if k in made else table.position(k, d) for k, d in zip(take, types)])
        steps.append((op, attributes, types, numbers))
        made[into] = -len(steps)
    written = [(made.get(number, number), k) for k, number in _results(program)]
    written = [
        (x if x < 0 else table.position(x, metas[x].dtype), table.position(k, metas[k].dtype)) for x, k in written
    ]
    n_given = len(table.given)
    counted = lambda x: x if x >= 0 else n_given - 1 - x  # noqa: E731
    steps = [(op, attributes, types, tuple(map(counted, take))) for op, attributes, types, take in steps]
    address = kernels.rule_address(table.given, steps, [(counted(x), k) for x, k in written])
    facts = {"places": table.places, "rounds": 1, "size": prod(metas[0].shape)}
    builder.append_step(kind=ELEMENTWISE, elementwise=address, **facts)


class _Table:
    """What a kernel is given the addresses of, each once: tensors, constants, and numbers in every type that they are
    taken in."""

    def __init__(self, builder, program, metas):
        self.builder, self.program, self.metas = builder, program, metas
        self.given, self.places, self.positions = [], [], {}

    def position(self, number, dtype):
        """Where in the table a value is; a number, as a value of this type."""
        is_number = number < len(self.metas) and self.metas[number].weak
        key = number, dtype if is_number else None
        if key not in self.positions:
            self.positions[key] = len(self.given)
            self._append(number, dtype, is_number)
        return self.positions[key]

    def _append(self, number, dtype, is_number):
        if number >= len(self.metas):
            self.builder.constant(number, self.program.rest[number - len(self.metas)])
        value = self.builder.values[number]
        if value is None or len(self.given) == MOST_ADDRESSES or is_number and not dtype.is_floating_point:
            raise NoSteps("values of other types, or more of them, than native code takes")
        single = eager_forms.NUMBER if is_number else None if value.shape else eager_forms.ELEMENT
        self.given.append((dtype if is_number else value.dtype, single))
        self.places.append(Place(slot=value.slot, offset=0, strides=[]))
