"""Composite reductions: mean, variance, norms, softmax and its relatives."""

import math

from ..extent import real
from ..shapes import reduced_shape
from . import samples
from .arithmetic import add, div, mul, sqrt, sub
from .comparison import eq, isinf, where
from .complex_numbers import real_part
from .kinds import composite, require_floating
from .reduction import _axes_samples, amax, spread, sum_
from .table import Meta
from .transcendental import exp, log
from .view import expand, reshape


def _count(x, axes):
    count = 1
    for a in axes:
        count *= x.shape[a]
    return count


def _float_reduction(name, complex_too=False):
    def infer(operands, attributes, default_float):
        x = operands[0]
        if not (complex_too and x.dtype.is_complex):
            require_floating(name, x)
        return Meta(reduced_shape(x.shape, attributes["axes"], attributes["keepdim"]), x.dtype)

    return infer


def _mean_infer(operands, attributes, default_float):
    x = operands[0]
    if x.dtype.is_complex:
        return Meta(reduced_shape(x.shape, attributes["axes"], attributes["keepdim"]), x.dtype)
    return _float_reduction("mean")(operands, attributes, default_float)


def _mean(x, axes, keepdim):
    return div(sum_(x, axes=axes, keepdim=keepdim), real(_count(x, axes)))


def _numbered(name):
    return lambda operands, attributes: f"{name}Backward{int(attributes['axes'] != tuple(range(operands[0].ndim)))}"


mean = composite(
    "mean",
    _mean_infer,
    _mean,
    on_complex=True,
    vjp=(
        lambda g, out, x, axes, keepdim: expand(div(spread(g, x, axes, keepdim), real(_count(x, axes))), shape=x.shape),
    ),
    node_name=_numbered("Mean"),
    samples=_axes_samples(empty=False),
    oracle="mean",
)


def _var(x, axes, keepdim, correction):
    centred = sub(x, _mean(x, axes, True))
    divisor = real(max(_count(x, axes) - correction, 0))
    return div(sum_(mul(centred, centred), axes=axes, keepdim=keepdim), divisor)


def _var_vjp(g, out, x, axes, keepdim, correction):
    divisor = max(_count(x, axes) - correction, 0)
    # The variance of one element, corrected, is NaN, and so is its gradient.
    scale = mul(spread(g, x, axes, keepdim), 2.0 / divisor if divisor else math.inf)
    return mul(scale, sub(x, _mean(x, axes, True)))


def _var_samples():
    return [
        samples.Sample(s.operands, {**s.attributes, "correction": c})
        for s in _axes_samples(empty=False)()
        if _count(s.operands[0], s.attributes["axes"]) > 1
        for c in (0, 1)
    ]


var = composite("var", _float_reduction("var"), _var, vjp=(_var_vjp,), samples=_var_samples, oracle="var")


def _std_vjp(g, out, x, axes, keepdim, correction):
    """0 where all elements are equal: the subgradient PyTorch takes."""
    of_var = where(eq(out, 0.0), 0.0, div(g, mul(out, 2.0)))
    return _var_vjp(of_var, out, x, axes, keepdim, correction)


std = composite(
    "std",
    _float_reduction("std"),
    lambda x, axes, keepdim, correction: sqrt(_var(x, axes, keepdim, correction)),
    vjp=(_std_vjp,),
    samples=_var_samples,
    oracle="std",
)


def _norm(x, axes, keepdim):
    return sqrt(sum_(mul(x, x), axes=axes, keepdim=keepdim))


def _norm_vjp(g, out, x, axes, keepdim):
    """0 where the norm is 0: the subgradient PyTorch takes."""
    length = spread(out, x, axes, keepdim)
    return where(eq(length, 0.0), 0.0, mul(x, div(spread(g, x, axes, keepdim), length)))


norm = composite(
    "norm",
    _float_reduction("norm"),
    _norm,
    vjp=(_norm_vjp,),
    node_name="LinalgVectorNormBackward0",
    samples=_axes_samples(0.25, 2.0, empty=False),
    oracle="linalg.vector_norm",
)


def _logsumexp(x, axes, keepdim):
    # Of complex numbers the real part says how large the exponential is.
    top = amax(real_part(x), axes=axes, keepdim=True)
    # Rows of -inf would give -inf - -inf: shift them by 0.
    top = where(isinf(top), 0.0, top)
    total = log(sum_(exp(sub(x, top)), axes=axes, keepdim=True))
    result = add(total, top)
    return result if keepdim else _dropped(result, x, axes)


def _dropped(result, x, axes):
    return reshape(result, shape=reduced_shape(x.shape, axes, False))


logsumexp = composite(
    "logsumexp",
    _float_reduction("logsumexp", complex_too=True),
    _logsumexp,
    on_complex=True,
    vjp=(
        lambda g, out, x, axes, keepdim: mul(spread(g, x, axes, keepdim), exp(sub(x, spread(out, x, axes, keepdim)))),
    ),
    samples=_axes_samples(empty=False),
    oracle="logsumexp",
)


def _same_float(name):
    def infer(operands, attributes, default_float):
        require_floating(name, operands[0])
        return Meta(operands[0].shape, operands[0].dtype)

    return infer


def _softmax(x, axis):
    if 0 in x.shape:
        # Nothing is the largest of nothing.
        return exp(x)
    axes = (axis,) if x.shape else ()
    powers = exp(sub(x, amax(x, axes=axes, keepdim=True)))
    return div(powers, sum_(powers, axes=axes, keepdim=True))


def _softmax_vjp(g, out, x, axis):
    weighted = mul(g, out)
    return sub(weighted, mul(out, sum_(weighted, axes=(axis,) if x.shape else (), keepdim=True)))


def _axis_samples():
    return [samples.Sample((samples.numbers(k, s),), {"axis": a}) for k, (s, a) in enumerate(_AXIS_CASES)]


_AXIS_CASES = [((3,), 0), ((2, 3), 1), ((2, 3), 0), ((4, 3, 5), 1), ((3, 130), 1)]
softmax = composite(
    "softmax", _same_float("softmax"), _softmax, vjp=(_softmax_vjp,), samples=_axis_samples, oracle="softmax"
)


def _log_softmax(x, axis):
    if 0 in x.shape:
        return exp(x)
    axes = (axis,) if x.shape else ()
    shifted = sub(x, amax(x, axes=axes, keepdim=True))
    return sub(shifted, log(sum_(exp(shifted), axes=axes, keepdim=True)))


log_softmax = composite(
    "log_softmax",
    _same_float("log_softmax"),
    _log_softmax,
    vjp=(lambda g, out, x, axis: sub(g, mul(exp(out), sum_(g, axes=(axis,) if x.shape else (), keepdim=True))),),
    samples=_axis_samples,
    oracle="log_softmax",
)
