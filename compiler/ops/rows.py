"""Parts of tensors at places that are numbers of their own: calls of a compiled function take other ones each time.

    select, slice_     ->  row, window     (x, *starts, spec, axes)
    slice_scatter      ->  with_window     (x, part, *starts, spec, axes)

`spec` is that of slice_ (view.py), with None in place of the starts that are operands, in order of the axes; `axes`, of
length 1, are those of which a select has taken one place. cut_at and put_at (parts.py) are read and written alike.
"""

from math import prod

from .. import dtypes
from . import samples
from .arithmetic import add, mul
from .indexing import index_put, index_select
from .kinds import composite
from .samples import Sample
from .source import arange, full, zeros_like
from .table import Meta, OpError
from .view import as_slices, reshape, slice_


def given_starts(spec):
    """The axes whose starts are operands."""
    return tuple([axis for axis, (start, _, _) in enumerate(spec) if start is None])


def with_starts(spec, starts):
    """The spec of the slice that begins there."""
    starts = iter(starts)
    return tuple([(next(starts) if start is None else start, step, length) for start, step, length in spec])


def lengths_of(spec, axes=()):
    return tuple([length for axis, (_, _, length) in enumerate(spec) if axis not in axes])


def _require_places(name, starts):
    for start in starts:
        if start.dtype is not dtypes.int64:
            raise OpError(f"{name}: the place of a part must be an int, got {start.dtype.name}")


def _along(x, start, step, length):
    return x.apply_op(arange, (start, step), {"shape": (length,), "dtype": dtypes.int64})


def _read(x, *starts, spec, axes):
    whole = tuple([(0, 1, d) for d in x.shape])
    known = tuple([all_of if part[0] is None else part for part, all_of in zip(spec, whole)])
    if known != whole:
        x = slice_(x, spec=known)
    for axis, start in [*zip(given_starts(spec), starts)][::-1]:
        _, step, length = spec[axis]
        is_one = length == 1
        index = x.apply_op(full, (start,), {"shape": (), "dtype": dtypes.int64}) if is_one else None
        x = index_select(x, index if is_one else _along(x, start, step, length), axis=axis)
    shape = lengths_of(spec, axes)
    return x if x.shape == shape else reshape(x, shape=shape)


def _write(x, part, *starts, spec, axes):
    part = reshape(part, shape=lengths_of(spec)) if axes else part
    cut = [axis for axis, piece in enumerate(spec) if piece != (0, 1, x.shape[axis])]
    start_of = dict(zip(given_starts(spec), starts))
    if len(cut) == 1:
        # Whole rows, which most places are, need no position for each element.
        (axis,) = cut
        return index_put(x, _along(x, start_of[axis], *spec[axis][1:]), part, axis=axis, merged=tuple(x.shape))
    positions = None
    for axis, (start, step, length) in enumerate(spec):
        along = mul(_along(x, start_of.get(axis, start), step, length), prod(x.shape[axis + 1 :]))
        along = reshape(along, shape=(length, *(1,) * (len(spec) - axis - 1)))
        positions = along if positions is None else add(positions, along)
    return index_put(x, positions, reshape(part, shape=positions.shape), axis=0, merged=(prod(x.shape),))


def _read_vjp(index):
    if index:
        return None
    return lambda g, out, x, *starts, spec, axes: with_window(zeros_like(x), g, *starts, spec=spec, axes=axes)


def _write_vjp(index):
    if index == 0:
        return lambda g, out, x, part, *starts, spec, axes: with_window(
            g, zeros_like(part), *starts, spec=spec, axes=axes
        )
    if index == 1:
        return lambda g, out, x, part, *starts, spec, axes: window(g, *starts, spec=spec, axes=axes)
    return None


def _types(operands, default_float):
    return tuple(o.dtype for o in operands), operands[0].dtype


def _torch_with(torch, x, part, *starts, spec, axes):
    x = x.clone()
    x[as_slices(with_starts(spec, starts))] = part.reshape(lengths_of(spec))
    return x


def _samples():
    yield (4, 6), ((None, 1, 2), (0, 1, 6)), (), (1,)
    yield (4, 6), ((None, 2, 2), (None, 1, 3)), (), (1, 2)
    yield (3, 4, 5), ((1, 1, 1), (0, 1, 4), (None, 1, 1)), (0, 2), (3,)
    yield (4, 6), ((None, 1, 1), (None, 1, 1)), (0, 1), (3, 2)


def read_at(name, node_name):
    """An op that is x[spec] without the axes."""

    def infer(operands, attributes, default_float):
        _require_places(name, operands[1:])
        return Meta(lengths_of(**attributes), operands[0].dtype)

    return composite(
        name,
        infer,
        _read,
        vjp=_read_vjp,
        node_name=node_name,
        compute_dtype=_types,
        samples=lambda: [
            Sample((samples.numbers(0, shape), *starts), {"spec": spec, "axes": axes})
            for shape, spec, axes, starts in _samples()
        ],
        oracle=lambda torch, x, *starts, spec, axes: x[as_slices(with_starts(spec, starts))].squeeze(axes),
    )


def write_at(name, node_name):
    """An op that is a copy of x with a part in place of what the other shows."""

    def infer(operands, attributes, default_float):
        _require_places(name, operands[2:])
        return Meta(operands[0].shape, operands[0].dtype)

    return composite(
        name,
        infer,
        _write,
        vjp=_write_vjp,
        node_name=node_name,
        compute_dtype=_types,
        samples=lambda: [
            Sample(
                (samples.numbers(0, shape), samples.numbers(1, lengths_of(spec, axes)), *starts),
                {"spec": spec, "axes": axes},
            )
            for shape, spec, axes, starts in _samples()
        ],
        oracle=_torch_with,
    )


row = read_at("row", "SelectBackward0")
window = read_at("window", "SliceBackward0")
with_window = write_at("with_window", "SliceScatterBackward0")


def starts_in(op, attributes, given):
    """The starts that are operands of an op at a known place, whose attributes are given; None if it is no such part as
    the op with these attributes takes."""
    if op is row:
        axis, index = given["axis"], given["index"]
        return (index,) if (axis,) == attributes["axes"] and index.__class__ is int else None
    spec, wanted = given["spec"], attributes["spec"]
    if len(spec) != len(wanted):
        return None
    starts = ()
    for part, one in zip(spec, wanted):
        if one[0] is None:
            if part[1:] != one[1:] or part[0].__class__ is not int:
                return None
            starts += part[:1]
        elif part != one:
            return None
    return starts
