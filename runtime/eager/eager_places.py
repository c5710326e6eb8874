"""Native steps of ops that read or add at computed places: lookups, their adjoints, and overlapping windows.

A lookup is a kernel on rows (of one element, where every element has an index of its own), some of whose operands begin
where the index says. What is added is added in the order of the index, as by NumPy's `add.at`.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from ...compiler.dtypes import bool_, int64
from ...compiler.ops import indexing
from ...compiler.ops.arithmetic import add
from ...compiler.ops.comparison import cast
from ...compiler.ops.windows import overlap_add, places_in_windows
from ..code import kernels
from .eager_words import INDEXED, MOST_LOOPS, Place

MOST_LOOKUPS = 1 << 16  # of a step
MOST_TAPS = 64  # of windows: each is a step


class Lookup(NamedTuple):
    """loops: extents, and strides of the table, the rows and the index in elements; axis: which of the table's."""

    table: object
    rows: object
    index: object
    loops: list
    axis: int
    size: int


def steps_at_places(builder, op, attributes, operands, out):
    """Whether the op is one of these, whose steps the builder has now."""
    if op is overlap_add:
        return _overlap(builder, attributes, operands[0], out)
    if op is indexing.gather:
        return _look_up(builder, _elements(operands[0], operands[1], out, attributes["axis"]))
    if op is indexing.index_select:
        table = _with_whole_rows(builder, operands[0], attributes["axis"] + 1)
        return _look_up(builder, _slices(table, operands[1], out, attributes["axis"]))
    return False


def change_at_places(builder, op, attributes, operands):
    """Whether the op is one that writes or adds a part of its first operand, whose steps the builder has now."""
    x, index, part = operands
    axis = attributes["axis"]
    if index.is_number or index.dtype is not int64 or part.is_number or part.dtype is not x.dtype:
        return False
    if op is indexing.index_put:
        shape = attributes["merged"]
        x = x._replace(shape=shape, strides=row_major(shape))
    if op is indexing.scatter_add:
        found = _elements(x, index, part, axis)
    else:
        part = _with_whole_rows(builder, part, axis + len(index.shape))
        found = _slices(x, index, part, axis)
    if found is None:
        return False
    # Everything that can fail comes before the first change.
    builder.limited(index, x.shape[axis])
    if op is indexing.index_put:
        return _put_at(builder, found)
    return _add_at(builder, found)


def _elements(table, index, rows, axis):
    """Every element of the rows has an index."""
    if not table.shape or table.dtype is bool_:
        return None
    steps = tuple(0 if k == axis else s for k, s in enumerate(table.strides))
    return Lookup(table, rows, index, list(zip(index.shape, zip(steps, rows.strides, index.strides))), axis, 1)


def _slices(table, index, rows, axis):
    """Every element of the index is for a slice, which is contiguous on both sides."""
    if table.dtype is bool_:
        return None
    inner, none = len(index.shape), (0,) * len(index.shape)
    steps = table.strides[:axis] + none, rows.strides[: axis + inner], (0,) * axis + index.strides
    loops = list(zip(rows.shape[: axis + inner], zip(*steps)))
    return Lookup(table, rows, index, loops, axis, prod(table.shape[axis + 1 :]))


def _with_whole_rows(builder, x, first):
    """The value or a copy of it, whose elements from this dimension on lie one after the other."""
    return x if x.strides[first:] == row_major(x.shape[first:]) else builder.copied(x)


def row_major(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step if n != 1 else 0)
        step *= n
    return tuple(reversed(strides))


def _look_up(builder, found):
    if found is None:
        return False
    dtype = found.rows.dtype
    address = kernels.elementwise_address(cast, (dtype,), {"dtype": dtype}, (None,))
    return _append(builder, found, address, (0, 1))


def _put_at(builder, found):
    dtype = found.rows.dtype
    address = kernels.elementwise_address(cast, (dtype,), {"dtype": dtype}, (None,))
    return _append(builder, found, address, (1, 0))


def _add_at(builder, found):
    address = kernels.elementwise_address(add, (found.rows.dtype,) * 2, {}, (None, None))
    return _append(builder, found, address, (0, 1, 0))


def _append(builder, found, address, sides):
    """A step of this kernel on the table (0) and the rows (1), in the loops of the lookup."""
    values, table = found[:3], found.table
    rounds = prod(n for n, _ in found.loops)
    if found.index.is_number or found.index.dtype is not int64 or rounds > MOST_LOOKUPS:
        return False
    loops = [loop for loop in found.loops if loop[0] != 1]
    if len(loops) > MOST_LOOPS:
        return False
    places = [_place(values[side], [strides[side] for _, strides in loops]) for side in (*sides, 2)]
    moved = table.strides[found.axis] * table.dtype.size_bytes
    builder.append_step(
        kind=INDEXED,
        elementwise=address,
        places=places,
        extents=[n for n, _ in loops],
        rounds=rounds,
        strides=[moved if side == 0 else 0 for side in sides],
        size=found.size,
        numbers=[table.shape[found.axis], *[0] * 8],
    )
    return True


def _place(x, strides):
    return Place(slot=x.slot, offset=x.offset, strides=[s * x.dtype.size_bytes for s in strides])


def _overlap(builder, attributes, x, out):
    """Zeros, then the windows' elements tap by tap, as in windows.py."""
    if x.dtype is bool_ or prod(attributes["kernel"]) > MOST_TAPS:
        return False
    builder.fill(np.zeros((), out.dtype.numpy), out)
    lead = len(x.shape) - 2 * len(attributes["size"])
    for index, spec in places_in_windows(**attributes):
        taken = _at(x, lead, index)
        target = _sliced(out, lead, spec)
        builder.elementwise(add, {}, (out.dtype,) * 2, [target, taken], target)
    return True


def _at(x, lead, index):
    """x at these places of the dimensions after the first ones."""
    after = lead + len(index)
    offset = sum(k * s for k, s in zip(index, x.strides[lead:])) * x.dtype.size_bytes
    shape, strides = x.shape[:lead] + x.shape[after:], x.strides[:lead] + x.strides[after:]
    return x._replace(shape=shape, strides=strides, offset=x.offset + offset)


def _sliced(x, lead, spec):
    """A slice of x in the dimensions after the first ones, of (first, step, number) each."""
    offset = sum(first * s for (first, _, _), s in zip(spec, x.strides[lead:])) * x.dtype.size_bytes
    strides = tuple(step * s if n != 1 else 0 for (_, step, n), s in zip(spec, x.strides[lead:]))
    shape = (*x.shape[:lead], *(n for _, _, n in spec))
    return x._replace(shape=shape, strides=x.strides[:lead] + strides, offset=x.offset + offset)
