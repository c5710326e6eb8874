"""Transcendental functions: eager mode runs the kernels generated from these entries, so compiled results are equal."""

import numpy as np

from ..later import later
from . import samples
from .arithmetic import add, div, mul, neg, rsqrt, sub
from .comparison import cast, eq, ge, logical_and, where
from .complex_numbers import real_part
from .kinds import elementwise, floating
from .table import Spelling


def _lowering(name):
    return later("compiler.vmath:FUNCTIONS.get", name)


def _unary(name, vjp, low=-2.0, high=2.0, **facts):
    return elementwise(
        name,
        1,
        floating,
        vjp=(vjp,),
        lower=_lowering(name),
        cost="function",
        samples=samples.unary(low, high),
        oracle=name,
        **facts,
    )


def _complex_sigmoid(x):
    return 1 / (1 + np.exp(-x))


exp = _unary("exp", lambda g, out, x: mul(g, out), on_complex=np.exp, doc="e to the power x.", spelling=Spelling())
exp2 = _unary(
    "exp2",
    lambda g, out, x: mul(mul(g, out), 0.6931471805599453),
    on_complex=np.exp2,
    doc="2 to the power x.",
    spelling=Spelling(special="exp2"),
)
expm1 = _unary(
    "expm1",
    lambda g, out, x: mul(g, add(out, 1.0)),
    on_complex=np.expm1,
    doc="exp(x) - 1, exact also where x is small.",
    spelling=Spelling(special="expm1"),
)
log = _unary(
    "log",
    lambda g, out, x: div(g, x),
    0.25,
    4.0,
    on_complex=np.log,
    doc="The natural logarithm; -inf at 0, nan below.",
    spelling=Spelling(),
)
log2 = _unary(
    "log2",
    lambda g, out, x: div(g, mul(x, 0.6931471805599453)),
    0.25,
    4.0,
    on_complex=np.log2,
    doc="The logarithm to base 2; -inf at 0, nan below.",
    spelling=Spelling(),
)
log10 = _unary(
    "log10",
    lambda g, out, x: div(g, mul(x, 2.302585092994046)),
    0.25,
    4.0,
    on_complex=np.log10,
    doc="The logarithm to base 10; -inf at 0, nan below.",
    spelling=Spelling(),
)
log1p = _unary(
    "log1p",
    lambda g, out, x: div(g, add(x, 1.0)),
    -0.75,
    4.0,
    node_name="Log1PBackward0",
    on_complex=np.log1p,
    doc="log(1 + x), exact also where x is small.",
    spelling=Spelling(special="log1p"),
)
tanh = _unary(
    "tanh",
    lambda g, out, x: mul(g, sub(1.0, mul(out, out))),
    on_complex=np.tanh,
    doc="The hyperbolic tangent.",
    spelling=Spelling(),
)
sigmoid = _unary(
    "sigmoid",
    lambda g, out, x: mul(g, mul(sub(1.0, out), out)),
    on_complex=_complex_sigmoid,
    doc="1 / (1 + exp(-x)).",
    spelling=Spelling(special="expit"),
)
erf = _unary(
    "erf",
    lambda g, out, x: mul(mul(g, 1.1283791670955126), exp(neg(mul(x, x)))),
    doc="The error function.",
    spelling=Spelling(special="erf"),
)
sin = _unary(
    "sin", lambda g, out, x: mul(g, cos(x)), on_complex=np.sin, doc="The sine of x radians.", spelling=Spelling()
)
cos = _unary(
    "cos", lambda g, out, x: neg(mul(g, sin(x))), on_complex=np.cos, doc="The cosine of x radians.", spelling=Spelling()
)
tan = _unary(
    "tan",
    lambda g, out, x: mul(g, add(mul(out, out), 1.0)),
    -1.2,
    1.2,
    on_complex=np.tan,
    doc="The tangent of x radians.",
    spelling=Spelling(),
)
atan = _unary(
    "atan",
    lambda g, out, x: div(g, add(mul(x, x), 1.0)),
    on_complex=np.arctan,
    doc="The angle in (-pi/2, pi/2) whose tangent is x.",
    spelling=Spelling("atan arctan"),
)
asin = _unary(
    "asin",
    lambda g, out, x: mul(g, rsqrt(sub(1.0, mul(x, x)))),
    -0.9,
    0.9,
    on_complex=np.arcsin,
    doc="The angle in [-pi/2, pi/2] whose sine is x; nan outside [-1, 1].",
    spelling=Spelling("asin arcsin"),
)
acos = _unary(
    "acos",
    lambda g, out, x: neg(mul(g, rsqrt(sub(1.0, mul(x, x))))),
    -0.9,
    0.9,
    on_complex=np.arccos,
    doc="The angle in [0, pi] whose cosine is x; nan outside [-1, 1].",
    spelling=Spelling("acos arccos"),
)
sinh = _unary(
    "sinh", lambda g, out, x: mul(g, cosh(x)), on_complex=np.sinh, doc="The hyperbolic sine.", spelling=Spelling()
)
cosh = _unary(
    "cosh", lambda g, out, x: mul(g, sinh(x)), on_complex=np.cosh, doc="The hyperbolic cosine.", spelling=Spelling()
)


def _pow_base(g, out, x, y):
    return where(eq(y, 0.0), 0.0, mul(g, mul(y, pow_(x, sub(y, 1.0)))))


def _pow_exponent(g, out, x, y):
    """0 where the base is 0 and the exponent is not negative: the limit, and what PyTorch returns."""
    flat = logical_and(eq(x, 0.0), ge(real_part(y), 0.0))
    if out.dtype.is_complex and hasattr(x, "apply_op"):
        # A real base below 0 has a complex logarithm.
        x = cast(x, dtype=out.dtype)
    return where(flat, 0.0, mul(g, mul(out, log(x))))


def _complex_power(x, y):
    """NumPy has NaN for powers of 0 in places where PyTorch has numbers."""
    return np.where((x == 0) & (y.real > 0), x.dtype.type(0), np.power(x, y))


pow_ = elementwise(
    "pow",
    2,
    floating,
    vjp=(_pow_base, _pow_exponent),
    lower=_lowering("pow"),
    cost="function",
    node_name="PowBackward1",
    on_complex=_complex_power,
    samples=samples.binary(0.25, 3.0, -2.0, 2.0, number=False),
    oracle="pow",
)


def _over_square(part, y, x):
    """part / (x^2 + y^2), 0 at the origin as in PyTorch."""
    square = add(mul(x, x), mul(y, y))
    return where(eq(square, 0.0), 0.0, div(part, square))


atan2 = elementwise(
    "atan2",
    2,
    floating,
    vjp=(
        lambda g, out, y, x: mul(g, _over_square(x, y, x)),
        lambda g, out, y, x: neg(mul(g, _over_square(y, y, x))),
    ),
    lower=_lowering("atan2"),
    cost="function",
    samples=samples.binary(0.25, 2.0, 0.25, 2.0, number=False),
    oracle="atan2",
)
