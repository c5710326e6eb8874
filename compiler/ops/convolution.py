"""Convolution of any number of dimensions, and its two derivatives, each of which is expressed by the other two.

    convolution         out[n, o, p] = sum over c, k of x[n, c, p * stride + k * dilation] weight[o, c, k]
    convolution_input   its adjoint for x: the gradient, and transposed convolution
    convolution_weight  its adjoint for the weight

with x padded by zeros, `padding` (before, after) per dimension, and channels in `groups` that do not see each other.
All three are linear in both operands, so their derivatives are these three again, of any order.

They are matrix products over windows: rows are output channels, columns positions, and the sum runs over channels and
taps in that order. Of small images the windows are copied (windows.py), or their cotangents added up; elsewhere they
are read where they lie, without what lies in the padding (direct_convolution.py). Shapes alone decide which. Where
every group has one input channel and one output channel (depthwise), there is nothing to multiply matrices for: the
taps are summed one after the other, elementwise, and fuse with their neighbours.
"""

from itertools import product
from math import prod

from ..dtypes import float64
from . import samples
from .arithmetic import add, mul
from .contraction import bmm, integers_only_eager
from .direct_convolution import (
    can,
    cycles,
    direct_convolution,
    direct_convolution_input,
    direct_convolution_weight,
    pays,
    rearranged,
    samples_last_pays,
    usual,
    with_samples_first,
    with_samples_last,
)
from .kinds import composite, require_floating
from .padded import padded
from .reduction import sum_
from .samples import Sample
from .table import Meta, OpError
from .view import expand, permute, reshape, slice_
from .windows import counts, overlap_add, windows

# Fewer positions than this are too few columns for the matrix kernel: the batch is taken with them.
_FEW_POSITIONS = 64
# So few positions of one sample are better rows than columns: the weight is then read as it lies. How a convolution is
# computed depends on whether there is one sample, and on no other number of them: the order of sums would, and programs
# serve all sizes of a batch.
_FEW_ROWS = 16
# What it takes to add an element of the windows' cotangents to their image, where they stay in a level-2 or -3 cache:
# adjacent ones, and those that a stride keeps apart.
_ADDING_CYCLES, _ADDING_APART_CYCLES = 1.2, 4.0
# Taps of a depthwise convolution that are summed one after the other.
_MOST_TAPS = 32


# --- shapes -----------------------------------------------------------------------------------------------------------
def _check_types(name, operands):
    """As PyTorch says it: `Input type (double) and weight type (float) should be the same`."""
    if operands[0].dtype.category != 1:
        require_floating(name, operands[0])
    for role, o in zip(("weight", "bias"), operands[1:]):
        if o.dtype is not operands[0].dtype:
            raise OpError(
                f"{name}: Input type ({operands[0].dtype.name}) and {role} type ({o.dtype.name}) should be the same; "
                "convert one with .to(...)"
            )


def _padded_sizes(sizes, padding):
    return tuple(d + a + b for d, (a, b) in zip(sizes, padding))


def _check_geometry(name, stride, dilation, groups):
    if min(stride, default=1) <= 0:
        raise OpError(f"{name}: non-positive stride is not supported: {stride}")
    if min(dilation, default=1) <= 0:
        raise OpError(f"{name}: dilation should be greater than zero: {dilation}")
    if groups <= 0:
        raise OpError(f"{name}: non-positive groups is not supported: {groups}")


def _check_bias(weight, bias, channels):
    for b in bias:
        if b.shape != (channels,):
            raise OpError(
                f"Given weight of size {list(weight.shape)}, expected bias to be 1-dimensional with {channels} "
                f"elements, but got bias of size {list(b.shape)} instead"
            )


def _times(sizes):
    return f"({' x '.join(map(str, sizes))})"


def _convolution_infer(operands, attributes, default_float):
    x, weight, *bias = operands
    stride, padding, dilation, groups = (attributes[k] for k in ("stride", "padding", "dilation", "groups"))
    _check_types("convolution", operands)
    _check_geometry("convolution", stride, dilation, groups)
    given = f"Given groups={groups}, weight of size {list(weight.shape)}, expected "
    if len(weight.shape) != len(x.shape):
        raise OpError(f"{given}{len(weight.shape)}-dimensional input, but got input of size {list(x.shape)} instead")
    if weight.shape[0] % groups or weight.shape[0] < groups:
        raise OpError(f"{given}weight to be at least {groups} at dimension 0, and divisible by {groups}")
    if x.shape[1] != weight.shape[1] * groups:
        raise OpError(
            f"{given}input{list(x.shape)} to have {weight.shape[1] * groups} channels, but got {x.shape[1]} channels "
            "instead"
        )
    _check_bias(weight, bias, weight.shape[0])
    sizes, kernel = _padded_sizes(x.shape[2:], padding), weight.shape[2:]
    if any(d * (k - 1) + 1 > n for n, k, d in zip(sizes, kernel, dilation)):
        spread = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
        raise OpError(
            f"Calculated padded input size per channel: {_times(sizes)}. Kernel size: {_times(spread)}. Kernel size "
            "can't be greater than actual input size"
        )
    return Meta((x.shape[0], weight.shape[0], *counts(sizes, kernel, stride, dilation)), x.dtype)


def _input_infer(operands, attributes, default_float):
    g, weight, *bias = operands
    groups = attributes["groups"]
    _check_types("conv_transpose", operands)
    _check_geometry("conv_transpose", attributes["stride"], attributes["dilation"], groups)
    if len(weight.shape) != len(g.shape) or g.shape[1] != weight.shape[0] or weight.shape[0] % groups:
        raise OpError(
            f"Given transposed=1, weight of size {list(weight.shape)}, expected input{list(g.shape)} to have "
            f"{weight.shape[0]} channels, but got {g.shape[1]} channels instead; groups={groups} must divide them"
        )
    channels = weight.shape[1] * groups
    _check_bias(weight, bias, channels)
    return Meta((g.shape[0], channels, *attributes["size"]), g.dtype)


def _weight_infer(operands, attributes, default_float):
    x, g = operands
    return Meta((g.shape[1], x.shape[1] // attributes["groups"], *attributes["kernel"]), x.dtype)


# --- the products -----------------------------------------------------------------------------------------------------
def _columns(x, kernel, stride, padding, dilation, groups):
    """(n, groups, channels of a group, *kernel, *positions): the windows of the padded x."""
    found = windows(padded(x, padding), kernel=kernel, stride=stride, dilation=dilation)
    return reshape(found, shape=(x.shape[0], groups, x.shape[1] // groups, *found.shape[2:]))


def _matrix_product(x, y):
    """Products of matrices, for all leading dimensions, which a first matrix without them shares."""
    lead = y.shape[:-2]
    return bmm(x if x.shape[:-2] == lead else expand(x, shape=(*lead, *x.shape[-2:])), y)


def _plus_bias(out, bias):
    if not bias:
        return out
    return add(out, reshape(bias[0], shape=(bias[0].shape[0], *(1,) * (len(out.shape) - 2))))


def _is_depthwise(channels, weight, groups):
    return groups == channels and weight[0] == groups and prod(weight[2:]) <= _MOST_TAPS


def _convolution(x, weight, *bias, stride, padding, dilation, groups):
    kernel = weight.shape[2:]
    if groups > 1 and _is_depthwise(x.shape[1], weight.shape, groups):
        return _plus_bias(_depthwise(x, weight, stride, padding, dilation), bias)
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    found = prod(_convolution_infer([x, weight], how, None).shape[2:])
    direct = _direct(direct_convolution, x, weight, how, weight.shape, found)
    if direct is not None:
        return _plus_bias(direct, bias)
    columns = _columns(x, kernel, stride, padding, dilation, groups)
    n, positions, depth = x.shape[0], columns.shape[3 + len(kernel) :], weight.shape[1] * prod(kernel)
    rows = reshape(weight, shape=(groups, weight.shape[0] // groups, depth))
    if n > 1 and prod(positions) < _FEW_POSITIONS:
        # (groups, depth, n positions): one product for the batch.
        columns = permute(columns, axes=(*range(1, 3 + len(kernel)), 0, *range(3 + len(kernel), len(columns.shape))))
        out = _matrix_product(rows, reshape(columns, shape=(groups, depth, n * prod(positions))))
        out = permute(reshape(out, shape=(weight.shape[0], n, prod(positions))), axes=(1, 0, 2))
    else:
        out = _matrix_product(rows, reshape(columns, shape=(n, groups, depth, prod(positions))))
    return _plus_bias(reshape(out, shape=(n, weight.shape[0], *positions)), bias)


def _is_few(samples, positions):
    return samples == 1 and positions <= _FEW_ROWS


def _direct(op, x, other, how, weight, positions):
    """The result of a convolution or its weight's adjoint as products over grids, of an input that is padded where that
    takes less time; None where they do not pay. `weight`: the shape of the weight."""
    if _is_few(x.shape[0], positions) or not can((x, other), weight, how["groups"]):
        return None
    padding, size = how["padding"], x.dtype.size_bytes
    image, partner = usual(x), usual(other) if "kernel" in how else other
    ways = [(_cycles(op, (image, partner), how), False)]
    if any(a or b for a, b in padding):
        image = Meta((*image.shape[:2], *_padded_sizes(x.shape[2:], padding)), x.dtype)
        whole = {**how, "padding": ((0, 0),) * len(padding)}
        ways.append((_cycles(op, (image, partner), whole) + 2 * prod(image.shape), True))
    time, is_padded = min(ways)
    if not pays(time, weight, x.shape[0], positions, size, 0):
        return None
    if is_padded:
        x, how = padded(x, padding), whole
    return op(x, other, **how) if op is direct_convolution_weight else _in_best_layout(op, x, other, how)


def _in_best_layout(op, x, weight, how):
    """Of a convolution or its input's adjoint."""
    if not samples_last_pays(x, weight.shape[2:]):
        return op(x, weight, **how)
    out = op(rearranged(with_samples_last(x)), weight, samples_last=True, **how)
    return rearranged(with_samples_first(out))


def _direct_input(g, weight, how):
    """The same of the input's adjoint."""
    samples, positions = g.shape[0], prod(g.shape[2:])
    out = (samples, weight.shape[1] * how["groups"], *how["size"])
    if _is_few(samples, positions) or not can((g, weight), out, how["groups"]):
        return None
    time = _cycles(direct_convolution_input, (usual(g), weight), how)
    adding = _ADDING_CYCLES if how["stride"][-1] == 1 else _ADDING_APART_CYCLES
    if not pays(time, weight.shape, samples, positions, g.dtype.size_bytes, adding):
        return None
    return _in_best_layout(direct_convolution_input, g, weight, how)


def _cycles(op, operands, how):
    meta, size = op.infer(operands, how, None), operands[0].dtype.size_bytes
    return cycles(op.kernel.products_of(operands, meta.shape, how, size), size)


def _depthwise(x, weight, stride, padding, dilation):
    """The taps one after the other, each a slice of x times one number per channel."""
    x, kernel = padded(x, padding), weight.shape[2:]
    positions, total = counts(x.shape[2:], kernel, stride, dilation), None
    for index in product(*map(range, kernel)):
        part = slice_(x, spec=(*_whole(x.shape[:2]), *_tap(index, stride, dilation, positions)))
        factor = slice_(weight, spec=(*_whole(weight.shape[:2]), *((k, 1, 1) for k in index)))
        term = mul(part, reshape(factor, shape=(weight.shape[0], *(1,) * len(kernel))))
        total = term if total is None else add(total, term)
    return total


def _whole(shape):
    return tuple((0, 1, d) for d in shape)


def _tap(index, stride, dilation, positions):
    """Where one element of every window lies, as a spec of a slice."""
    return tuple((k * d, s, n) for k, d, s, n in zip(index, dilation, stride, positions))


def _convolution_input(g, weight, *bias, size, stride, padding, dilation, groups):
    """weight^T g are the windows' cotangents, which are added where the windows came from."""
    n, kernel, positions = g.shape[0], weight.shape[2:], g.shape[2:]
    how = {"size": size, "stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if (direct := _direct_input(g, weight, how)) is not None:
        return _plus_bias(direct, bias)
    channels, rank = weight.shape[1], len(weight.shape) - 2
    rows = reshape(weight, shape=(groups, weight.shape[0] // groups, channels * prod(kernel)))
    g = reshape(g, shape=(n, groups, weight.shape[0] // groups, prod(positions)))
    if _is_few(n, prod(positions)):
        g = reshape(permute(g, axes=(1, 0, 3, 2)), shape=(groups, n * prod(positions), weight.shape[0] // groups))
        columns = reshape(_matrix_product(g, rows), shape=(groups, n, *positions, channels, *kernel))
        columns = permute(columns, axes=(1, 0, *range(2 + rank, 3 + 2 * rank), *range(2, 2 + rank)))
        return _added_up(columns, size, stride, padding, dilation, bias)
    rows = permute(rows, axes=(0, 2, 1))
    if n > 1 and prod(positions) < _FEW_POSITIONS:
        g = reshape(permute(g, axes=(1, 2, 0, 3)), shape=(groups, weight.shape[0] // groups, n * prod(positions)))
        columns = reshape(_matrix_product(rows, g), shape=(groups, channels, *kernel, n, *positions))
        columns = permute(columns, axes=(2 + rank, 0, 1, *range(2, 2 + rank), *range(3 + rank, 3 + 2 * rank)))
    else:
        columns = _matrix_product(rows, g)
    columns = reshape(columns, shape=(n, groups, channels, *kernel, *positions))
    return _added_up(columns, size, stride, padding, dilation, bias)


def _added_up(columns, size, stride, padding, dilation, bias):
    """The image that windows (n, groups, channels, *kernel, *positions) are of."""
    n, groups, channels, *rest = columns.shape
    columns, kernel = reshape(columns, shape=(n, groups * channels, *rest)), tuple(rest[: len(size)])
    whole = _padded_sizes(size, padding)
    # Positions past the last window are nobody's; what padding added is cut off again.
    image = overlap_add(columns, size=whole, kernel=kernel, stride=stride, dilation=dilation)
    return _plus_bias(padded(image, [(-a, -b) for a, b in padding]), bias)


def _convolution_weight(x, g, kernel, stride, padding, dilation, groups):
    """The product runs over all samples and positions."""
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    how = {"kernel": kernel, **how}
    shape = (g.shape[1], x.shape[1] // groups, *kernel)
    direct = _direct(direct_convolution_weight, x, g, how, shape, prod(g.shape[2:]))
    if direct is not None:
        return direct
    columns, rank = _columns(x, kernel, stride, padding, dilation, groups), len(kernel)
    n, positions = x.shape[0], g.shape[2:]
    if groups > 1 and _is_depthwise(x.shape[1], (g.shape[1], 1, *kernel), groups):
        spread = reshape(g, shape=(n, groups, *(1,) * (rank + 1), *positions))
        total = sum_(mul(columns, spread), axes=(0, *range(3 + rank, 3 + 2 * rank)), keepdim=False)
        return reshape(total, shape=(groups, 1, *kernel))
    outputs, inputs = g.shape[1] // groups, x.shape[1] // groups
    g = permute(reshape(g, shape=(n, groups, outputs, prod(positions))), axes=(1, 2, 0, 3))
    rows = reshape(g, shape=(groups, outputs, n * prod(positions)))
    columns = permute(columns, axes=(*range(1, 3 + rank), 0, *range(3 + rank, 3 + 2 * rank)))
    columns = reshape(columns, shape=(groups, inputs * prod(kernel), n * prod(positions)))
    out = _matrix_product(rows, permute(columns, axes=(0, 2, 1)))
    return reshape(out, shape=(g.shape[0] * outputs, inputs, *kernel))


# --- derivatives ------------------------------------------------------------------------------------------------------
def _bias_vjp(g, out, *operands, **how):
    return sum_(g, axes=(0, *range(2, len(g.shape))), keepdim=False)


def _spatial(x):
    return tuple(x.shape[2:])


convolution = composite(
    "convolution",
    _convolution_infer,
    _convolution,
    vjp=(
        lambda g, out, x, weight, *bias, **how: convolution_input(g, weight, size=_spatial(x), **how),
        lambda g, out, x, weight, *bias, **how: convolution_weight(x, g, kernel=_spatial(weight), **how),
        _bias_vjp,
    ),
    extra={"eager_only": integers_only_eager},
    samples=lambda: _samples(_convolution_operands),
    oracle=lambda torch, *operands, **how: _torch_convolution(torch, *operands, **how),
)

convolution_input = composite(
    "convolution_input",
    _input_infer,
    _convolution_input,
    vjp=(
        lambda g, out, x, weight, *bias, size, **how: convolution(g, weight, **how),
        lambda g, out, x, weight, *bias, size, **how: convolution_weight(g, x, kernel=_spatial(weight), **how),
        _bias_vjp,
    ),
    node_name="ConvolutionBackward0",
    extra={"eager_only": integers_only_eager},
    samples=lambda: _samples(_input_operands),
    oracle=lambda torch, *operands, **how: _torch_convolution_input(torch, *operands, **how),
)

convolution_weight = composite(
    "convolution_weight",
    _weight_infer,
    _convolution_weight,
    vjp=(
        lambda g, out, x, y, kernel, **how: convolution_input(y, g, size=_spatial(x), **how),
        lambda g, out, x, y, kernel, **how: convolution(x, g, **how),
    ),
    node_name="ConvolutionBackwardBackward0",
    extra={"eager_only": integers_only_eager},
    samples=lambda: _samples(_weight_operands),
    oracle=lambda torch, *operands, **how: _torch_convolution_weight(torch, *operands, **how),
)


# --- samples and PyTorch's values -------------------------------------------------------------------------------------
# (shape of x, shape of the weight, stride, padding, dilation, groups, whether there is a bias)
_CASES = (
    ((2, 3, 7), (4, 3, 3), (1,), ((1, 1),), (1,), 1, True),
    ((2, 2, 6, 5), (3, 2, 3, 2), (2, 1), ((1, 1), (0, 1)), (1, 2), 1, False),
    ((1, 4, 5, 5), (6, 2, 2, 2), (1, 2), ((0, 0), (0, 0)), (2, 1), 2, True),
    ((2, 3, 5, 4), (3, 1, 3, 3), (2, 1), ((1, 1), (1, 1)), (1, 1), 3, True),
    ((1, 2, 3, 4, 3), (2, 2, 2, 1, 2), (1, 2, 1), ((0, 0), (0, 0), (1, 1)), (1, 1, 1), 1, False),
    ((1, 2, 12, 12), (3, 2, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1, False),
)


def _how(stride, padding, dilation, groups):
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def _samples(make):
    result = []
    for k, (x, weight, *how, with_bias) in enumerate(_CASES):
        out = _convolution_infer([Meta(x, float64), Meta(weight, float64)], _how(*how), None).shape
        shapes, more, channels = make(x, weight, out)
        bias = [(channels * (how[3] if make is _input_operands else 1),)] if with_bias and channels else []
        arrays = [samples.numbers(5 * k + j, shape) for j, shape in enumerate([*shapes, *bias])]
        result.append(Sample(tuple(arrays), {**more, **_how(*how)}))
    return result


def _convolution_operands(x, weight, out):
    return (x, weight), {}, weight[0]


def _input_operands(x, weight, out):
    return (out, weight), {"size": x[2:]}, weight[1]


def _weight_operands(x, weight, out):
    return (x, out), {"kernel": weight[2:]}, 0


def _padded_for_torch(torch, x, padding):
    return torch.nn.functional.pad(x, [n for pair in reversed(padding) for n in pair])


def _torch_convolution(torch, x, weight, *bias, stride, padding, dilation, groups):
    function = getattr(torch.nn.functional, f"conv{len(stride)}d")
    return function(_padded_for_torch(torch, x, padding), weight, *(bias or [None]), stride, 0, dilation, groups)


def _torch_convolution_input(torch, g, weight, *bias, size, stride, padding, dilation, groups):
    function = getattr(torch.nn.functional, f"conv_transpose{len(stride)}d")
    image = function(g, weight, *(bias or [None]), stride, 0, 0, groups, dilation)
    missing = [d + a + b - n for d, (a, b), n in zip(size, padding, image.shape[2:])]
    if any(missing):
        # What no window reaches holds the bias alone.
        image = image - bias[0].reshape(-1, *(1,) * len(size)) if bias else image
        image = _padded_for_torch(torch, image, [(0, m) for m in missing])
        image = image + bias[0].reshape(-1, *(1,) * len(size)) if bias else image
    return _padded_for_torch(torch, image, [(-a, -b) for a, b in padding])


def _torch_convolution_weight(torch, x, g, kernel, stride, padding, dilation, groups):
    weight = torch.zeros((g.shape[1], x.shape[1] // groups, *kernel), dtype=x.dtype, requires_grad=True)
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    with torch.enable_grad():
        out = _torch_convolution(torch, x, weight, **how)
    return torch.autograd.grad(out, weight, g, create_graph=True)[0]
