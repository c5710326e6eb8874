"""Normalisation with the statistics of elements that are not the last ones: of a batch, of groups of channels.

    x --- over `inside` and `across` ---> centred = x - mean, scale = 1 / sqrt(var + eps)
    result = centred * (scale * weight) + bias, which are the same along `inside` and `left`

One vjp serves all: its sums over `inside` are what the gradients of weight and bias need, too.
"""

from typing import NamedTuple

from ..dtypes import result_type
from ..extent import real
from . import samples
from .arithmetic import add, div, mul, rsqrt, sub
from .comparison import cast
from .kinds import alias, composite, require_floating
from .reduction import sum_
from .samples import Sample
from .statistics import mean, var
from .table import Meta
from .view import reshape


class _Form(NamedTuple):
    """How the elements of x are seen, of which shape weight and bias are then, and the axes as above."""

    shape: tuple
    affine: tuple
    inside: tuple
    across: tuple = ()
    left: tuple = ()


def _of_batch(x):
    """Every channel over the whole batch: (N, C, ...)."""
    rest = range(2, len(x.shape))
    return _Form(tuple(x.shape), (1, x.shape[1], *(1 for _ in rest)), (0, *rest))


def _of_groups(x, groups):
    """Every group of channels of every sample: (N, groups, channels of each, elements of each)."""
    n, channels, *rest = x.shape
    size = 1
    for d in rest:
        size *= d
    each = channels // groups
    return _Form((n, groups, each, size), (1, groups, each, 1), (3,), (2,), (0,))


def _seen(x, form):
    return x if tuple(x.shape) == form.shape else reshape(x, shape=form.shape)


def _statistics(x, form, eps):
    """(x - mean, 1 / sqrt(var + eps)) of what is seen. Where whatever follows is the same for a channel or a group, it
    is multiplied with that beforehand: then nothing as large as x lies in memory between the passes over it."""
    axes = tuple(sorted(form.inside + form.across))
    centred = sub(x, mean(x, axes=axes, keepdim=True))
    return centred, rsqrt(add(var(x, axes=axes, keepdim=True, correction=0), eps))


def _normalized(x, affine, form, eps):
    result, scale = _statistics(_seen(x, form), form, eps)
    result = mul(result, mul(scale, reshape(affine[0], shape=form.affine)) if affine else scale)
    if len(affine) == 2:
        result = add(result, reshape(affine[1], shape=form.affine))
    return result if tuple(x.shape) == form.shape else reshape(result, shape=tuple(x.shape))


def _slope_of_input(g, x, affine, form, eps):
    """scale * (h - mean(h) - normal * mean(h * normal)) with h = g * weight, normal = centred * scale."""
    g, (centred, scale) = _seen(g, form), _statistics(_seen(x, form), form, eps)
    inside, across = (form.inside, form.across) if affine else (form.inside + form.across, ())
    sums = [sum_(v, axes=tuple(sorted(inside)), keepdim=True) for v in (g, mul(g, centred))]
    if affine:
        weight = reshape(affine[0], shape=form.affine)
        g, *sums = (mul(v, weight) for v in (g, *sums))
    count = 1
    for axis in form.inside + form.across:
        count *= form.shape[axis]
    first, second = (div(sum_(v, axes=across, keepdim=True) if across else v, real(count)) for v in sums)
    second = mul(scale, mul(scale, second))
    slope = mul(scale, sub(g, add(first, mul(centred, second))))
    return _as_operand(slope if tuple(x.shape) == form.shape else reshape(slope, shape=tuple(x.shape)), x)


def _slope_of_weight(g, x, affine, form, eps):
    centred, scale = _statistics(_seen(x, form), form, eps)
    total = sum_(mul(_seen(g, form), centred), axes=form.inside, keepdim=True)
    return _of_channels(mul(total, scale), affine[0], form)


def _slope_of_bias(g, x, affine, form, eps):
    return _of_channels(sum_(_seen(g, form), axes=form.inside, keepdim=True), affine[1], form)


def _of_channels(total, parameter, form):
    total = sum_(total, axes=form.left, keepdim=True) if form.left else total
    return _as_operand(reshape(total, shape=tuple(parameter.shape)), parameter)


def _as_operand(x, operand):
    return x if x.dtype is operand.dtype else cast(x, dtype=operand.dtype)


def _infer(name):
    def infer(operands, attributes, default_float):
        require_floating(name, operands[0])
        return Meta(operands[0].shape, result_type(operands, default_float))

    return infer


def _rules(form_of):
    def rule(slope):
        return lambda g, out, x, *affine, eps, **options: slope(g, x, affine, form_of(x, **options), eps)

    return tuple(map(rule, (_slope_of_input, _slope_of_weight, _slope_of_bias)))


# With the statistics of the batch itself, over all dimensions but the second.
batch_norm = composite(
    "batch_norm",
    _infer("batch_norm"),
    lambda x, *affine, eps: _normalized(x, affine, _of_batch(x), eps),
    vjp=_rules(_of_batch),
    node_name="NativeBatchNormBackward0",
    samples=lambda: [
        Sample((samples.numbers(0, (6, 3)), samples.numbers(1, (3,)), samples.numbers(2, (3,))), {"eps": 1e-5}),
        Sample((samples.numbers(3, (4, 2, 5)),), {"eps": 1e-3}),
    ],
)

# With those of every group of channels of every sample.
group_norm = composite(
    "group_norm",
    _infer("group_norm"),
    lambda x, *affine, groups, eps: _normalized(x, affine, _of_groups(x, groups), eps),
    vjp=_rules(_of_groups),
    node_name="NativeGroupNormBackward0",
    samples=lambda: [
        Sample(
            (samples.numbers(0, (2, 6, 3)), samples.numbers(1, (6,)), samples.numbers(2, (6,))),
            {"groups": 2, "eps": 1e-5},
        ),
        Sample((samples.numbers(3, (2, 4, 3, 5)), samples.numbers(4, (4,))), {"groups": 4, "eps": 1e-5}),
        Sample((samples.numbers(5, (3, 4)),), {"groups": 2, "eps": 1e-3}),
    ],
    oracle=lambda torch, x, *affine, groups, eps: torch.nn.functional.group_norm(x, groups, *affine, eps=eps),
)


def _of_columns(x, average, deviation, weight=1.0, bias=0.0):
    return (x - average) / deviation * weight + bias


def _by_given(x, average, variance, *affine, eps):
    average, scale, *affine = (
        reshape(v, shape=_of_batch(x).affine) for v in (average, rsqrt(add(variance, eps)), *affine)
    )
    result = mul(sub(x, average), scale)
    if affine:
        result = mul(result, affine[0])
    return add(result, affine[1]) if len(affine) == 2 else result


# With statistics that are given, of every channel.
normalized = alias(
    "normalized",
    _by_given,
    node_name="NativeBatchNormBackward0",
    samples=lambda: [
        Sample((samples.numbers(0, s), *(samples.numbers(k, (3,), 0.5, 2.0) for k in range(1, n))), {"eps": 1e-5})
        for s, n in (((6, 3), 3), ((2, 3, 5), 5), ((4, 3), 4))
    ],
    # PyTorch's own has no derivative by the statistics.
    oracle=lambda torch, x, average, variance, *affine, eps: _of_columns(
        x.transpose(1, -1), average, (variance + eps).sqrt(), *affine
    ).transpose(1, -1),
)
