"""Windows over the last dimensions: the elements that convolution and pooling combine, as a view, and its adjoint.

Element (..., k, o) of the windows of x is x[..., o * stride + k * dilation], with one k and one o for each of the last
dimensions: all k first, then all o. Padding is done before, by `padded.py`.
"""

from itertools import product
from math import prod

import numpy as np

from ..extent import is_open
from ..kernels.nest import Nest
from ..shapes import contiguous_strides
from . import samples
from .arithmetic import add
from .kinds import alias, composite
from .padded import padded
from .samples import Sample
from .table import Meta, Op, OpError, register
from .view import VIEW, permute


def counts(sizes, kernel, stride, dilation):
    """How many windows fit, per dimension."""
    return tuple((n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(sizes, kernel, stride, dilation))


def _padded_infer(operands, attributes, default_float):
    (x,), padding = operands, attributes["padding"]
    lead, sizes = len(x.shape) - len(padding), []
    for axis, (before, after) in enumerate(padding, lead):
        size = x.shape[axis] + before + after
        if size < 0:
            raise OpError(
                f"pad: The input size {x.shape[axis]}, plus negative padding {before} and {after}, resulted in a "
                f"negative output size, which is invalid. Check dimension {axis} of your input."
            )
        sizes.append(size)
    return Meta((*x.shape[:lead], *sizes), x.dtype)


def _padded_vjp(g, out, x, padding, value):
    """What was added is cut again, and what was cut is added."""
    return padded(g, tuple((-before, -after) for before, after in padding))


# The same as one op. At least one number of the padding is not 0: else nothing would be computed.
constant_pad_nd = composite(
    "constant_pad_nd",
    _padded_infer,
    padded,
    vjp=(_padded_vjp,),
    on_complex=True,
    samples=lambda: [
        Sample((samples.numbers(k, shape),), {"padding": padding, "value": 0.5})
        for k, (shape, padding) in enumerate(
            (
                ((3, 4), ((1, 2),)),
                ((3, 4), ((0, 1), (2, 0))),
                ((2, 3, 4), ((1, -1), (-1, 2))),
                ((3, 4), ((-1, 0), (-1, -2))),
            )
        )
    ],
    oracle=lambda torch, x, padding, value: torch.nn.functional.pad(
        x, [n for pair in reversed(padding) for n in pair], value=value
    ),
)


# --- the windows ------------------------------------------------------------------------------------------------------
def _windows_infer(operands, attributes, default_float):
    (x,), kernel = operands, attributes["kernel"]
    lead = len(x.shape) - len(kernel)
    positions = counts(x.shape[lead:], kernel, attributes["stride"], attributes["dilation"])
    return Meta((*x.shape[:lead], *kernel, *positions), x.dtype)


def _window_strides(shape, strides, kernel, stride, dilation):
    """Strides of the windows over memory with these strides."""
    lead = len(shape) - len(kernel)
    last = strides[lead:]
    return (
        *strides[:lead],
        *(n * d for n, d in zip(last, dilation)),
        *(n * s for n, s in zip(last, stride)),
    )


def _evaluate_windows(x, kernel, stride, dilation):
    lead = x.ndim - len(kernel)
    shape = (*x.shape[:lead], *kernel, *counts(x.shape[lead:], kernel, stride, dilation))
    strides = _window_strides(x.shape, x.strides, kernel, stride, dilation)
    return np.lib.stride_tricks.as_strided(x, shape, strides)


_CASES = (
    ((2, 7), (3,), (1,), (1,)),
    ((9,), (2,), (3,), (2,)),
    ((2, 3, 6, 5), (3, 2), (2, 1), (1, 2)),
    ((1, 4, 3, 4), (2, 1, 2), (1, 2, 2), (1, 1, 1)),
)


def _window_samples():
    return [
        Sample((samples.numbers(k, shape),), {"kernel": kernel, "stride": stride, "dilation": dilation})
        for k, (shape, kernel, stride, dilation) in enumerate(_CASES)
    ]


windows = register(
    Op(
        "windows",
        "view",
        _windows_infer,
        _evaluate_windows,
        (lambda g, out, x, **how: overlap_add(g, size=x.shape[len(x.shape) - len(how["kernel"]) :], **how),),
        lambda shape, strides, offset, **how: (_window_strides(shape, strides, **how), offset),
        kernel=VIEW,
        samples=_window_samples,
        oracle=lambda torch, x, **how: _torch_windows(torch, x, **how),
    )
)


def _torch_windows(torch, x, kernel, stride, dilation):
    lead = x.ndim - len(kernel)
    shape = (*x.shape[:lead], *kernel, *counts(x.shape[lead:], kernel, stride, dilation))
    x = x.contiguous()
    return x.as_strided(shape, _window_strides(x.shape, x.stride(), kernel, stride, dilation))


# --- along one dimension ----------------------------------------------------------------------------------------------
def _unfolded(x, axis, size, step):
    """x[..., axis, ...] -> (..., windows, ..., size)."""
    rank = len(x.shape)
    others = [k for k in range(rank) if k != axis]
    found = windows(permute(x, axes=(*others, axis)), kernel=(size,), stride=(step,), dilation=(1,))
    back = list(range(rank - 1))
    back.insert(axis, rank)
    return permute(found, axes=(*back, rank - 1))


def _evaluate_unfolded(x, axis, size, step):
    shape, strides = [*x.shape, size], [*x.strides, x.strides[axis]]
    shape[axis] = (x.shape[axis] - size) // step + 1
    strides[axis] *= step
    # What windows share is to be changed through none of them.
    is_apart = step >= size or shape[axis] == 1
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=is_apart and x.flags.writeable)


# x.unfold: windows of one dimension, which is that of their numbers then; their elements are a new last one.
unfold = alias(
    "unfold",
    _unfolded,
    evaluate=_evaluate_unfolded,
    vjp=(lambda g, out, x, **how: _unfolded_vjp(g, x, **how),),
    node_name="UnfoldBackward0",
    extra={"view": True},
    samples=lambda: [
        Sample((samples.numbers(k, shape),), {"axis": axis, "size": size, "step": step})
        for k, (shape, axis, size, step) in enumerate(
            (((7,), 0, 3, 1), ((2, 7), 1, 2, 3), ((5, 3), 0, 2, 2), ((2, 6, 3), 1, 4, 1))
        )
    ],
    oracle=lambda torch, x, axis, size, step: x.unfold(axis, size, step),
)


def _unfolded_vjp(g, x, axis, size, step):
    rank = len(x.shape)
    others = [k for k in range(rank) if k != axis]
    found = overlap_add(
        permute(g, axes=(*others, rank, axis)),
        size=(x.shape[axis],),
        kernel=(size,),
        stride=(step,),
        dilation=(1,),
    )
    back = list(range(rank - 1))
    back.insert(axis, rank - 1)
    return permute(found, axes=tuple(back))


# --- their adjoint ----------------------------------------------------------------------------------------------------
def _overlap_infer(operands, attributes, default_float):
    (x,), size = operands, attributes["size"]
    return Meta((*x.shape[: len(x.shape) - 2 * len(size)], *size), x.dtype)


def places_in_windows(size, kernel, stride, dilation):
    """For every element of a window, in order: its index, and where it lies in all windows, as a spec of a slice."""
    positions = counts(size, kernel, stride, dilation)
    for index in product(*map(range, kernel)):
        yield index, tuple((k * d, s, n) for k, d, s, n in zip(index, dilation, stride, positions))


def _evaluate_overlap(x, size, kernel, stride, dilation):
    lead = x.shape[: x.ndim - 2 * len(size)]
    result = np.zeros((*lead, *size), x.dtype)
    for index, spec in places_in_windows(size, kernel, stride, dilation):
        part = result[(..., *(slice(a, a + s * (n - 1) + 1, s) for a, s, n in spec))]
        part += x[(slice(None),) * len(lead) + index]
    return result


# Channels whose rows take turns, so that none is loaded while its last store is on its way.
_CHANNELS_IN_TURN = 8


def _write_overlap(writer):
    """Zeros, then the windows' elements in order of k, image by image; of one image a few channels after the other.

    Channels are the innermost loop but one: from row to row of one channel, a vector that is loaded would overlap the
    one just stored, and wait for it: images of 10x10 took 1.1 ms so, and 0.55 this way.
    """
    value, (x,), size = writer.value, writer.accesses, writer.value.attributes["size"]
    lead, strides = len(value.shape) - len(size), contiguous_strides(value.shape)
    kernel = x.shape[lead : lead + len(size)]
    how = [value.attributes[name] for name in ("stride", "dilation")]
    onto = _window_strides(value.shape, strides, kernel, *how)
    *dims, (extent, lane, onto_lane) = zip(x.shape, x.strides, onto)
    images, channels, dims = dims[: max(lead - 1, 0)], dims[max(lead - 1, 0) : lead], dims[lead:]
    images = [d for d in images if d[0] > 1]
    if channels and not images:
        images, channels = _groups(channels[0])
    inner = [d for d in (*dims, *channels) if d[0] > 1]
    lane, onto_lane = (lane, onto_lane) if extent > 1 else (0, 0)

    def image(names):
        outer, zero = [t for _, _, t in images], writer.constant(0.0, value.dtype)
        count = prod(d for d, _, _ in channels) * prod(size)
        blank = [zero, *writer.row(count, writer.store(names, outer, zero, int(count > 1)))]
        index = [*names, *(f"k{k}" for k in range(len(inner)))]
        steps = [[d[side] for d in (*images, *inner)] for side in (1, 2)]
        part, there = writer.load(0, index, steps[0], lane), writer.load_result(index, steps[1], onto_lane)
        total = writer.apply(add, [there, part])
        body = writer.row(extent, part, there, total, writer.store(index, steps[1], total, onto_lane))
        for name, (count, _, _) in zip(reversed(index[len(names) :]), reversed(inner)):
            body = [writer.loop(name, count, *body)]
        return [*blank, *body]

    writer.nest([d for d, _, _ in images], image)


def _groups(channels):
    """The channels of one image as images of a few of them each, which threads can share: ([groups], [channels])."""
    count, step, onto = channels
    if is_open(count):
        return [], [channels]
    few = next(n for n in range(min(count, _CHANNELS_IN_TURN), 0, -1) if count % n == 0)
    return ([(count // few, few * step, few * onto)] if count > few else []), [(few, step, onto)]


def _overlap_samples():
    return [
        Sample(
            (samples.numbers(k, _windows_infer(sample.operands, sample.attributes, None).shape),),
            {"size": shape[len(shape) - len(kernel) :], **sample.attributes},
        )
        for k, ((shape, kernel, _, _), sample) in enumerate(zip(_CASES, _window_samples()))
    ]


# (*, k, o) -> (*, size): every element of every window added where the window took it from, in order of k.
overlap_add = register(
    Op(
        "overlap_add",
        "movement",
        _overlap_infer,
        _evaluate_overlap,
        (lambda g, out, x, size, **how: windows(g, **how),),
        kernel=Nest(_write_overlap),
        samples=_overlap_samples,
        oracle=lambda torch, x, size, **how: _torch_overlap(torch, x, size, **how),
    )
)


def _torch_overlap(torch, x, size, **how):
    lead = x.shape[: x.ndim - 2 * len(size)]
    image = torch.zeros((*lead, *size), dtype=x.dtype)
    total = image
    for index, spec in places_in_windows(size, **how):
        part = x[(slice(None),) * len(lead) + index]
        placed = image.clone()
        placed[(..., *(slice(a, a + s * (n - 1) + 1, s) for a, s, n in spec))] = part
        total = total + placed
    return total
