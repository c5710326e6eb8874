"""Elements rearranged between channels and positions: unfold and fold, shuffles, and resampling by interpolation."""

import math

import numpy as np

from ..compiler.dtypes import uint8
from ..compiler.later import later
from ..compiler.ops import view
from ..compiler.ops.table import OpError
from ..compiler.shapes import is_whole
from ..compiler.storage import convert
from ..half_floats import in_float32
from ..placement import beside
from ..reducing import sum
from ..runtime.state.tensor import tensor_of
from ..shaping import permute, reshape
from .module import Module
from .padding import pad

_counts = later("compiler.ops.windows:counts")
_shown = later("compiler.ops.windows:windows")
_added = later("compiler.ops.windows:overlap_add")


def _pair(n):
    return (int(n), int(n)) if is_whole(n) else tuple(n) * 2 if len(n) == 1 else tuple(n)


def constant(array, dtype):
    """Numbers as a tensor, converted before it is one: a compiled call takes it as it is, and reads nothing."""
    return tensor_of(np.array(convert(np.asarray(array), dtype), order="C"))


# --- unfold and fold --------------------------------------------------------------------------------------------------
def _patches(name, height, width, kernel, dilation, padding, stride):
    """(padded sizes of images, how many patches there are down and across)."""
    if any(n <= 0 for n in (*kernel, *dilation, *stride)) or any(n < 0 for n in padding):
        raise RuntimeError(
            f"{name}: kernel_size, dilation and stride should be greater than zero, and padding not negative: "
            f"{kernel}, {dilation}, {stride}, {padding}"
        )
    sizes = tuple([n + 2 * p for n, p in zip((height, width), padding)])
    counts = _counts(sizes, kernel, stride, dilation)
    if min(counts) < 1:
        raise RuntimeError(
            f"{name}: Given input with spatial size ({height}, {width}), kernel_size={kernel}, dilation={dilation}, "
            f"padding={padding}, calculated shape of the array of sliding blocks as {tuple(counts)}, but its "
            "components must be at least one."
        )
    return sizes, counts


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """The patches of images, one a column: (N, C, H, W) -> (N, C kh kw, L)."""
    if input.ndim not in (3, 4):
        raise OpError(f"unfold: Expected 3D or 4D (batch mode) tensor, but got: {list(input.shape)}")
    kernel, dilation, padding, stride = (_pair(n) for n in (kernel_size, dilation, padding, stride))
    batched = input if input.ndim == 4 else reshape(input, (1, *input.shape))
    n, c, h, w = batched.shape
    _, counts = _patches("unfold", h, w, kernel, dilation, padding, stride)
    padded = pad(batched, (padding[1], padding[1], padding[0], padding[0]))
    # As a copy, also where reshape would not make one.
    patches = view.clone(_shown(padded, kernel=kernel, stride=stride, dilation=dilation))
    result = reshape(patches, (n, c * math.prod(kernel), math.prod(counts)))
    return result if input.ndim == 4 else result[0]


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Patches added up to images: (N, C kh kw, L) -> (N, C, H, W)."""
    if input.ndim not in (2, 3):
        raise OpError(f"fold: Expected 2D or 3D (batch mode) tensor for input, but got: {list(input.shape)}")
    kernel, dilation, padding, stride = (_pair(n) for n in (kernel_size, dilation, padding, stride))
    batched = input if input.ndim == 3 else reshape(input, (1, *input.shape))
    n, rows, blocks = batched.shape
    h, w = _pair(output_size)
    sizes, counts = _patches("fold", h, w, kernel, dilation, padding, stride)
    taps = math.prod(kernel)
    if rows % taps or blocks != math.prod(counts):
        raise OpError(
            f"fold: Given output_size=({h}, {w}), kernel_size={kernel}, expected input's size to be (*, a multiple of "
            f"{taps}, {math.prod(counts)}), but got {list(input.shape)}"
        )
    parts = reshape(batched, (n, rows // taps, *kernel, *counts))
    image = _added(parts, size=sizes, kernel=kernel, stride=stride, dilation=dilation)
    image = pad(image, (-padding[1], -padding[1], -padding[0], -padding[0]))
    return image if input.ndim == 3 else image[0]


# --- shuffles ---------------------------------------------------------------------------------------------------------
def pixel_shuffle(input, upscale_factor):
    """(*, C r^2, H, W) -> (*, C, H r, W r)."""
    r = int(upscale_factor)
    if input.ndim < 3:
        raise OpError(f"pixel_shuffle expects input to have at least 3 dimensions, but got {input.ndim} dimension(s)")
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {upscale_factor}")
    *lead, c, h, w = input.shape
    if c % (r * r):
        raise OpError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={c} is not divisible by {r * r}"
        )
    parts, n = reshape(input, (*lead, c // (r * r), r, r, h, w)), len(lead)
    order = (*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return reshape(permute(parts, order), (*lead, c // (r * r), h * r, w * r))


def pixel_unshuffle(input, downscale_factor):
    """(*, C, H r, W r) -> (*, C r^2, H, W)."""
    r = int(downscale_factor)
    if input.ndim < 3:
        raise OpError(f"pixel_unshuffle expects input to have at least 3 dimensions, but got {input.ndim} dimension(s)")
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {downscale_factor}")
    *lead, c, h, w = input.shape
    if h % r or w % r:
        raise OpError(f"pixel_unshuffle expects height and width to be divisible by downscale_factor {r}, got {h}, {w}")
    parts, n = reshape(input, (*lead, c, h // r, r, w // r, r)), len(lead)
    order = (*range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return reshape(permute(parts, order), (*lead, c * r * r, h // r, w // r))


def channel_shuffle(input, groups):
    """Channels dealt out to groups like cards: (N, C, *)."""
    if input.ndim < 3:
        raise OpError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    if groups <= 0 or input.shape[1] % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {input.shape[1]} and {groups} groups.")
    n, c, *rest = input.shape
    parts = reshape(input, (n, groups, c // groups, *rest))
    return reshape(permute(parts, (0, 2, 1, *range(3, parts.ndim))), input.shape)


# --- resampling: along one axis after the other, as sums of two or four neighbours ------------------------------------
_resized = later("compiler.ops.resampling:resized")
_MODES = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}


@in_float32
def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    """Images in another size: (N, C, *). mode: nearest, nearest-exact, linear, bilinear, bicubic, trilinear, area."""
    rank = input.ndim - 2
    _check_mode(input, mode, align_corners, antialias)
    sizes, scales = _target_sizes(input, rank, size, scale_factor, recompute_scale_factor)
    if min((*sizes, *input.shape[2:]), default=1) <= 0:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got {input.shape[2:]} and {tuple(sizes)}"
        )
    dims = [(k + 2, *both) for k, both in enumerate(zip(sizes, scales))]
    if mode in _MODES and not antialias and input.dtype.is_floating_point:
        return _between(input, dims, mode, bool(align_corners))
    # Bytes are rounded after every dimension: rows first, as in PyTorch.
    for dim in reversed(dims) if input.dtype is uint8 else dims:
        input = _in_type(_resampled, input, *dim, mode, bool(align_corners), antialias)
    return input


def _in_type(resample, input, axis, target, scale, mode, *options):
    """Between numbers of uint8 the nearest one is taken, one dimension after the other; other integers are refused."""
    if input.dtype.is_floating_point or mode not in _MODES:
        return resample(input, axis, target, scale, mode, *options)
    if input.dtype is not uint8:
        raise NotImplementedError(f"interpolate: mode {mode!r} is not implemented for {input.dtype.name}; use .float()")
    return resample(input.float(), axis, target, scale, mode, *options).round().clamp(0, 255).to(uint8)


def _check_mode(input, mode, align_corners, antialias):
    if mode in ("nearest", "nearest-exact", "area"):
        if align_corners is not None:
            raise ValueError("align_corners option can only be set with the interpolating modes: " + " | ".join(_MODES))
        if not 3 <= input.ndim <= 5:
            raise NotImplementedError(f"interpolate: Input Error: Only 3D, 4D and 5D input, got {input.ndim}D")
    elif _MODES.get(mode) != input.ndim:
        raise NotImplementedError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported for the modes: nearest | linear | bilinear | "
            f"bicubic | trilinear | area | nearest-exact, each with its own; got {input.ndim}D for {mode}"
        )
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError("Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor")


def _target_sizes(input, rank, size, scale_factor, recompute):
    """(output sizes, input steps per output step) of every spatial dimension."""
    if (size is None) == (scale_factor is None):
        raise ValueError(
            "only one of size or scale_factor should be defined"
            if size
            else "either size or scale_factor should be defined"
        )
    if size is not None:
        sizes = [int(n) for n in (size if isinstance(size, (list, tuple)) else [size] * rank)]
        _check_rank(input, sizes, rank)
        return sizes, [None] * rank
    factors = list(scale_factor) if isinstance(scale_factor, (list, tuple)) else [scale_factor] * rank
    _check_rank(input, factors, rank)
    sizes = [math.floor(n * f) for n, f in zip(input.shape[2:], factors)]
    return sizes, [None] * rank if recompute else [1.0 / f for f in factors]


def _check_rank(input, values, rank):
    if len(values) != rank:
        raise ValueError(
            "Input and output must have the same number of spatial dimensions, but got input with spatial dimensions "
            f"of {list(input.shape[2:])} and output size of {values}"
        )


def _resampled(x, axis, target, scale, mode, align_corners, antialias):
    source = x.shape[axis]
    if mode == "area":
        return _weighted(x, axis, _area_weights(source, target))
    if mode in _MODES and not antialias:
        return _between(x, [(axis, target, scale)], mode, align_corners)
    step = source / target if scale is None else scale
    if mode.startswith("nearest"):
        return _chosen(x, axis, target, np.float32(step), 0.5 if mode == "nearest-exact" else 0.0)
    if align_corners:
        step = _corner_step(source, target)
    return _weighted(x, axis, _antialias_weights(source, target, step, mode, align_corners))


def _corner_step(source, target):
    return (source - 1) / (target - 1) if target > 1 else 0.0


def _between(x, dims, mode, align_corners):
    """Sums of two or four neighbours along the dimensions, given as (axis, new size, the step or None)."""
    resized = []
    for axis, target, scale in dims:
        source = x.shape[axis]
        step = _corner_step(source, target) if align_corners else source / target if scale is None else scale
        resized.append((axis, target, step))
    kind = "cubic" if mode == "bicubic" else "linear"
    return _resized(x, resized=tuple(resized), mode=kind, align_corners=align_corners)


def _chosen(x, axis, target, step, shift):
    places = np.floor((np.arange(target, dtype=np.float32) + np.float32(shift)) * step).astype(np.int64)
    return x.index_select(axis, beside(tensor_of(np.minimum(places, x.shape[axis] - 1)), x))


def _weighted(x, axis, weights):
    """Every output a sum of neighbouring inputs, by a matrix of weights (target, source).

    No product with the matrix: an infinity or a NaN would make NaN of every output, by the zeros of its rows.
    """
    target, shape = len(weights), x.shape
    first = np.argmax(weights != 0, 1)
    last = shape[axis] - 1 - np.argmax(weights[:, ::-1] != 0, 1)
    longest = int((last - first).max(initial=0)) + 1
    # Shorter windows have their last input several times, each with its share of the weight.
    places = np.minimum(first[:, None] + np.arange(longest), last[:, None])
    shares = np.take_along_axis(weights, places, 1) / (places[:, :, None] == places[:, None]).sum(2)
    x = x.index_select(axis, beside(tensor_of(places.reshape(-1)), x))
    x = reshape(x, (*shape[:axis], target, longest, *shape[axis + 1 :]))
    shares = constant(shares.reshape(target, longest, *(1,) * (len(shape) - axis - 1)), x.dtype)
    return sum(x * beside(shares, x), axis + 1)


def _area_weights(source, target):
    weights = np.zeros((target, source))
    for k in range(target):
        start, stop = k * source // target, -(-(k + 1) * source // target)
        weights[k, start:stop] = 1 / (stop - start)
    return weights


def _cubic_weight(distance, a):
    """Keys' cubic convolution (1981)."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _antialias_weights(source, target, step, mode, align_corners):
    """The filter widened by the step, where that is above 1."""
    reach, widened = (1.0 if mode == "bilinear" else 2.0), max(step, 1.0)
    centres = (np.arange(target) + 0.5) * step
    first = np.maximum(np.floor(centres - reach * widened + 0.5), 0)
    last = np.minimum(np.floor(centres + reach * widened + 0.5), source)
    places = np.arange(source)
    distance = (places + 0.5 - centres[:, None]) / widened
    values = np.maximum(1 - np.abs(distance), 0) if mode == "bilinear" else _cubic_weight(distance, -0.5)
    values = np.where((places >= first[:, None]) & (places < last[:, None]), values, 0)
    return values / values.sum(1, keepdims=True)


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """interpolate under its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate to the nearest neighbour."""
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate between four neighbours, corners on corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


# --- layers -----------------------------------------------------------------------------------------------------------
class Unfold(Module):
    """Patches as columns: see functional.unfold."""

    def __init__(self, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input):
        return unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """Patches added up: see functional.fold."""

    def __init__(self, output_size, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, input):
        return fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self):
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class PixelShuffle(Module):
    """(*, C r^2, H, W) -> (*, C, H r, W r)."""

    def __init__(self, upscale_factor):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input):
        return pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self):
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(*, C, H r, W r) -> (*, C r^2, H, W)."""

    def __init__(self, downscale_factor):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input):
        return pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self):
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Channels dealt out to groups."""

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, input):
        return channel_shuffle(input, self.groups)

    def extra_repr(self):
        return f"groups={self.groups}"


class Upsample(Module):
    """Images in another size: see functional.interpolate."""

    def __init__(self, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None):
        super().__init__()
        self.size, self.mode, self.align_corners = size, mode, align_corners
        self.name, self.recompute_scale_factor = type(self).__name__, recompute_scale_factor
        is_tuple = isinstance(scale_factor, tuple)
        self.scale_factor = tuple(map(float, scale_factor)) if is_tuple else scale_factor and float(scale_factor)

    def forward(self, input):
        return interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )

    def extra_repr(self):
        target = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{target}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample to the nearest neighbour."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample between four neighbours, corners on corners."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, "bilinear", True)


FUNCTIONS = str.split("""
    unfold fold pixel_shuffle pixel_unshuffle channel_shuffle interpolate upsample upsample_nearest upsample_bilinear
""")
LAYERS = str.split("""
    Unfold Fold PixelShuffle PixelUnshuffle ChannelShuffle Upsample UpsamplingNearest2d UpsamplingBilinear2d
""")
