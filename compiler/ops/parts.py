"""The part of a tensor that slices, selects and diagonals, one after the other, show: read as one view, and written.

A compiled call has these in place of what it cannot write into: see runtime/record/frame_through.py. In eager mode the
history of a tensor that is changed through a view has two nodes of its own (runtime/eager/rebase.py), which these are
named after.

A diagonal is a slice of matrices whose rows follow one another on one axis, the next element a row and a column
further: a spec with one axis less than the tensor has says that its last two are taken so.

Where places are numbers of their own (rows.py), cut_at and put_at are the same.
"""

import math
from typing import NamedTuple

import numpy as np

from . import samples
from .rows import given_starts, read_at, row, window, with_starts, with_window, write_at
from .table import Sample
from .view import (
    alias,
    as_slices,
    corner,
    diagonal,
    permute,
    reshape,
    select,
    slice_,
    slice_scatter,
    t,
    transpose,
    zeros_like,
)


def _cut(x, spec, axes):
    whole = slice_(_in_line(x, spec), spec=spec)
    return reshape(whole, shape=tuple(d for k, d in enumerate(whole.shape) if k not in axes)) if axes else whole


def _in_line(x, spec):
    """x with as many axes as the spec has."""
    return x if len(spec) == len(x.shape) else reshape(x, shape=_shape_in_line(x.shape, spec))


def _shape_in_line(shape, spec):
    n = len(spec) - 1
    return (*shape[:n], math.prod(shape[n:]))


def _evaluate(x, spec, axes):
    if len(spec) == x.ndim:
        return np.squeeze(x[as_slices(spec)], axes)
    *lead, (start, step, length) = spec
    (row, column), (down, right) = divmod(start, x.shape[-1]), divmod(step, x.shape[-1])
    first = x[(*as_slices(lead), slice(row, None), slice(column, None))]
    *strides, by_row, by_column = first.strides
    strides = (*strides, down * by_row + right * by_column)
    return np.squeeze(np.lib.stride_tricks.as_strided(first, (*first.shape[:-2], length), strides), axes)


def _vjp(g, out, x, spec, axes):
    return _put(zeros_like(x), g, spec, axes)


def _with_all_axes(x, spec, axes):
    return reshape(x, shape=tuple(length for _, _, length in spec)) if axes else x


def _samples():
    yield (3, 4), ((1, 1, 1), (0, 2, 2)), (0,), (2,)
    yield (3, 4), ((1, 1, 2), (2, 1, 2)), (), (2, 2)
    yield (2, 3, 4), ((1, 1, 1), (0, 1, 3), (3, 1, 1)), (0, 2), (3,)
    yield (3, 3), ((0, 4, 3),), (), (3,)
    yield (2, 3, 5), ((1, 1, 1), (6, 6, 2)), (0,), (2,)


# x[spec], its last two axes in line if the spec has one less, without the axes (of length 1) of which a select has
# taken one place.
cut = alias(
    "cut",
    _cut,
    evaluate=_evaluate,
    vjp=(_vjp,),
    node_name="AsStridedBackward0",
    extra={"view": True},
    oracle=lambda torch, x, spec, axes: x.reshape(_shape_in_line(x.shape, spec))[as_slices(spec)].squeeze(axes),
    samples=lambda: [
        Sample((samples.numbers(k, shape),), {"spec": spec, "axes": axes})
        for k, (shape, spec, axes, _) in enumerate(_samples())
    ],
)


def _put(x, new, spec, axes):
    changed = slice_scatter(_in_line(x, spec), _with_all_axes(new, spec, axes), spec=spec)
    return changed if len(spec) == len(x.shape) else reshape(changed, shape=tuple(x.shape))


def _torch_put(torch, x, new, spec, axes):
    x = x.clone()
    in_line = x.view(_shape_in_line(x.shape, spec))
    in_line[as_slices(spec)] = new.reshape([length for _, _, length in spec])
    return x


# x with `new` where `cut` shows it.
put_cut = alias(
    "put_cut",
    _put,
    vjp=(
        lambda g, out, x, new, spec, axes: _put(g, zeros_like(new), spec, axes),
        lambda g, out, x, new, spec, axes: _cut(g, spec, axes),
    ),
    node_name="CopySlices",
    oracle=_torch_put,
    samples=lambda: [
        Sample((samples.numbers(k, shape), samples.numbers(k + 3, part)), {"spec": spec, "axes": axes})
        for k, (shape, spec, axes, part) in enumerate(_samples())
    ],
)


cut_at = read_at("cut_at", "AsStridedBackward0")
put_at = write_at("put_at", "CopySlices")
AT_KNOWN_PLACES = {row: select, window: slice_, with_window: slice_scatter, cut_at: cut, put_at: put_cut}
PARTS_AT = (row, window, cut_at)


def at_known_place(op, operands, attributes):
    """(op, operands, attributes) of the same, for an op that takes numbers for places."""
    n = 1 if op in PARTS_AT else 2
    spec, axes = with_starts(attributes["spec"], operands[n:]), attributes["axes"]
    if op is row and len(axes) == 1:
        return select, operands[:n], {"axis": axes[0], "index": spec[axes[0]][0]}
    if op is row:
        return cut, operands[:n], {"spec": spec, "axes": axes}
    known = {"spec": spec} if op is window or op is with_window else {"spec": spec, "axes": axes}
    return AT_KNOWN_PLACES[op], operands[:n], known


class Given(NamedTuple):
    """A start that follows from a number of its own: which one of a recorded call's, times something plus something."""

    position: int
    times: int = 1
    plus: int = 0

    def among(self, numbers):
        return self.times * numbers[self.position] + self.plus


def composed(shape, steps):
    """(spec, axes) of the part of a tensor of some shape that slices, selects, cuts, diagonals and axes in another
    order (steps of a recording, the first one first) show, starts among them as Given; None of other steps, of
    diagonals of other axes than the last two, of axes that are left in another order, and of starts that follow from
    several numbers."""
    spec, left = [(0, 1, d) for d in shape], list(range(len(shape)))
    for step in steps:
        order = _order_in(step, len(left))
        if order is not None:
            left = [left[k] for k in order]
            continue
        if _is_in_line(step, len(left)):
            if len(spec) < len(shape) or left[-2:] != [len(shape) - 2, len(shape) - 1]:
                return None
            if step.op is diagonal:
                spec[-2:], left = [_diagonal_in_line(spec[-2:], shape[-1], step.attributes)], left[:-1]
                if spec[-1] is None:
                    return None
                continue
            if spec[-2:] != [(0, 1, d) for d in shape[-2:]]:
                return None
            spec[-2:], left = [(0, 1, math.prod(shape[-2:]))], left[:-1]
        taken = _taken(step, len(left))
        if taken is None:
            return None
        places, dropped = taken
        for axis, (start, stride, length) in zip(left, places):
            if length is not None:
                first, by, _ = spec[axis]
                begin = _begin(first, by, start)
                if begin is None:
                    return None
                spec[axis] = (begin, by * stride, length)
        left = [axis for k, axis in enumerate(left) if k not in dropped]
    if len(spec) < len(shape) and _has_given(spec) or left != sorted(left):
        return None
    return tuple(spec), tuple(k for k in range(len(spec)) if k not in left)


def _order_in(step, n_axes):
    """The axes of what a step shows, as those of its operand; None of one that does something else with them."""
    order = list(range(n_axes))
    if step.op is permute:
        return step.attributes["axes"]
    if step.op is transpose:
        one, other = step.attributes["axis0"], step.attributes["axis1"]
        order[one], order[other] = order[other], order[one]
        return order
    return order[::-1] if step.op is t else None


def _begin(first, by, start):
    """Where a part of a part begins; None if that follows from several numbers."""
    if start.__class__ is Given:
        return None if first.__class__ is Given else Given(start.position, by * start.times, first + by * start.plus)
    return first._replace(plus=first.plus + by * start) if first.__class__ is Given else first + by * start


def _has_given(spec):
    return any(start.__class__ is Given for start, _, _ in spec)


def without_given(spec):
    """(the spec as ops have it that take numbers for places, what is left out)."""
    given = tuple([start for start, _, _ in spec if start.__class__ is Given])
    return tuple([(None, *part[1:]) if part[0].__class__ is Given else part for part in spec]), given


def _is_in_line(step, n_axes):
    """Whether a step takes the last two axes of a tensor as one."""
    if step.op is diagonal:
        return {step.attributes["axis0"], step.attributes["axis1"]} == {n_axes - 2, n_axes - 1}
    return step.op is cut and len(step.attributes["spec"]) < n_axes


def _diagonal_in_line(spec, n_columns, attributes):
    """The place in line of the diagonal of what a spec shows of a matrix; None if there is nothing or it goes back, or
    if only the call tells."""
    if _has_given(spec):
        return None
    strides = n_columns, 1
    if attributes["axis0"] > attributes["axis1"]:
        spec, strides = spec[::-1], strides[::-1]
    rows, columns = spec
    row, column, length = corner(rows[2], columns[2], attributes["shift"])
    if length == 0 or rows[1] < 1 or columns[1] < 1:
        return None
    start = (rows[0] + row * rows[1]) * strides[0] + (columns[0] + column * columns[1]) * strides[1]
    return start, rows[1] * strides[0] + columns[1] * strides[1], length


def shown_part(base, view):
    """(spec, axes) of `cut` for a view of a row-major array, whatever has led to it: a row of another shape, or a
    column of the transpose. None if it shows no such part, or has an axis of length 1, which might be any."""
    if not view.size or 1 in view.shape or not np.may_share_memory(base, view):
        return None
    size, strides = base.itemsize, [s // base.itemsize for s in base.strides]
    first = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // size
    start = np.unravel_index(first, base.shape) if base.ndim else ()
    spec, left = [(int(k), 1, 1) for k in start], range(base.ndim)
    for length, stride in zip(view.shape, (s // size for s in view.strides)):
        fits = [k for k in left if stride > 0 and stride % strides[k] == 0]
        fits = [k for k in fits if start[k] + stride // strides[k] * (length - 1) < base.shape[k]]
        if not fits:
            return None
        axis = fits[0]
        spec[axis], left = (int(start[axis]), stride // strides[axis], length), range(axis + 1, base.ndim)
    axes = tuple(k for k in range(base.ndim) if spec[k][2] == 1)
    same = base[as_slices(tuple(spec))].squeeze(axes).__array_interface__ == view.__array_interface__
    return (tuple(spec), axes) if same else None


def _taken(step, n_axes):
    """(start, step, length; no length: all of it) by axis, and the axes that are dropped."""
    if step.op is slice_:
        return step.attributes["spec"], ()
    if step.op is cut:
        return step.attributes["spec"], step.attributes["axes"]
    if step.op is select:
        axis, index = step.attributes["axis"], step.attributes["index"]
        return [(index, 1, 1) if k == axis else (0, 1, None) for k in range(n_axes)], (axis,)
    if step.op in PARTS_AT:
        spec, axes = step.attributes["spec"], step.attributes["axes"]
        return with_starts(spec, [Given(step.first_number + k) for k in range(len(given_starts(spec)))]), axes
    return None
