"""Composite functions of neural networks: activations, losses, normalisation, powers by a known exponent."""

from .. import dtypes
from ..extent import real
from ..shapes import broadcast_shapes
from . import samples
from .arithmetic import abs_, add, clamp_min, div, mul, neg, reciprocal, rsqrt, sign, sqrt, sub
from .comparison import cast, eq, ge, gt, le, logical_and, lt, ne, where
from .indexing import gather
from .kinds import composite, elementwise, require_floating
from .reduction import sum_
from .samples import Sample
from .source import arange, full_like, zeros_like
from .table import Meta, OpError, Spelling
from .transcendental import erf, exp, log1p, pow_, sigmoid
from .view import expand, reshape


def _like_first(name):
    def infer(operands, attributes, default_float):
        require_floating(name, operands[0])
        return Meta(operands[0].shape, operands[0].dtype)

    return infer


# --- x ** n for a number n: small powers are products, as in PyTorch ------------------------------------------------
_POWERS = {
    0.5: sqrt,
    1.0: lambda x: mul(x, 1),
    2.0: lambda x: mul(x, x),
    3.0: lambda x: mul(mul(x, x), x),
    -0.5: rsqrt,
    -1.0: reciprocal,
    -2.0: lambda x: reciprocal(mul(x, x)),
}


def _power(x, exponent):
    if not x.dtype.is_differentiable:
        if isinstance(exponent, float):
            x = mul(x, 1.0)
        elif x.dtype is dtypes.bool_:
            x = cast(x, dtype=dtypes.int64)
    if exponent == 0:
        return full_like(x, 1)
    rule = None if isinstance(exponent, complex) else _POWERS.get(float(exponent))
    if rule:
        return rule(x)
    return pow_(x, exponent) if x.dtype.is_differentiable else _squared_and_multiplied(x, exponent)


def _squared_and_multiplied(x, exponent):
    """A power of integers, which wrap around: in whatever order they are multiplied, it is the same."""
    result = None
    while exponent:
        if exponent & 1:
            result = x if result is None else mul(result, x)
        exponent >>= 1
        if exponent:
            x = mul(x, x)
    return result


def _power_infer(operands, attributes, default_float):
    x, exponent = operands[0], attributes["exponent"]
    if x.dtype.is_differentiable:
        return Meta(x.shape, x.dtype)
    if isinstance(exponent, float):
        return Meta(x.shape, default_float)
    if exponent < 0:
        raise OpError(f"pow: integers to negative integer powers are not allowed, got exponent {exponent}")
    return Meta(x.shape, dtypes.int64 if x.dtype is dtypes.bool_ else x.dtype)


def _power_vjp(g, out, x, exponent):
    if exponent == 0:
        return zeros_like(g)
    # `power` itself, not its decomposition: its own rule gives the next order.
    return mul(g, mul(power(x, exponent=exponent - 1), exponent))


power = composite(
    "power",
    _power_infer,
    _power,
    vjp=(_power_vjp,),
    on_complex=True,
    node_name="PowBackward0",
    samples=lambda: [
        Sample((samples.numbers(k, (2, 3), 0.25, 2.0),), {"exponent": e})
        for k, e in enumerate((0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, 2.5))
    ],
)


# --- activations ----------------------------------------------------------------------------------------------------
def _gelu(x, approximate):
    """x Phi(x), or with approximate="tanh" its approximation (Hendrycks and Gimpel, arXiv 1606.08415)."""
    if approximate == "tanh":
        # 0.5 (1 + tanh u) = sigmoid(2 u): one exponential, accurate for negative x.
        cubic = mul(mul(mul(x, x), x), 0.044715)
        return mul(x, sigmoid(mul(add(x, cubic), 1.5957691216057308)))
    return mul(mul(x, 0.5), add(erf(mul(x, 0.7071067811865476)), 1.0))


def _gelu_vjp(g, out, x, approximate):
    if approximate == "tanh":
        square = mul(x, x)
        half = sigmoid(mul(add(x, mul(mul(square, x), 0.044715)), 1.5957691216057308))
        slope = mul(add(mul(square, 0.134145), 1.0), 1.5957691216057308)
        return mul(g, add(half, mul(mul(x, slope), mul(half, sub(1.0, half)))))
    cdf = mul(add(erf(mul(x, 0.7071067811865476)), 1.0), 0.5)
    density = mul(exp(mul(mul(x, x), -0.5)), 0.3989422804014327)
    return mul(g, add(cdf, mul(x, density)))


gelu = composite(
    "gelu",
    _like_first("gelu"),
    _gelu,
    vjp=(_gelu_vjp,),
    samples=lambda: [
        Sample((samples.numbers(k, s),), {"approximate": a})
        for k, s in enumerate(samples.SHAPES)
        for a in ("none", "tanh")
    ],
    oracle="nn.functional.gelu",
)
silu = composite(
    "silu",
    _like_first("silu"),
    lambda x: mul(x, sigmoid(x)),
    samples=samples.unary(),
    oracle="nn.functional.silu",
    doc="x * sigmoid(x).",
    spelling=Spelling(method=False, in_place=False),
)


def _softplus(x):
    """max(x, 0) + log(1 + exp(-|x|)): no overflow for large x."""
    return add(clamp_min(x, 0.0), log1p(exp(neg(abs_(x)))))


softplus = composite(
    "softplus",
    _like_first("softplus"),
    _softplus,
    vjp=(lambda g, out, x: mul(g, sigmoid(x)),),
    samples=samples.unary(),
    oracle="nn.functional.softplus",
)
leaky_relu = composite(
    "leaky_relu",
    _like_first("leaky_relu"),
    lambda x, slope: where(gt(x, 0.0), x, mul(x, slope)),
    vjp=(lambda g, out, x, slope: where(gt(x, 0.0), g, mul(g, slope)), None),
    samples=lambda: [Sample((samples.numbers(k, s), 0.1)) for k, s in enumerate(samples.SHAPES)],
    oracle="nn.functional.leaky_relu",
)


# --- losses ---------------------------------------------------------------------------------------------------------
def _reduced(rows, reduction):
    if reduction == "none":
        return rows
    total = sum_(rows, axes=tuple(range(len(rows.shape))), keepdim=False)
    return total if reduction == "sum" else div(total, real(_size(rows)))


def _size(x):
    count = 1
    for d in x.shape:
        count *= d
    return count


def _pairwise_infer(name):
    def infer(operands, attributes, default_float):
        x, y = operands
        require_floating(name, x)
        shape = broadcast_shapes(name, [x.shape, y.shape])
        return Meta(shape if attributes["reduction"] == "none" else (), dtypes.promote(x.dtype, y.dtype))

    return infer


def _per_element(g, x, y, reduction):
    """The cotangent of a reduced loss, for every element."""
    shape = broadcast_shapes("loss", [x.shape, y.shape])
    if reduction == "none":
        return g
    count = 1
    for d in shape:
        count *= d
    return expand(div(g, real(count)) if reduction == "mean" else g, shape=shape)


def _mse_vjp(sign_of):
    return lambda g, out, x, y, reduction: mul(_per_element(g, x, y, reduction), mul(sub(x, y), 2.0 * sign_of))


def _pair_samples(**attributes):
    return [
        Sample((samples.numbers(2 * k, s), samples.numbers(2 * k + 1, s)), {"reduction": r, **attributes})
        for k, s in enumerate(((3,), (2, 3), (4, 1, 5)))
        for r in ("none", "sum", "mean")
    ]


def _mse(x, y, reduction):
    difference = sub(x, y)
    return _reduced(mul(difference, difference), reduction)


mse_loss = composite(
    "mse_loss",
    _pairwise_infer("mse_loss"),
    _mse,
    vjp=(_mse_vjp(1), _mse_vjp(-1)),
    samples=_pair_samples,
    oracle="nn.functional.mse_loss",
)
l1_loss = composite(
    "l1_loss",
    _pairwise_infer("l1_loss"),
    lambda x, y, reduction: _reduced(abs_(sub(x, y)), reduction),
    vjp=(
        lambda g, out, x, y, reduction: mul(_per_element(g, x, y, reduction), sign(sub(x, y))),
        lambda g, out, x, y, reduction: neg(mul(_per_element(g, x, y, reduction), sign(sub(x, y)))),
    ),
    # PyTorch composes l1_loss from sub, abs and mean.
    node_name=lambda operands, attributes: {"mean": "MeanBackward0", "sum": "SumBackward0", "none": "AbsBackward0"}[
        attributes["reduction"]
    ],
    samples=_pair_samples,
    oracle="nn.functional.l1_loss",
)


def _smooth_l1(x, y, reduction, beta):
    distance = abs_(sub(x, y))
    near = div(mul(mul(distance, distance), 0.5), beta)
    return _reduced(where(lt(distance, beta), near, sub(distance, 0.5 * beta)), reduction)


def _smooth_l1_slope(x, y, beta):
    difference = sub(x, y)
    return where(ge(abs_(difference), beta), sign(difference), div(difference, beta))


# (x - y)^2 / (2 beta) where |x - y| < beta, |x - y| - beta / 2 elsewhere.
smooth_l1_loss = composite(
    "smooth_l1_loss",
    _pairwise_infer("smooth_l1_loss"),
    _smooth_l1,
    vjp=(
        lambda g, out, x, y, reduction, beta: mul(_per_element(g, x, y, reduction), _smooth_l1_slope(x, y, beta)),
        lambda g, out, x, y, reduction, beta: neg(mul(_per_element(g, x, y, reduction), _smooth_l1_slope(x, y, beta))),
    ),
    samples=lambda: _pair_samples(beta=0.5),
    oracle="nn.functional.smooth_l1_loss",
)


def _huber(x, y, reduction, delta):
    distance = abs_(sub(x, y))
    near = mul(mul(distance, distance), 0.5)
    return _reduced(where(le(distance, delta), near, mul(sub(distance, 0.5 * delta), delta)), reduction)


def _huber_slope(x, y, delta):
    difference = sub(x, y)
    return where(gt(abs_(difference), delta), mul(sign(difference), delta), difference)


# (x - y)^2 / 2 where |x - y| <= delta, delta (|x - y| - delta / 2) elsewhere.
huber_loss = composite(
    "huber_loss",
    _pairwise_infer("huber_loss"),
    _huber,
    vjp=(
        lambda g, out, x, y, reduction, delta: mul(_per_element(g, x, y, reduction), _huber_slope(x, y, delta)),
        lambda g, out, x, y, reduction, delta: neg(mul(_per_element(g, x, y, reduction), _huber_slope(x, y, delta))),
    ),
    samples=lambda: _pair_samples(delta=0.75),
    oracle="nn.functional.huber_loss",
)


def _bce_with_logits(x, y, reduction):
    """max(x, 0) - x y + log(1 + exp(-|x|))."""
    return _reduced(add(sub(clamp_min(x, 0.0), mul(x, y)), log1p(exp(neg(abs_(x))))), reduction)


binary_cross_entropy_with_logits = composite(
    "binary_cross_entropy_with_logits",
    _pairwise_infer("binary_cross_entropy_with_logits"),
    _bce_with_logits,
    vjp=(
        lambda g, out, x, y, reduction: mul(_per_element(g, x, y, reduction), sub(sigmoid(x), y)),
        lambda g, out, x, y, reduction: mul(_per_element(g, x, y, reduction), neg(x)),
    ),
    samples=lambda: [
        Sample((samples.numbers(2 * k, (2, 3)), samples.numbers(2 * k + 1, (2, 3), 0.1, 0.9)), {"reduction": r})
        for k, r in enumerate(("none", "sum", "mean"))
    ],
    oracle="nn.functional.binary_cross_entropy_with_logits",
)


# --- negative log likelihood of class indices -----------------------------------------------------------------------
def _nll_infer(operands, attributes, default_float):
    x, target = operands
    require_floating("nll_loss", x)
    if target.dtype is not dtypes.int64:
        raise OpError(f"nll_loss: target must be int64 class indices, got {target.dtype.name}; convert with .long()")
    if len(x.shape) != 2 or target.shape != x.shape[:1]:
        raise OpError(
            f"nll_loss: Expected input batch_size ({x.shape[:1]}) to match target batch_size ({target.shape}): "
            f"input must have shape (N, C), target (N,); got {x.shape} and {target.shape}"
        )
    return Meta(target.shape if attributes["reduction"] == "none" else (), x.dtype)


def _hits(x, target, ignore_index):
    """bool (N, C): the target's class of every row, and none in ignored rows."""
    classes = x.apply_op(arange, (0, 1), {"shape": (x.shape[1],), "dtype": dtypes.int32})
    column = reshape(target, shape=(x.shape[0], 1))
    # Compared in half of the bits: a vector has as many of them as of floats, and a class that counts has no others.
    return logical_and(eq(classes, cast(column, dtype=dtypes.int32)), ne(column, ignore_index))


def _nll(x, target, reduction, ignore_index):
    target = class_index(target, classes=x.shape[1], ignore_index=ignore_index)
    rows = sum_(where(_hits(x, target, ignore_index), neg(x), 0.0), axes=(1,), keepdim=False)
    if reduction == "none":
        return rows
    total = sum_(rows, axes=(0,), keepdim=False)
    return div(total, _kept(x, target, ignore_index)) if reduction == "mean" else total


def _nll_alone(x, target, reduction, ignore_index):
    """The same numbers, read where they lie: what looks at all classes pays where it has them in registers."""
    if x.shape[1] < 2:
        return _nll(x, target, reduction, ignore_index)
    target = class_index(target, classes=x.shape[1], ignore_index=ignore_index)
    counts = ne(target, ignore_index)
    column = reshape(where(counts, target, 0), shape=(x.shape[0], 1))
    found = reshape(gather(x, column, axis=1), shape=target.shape)
    # A sum of a zero and others is no negative zero.
    rows = where(counts, add(neg(found), 0.0), 0.0)
    if reduction == "none":
        return rows
    total = sum_(rows, axes=(0,), keepdim=False)
    return div(total, _kept(x, target, ignore_index)) if reduction == "mean" else total


def _kept(x, target, ignore_index):
    """How many rows count."""
    return cast(sum_(ne(target, ignore_index), axes=(0,), keepdim=False), dtype=x.dtype)


def _nll_vjp(g, out, x, target, reduction, ignore_index):
    if reduction == "mean":
        g = div(g, _kept(x, target, ignore_index))
    scale = reshape(g, shape=(x.shape[0], 1)) if reduction == "none" else g
    return where(_hits(x, target, ignore_index), neg(scale), 0.0)


def _evaluate_class_index(target, classes, ignore_index):
    bad = ((target < 0) | (target >= classes)) & (target != ignore_index)
    if bad.any():
        raise IndexError(f"nll_loss: Target {int(target[bad][0])} is out of bounds for {classes} classes")
    return target


def _lower_class_index(b, target, fail, classes, ignore_index):
    """`fail` marks the lanes of an i1 mask as bad: the program stops there and eager mode tells the user."""
    t = target.type
    outside = b.or_(b.cmp("lt", target, b.const(0, t)), b.cmp("ge", target, b.const(classes, t)))
    fail(b.and_(outside, b.cmp("ne", target, b.const(ignore_index, t))))
    return target


# Class indices, checked.
class_index = elementwise(
    "class_index",
    1,
    lambda operands, default_float: ((operands[0].dtype,), operands[0].dtype),
    evaluate=_evaluate_class_index,
    lower=_lower_class_index,
    samples=lambda: [Sample((samples.integers(0, (4,), 0, 5),), {"classes": 5, "ignore_index": -100})],
    traits=frozenset(["checks"]),
)
nll_loss = composite(
    "nll_loss",
    _nll_infer,
    _nll,
    vjp=(_nll_vjp, None),
    samples=lambda: [
        Sample((samples.numbers(k, (4, 5)), samples.integers(k, (4,), 0, 5)), {"reduction": r, "ignore_index": i})
        for k, (r, i) in enumerate((("none", -100), ("sum", -100), ("mean", -100), ("mean", 2)))
    ],
    oracle="nn.functional.nll_loss",
    extra={"alone": _nll_alone},
)


# --- layer_norm over the last dimension (the frontend flattens several) ---------------------------------------------
def _statistics(x, eps):
    """Centred rows and the reciprocal of their standard deviation."""
    width = real(x.shape[-1])
    last = (len(x.shape) - 1,)
    centred = sub(x, div(sum_(x, axes=last, keepdim=True), width))
    variance = div(sum_(mul(centred, centred), axes=last, keepdim=True), width)
    return centred, rsqrt(add(variance, eps))


def _layer_norm(x, *affine, eps):
    centred, scale = _statistics(x, eps)
    result = mul(centred, scale)
    if affine:
        result = mul(result, affine[0])
    return add(result, affine[1]) if len(affine) == 2 else result


def _layer_norm_infer(operands, attributes, default_float):
    x = operands[0]
    require_floating("layer_norm", x)
    for name, o in zip(("weight", "bias"), operands[1:]):
        if o.shape != x.shape[-1:] or o.dtype is not x.dtype:
            raise OpError(
                f"layer_norm: {name} is {o.dtype.name}{o.shape}, the normalized dimension of input "
                f"{x.dtype.name}{x.shape} needs {x.dtype.name}{x.shape[-1:]}"
            )
    return Meta(x.shape, x.dtype)


def _layer_norm_vjp_input(g, out, x, *affine, eps):
    centred, scale = _statistics(x, eps)
    normal = mul(centred, scale)
    inner = mul(g, affine[0]) if affine else g
    last, width = (len(x.shape) - 1,), real(x.shape[-1])
    mean_inner = div(sum_(inner, axes=last, keepdim=True), width)
    mean_product = div(sum_(mul(inner, normal), axes=last, keepdim=True), width)
    return mul(scale, sub(sub(inner, mean_inner), mul(normal, mean_product)))


def _layer_norm_vjp_weight(g, out, x, *affine, eps):
    centred, scale = _statistics(x, eps)
    return mul(g, mul(centred, scale))


layer_norm = composite(
    "layer_norm",
    _layer_norm_infer,
    _layer_norm,
    vjp=(_layer_norm_vjp_input, _layer_norm_vjp_weight, lambda g, out, x, *affine, eps: g),
    node_name="NativeLayerNormBackward0",
    samples=lambda: [
        Sample((samples.numbers(0, (2, 5)), samples.numbers(1, (5,)), samples.numbers(2, (5,))), {"eps": 1e-5}),
        Sample((samples.numbers(3, (2, 3, 37)), samples.numbers(4, (37,)), samples.numbers(5, (37,))), {"eps": 1e-5}),
        Sample((samples.numbers(6, (4, 6)),), {"eps": 1e-5}),
    ],
)


# --- dropout --------------------------------------------------------------------------------------------------------
def _dropout_mask(u, p):
    return lt(u, 1.0 - p) if p < 1 else lt(u, 0.0)


def _dropout(x, u, p):
    """Keeps x where the uniform draw u is below 1 - p, scaled by 1 / (1 - p)."""
    return where(_dropout_mask(u, p), mul(x, 1.0 / (1.0 - p) if p < 1 else 0.0), 0.0)


dropout = composite(
    "dropout",
    _like_first("dropout"),
    _dropout,
    vjp=(
        lambda g, out, x, u, p: where(_dropout_mask(u, p), mul(g, 1.0 / (1.0 - p) if p < 1 else 0.0), 0.0),
        None,
    ),
    node_name="MulBackward0",
    samples=lambda: [Sample((samples.numbers(0, (3, 4)), samples.numbers(1, (3, 4), 0.0, 1.0)), {"p": 0.25})],
)
