"""Pooling as functions and layers, of one to three dimensions: the ops are in compiler/ops/pooling.py."""

import functools
import math

import numpy as np

from ..casting import widened
from ..compiler.dtypes import float32
from ..compiler.ops import pooling as ops
from ..compiler.ops import statistics
from ..compiler.ops.arithmetic import abs_, relu, sign
from ..compiler.ops.table import OpError
from ..compiler.shapes import is_whole
from ..compiler.storage import readable
from ..creation import full, rand
from ..functions import div, pow, to_dtype
from ..runtime.state.tensor import shape_of, tensor_of
from ..shaping import reshape
from .windows import _area_weights, _weighted, constant


# --- arguments --------------------------------------------------------------------------------------------------------
def _numbers(name, what, value, rank):
    """One number for each dimension."""
    numbers = (int(value),) * rank if is_whole(value) else tuple(int(n) for n in value)
    numbers = numbers * rank if len(numbers) == 1 else numbers
    if len(numbers) != rank:
        raise OpError(f"{name}: {what} must either be a single int, or a tuple of {rank} ints: {value}")
    return numbers


def _check_input(name, shape, rank):
    if len(shape) not in (rank + 1, rank + 2):
        raise OpError(f"{name}: Expected {rank + 1}D or {rank + 2}D input (got {len(shape)}D: {list(shape)})")
    if 0 in shape[-rank - 1 :]:
        raise OpError(f"{name}: Expected input's non-batch dimensions to have positive length, but got {list(shape)}")


def _count(n, kernel, stride, padding, dilation, ceil_mode):
    """How many windows: with ceil_mode also one that begins inside and ends beyond."""
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= n + padding else count


class _Windows:
    """kernel_size, stride, padding and dilation of a call, checked, one per dimension; `padding` has what ceil_mode
    adds behind, in `sides`."""

    def __init__(self, name, shape, kernel_size, stride, padding, dilation, ceil_mode, rank):
        _check_input(name, shape, rank)
        self.kernel = _numbers(name, "kernel_size", kernel_size, rank)
        self.stride = self.kernel if stride is None or stride == () else _numbers(name, "stride", stride, rank)
        self.padding = _numbers(name, "padding", padding, rank)
        self.dilation = _numbers(name, "dilation", dilation, rank)
        if min((*self.kernel, *self.stride, *self.dilation)) <= 0:
            raise OpError(
                f"{name}: kernel size, stride and dilation should be greater than zero, but got {self.kernel}, "
                f"{self.stride}, {self.dilation}"
            )
        if any(p < 0 or p > (d * (k - 1) + 1) // 2 for p, k, d in zip(self.padding, self.kernel, self.dilation)):
            raise OpError(
                f"{name}: pad should be at most half of effective kernel size, but got pad={self.padding}, "
                f"kernel_size={self.kernel} and dilation={self.dilation}"
            )
        sizes = shape[-rank:]
        each = zip(sizes, self.kernel, self.stride, self.padding, self.dilation)
        self.counts = [_count(*numbers, ceil_mode) for numbers in each]
        if min(self.counts) < 1:
            raise OpError(
                f"{name}: Given input size: {list(shape)}. Calculated output size: {self.counts}. Output size is "
                "too small"
            )
        reach = [
            (c - 1) * s + d * (k - 1) + 1 for c, s, d, k in zip(self.counts, self.stride, self.dilation, self.kernel)
        ]
        self.sides = tuple((p, r - n - p) for p, r, n in zip(self.padding, reach, sizes))

    @property
    def how(self):
        return {"kernel": self.kernel, "stride": self.stride, "padding": self.sides}


def _plain(given):
    return int(given) if is_whole(given) else tuple(int(n) for n in given)


_known_windows = functools.lru_cache(1024, typed=True)(_Windows)


def _windows(name, input, *how):
    """The _Windows of a call, remembered if what is given can be: a tensor as the number that it is now."""
    how = [x if x is None or x.__class__ in (int, bool) else _plain(x) for x in how]
    try:
        return _known_windows(name, tuple(shape_of(input)), *how)
    except TypeError:
        return _Windows(name, tuple(shape_of(input)), *how)


# --- extremes ---------------------------------------------------------------------------------------------------------
def _max_pool(rank, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
    name = f"max_pool{rank}d"
    found = _windows(name, input, kernel_size, stride, padding, dilation, ceil_mode, rank)
    how = {**found.how, "dilation": found.dilation}
    values = ops.max_pool(input, **how)
    return (values, ops.max_pool_index(input, **how)) if return_indices else values


def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest element of every window of the last dimension; return_indices: and its position."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest element of every window of the last two dimensions; return_indices: and its position among them."""
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest element of every window of the last three dimensions; return_indices: and its position among them."""
    (input,) = widened(input)
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _with_indices(rank, pool):
    def function(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        return pool(input, kernel_size, stride, padding, dilation, ceil_mode, True)

    function.__name__ = f"max_pool{rank}d_with_indices"
    function.__doc__ = f"max_pool{rank}d with the positions."
    return function


max_pool1d_with_indices = _with_indices(1, max_pool1d)
max_pool2d_with_indices = _with_indices(2, max_pool2d)
max_pool3d_with_indices = _with_indices(3, max_pool3d)


# --- averages ---------------------------------------------------------------------------------------------------------
def _in_float32(function):
    """The same of floats of 16 bits in float32: a sum is not rounded before it is divided."""

    def rounded_once(rank, input, *how):
        if not input.dtype.is_half:
            return function(rank, input, *how)
        return to_dtype(function(rank, to_dtype(input, float32), *how), input.dtype)

    return rounded_once


@_in_float32
def _avg_pool(rank, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override=None):
    name = f"avg_pool{rank}d"
    found = _windows(name, input, kernel_size, stride, padding, 1, ceil_mode, rank)
    if divisor_override == 0:
        raise OpError(f"{name}: divisor must be not zero")
    total = ops.window_sum(input, **found.how)
    elements = np.array(divisor_override)
    if divisor_override is None:
        elements = _elements(found, input.shape[-rank:], count_include_pad)
    divisor = int(elements.flat[0]) if elements.min() == elements.max() else constant(elements, input.dtype)
    return total / divisor if input.dtype.is_floating_point else div(total, divisor, rounding_mode="trunc")


def _elements(found, sizes, count_include_pad):
    """How many elements every window counts: of the input, or of the input as it is padded."""
    result = np.ones(())
    for n, k, s, p, count in zip(sizes, found.kernel, found.stride, found.padding, found.counts):
        first = np.arange(count) * s - p
        low, high = (-p, n + p) if count_include_pad else (0, n)
        inside = np.minimum(first + k, high) - np.maximum(first, low)
        result = result[..., None] * inside
    return result


def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """The mean of every window of the last dimension."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    """The mean of every window of the last two dimensions; divisor_override: the sum divided by that."""
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    """The mean of every window of the last three dimensions; divisor_override: the sum divided by that."""
    (input,) = widened(input)
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp_pool(rank, input, norm_type, kernel_size, stride, ceil_mode):
    """By sign and relu, as PyTorch computes it: the root of a negative sum of odd powers is 0."""
    kernel = _numbers(f"lp_pool{rank}d", "kernel_size", kernel_size, rank)
    if norm_type in (math.inf, -math.inf):
        # The largest size of a window, or the smallest.
        larger = abs_(input) if norm_type > 0 else -abs_(input)
        extreme = _max_pool(rank, larger, kernel, stride, 0, 1, ceil_mode, False)
        return extreme if norm_type > 0 else -extreme
    mean = _avg_pool(rank, pow(input, norm_type), kernel, stride, 0, ceil_mode, True)
    return pow(sign(mean) * relu(abs_(mean)) * math.prod(kernel), 1.0 / norm_type)


def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """(sum of x^norm_type)^(1 / norm_type) of every window of the last dimension."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """(sum of x^norm_type)^(1 / norm_type) of every window of the last two dimensions."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """(sum of x^norm_type)^(1 / norm_type) of every window of the last three dimensions."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


# --- adaptive: the size of the result is given ------------------------------------------------------------------------
def _targets(name, input, output_size, rank):
    _check_input(name, input.shape, rank)
    given = [output_size] * rank if output_size is None or is_whole(output_size) else list(output_size)
    if len(given) != rank:
        raise OpError(f"{name}: output_size must be {rank} numbers or None: {output_size}")
    targets = [n if t is None else int(t) for t, n in zip(given, input.shape[-rank:])]
    if min(targets) < 0:
        raise OpError(f"{name}: elements of output_size must be greater than or equal to 0: {targets}")
    return targets


def _divides(input, targets):
    """The kernel where all windows are equal and side by side; else None."""
    sizes = input.shape[-len(targets) :]
    if all(t and n % t == 0 for n, t in zip(sizes, targets)):
        return tuple(n // t for n, t in zip(sizes, targets))
    return None


@_in_float32
def _adaptive_avg_pool(rank, input, output_size):
    targets = _targets(f"adaptive_avg_pool{rank}d", input, output_size, rank)
    kernel = _divides(input, targets)
    if {*targets} == {1} and 0 not in input.shape and input.dtype.is_floating_point:
        # One window is all there is, as at the end of most networks of images: a mean, and not a sum of slices.
        return statistics.mean(input, axes=tuple(range(input.ndim - rank, input.ndim)), keepdim=True)
    if kernel is not None:
        return _avg_pool(rank, input, kernel, kernel, 0, False, True)
    lead = input.ndim - rank
    for k, target in enumerate(targets):
        input = _weighted(input, lead + k, _area_weights(input.shape[lead + k], target))
    return input


def adaptive_avg_pool1d(input, output_size):
    """Means of windows, as many as are wanted of m: window k goes from floor(k n / m) to ceil((k + 1) n / m)."""
    return _adaptive_avg_pool(1, input, output_size)


def adaptive_avg_pool2d(input, output_size):
    """adaptive_avg_pool1d of the last two dimensions; None: as many as there are."""
    return _adaptive_avg_pool(2, input, output_size)


def adaptive_avg_pool3d(input, output_size):
    """adaptive_avg_pool1d of the last three dimensions; None: as many as there are."""
    (input,) = widened(input)
    return _adaptive_avg_pool(3, input, output_size)


def _max_of(input, starts, lengths, return_indices):
    """The largest of windows that begin anywhere, given per dimension.

    The input is laid out window after window, shorter ones with their last element repeated, which changes no extreme.
    """
    rank, sizes = len(starts), input.shape[-len(starts) :]
    lead, longest = input.ndim - rank, [int(max(n)) if len(n) else 1 for n in lengths]
    places = [
        np.minimum(a[:, None] + np.arange(k), (a + n - 1)[:, None]).reshape(-1)
        for a, n, k in zip(starts, lengths, longest)
    ]
    for k, at in enumerate(places):
        input = input.index_select(lead + k, tensor_of(at.astype(np.int64)))
    how = {"kernel": tuple(longest), "stride": tuple(longest), "padding": ((0, 0),) * rank, "dilation": (1,) * rank}
    values = ops.max_pool(input, **how)
    if not return_indices:
        return values
    table = np.ravel_multi_index(np.meshgrid(*places, indexing="ij"), sizes).reshape(-1)
    index = ops.max_pool_index(input, **how)
    return values, tensor_of(table.astype(np.int64)).index_select(0, reshape(index, (index.numel(),))).reshape(
        index.shape
    )


def _adaptive_max_pool(rank, input, output_size, return_indices):
    name = f"adaptive_max_pool{rank}d"
    targets = _targets(name, input, output_size, rank)
    if min(targets) == 0:
        shape = (*input.shape[:-rank], *targets)
        values = full(shape, 0, dtype=input.dtype)
        return (values, full(shape, 0)) if return_indices else values
    kernel = _divides(input, targets)
    if kernel is not None:
        return _max_pool(rank, input, kernel, kernel, 0, 1, False, return_indices)
    starts = [np.arange(t) * n // t for n, t in zip(input.shape[-rank:], targets)]
    stops = [-(-(np.arange(t) + 1) * n // t) for n, t in zip(input.shape[-rank:], targets)]
    return _max_of(input, starts, [b - a for a, b in zip(starts, stops)], return_indices)


def adaptive_max_pool1d(input, output_size, return_indices=False):
    """The largest elements of as many windows as the result is to have elements."""
    return _adaptive_max_pool(1, input, output_size, return_indices)


def adaptive_max_pool2d(input, output_size, return_indices=False):
    """adaptive_max_pool1d of the last two dimensions."""
    return _adaptive_max_pool(2, input, output_size, return_indices)


def adaptive_max_pool3d(input, output_size, return_indices=False):
    """adaptive_max_pool1d of the last three dimensions."""
    (input,) = widened(input)
    return _adaptive_max_pool(3, input, output_size, return_indices)


# --- fractional: windows that begin at random steps (Graham, arXiv 1412.6071) -----------------------------------------
def _fractional_starts(sample, n, target, kernel):
    """trunc((k + u) a) - trunc(u a), with the last window at the end."""
    if target == 1:
        return np.array([n - kernel])
    alpha = (n - kernel) / (target - 1)
    steps = np.arange(target)
    # In the type of the samples, as PyTorch computes it.
    alpha, u = sample.dtype.type(alpha), sample
    starts = np.trunc((steps.astype(sample.dtype) + u) * alpha) - np.trunc(u * alpha)
    starts[-1] = n - kernel
    return starts.astype(np.int64)


def _fractional_max_pool(rank, input, kernel_size, output_size, output_ratio, return_indices, samples):
    name = f"fractional_max_pool{rank}d"
    if (output_size is None) == (output_ratio is None):
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    _check_input(name, input.shape, rank)
    kernel, sizes = _numbers(name, "kernel_size", kernel_size, rank), input.shape[-rank:]
    if output_size is None:
        ratios = (output_ratio,) * rank if isinstance(output_ratio, float) else tuple(output_ratio)
        output_size = [int(n * r) for n, r in zip(sizes, ratios)]
    targets = _numbers(name, "output_size", output_size, rank)
    if any(t + k - 1 > n or t < 1 for t, k, n in zip(targets, kernel, sizes)):
        raise OpError(f"{name}: pool size {kernel} and output size {targets} are too large for input {list(sizes)}")
    batched = input if input.ndim == rank + 2 else reshape(input, (1, *input.shape))
    if samples is None:
        samples = rand(batched.shape[0], batched.shape[1], rank, dtype=input.dtype)
    if tuple(samples.shape) != (*batched.shape[:2], rank):
        raise OpError(f"{name}: _random_samples must have shape {(*batched.shape[:2], rank)}, got {samples.shape}")
    values, index = _fractional_windows(batched, kernel, targets, readable(samples.detach().array))
    if input.ndim == rank + 1:
        values, index = values[0], index[0]
    return (values, index) if return_indices else values


def _fractional_windows(batched, kernel, targets, samples):
    """Every channel has windows of its own: all of them are read at once, by position."""
    rank, sizes, (n, c) = len(kernel), batched.shape[2:], batched.shape[:2]
    places = np.zeros((n, c) + (1,) * (2 * rank), np.int64)
    for k in range(rank):
        # PyTorch's samples are for the last dimension first, in two dimensions.
        u = samples[..., 1 - k] if rank == 2 else samples[..., k]
        at = np.zeros((n, c, targets[k], 1), np.int64)
        for sample in np.ndindex(n, c):
            at[sample][:, 0] = _fractional_starts(u[sample], sizes[k], targets[k], kernel[k])
        at = at + np.arange(kernel[k])
        shape = [n, c] + [1] * (2 * rank)
        shape[2 + k], shape[2 + rank + k] = targets[k], kernel[k]
        places = places * sizes[k] + at.reshape(shape)
    flat = tensor_of(places.reshape(n, c, math.prod(targets) * math.prod(kernel)))
    taken = reshape(
        reshape(batched, (n, c, math.prod(sizes))).gather(2, flat), (n, c, math.prod(targets), math.prod(kernel))
    )
    how = {"kernel": (math.prod(kernel),), "stride": (math.prod(kernel),), "padding": ((0, 0),), "dilation": (1,)}
    values = reshape(ops.max_pool(taken, **how), (n, c, *targets))
    best = reshape(ops.max_pool_index(taken, **how), (n, c, math.prod(targets), 1))
    index = reshape(flat.reshape(taken.shape).gather(3, best), (n, c, *targets))
    return values, index


def fractional_max_pool2d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """The largest elements of windows that begin at random steps, which are the same for a channel."""
    (input,) = widened(input)
    return _fractional_max_pool(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool3d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """fractional_max_pool2d of the last three dimensions."""
    (input,) = widened(input)
    return _fractional_max_pool(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def _with_positions(name, function):
    """The function that gives values and positions, whatever it is told about these."""

    def with_indices(input, *args, return_indices=False, **kwargs):
        return function(input, *args, return_indices=True, **kwargs)

    with_indices.__name__ = f"{name}_with_indices"
    with_indices.__doc__ = f"{name} with the positions."
    with_indices.__wrapped__ = function  # whose signature it has
    return with_indices


adaptive_max_pool1d_with_indices = _with_positions("adaptive_max_pool1d", adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = _with_positions("adaptive_max_pool2d", adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = _with_positions("adaptive_max_pool3d", adaptive_max_pool3d)
fractional_max_pool2d_with_indices = _with_positions("fractional_max_pool2d", fractional_max_pool2d)
fractional_max_pool3d_with_indices = _with_positions("fractional_max_pool3d", fractional_max_pool3d)


# --- undone -----------------------------------------------------------------------------------------------------------
def _max_unpool(rank, input, indices, kernel_size, stride, padding, output_size):
    name = f"max_unpool{rank}d"
    _check_input(name, input.shape, rank)
    if indices.shape != input.shape:
        raise OpError(
            f"{name}: Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got "
            f"indices tensor with shape: {list(indices.shape)}"
        )
    kernel, padding = _numbers(name, "kernel_size", kernel_size, rank), _numbers(name, "padding", padding, rank)
    stride = kernel if stride is None or stride == [] else _numbers(name, "stride", stride, rank)
    usual = [(n - 1) * s + k - 2 * p for n, s, k, p in zip(input.shape[-rank:], stride, kernel, padding)]
    sizes = usual if output_size is None else [int(n) for n in output_size][-rank:]
    if len(sizes) != rank or any(abs(n - m) >= s for n, m, s in zip(sizes, usual, stride)):
        raise ValueError(
            f"invalid output_size {output_size} (dim by dim it must be less than a stride {stride} from {usual})"
        )
    lead, count = input.shape[:-rank], math.prod(sizes)
    blank = full((*lead, count), 0, dtype=input.dtype)
    flat = (*lead, math.prod(input.shape[-rank:]))
    placed = blank.scatter(len(lead), reshape(indices, flat), reshape(input, flat))
    return reshape(placed, (*lead, *sizes))


def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """What max_pool1d(..., return_indices=True) took, put back among zeros."""
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """What max_pool2d(..., return_indices=True) took, put back among zeros."""
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """What max_pool3d(..., return_indices=True) took, put back among zeros."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)


FUNCTIONS = [
    f"{kind}{rank}d"
    for kind in str.split("max_pool avg_pool lp_pool adaptive_avg_pool adaptive_max_pool max_unpool")
    for rank in (1, 2, 3)
]
FUNCTIONS += [f"max_pool{rank}d_with_indices" for rank in (1, 2, 3)]
FUNCTIONS += [f"adaptive_max_pool{rank}d_with_indices" for rank in (1, 2, 3)]
FUNCTIONS += [f"fractional_max_pool{rank}d{form}" for rank in (2, 3) for form in ("", "_with_indices")]
