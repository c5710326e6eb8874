"""Images read at any positions: affine_grid makes grids of positions, grid_sample reads there."""

import itertools
import math

import numpy as np

from ..casting import widened
from ..compiler.dtypes import int64
from ..compiler.ops.arithmetic import floor
from ..compiler.ops.comparison import cast, where
from ..compiler.ops.division import remainder
from ..compiler.ops.table import OpError
from ..creation import as_tensor
from ..functions import gather, matmul
from ..shaping import expand, reshape, unsqueeze


def affine_grid(theta, size, align_corners=False):
    """Positions in [-1, 1] that theta (N, 2, 3) or (N, 3, 4) maps the pixels of an (N, C, *) image to."""
    spatial = tuple(size)[2:]
    rank = len(spatial)
    if theta.ndim != 3 or theta.shape[1:] != (rank, rank + 1):
        raise OpError(f"affine_grid: Expected a batch of {rank}x{rank + 1} matrices for theta, got {theta.shape}")
    lines = [_base_line(n, align_corners) for n in spatial]
    places = np.meshgrid(*lines, indexing="ij")
    # The last dimension comes first in the positions.
    base = np.stack([*places[::-1], np.ones(spatial)], -1).reshape(-1, rank + 1)
    points = matmul(as_tensor(base, dtype=theta.dtype), theta.mT)
    return reshape(points, (theta.shape[0], *spatial, rank))


def _base_line(n, align_corners):
    line = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
    return line if align_corners else line * (n - 1) / n


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """input (N, C, *) read at the positions of grid (N, *, rank) in [-1, 1]: bilinear, nearest or bicubic.

    Outside the image: "zeros", the "border", or its "reflection".
    """
    input, grid = widened(input, grid)
    _check(input, grid, mode, padding_mode)
    rank = input.ndim - 2
    places = [_unnormalised(grid[..., rank - 1 - k], n, align_corners) for k, n in enumerate(input.shape[2:])]
    if mode == "bicubic":
        taps = _cubic_taps(input, places, padding_mode, align_corners)
    else:
        places = [_limited(p, n, padding_mode, align_corners) for p, n in zip(places, input.shape[2:])]
        taps = _nearest_tap(places) if mode == "nearest" else _linear_taps(places)
    total = None
    for corner, weight in taps:
        part = _read(input, corner) * unsqueeze(weight, 1)
        total = part if total is None else total + part
    return total


def _check(input, grid, mode, padding_mode):
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: {mode!r}")
    if padding_mode not in ("zeros", "border", "reflection"):
        allowed = "'zeros', 'border', or 'reflection'"
        raise ValueError(f"grid_sample(): expected padding_mode to be {allowed}, but got: {padding_mode!r}")
    fits = input.ndim in (4, 5) and grid.ndim == input.ndim and grid.shape[-1] == input.ndim - 2
    if not fits or input.shape[0] != grid.shape[0]:
        raise OpError(f"grid_sample(): expected an image and a grid that fit, but got {input.shape} and {grid.shape}")
    if mode == "bicubic" and input.ndim != 4:
        raise RuntimeError("grid_sample(): bicubic interpolation only supports 4D input")
    if 0 in input.shape[2:]:
        raise RuntimeError(f"grid_sample(): expected input to have non-empty spatial dimensions, but got {input.shape}")


def _unnormalised(x, size, align_corners):
    """[-1, 1] as positions: of the centres of the outer pixels, or of their outer edges."""
    return (x + 1) * ((size - 1) / 2) if align_corners else ((x + 1) * size - 1) / 2


def _limited(place, size, padding_mode, align_corners):
    if padding_mode == "border":
        return place.clamp(0, size - 1)
    if padding_mode == "reflection":
        low, high = (0, 2 * (size - 1)) if align_corners else (-1, 2 * size - 1)
        return _reflected(place, low / 2, high / 2).clamp(0, size - 1)
    return place


def _reflected(place, low, high):
    span = high - low
    if span == 0:
        return place * 0
    distance = (place - low).abs()
    extra = remainder(distance, 2 * span)
    return where(extra <= span, extra, 2 * span - extra) + low


def _nearest_tap(places):
    rounded = [p.detach().round() for p in places]
    return [(rounded, rounded[0] * 0 + 1)]


def _linear_taps(places):
    """All corners of the cell, each with the product of its nearness along every dimension."""
    below = [floor(p).detach() for p in places]
    for sides in itertools.product((0, 1), repeat=len(places)):
        corner = [b + s for b, s in zip(below, sides)]
        nearness = [(p - b) if s else (b + 1 - p) for p, b, s in zip(places, below, sides)]
        yield corner, _product(nearness)


def _product(parts):
    total = parts[0]
    for p in parts[1:]:
        total = total * p
    return total


def _cubic_taps(input, places, padding_mode, align_corners):
    """16 neighbours; every one of them is limited by itself."""
    below = [floor(p).detach() for p in places]
    for steps in itertools.product((-1, 0, 1, 2), repeat=2):
        raw = [b + s for b, s in zip(below, steps)]
        corner = [_limited(r, n, padding_mode, align_corners) for r, n in zip(raw, input.shape[2:])]
        yield corner, _product([_cubic_weight((p - r).abs()) for p, r in zip(places, raw)])


def _cubic_weight(d, a=-0.75):
    """Keys' cubic convolution (1981)."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return where(d <= 1, near, where(d < 2, far, 0.0))


def _read(input, corner):
    """The pixels at whole positions, 0 outside."""
    n, c, *spatial = input.shape
    inside, index = None, None
    for place, size in zip(corner, spatial):
        fits = (place >= 0) & (place <= size - 1)
        inside = fits if inside is None else inside & fits
        whole = cast(where(fits, place, 0.0), dtype=int64)
        index = whole if index is None else index * size + whole
    flat = reshape(input, (n, c, math.prod(spatial)))
    shape = (n, c, *index.shape[1:])
    places = reshape(expand(unsqueeze(index, 1), shape), (n, c, math.prod(index.shape[1:])))
    return where(unsqueeze(inside, 1), reshape(gather(flat, 2, places), shape), 0.0)


FUNCTIONS = str.split("affine_grid grid_sample")
