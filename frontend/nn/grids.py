"""Images read at any positions: affine_grid makes grids of positions, grid_sample reads there."""

import numpy as np

from ..casting import widened
from ..compiler.later import later
from ..compiler.ops.table import OpError
from ..creation import as_tensor
from ..functions import matmul
from ..shaping import reshape

_sampled = later("compiler.ops.resampling:sampled")


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
    how = {"mode": mode, "padding_mode": padding_mode, "align_corners": bool(align_corners)}
    return _sampled(input, grid, **how)


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


FUNCTIONS = str.split("affine_grid grid_sample")
