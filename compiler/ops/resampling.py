"""Images read between their elements: resized along some dimensions, or read at the positions of a grid.

Both are composites, so that all that is read of an element's neighbours is one program of few passes over memory. Where
neighbours are and what they weigh is computed from positions, in the type of the image.
"""

import itertools
import math
from functools import reduce

import numpy as np

from ..dtypes import int64
from . import samples
from .arithmetic import abs_, add, div, floor, maximum, minimum, mul, round_, sub
from .comparison import cast, eq, ge, gt, le, logical_and, where
from .division import remainder
from .indexing import gather, index_add, index_select
from .kinds import composite, require_floating
from .samples import Sample
from .source import arange, full
from .table import Meta
from .view import detach, expand, reshape, select_at, unsqueeze


def cubic_weight(distance, a=-0.75):
    """Keys' cubic convolution (1981)."""
    d = abs_(distance)
    near = add(mul(mul(sub(mul(d, a + 2), a + 3), d), d), 1)
    far = sub(mul(add(mul(sub(mul(d, a), 5 * a), d), 8 * a), d), 4 * a)
    return where(le(d, 1), near, where(gt(2, d), far, 0.0))


# --- in another size: along one axis after the other, as sums of two or four neighbours ------------------------------
def _resized_shape(shape, resized):
    sizes = {axis: target for axis, target, _ in resized}
    return tuple(sizes.get(k, d) for k, d in enumerate(shape))


def _resized_infer(operands, attributes, default_float):
    (x,) = operands
    require_floating("interpolate", x)
    return Meta(_resized_shape(x.shape, attributes["resized"]), x.dtype)


def _in_turn(shape, resized):
    """What becomes shorter first, from the first axis on, and then what becomes longer, from the last one on: so that
    as little as possible is done along the last axis, whose neighbours are single elements and no rows."""
    shorter = [one for one in resized if one[1] <= shape[one[0]]]
    longer = [one for one in resized if one[1] > shape[one[0]]]
    return shorter + longer[::-1]


def _taps(like, source, target, step, mode, align_corners):
    """(numbers of the neighbours along an axis, their weights) of all elements of the result, the first ones first."""
    places = like.apply_op(arange, (0, 1), {"shape": (target,), "dtype": like.dtype})
    places = mul(places, step) if align_corners else sub(mul(add(places, 0.5), step), 0.5)
    last = source - 1
    if mode == "cubic":
        below = floor(places)
        for k in (-1, 0, 1, 2):
            yield maximum(minimum(add(below, k), last), 0), cubic_weight(sub(sub(places, below), k))
        return
    places = maximum(places, 0)
    below = minimum(floor(places), last)
    weight = sub(places, below)
    yield below, sub(1, weight)
    yield minimum(add(below, 1), last), weight


def _along(like, shape, axis, *how):
    """The same, as an index of elements of a shape along the axis, and weights that broadcast along it."""
    for place, weight in _taps(like, shape[axis], *how):
        yield cast(place, dtype=int64), reshape(weight, shape=(*weight.shape, *(1,) * (len(shape) - axis - 1)))


def _resized(x, resized, mode, align_corners):
    for axis, *how in _in_turn(x.shape, resized):
        total = None
        for index, weight in _along(x, x.shape, axis, *how, mode, align_corners):
            tap = mul(index_select(x, index, axis=axis), weight)
            total = tap if total is None else add(total, tap)
        x = total
    return x


def _resized_vjp(g, out, x, resized, mode, align_corners):
    turns = _in_turn(x.shape, resized)
    shapes = [_resized_shape(x.shape, turns[:k]) for k in range(len(turns))]
    for (axis, *how), shape in zip(turns[::-1], shapes[::-1]):
        whole = g.apply_op(full, (0,), {"shape": shape, "dtype": g.dtype})
        for index, weight in _along(g, shape, axis, *how, mode, align_corners):
            whole = index_add(whole, index, mul(g, weight), axis=axis)
        g = whole
    return g


def _names(operands, attributes):
    rank = len(operands[0].shape) - 2
    kind = "Bicubic" if attributes["mode"] == "cubic" else ("Linear", "Bilinear", "Trilinear")[rank - 1]
    return f"Upsample{kind}{rank}DBackward0"


def _torch_resized(torch, x, resized, mode, align_corners):
    size = [target for _, target, _ in resized]
    name = "bicubic" if mode == "cubic" else ("linear", "bilinear", "trilinear")[len(size) - 1]
    return torch.nn.functional.interpolate(x, size, mode=name, align_corners=align_corners)


def _resized_samples():
    cases = (
        ((2, 2, 5), (8,), "linear", False),
        ((1, 2, 4, 3), (3, 7), "linear", False),
        ((2, 1, 3, 5), (5, 4), "linear", True),
        ((1, 1, 2, 3, 2), (3, 2, 4), "linear", False),
        ((1, 2, 4, 5), (7, 3), "cubic", False),
        ((1, 2, 4, 3), (6, 5), "cubic", True),
    )
    for k, (shape, sizes, mode, align) in enumerate(cases):
        steps = [(n - 1) / (m - 1) if align else n / m for n, m in zip(shape[2:], sizes)]
        how = {"resized": tuple(zip((2, 3, 4), sizes, steps)), "mode": mode, "align_corners": align}
        yield Sample((samples.numbers(k, shape),), how)


# resized: (axis, its new size, the step between two places there) of each axis that is to have another size.
resized = composite(
    "resized",
    _resized_infer,
    _resized,
    vjp=(_resized_vjp,),
    node_name=_names,
    samples=lambda: list(_resized_samples()),
    oracle=_torch_resized,
)


# --- read at the positions of a grid ----------------------------------------------------------------------------------
def _sampled_infer(operands, attributes, default_float):
    x, grid = operands
    require_floating("grid_sample", x)
    return Meta((*x.shape[:2], *grid.shape[1:-1]), x.dtype)


def _sampled(x, grid, mode, padding_mode, align_corners):
    """The sum of the neighbours of every position, times their weights."""
    sizes = x.shape[2:]
    places = [
        _unnormalised(select_at(grid, len(grid.shape) - 1, len(sizes) - 1 - k), n, align_corners)
        for k, n in enumerate(sizes)
    ]
    if mode == "bicubic":
        taps = _cubic_corners(places, sizes, padding_mode, align_corners)
    else:
        places = [_limited(p, n, padding_mode, align_corners) for p, n in zip(places, sizes)]
        if mode == "nearest":
            return _read(x, [round_(detach(p)) for p in places], _nothing_of(places[0]))
        taps = _linear_corners(places)
    parts = [mul(_read(x, corner, 0.0), unsqueeze(weight, axis=1)) for corner, weight in taps]
    return reduce(add, parts)


def _nothing_of(place):
    """0 for every channel, with a derivative of zeros: PyTorch's gradient of the positions nearest elements are at."""
    finite = minimum(maximum(where(eq(place, place), place, 0.0), 0), 1)
    return unsqueeze(mul(finite, 0.0), axis=1)


def _unnormalised(x, size, align_corners):
    """[-1, 1] as positions: of the centres of the outer elements, or of their outer edges."""
    if align_corners:
        return mul(add(x, 1), (size - 1) / 2)
    return div(sub(mul(add(x, 1), size), 1), 2)


def _limited(place, size, padding_mode, align_corners):
    if padding_mode == "border":
        return minimum(maximum(place, 0), size - 1)
    if padding_mode == "reflection":
        low, high = (0, 2 * (size - 1)) if align_corners else (-1, 2 * size - 1)
        return minimum(maximum(_reflected(place, low / 2, high / 2), 0), size - 1)
    return place


def _reflected(place, low, high):
    span = high - low
    if span == 0:
        return mul(place, 0)
    extra = remainder(abs_(sub(place, low)), 2 * span)
    return add(where(le(extra, span), extra, sub(2 * span, extra)), low)


def _linear_corners(places):
    """All corners of the cell, each with the product of its nearness along every dimension."""
    below = [detach(floor(p)) for p in places]
    for sides in itertools.product((0, 1), repeat=len(places)):
        corner = [add(b, s) for b, s in zip(below, sides)]
        nearness = [sub(p, b) if s else sub(add(b, 1), p) for p, b, s in zip(places, below, sides)]
        yield corner, reduce(mul, nearness)


def _cubic_corners(places, sizes, padding_mode, align_corners):
    """16 neighbours; every one of them is limited by itself."""
    below = [detach(floor(p)) for p in places]
    for steps in itertools.product((-1, 0, 1, 2), repeat=2):
        raw = [add(b, s) for b, s in zip(below, steps)]
        corner = [_limited(r, n, padding_mode, align_corners) for r, n in zip(raw, sizes)]
        yield corner, reduce(mul, [cubic_weight(sub(p, r)) for p, r in zip(places, raw)])


def _read(x, corner, otherwise):
    """The elements at whole positions; outside, something else."""
    n, c, *sizes = x.shape
    inside, index = None, None
    for place, size in zip(corner, sizes):
        fits = logical_and(ge(place, 0), le(place, size - 1))
        inside = fits if inside is None else logical_and(inside, fits)
        whole = cast(where(fits, place, 0.0), dtype=int64)
        index = whole if index is None else add(mul(index, size), whole)
    shape = (n, c, *index.shape[1:])
    places = reshape(expand(unsqueeze(index, axis=1), shape=shape), shape=(n, c, math.prod(index.shape[1:])))
    found = gather(reshape(x, shape=(n, c, math.prod(sizes))), places, axis=2)
    return where(unsqueeze(inside, axis=1), reshape(found, shape=shape), otherwise)


def _grid(seed, shape, sizes, align_corners):
    """Positions inside and outside of an image, away from its elements and from where the nearest one changes."""
    whole, part = samples.integers(seed, shape, -2, 5), samples.numbers(seed, shape, 0.15, 0.35)
    places, sizes = whole + part, np.array(sizes[::-1])
    found = 2 * places / (sizes - 1) - 1 if align_corners else (2 * places + 1) / sizes - 1
    return np.asarray(np.float32(found), dtype="float64")


def _sampled_samples():
    cases = itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True))
    for k, (mode, padding_mode, align) in enumerate(cases):
        how = {"mode": mode, "padding_mode": padding_mode, "align_corners": align}
        yield Sample((samples.numbers(k, (2, 2, 4, 3)), _grid(k, (2, 3, 2, 2), (4, 3), align)), how)
    how = {"mode": "bilinear", "padding_mode": "zeros", "align_corners": False}
    yield Sample((samples.numbers(99, (1, 2, 3, 4, 2)), _grid(99, (1, 2, 2, 2, 3), (3, 4, 2), False)), how)


# x (N, C, *), grid (N, *, rank) of positions in [-1, 1], the last dimension's first.
sampled = composite(
    "sampled",
    _sampled_infer,
    _sampled,
    node_name=lambda operands, attributes: f"GridSampler{len(operands[0].shape) - 2}DBackward0",
    samples=lambda: list(_sampled_samples()),
    oracle=lambda torch, x, grid, **how: torch.nn.functional.grid_sample(x, grid, **how),
)
