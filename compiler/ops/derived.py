"""Composites whose derivative is that of their steps, in the order in which backward takes these."""

import math

from .. import dtypes
from . import samples
from .arithmetic import abs_, add, div, maximum, mul, neg, sub, trunc
from .comparison import cast, eq, ge, gt, isnan, le, logical_and, logical_or, lt, where
from .kinds import alias, composite, require_floating
from .reduction import sum_
from .samples import Sample
from .table import Meta
from .transcendental import exp, expm1, log, log1p, sigmoid
from .view import cat, slice_


def _like_first(name):
    def infer(operands, attributes, default_float):
        require_floating(name, operands[0])
        return Meta(operands[0].shape, operands[0].dtype)

    return infer


def _of_numbers(*numbers):
    return lambda: [Sample((samples.numbers(k, s), *numbers)) for k, s in enumerate(samples.SHAPES)]


hardtanh = composite(
    "hardtanh",
    _like_first("hardtanh"),
    # Zeros keep their sign where a bound is zero too.
    lambda x, low, high: where(lt(x, low), low, where(gt(x, high), high, x)),
    vjp=(lambda g, out, x, low, high: where(logical_or(le(x, low), ge(x, high)), 0.0, g), None, None),
    samples=_of_numbers(-0.5, 0.75),
    oracle="nn.functional.hardtanh",
)


def _negative(x):
    """x where it is negative or a NaN, whose derivative is one too; else 0."""
    return where(gt(x, 0), 0.0, x)


# expm1 of the positive part would overflow, and inf * 0 in its derivative is nan: it is not computed there.
elu = composite(
    "elu",
    _like_first("elu"),
    lambda x, alpha: where(gt(x, 0), x, mul(expm1(_negative(x)), alpha)),
    samples=_of_numbers(1.5),
    oracle="nn.functional.elu",
)

frac = composite(
    "frac",
    _like_first("frac"),
    lambda x: sub(x, trunc(x)),
    samples=_of_numbers(),
    oracle="frac",
)


# --- activations with a threshold -----------------------------------------------------------------------------------
def _hardswish(x):
    # The middle part of an infinite x would be inf * 0 in the derivative.
    near = where(le(x, -3.0), -3.0, where(ge(x, 3.0), 3.0, x))
    # PyTorch's formula, x * 0 / 6, is nan for -inf, and a zero with the sign of x for the other numbers below.
    below = where(eq(x, -math.inf), math.nan, where(lt(x, 0.0), -0.0, x))  # x gives the type
    return where(le(x, -3.0), below, where(ge(x, 3.0), x, div(mul(near, add(near, 3.0)), 6.0)))


hardswish = alias("hardswish", _hardswish, samples=_of_numbers(), oracle="nn.functional.hardswish")


def _halves(x, axis):
    """What is before the middle of an axis, and what follows."""
    size = x.shape[axis] // 2
    parts = [tuple((start, 1, size) if k == axis else (0, 1, d) for k, d in enumerate(x.shape)) for start in (0, size)]
    return [slice_(x, spec=spec) for spec in parts]


def _glu(x, axis):
    value, gate = _halves(x, axis)
    return mul(value, sigmoid(gate))


def _glu_vjp(g, out, x, axis):
    value, gate = _halves(x, axis)
    share = sigmoid(gate)
    of_value = mul(g, share)
    return cat(of_value, mul(of_value, mul(value, sub(1.0, share))), axis=axis)


glu = alias(
    "glu",
    _glu,
    vjp=(_glu_vjp,),
    samples=lambda: [
        Sample((samples.numbers(0, (2, 6)),), {"axis": 1}),
        Sample((samples.numbers(1, (4, 3, 2)),), {"axis": 0}),
    ],
    oracle=lambda torch, x, axis: torch.nn.functional.glu(x, axis),
)
hardsigmoid = alias(
    "hardsigmoid",
    lambda x: div(hardtanh(add(x, 3.0), 0.0, 6.0), 6.0),
    samples=_of_numbers(),
    # PyTorch's own derivative has a sixth as float32 has it.
    oracle=lambda torch, x: torch.nn.functional.relu6(x + 3.0) / 6.0,
)
celu = alias(
    "celu",
    lambda x, alpha: where(gt(x, 0), x, mul(expm1(div(_negative(x), alpha)), alpha)),
    samples=_of_numbers(1.5),
    oracle="nn.functional.celu",
)
# A NaN stays.
threshold = alias(
    "threshold",
    lambda x, limit, value: where(le(x, limit), value, x),
    samples=_of_numbers(0.1, -2.0),
    oracle="nn.functional.threshold",
)
hardshrink = alias(
    "hardshrink",
    lambda x, low, high: where(logical_and(ge(x, low), le(x, high)), 0.0, x),
    samples=_of_numbers(-0.5, 0.5),
    oracle=lambda torch, x, low, high: torch.nn.functional.hardshrink(x, high),
)
softshrink = alias(
    "softshrink",
    lambda x, low, high: where(gt(x, high), sub(x, high), where(lt(x, low), add(x, high), mul(x, 0.0))),
    samples=_of_numbers(-0.5, 0.5),
    oracle=lambda torch, x, low, high: torch.nn.functional.softshrink(x, high),
)
prelu = alias(
    "prelu",
    # What is not used is 0, or an infinity would make NaN of the slope's derivative.
    lambda x, slope: where(gt(x, 0), x, mul(_negative(x), slope)),
    samples=lambda: [Sample((samples.numbers(0, (2, 3)), samples.numbers(1, (3,), 0.1, 0.9)))],
    oracle="nn.functional.prelu",
)

# Outside of [0, 1] the derivative is what the value is.
logit = alias(
    "logit",
    lambda x: log(div(x, sub(1.0, x))),
    vjp=(lambda g, out, x: where(logical_and(ge(x, 0.0), le(x, 1.0)), div(g, mul(x, sub(1.0, x))), math.nan),),
    samples=lambda: [Sample((samples.numbers(k, s, 0.1, 0.9),)) for k, s in enumerate(samples.SHAPES)],
    oracle="logit",
)


def _nan_to_num(x, nan, posinf, neginf):
    known = where(isnan(x), nan, x)
    known = where(eq(known, float("inf")), posinf, known)
    return where(eq(known, -float("inf")), neginf, known)


nan_to_num = composite(
    "nan_to_num",
    _like_first("nan_to_num"),
    _nan_to_num,
    samples=lambda: [Sample((samples.numbers(0, (2, 3)),), {"nan": 0.5, "posinf": 7.0, "neginf": -7.0})],
    oracle="nan_to_num",
)


# --- arithmetic of three ----------------------------------------------------------------------------------------------
def _of_three(*numbers):
    return lambda: [
        Sample((*(samples.numbers(k, s, 0.5, 2.0) for k, s in enumerate(((2, 3), (3,), (2, 1)))), *numbers))
    ]


def _of_sum(x, *others):
    """x in the type of its sum with others: in a smaller type its multiples could wrap around, or be rounded."""
    tensors = [o for o in (x, *others) if not o.weak]
    if x.weak or all(o.dtype is x.dtype for o in tensors):
        return x
    dtype = dtypes.result_type(tensors, dtypes.float32)  # no number is asked, so none that has the default type
    return x if x.dtype is dtype else cast(x, dtype=dtype)


def _added(combine):
    """input + combine(x, y), times a number if there is one."""

    def decompose(input, x, y, *value):
        found = combine(_of_sum(x, input, y), _of_sum(y, input, x))
        return add(input, mul(found, value[0]) if value else found)

    return decompose


def _scaled(op, node_name):
    """The op with a multiple of its second operand."""
    return alias(
        f"{op.name}_scaled",
        lambda x, y, alpha: op(x, mul(_of_sum(y, x), alpha)),
        on_complex=True,
        node_name=node_name,
        samples=lambda: [Sample((samples.numbers(0, (2, 3)), samples.numbers(1, (3,)), 0.5))],
        oracle=lambda torch, x, y, alpha: getattr(torch, op.name)(x, y, alpha=alpha),
    )


add_scaled, sub_scaled = _scaled(add, "AddBackward0"), _scaled(sub, "SubBackward0")


def _log_of_sum(x, y):
    # The difference of equal infinities would be NaN.
    difference = where(eq(x, y), 0.0, sub(x, y))
    return add(maximum(x, y), log1p(exp(neg(abs_(difference)))))


logaddexp = alias(
    "logaddexp",
    _log_of_sum,
    samples=lambda: [Sample((samples.numbers(0, (2, 3)), samples.numbers(1, (3,))))],
    oracle="logaddexp",
)
addcmul = alias(
    "addcmul", _added(mul), on_complex=True, samples=_of_three(0.5), oracle=lambda t, *given: _torch(t.addcmul, given)
)
addcdiv = alias(
    "addcdiv", _added(div), on_complex=True, samples=_of_three(0.5), oracle=lambda t, *given: _torch(t.addcdiv, given)
)
lerp = alias(
    "lerp",
    lambda input, end, weight: add(input, mul(weight, sub(end, input))),
    on_complex=True,
    samples=_of_three(),
    oracle="lerp",
)


def _torch(function, given):
    return function(*given[:3], value=given[3])


# --- sums -------------------------------------------------------------------------------------------------------------
nansum = alias(
    "nansum",
    lambda x, axes, keepdim: sum_(where(eq(x, x), x, 0.0), axes=axes, keepdim=keepdim),
    samples=lambda: [
        Sample((samples.numbers(0, (3, 5)),), {"axes": a, "keepdim": k}) for a in ((0,), (0, 1)) for k in (False, True)
    ],
    oracle=lambda torch, x, axes, keepdim: torch.nansum(x, axes, keepdim),
)
