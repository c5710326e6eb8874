"""Pooling: the extreme of every window, where it is, and the sum of every window, over the last dimensions.

A small window is a chain of elementwise ops on slices, one per tap, which fuse into one loop with what follows. Of a
large one a copy is made, which a reduction reads.
"""

from itertools import product
from math import inf, prod

import numpy as np

from .. import dtypes
from . import samples
from .arithmetic import add, mul
from .comparison import gt, logical_or, ne, where
from .indexing import gather, scatter_add
from .kinds import composite
from .padded import padded
from .pointwise import maximum
from .reduction import amax, argmax, sum_
from .samples import Sample
from .source import arange, zeros_like
from .table import Meta, OpError
from .view import expand, reshape, slice_
from .windows import counts, overlap_add, windows

# Windows of more elements are copied and reduced: the programs of longer chains took long to compile.
_MOST_TAPS = 64


def _sizes(x, kernel):
    return x.shape[len(x.shape) - len(kernel) :]


def _pooled(operands, attributes, default_float):
    (x,), kernel, padding = operands, attributes["kernel"], attributes["padding"]
    sizes = [d + a + b for d, (a, b) in zip(_sizes(x, kernel), padding)]
    positions = counts(sizes, kernel, attributes["stride"], attributes.get("dilation", (1,) * len(kernel)))
    if min(positions, default=1) < 1:
        raise OpError(
            f"pooling: Given input of shape {x.shape}, kernel_size={kernel}, padding={padding}: calculated output "
            f"size {positions}. Output size is too small"
        )
    return Meta((*x.shape[: len(x.shape) - len(kernel)], *positions), x.dtype)


def _taps(x, kernel, stride, dilation):
    """(index in the window, the slice of x with that element of every window), in order."""
    lead = len(x.shape) - len(kernel)
    positions = counts(x.shape[lead:], kernel, stride, dilation)
    whole = tuple((0, 1, d) for d in x.shape[:lead])
    for index in product(*map(range, kernel)):
        at = tuple((k * d, s, n) for k, d, s, n in zip(index, dilation, stride, positions))
        yield index, slice_(x, spec=(*whole, *at))


def _in_rows(x, kernel, stride, dilation):
    """The windows as (*, elements, positions)."""
    lead = x.shape[: len(x.shape) - len(kernel)]
    found = windows(x, kernel=kernel, stride=stride, dilation=dilation)
    return reshape(found, shape=(*lead, prod(kernel), prod(found.shape[len(lead) + len(kernel) :])))


def _lowest(dtype):
    return -inf if dtype.is_floating_point else int(np.iinfo(dtype.numpy).min)


# --- extremes ---------------------------------------------------------------------------------------------------------
def _max_pool(x, kernel, stride, padding, dilation):
    shape = _pooled((x,), {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}, None).shape
    x = padded(x, padding, _lowest(x.dtype))
    if prod(kernel) > _MOST_TAPS:
        rows = _in_rows(x, kernel, stride, dilation)
        return reshape(amax(rows, axes=(len(rows.shape) - 2,), keepdim=False), shape=shape)
    best = None
    for _, tap in _taps(x, kernel, stride, dilation):
        best = tap if best is None else maximum(tap, best)  # of equal ones the first
    return best


def _max_pool_vjp(g, out, x, **how):
    """To the element that is the extreme: where several are, the one that max_pool_index names."""
    lead, n = prod(x.shape[: len(x.shape) - len(how["kernel"])]), prod(g.shape)
    index = reshape(max_pool_index(x, **how), shape=(lead, n // lead if lead else 0))
    blank = reshape(zeros_like(x), shape=(lead, prod(x.shape) // lead if lead else 0))
    placed = scatter_add(blank, index, reshape(g, shape=index.shape), axis=1, inside=True)
    return reshape(placed, shape=x.shape)


def _index_infer(operands, attributes, default_float):
    return Meta(_pooled(operands, attributes, default_float).shape, dtypes.int64)


def _spread(x, axis, shape, value, step):
    """Along one axis of a shape, value + step * position."""
    numbers = x.apply_op(arange, (value, step), {"shape": (shape[axis],), "dtype": dtypes.int64})
    return reshape(numbers, shape=tuple(d if k == axis else 1 for k, d in enumerate(shape)))


def _starts(x, positions, sizes, stride, padding, dilation):
    """(position in x of the windows' first element, of the first that is no padding), flattened over the sizes."""
    first = valid = None
    for axis, ((before, _), s, d) in enumerate(zip(padding, stride, dilation)):
        at = inside = _spread(x, axis, positions, -before, s)
        for _ in range(-(-before // d)):
            inside = where(gt(0, inside), add(inside, d), inside)
        step = prod(sizes[axis + 1 :])
        at, inside = mul(at, step), mul(inside, step)
        first, valid = (at, inside) if first is None else (add(first, at), add(valid, inside))
    return first, valid


def _max_pool_index(x, kernel, stride, padding, dilation):
    """The first of equals, and the last NaN, as PyTorch's kernels find them one after the other."""
    sizes, image = _sizes(x, kernel), padded(x, padding, _lowest(x.dtype))
    positions = counts(_sizes(image, kernel), kernel, stride, dilation)
    first, found = _starts(x, positions, sizes, stride, padding, dilation)
    if prod(kernel) > _MOST_TAPS:
        return _index_of_large(image, sizes, kernel, stride, padding, dilation, found)
    best = _lowest(x.dtype)
    for index, tap in _taps(image, kernel, stride, dilation):
        step = sum(k * d * prod(sizes[axis + 1 :]) for axis, (k, d) in enumerate(zip(index, dilation)))
        better = logical_or(gt(tap, best), ne(tap, tap))
        found = where(better, add(first, step), found)
        best = where(better, tap, best)
    return found


def _index_of_large(image, sizes, kernel, stride, padding, dilation, valid):
    """By argmax, which finds the first NaN; -1 stands for padding."""
    rows = _in_rows(image, kernel, stride, dilation)
    axis, shape = len(rows.shape) - 2, rows.shape
    numbers = image.apply_op(arange, (0, 1), {"shape": (prod(sizes),), "dtype": dtypes.int64})
    places = _in_rows(padded(reshape(numbers, shape=sizes), padding, -1), kernel, stride, dilation)
    taken = argmax(rows, axis=axis)
    taken = reshape(taken, shape=(*shape[:axis], 1, shape[-1]))
    found = gather(expand(places, shape=shape), taken, axis=axis)
    found = reshape(found, shape=(*image.shape[: len(image.shape) - len(kernel)], *valid.shape))
    return where(gt(0, found), valid, found)


# --- sums -------------------------------------------------------------------------------------------------------------
def _window_sum(x, kernel, stride, padding):
    shape = _pooled((x,), {"kernel": kernel, "stride": stride, "padding": padding}, None).shape
    x, dilation = padded(x, padding), (1,) * len(kernel)
    if prod(kernel) > _MOST_TAPS:
        rows = _in_rows(x, kernel, stride, dilation)
        return reshape(sum_(rows, axes=(len(rows.shape) - 2,), keepdim=False), shape=shape)
    total = None
    for _, tap in _taps(x, kernel, stride, dilation):
        total = tap if total is None else add(total, tap)
    return total


def _window_sum_vjp(g, out, x, kernel, stride, padding):
    lead = len(x.shape) - len(kernel)
    spread = reshape(g, shape=(*g.shape[:lead], *(1,) * len(kernel), *g.shape[lead:]))
    spread = expand(spread, shape=(*g.shape[:lead], *kernel, *g.shape[lead:]))
    size = tuple(d + a + b for d, (a, b) in zip(x.shape[lead:], padding))
    image = overlap_add(spread, size=size, kernel=kernel, stride=stride, dilation=(1,) * len(kernel))
    return padded(image, [(-a, -b) for a, b in padding])


# --- entries ----------------------------------------------------------------------------------------------------------
_CASES = (
    ((2, 3, 8), (2,), (2,), ((0, 0),), (1,)),
    ((2, 2, 7, 6), (3, 2), (2, 1), ((1, 1), (1, 0)), (1, 2)),
    ((1, 2, 4, 5, 4), (2, 2, 2), (2, 1, 2), ((0, 0), (1, 1), (0, 0)), (1, 1, 1)),
    ((2, 1, 12, 9), (9, 8), (2, 1), ((1, 1), (0, 0)), (1, 1)),
)


def _pool_samples(names):
    def make():
        result = []
        for k, (shape, *how) in enumerate(_CASES):
            attributes = dict(zip(("kernel", "stride", "padding", "dilation"), how))
            # Distinct numbers, apart by more than the steps of finite differences.
            order = samples.numbers(k, (prod(shape),)).argsort().argsort()
            values = (order.reshape(shape) - prod(shape) / 2) / 64.0
            result.append(Sample((values,), {name: attributes[name] for name in names}))
        return result

    return make


max_pool_index = composite(
    "max_pool_index",
    _index_infer,
    _max_pool_index,
    vjp=(None,),
    samples=_pool_samples(("kernel", "stride", "padding", "dilation")),
    oracle=lambda torch, x, **how: _torch_max_pool(torch, x, **how)[1],
)

max_pool = composite(
    "max_pool",
    _pooled,
    _max_pool,
    vjp=(_max_pool_vjp,),
    node_name=lambda operands, attributes: f"MaxPool{max(len(attributes['kernel']), 2)}DWithIndicesBackward0",
    samples=_pool_samples(("kernel", "stride", "padding", "dilation")),
    oracle=lambda torch, x, **how: _torch_max_pool(torch, x, **how)[0],
)

window_sum = composite(
    "window_sum",
    _pooled,
    _window_sum,
    vjp=(_window_sum_vjp,),
    node_name=lambda operands, attributes: f"AvgPool{len(attributes['kernel'])}DBackward0",
    samples=_pool_samples(("kernel", "stride", "padding")),
    oracle=lambda torch, x, **how: _torch_window_sum(torch, x, **how),
)


def _torch_max_pool(torch, x, kernel, stride, padding, dilation):
    """Of an image that is padded before, with positions taken back."""
    extended = torch.nn.functional.pad(x, [n for pair in reversed(padding) for n in pair], value=-inf)
    function = getattr(torch.nn.functional, f"max_pool{len(kernel)}d")
    out, index = function(extended, kernel, stride, 0, dilation, return_indices=True)
    numbers = torch.arange(prod(_sizes(x, kernel))).reshape(_sizes(x, kernel))
    places = torch.nn.functional.pad(numbers, [n for pair in reversed(padding) for n in pair], value=-1)
    return out, places.reshape(-1)[index]


def _torch_window_sum(torch, x, kernel, stride, padding):
    extended = torch.nn.functional.pad(x, [n for pair in reversed(padding) for n in pair])
    function = getattr(torch.nn.functional, f"avg_pool{len(kernel)}d")
    return function(extended, kernel, stride) * prod(kernel)
