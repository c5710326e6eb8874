"""Native steps of ops that read or add at computed places: lookups, their adjoints, and overlapping windows.

A lookup is a kernel on rows (of one element, where every element has an index of its own), some of whose operands begin
where the index says. What is added is added in the order of the index, as by NumPy's `add.at`.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from ...compiler import eager_forms
from ...compiler.dtypes import bool_, int64, memory_element
from ...compiler.eager_forms import N_LOOPS
from ...compiler.ops import indexing
from ...compiler.ops.arithmetic import add
from ...compiler.ops.table import Meta
from ...compiler.ops.view import slice_
from ...compiler.ops.windows import overlap_add, places_in_windows
from ...compiler.shapes import merged_loops
from ..code import kernels
from .eager_words import ROUTINE, Place

MOST_LOOKUPS = 1 << 18  # of a step
# Of one that writes or adds. NumPy, which holds the interpreter's lock as well, takes ten times as long.
MOST_CHANGES = 1 << 20
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
    if "regions" in op.extra:
        return _by_regions(builder, op.extra["regions"](operands[0].shape, **attributes), operands[0], out)
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
    if "merged" in attributes:
        shape = attributes["merged"]
        x = x._replace(shape=shape, strides=row_major(shape))
    if op is indexing.scatter_add or op is indexing.scatter:
        found = _elements(x, index, part, axis)
    else:
        part = _with_whole_rows(builder, part, axis + len(index.shape))
        found = _slices(x, index, part, axis)
    if found is None:
        return False
    # Everything that can fail comes before the first change.
    builder.limited(index, x.shape[axis])
    is_put = op is indexing.index_put or op is indexing.scatter
    return _append(builder, found, eager_forms.PUT if is_put else eager_forms.ADD)


def _elements(table, index, rows, axis):
    """Every element of the rows has an index."""
    if not table.shape:
        return None
    steps = tuple(0 if k == axis else s for k, s in enumerate(table.strides))
    return Lookup(table, rows, index, list(zip(index.shape, zip(steps, rows.strides, index.strides))), axis, 1)


def _slices(table, index, rows, axis):
    """Every element of the index is for a slice, which is contiguous on both sides."""
    inner, none = len(index.shape), (0,) * len(index.shape)
    steps = table.strides[:axis] + none, rows.strides[: axis + inner], (0,) * axis + index.strides
    loops = list(zip(rows.shape[: axis + inner], zip(*steps)))
    return Lookup(table, rows, index, loops, axis, prod(table.shape[axis + 1 :]))


def _with_whole_rows(builder, x, first):
    """The value or a copy of it, whose elements from this dimension on lie one after the other. Of rows that are one
    and the same one is copied."""
    if x.strides[first:] == row_major(x.shape[first:]):
        return x
    if any(x.strides[:first]):
        return builder.copied(x)
    row = builder.copied(x._replace(shape=x.shape[first:], strides=x.strides[first:]))
    return row._replace(shape=x.shape, strides=(*x.strides[:first], *row.strides))


def row_major(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step if n != 1 else 0)
        step *= n
    return tuple(reversed(strides))


def _look_up(builder, found):
    if found is None or found.index.is_number or found.index.dtype is not int64:
        return False
    builder.limited(found.index, found.table.shape[found.axis])
    return _append(builder, found, eager_forms.GET)


_OF_BYTES = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


def _append(builder, found, how):
    """The step of a lookup, whose index is known to be within the table."""
    table = found.table
    size = table.dtype.size_bytes
    if how == eager_forms.ADD:
        has_no_kernel = table.dtype is bool_ or table.dtype.is_half or table.dtype.is_complex
        element = None if has_no_kernel else memory_element(table.dtype)
    else:
        element = _OF_BYTES.get(size)
    loops = merged_loops(loop for loop in found.loops if loop[0] != 1)
    if (
        len(loops) > N_LOOPS
        or prod(n for n, _ in loops) > (MOST_LOOKUPS if how == eager_forms.GET else MOST_CHANGES)
        or element is None
    ):
        return False
    loops = [(1, (0, 0, 0))] * (N_LOOPS - len(loops)) + loops
    builder.append_step(
        kind=ROUTINE,
        routine=kernels.lookup_address(how, element, found.size == 1),
        places=[Place(slot=x.slot, offset=x.offset, strides=[]) for x in found[:3]],
        extents=[],
        rounds=1,
        rest=[
            *(n for n, _ in loops),
            *(strides[k] * x.dtype.size_bytes for k, x in enumerate(found[:3]) for _, strides in loops),
            *(found.size, table.strides[found.axis] * size),
        ],
    )
    return True


def _by_regions(builder, regions, x, out):
    """Copies of regions, as specs of slices of the operand and of the result. A step of 0 repeats an element."""
    for here, there in regions:
        once = tuple((start, step, n) if step else (start, 1, 1) for start, step, n in here)
        part, into = (builder.view(slice_, {"spec": spec}, v, _sized(spec, v)) for spec, v in ((once, x), (there, out)))
        strides = tuple(s if n == m else 0 for s, n, m in zip(part.strides, part.shape, into.shape))
        builder.write(part._replace(shape=into.shape, strides=strides), into)
    return True


def _sized(spec, x):
    return Meta(tuple(n for _, _, n in spec), x.dtype)


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
