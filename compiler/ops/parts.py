"""The part of a tensor that slices and selects, one after the other, show: read as one view, and written.

A compiled call has these in place of what it cannot write into: see runtime/record/frame_through.py. In eager mode the
history of a tensor that is changed through a view has two nodes of its own (runtime/eager/rebase.py), which these are
named after.
"""

import numpy as np

from . import samples
from .table import Sample
from .view import alias, as_slices, reshape, select, slice_, slice_scatter, zeros_like


def _cut(x, spec, axes):
    whole = slice_(x, spec=spec)
    return reshape(whole, shape=tuple(d for k, d in enumerate(whole.shape) if k not in axes)) if axes else whole


def _vjp(g, out, x, spec, axes):
    return slice_scatter(zeros_like(x), _with_all_axes(g, spec, axes), spec=spec)


def _with_all_axes(x, spec, axes):
    return reshape(x, shape=tuple(length for _, _, length in spec)) if axes else x


def _samples():
    yield (3, 4), ((1, 1, 1), (0, 2, 2)), (0,), (2,)
    yield (3, 4), ((1, 1, 2), (2, 1, 2)), (), (2, 2)
    yield (2, 3, 4), ((1, 1, 1), (0, 1, 3), (3, 1, 1)), (0, 2), (3,)


# x[spec] without the axes (of length 1) of which a select has taken one place.
cut = alias(
    "cut",
    _cut,
    evaluate=lambda x, spec, axes: np.squeeze(x[as_slices(spec)], axes),
    vjp=(_vjp,),
    node_name="AsStridedBackward0",
    extra={"view": True},
    oracle=lambda torch, x, spec, axes: x[as_slices(spec)].squeeze(axes),
    samples=lambda: [
        Sample((samples.numbers(k, shape),), {"spec": spec, "axes": axes})
        for k, (shape, spec, axes, _) in enumerate(_samples())
    ],
)


def _put(x, new, spec, axes):
    return slice_scatter(x, _with_all_axes(new, spec, axes), spec=spec)


def _torch_put(torch, x, new, spec, axes):
    x = x.clone()
    x[as_slices(spec)] = new.reshape([length for _, _, length in spec])
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


def composed(shape, steps):
    """(spec, axes) of the part of a tensor of some shape that slices, selects and cuts (steps of a recording, the
    first one first) show; None of other steps."""
    spec, left = [(0, 1, d) for d in shape], list(range(len(shape)))
    for step in steps:
        taken = _taken(step, len(left))
        if taken is None:
            return None
        places, dropped = taken
        for axis, (start, stride, length) in zip(left, places):
            if length is not None:
                first, by, _ = spec[axis]
                spec[axis] = (first + by * start, by * stride, length)
        left = [axis for k, axis in enumerate(left) if k not in dropped]
    return tuple(spec), tuple(k for k in range(len(shape)) if k not in left)


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
    return None
