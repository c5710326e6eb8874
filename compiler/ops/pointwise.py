"""Elementwise functions of two operands beyond arithmetic, and the few of one that belong to them.

Most are composed of ops that have kernels. Whole-number functions and the incomplete gamma functions are NumPy's.
"""

import math

import numpy as np

from .. import dtypes
from ..dtypes import bfloat16
from ..shapes import broadcast_shapes
from ..storage import readable
from . import samples
from .arithmetic import abs_, add, div, maximum, minimum, mul, neg, sqrt, sub
from .comparison import cast, eq, ge, gt, isnan, le, logical_and, logical_or, lt, where
from .kinds import NotImplementedRule, alias, arithmetic, elementwise, floating, integers_only, library
from .samples import Sample
from .source import zeros_like
from .special import lgamma
from .table import Meta, OpError, Spelling
from .transcendental import cos, exp, exp2, log, log1p, sin


# --- signs and extremes -----------------------------------------------------------------------------------------------
def is_negative(x):
    """Whether the sign is minus, also of zero. The sign of a NaN is not told."""
    zero = eq(x, 0)
    return where(zero, lt(div(1.0, x), 0.0), lt(x, 0)) if x.dtype.is_floating_point else lt(x, 0)


def _turned(value, x, y):
    """The value where the signs of x and y agree, else its negative."""
    return where(eq(is_negative(x), is_negative(y)), value, neg(value))


# |x| with the sign of y, which has the same type.
copysign = alias(
    "copysign",
    lambda x, y: _turned(x, x, y),
    vjp=(
        lambda g, out, x, y: where(eq(x, 0.0), 0.0, mul(g, div(out, x))),  # NaN of NaN and infinities, as PyTorch's is
        lambda g, out, x, y: zeros_like(out),
    ),
    samples=samples.binary(0.25, 2.0, -2.0, -0.5, number=False),
    oracle="copysign",
    doc="The magnitude of input with the sign of other.",
    spelling=Spelling(operands=2, numbers="other", promotes="floating"),
)


def _ignoring_nan(name, wins, **facts):
    """The extreme of two numbers, of a number and a NaN the number; of equal ones the first, with its derivative."""

    def first(x, y):
        return logical_or(wins(x, y), isnan(y))

    return alias(
        name,
        lambda x, y: where(first(x, y), x, y),
        vjp=(
            lambda g, out, x, y: where(first(x, y), g, 0.0),
            lambda g, out, x, y: where(first(x, y), 0.0, g),
        ),
        samples=samples.binary(number=False),
        oracle=name,
        **facts,
    )


fmax = _ignoring_nan(
    "fmax",
    ge,
    doc="The larger of the two; a nan loses to a number.",
    spelling=Spelling(operands=2, numbers="none", promotes="same", in_place=False),
)
fmin = _ignoring_nan(
    "fmin",
    le,
    doc="The smaller of the two; a nan loses to a number.",
    spelling=Spelling(operands=2, numbers="none", promotes="same", in_place=False),
)


# --- lengths ----------------------------------------------------------------------------------------------------------
def _hypot(x, y):
    """The longer side times a root between 1 and 2: no square overflows or vanishes."""
    x, y = abs_(x), abs_(y)
    longer = maximum(x, y)
    ratio = div(minimum(x, y), longer)
    length = where(eq(longer, 0.0), 0.0, mul(longer, sqrt(add(mul(ratio, ratio), 1.0))))
    return where(logical_or(eq(x, math.inf), eq(y, math.inf)), math.inf, length)


hypot = alias(
    "hypot",
    _hypot,
    vjp=(lambda g, out, x, y: mul(g, div(x, out)), lambda g, out, x, y: mul(g, div(y, out))),
    samples=samples.binary(0.25, 2.0, number=False),
    oracle="hypot",
    doc="sqrt(input ** 2 + other ** 2), also where the squares are too large or too small; infinite if one of them is.",
    spelling=Spelling(operands=2, numbers="none", promotes="floating"),
)


# --- logarithms that are multiplied -----------------------------------------------------------------------------------
def _times_log(x, y, logarithm):
    """x logarithm(y), 0 where x is 0 and y no NaN."""
    zero = logical_and(eq(x, 0.0), eq(y, y))
    return where(zero, 0.0, mul(x, logarithm(where(zero, 1.0, y))))


xlogy = alias(
    "xlogy",
    lambda x, y: _times_log(x, y, log),
    vjp=(
        lambda g, out, x, y: where(logical_and(eq(x, 0.0), le(y, 0.0)), 0.0, mul(g, log(y))),
        lambda g, out, x, y: mul(g, div(x, y)),
    ),
    samples=samples.binary(0.25, 2.0, number=False),
    oracle="xlogy",
    doc="input * log(other), 0 where input is 0.",
    spelling=Spelling(special="xlogy", operands=2, promotes="floating"),
)
xlog1py = alias(
    "xlog1py",
    lambda x, y: _times_log(x, y, log1p),
    vjp=(
        lambda g, out, x, y: where(logical_and(eq(x, 0.0), le(y, -1.0)), 0.0, mul(g, log1p(y))),
        lambda g, out, x, y: mul(g, div(x, add(y, 1.0))),
    ),
    samples=samples.binary(0.25, 2.0, number=False),
    oracle="special.xlog1py",
    doc="input * log1p(other), 0 where input is 0.",
    spelling=Spelling("", special="xlog1py", operands=2, promotes="floating"),
)


def _entr(x):
    """-x log(x), 0 at 0, -inf below."""
    positive = gt(x, 0.0)
    return where(
        positive, neg(mul(x, log(where(positive, x, 1.0)))), where(eq(x, 0.0), 0.0, where(lt(x, 0.0), -math.inf, x))
    )


entr = alias(
    "entr",
    _entr,
    vjp=(lambda g, out, x: mul(g, sub(-1.0, log(x))),),
    samples=samples.unary(0.25, 2.0),
    oracle="special.entr",
    doc="-x log(x), 0 at 0, -inf below.",
    spelling=Spelling("", special="entr"),
)


def _sinc(x):
    zero = eq(x, 0.0)
    angle = mul(where(zero, 1.0, x), math.pi)
    return where(zero, 1.0, div(sin(angle), angle))


def _sinc_vjp(g, out, x):
    """(cos(pi x) - sinc(x)) / x, 0 at 0."""
    zero = eq(x, 0.0)
    slope = div(sub(cos(mul(x, math.pi)), sinc(x)), where(zero, 1.0, x))
    return where(zero, 0.0, mul(g, slope))


sinc = alias(
    "sinc",
    _sinc,
    vjp=(_sinc_vjp,),
    samples=samples.unary(0.25, 2.0),
    oracle="sinc",
    doc="sin(pi x) / (pi x), 1 at 0.",
    spelling=Spelling(special="sinc"),
)


# --- bits -------------------------------------------------------------------------------------------------------------
def _shift(name, evaluate, lower, **facts):
    """Shifts by 64 places or more leave nothing but the sign, as in PyTorch."""
    return elementwise(
        name,
        2,
        integers_only(name, bools=False),
        evaluate=evaluate,
        lower=lower,
        samples=lambda: [Sample((samples.integers(0, (2, 3)), samples.integers(1, (3,), 0, 5)))],
        oracle=name,
        **facts,
    )


def _bits(x):
    return x.dtype.itemsize * 8


def _in_range(b, x, y):
    """Whether y is a number of places that x has."""
    return b.and_(b.cmp("ge", y, b.const(0, y.type)), b.cmp("lt", y, b.const(x.type.element_bytes * 8, y.type)))


def _lower_left(b, x, y):
    inside = _in_range(b, x, y)
    zero = b.const(0, x.type)
    return b.select(inside, b.shl(x, b.select(inside, y, zero)), zero)


def _lower_right(b, x, y):
    last = b.const(x.type.element_bytes * 8 - 1, x.type)
    return b.ashr(x, b.select(_in_range(b, x, y), y, last))


bitwise_left_shift = _shift(
    "bitwise_left_shift",
    lambda x, y: np.where((y >= 0) & (y < _bits(x)), np.left_shift(x, np.clip(y, 0, _bits(x) - 1)), x.dtype.type(0)),
    _lower_left,
    doc="input << other: input * 2 ** other.",
    spelling=Spelling(operands=2),
)
bitwise_right_shift = _shift(
    "bitwise_right_shift",
    lambda x, y: np.right_shift(x, np.where((y >= 0) & (y < _bits(x)), y, _bits(x) - 1)),
    _lower_right,
    doc="input >> other: input / 2 ** other, rounded down.",
    spelling=Spelling(operands=2),
)


# --- by NumPy ---------------------------------------------------------------------------------------------------------
def _binary_meta(rule):
    def infer(operands, attributes):
        return Meta(broadcast_shapes("", [o.shape for o in operands]), rule(operands))

    return infer


def _common(operands):
    return arithmetic(operands, dtypes.float32)[1]


def _numpy_integers(name, function, **facts):
    def common(operands):
        dtype = _common(operands)
        if dtype.category != 1:
            raise OpError(f"{name}: needs integer operands, got {' and '.join(o.dtype.name for o in operands)}")
        return dtype

    return library(
        name,
        _binary_meta(common),
        lambda x, y: function(*np.broadcast_arrays(x, y)).astype(np.result_type(x, y)),
        vjp=(),
        samples=lambda: [Sample((samples.integers(0, (2, 3)), samples.integers(1, (3,), -9, 10)))],
        oracle=name,
        **facts,
    )


gcd = _numpy_integers(
    "gcd", np.gcd, doc="The greatest common divisor.", spelling=Spelling(operands=2, numbers="none", promotes="same")
)
lcm = _numpy_integers(
    "lcm", np.lcm, doc="The least common multiple.", spelling=Spelling(operands=2, numbers="none", promotes="same")
)


def _evaluate_nextafter(x, y):
    if x.dtype != bfloat16.numpy:
        return np.nextafter(x, y).astype(np.result_type(x, y))
    # The next number has the next bits: a sign and a magnitude.
    start, end = readable(x), readable(y)
    step = np.where((end > start) == (start > 0), np.int16(1), np.int16(-1))
    from_zero = np.where(end > 0, np.int16(1), np.int16(-32767))
    bits = np.where(start == 0, from_zero, x.view(np.int16) + step)
    bits = np.where(np.isnan(start) | np.isnan(end), np.int16(0x7FC0), bits)
    return np.where(start == end, y.view(np.int16), bits).view(bfloat16.numpy)


nextafter = library(
    "nextafter",
    _binary_meta(_common),
    _evaluate_nextafter,
    vjp=(lambda g, out, x, y: g, lambda g, out, x, y: zeros_like(out)),
    samples=samples.binary(number=False),
    oracle="nextafter",
    traits=frozenset(["own-type"]),
    doc="The next floating point number after input towards other.",
    spelling=Spelling(operands=2, numbers="none", promotes="same"),
)


def _evaluate_frexp(x, part):
    mantissa, exponent = np.frexp(x)
    return mantissa if part == "mantissa" else exponent.astype(np.int32)


def _frexp_meta(operands, attributes):
    if not operands[0].dtype.is_floating_point:
        raise OpError(f"frexp() only supports floating-point dtypes, got {operands[0].dtype.name}")
    return Meta(operands[0].shape, operands[0].dtype if attributes["part"] == "mantissa" else dtypes.int32)


def _frexp_vjp(g, out, x, part):
    """The mantissa is the number over a power of two."""
    exponent = frexp(x, part="exponent")
    return mul(g, exp2(neg(cast(exponent, dtype=g.dtype))))


frexp = library(
    "frexp",
    _frexp_meta,
    _evaluate_frexp,
    vjp=(_frexp_vjp,),
    samples=lambda: [Sample((samples.numbers(0, (2, 3), 0.6, 0.9),), {"part": p}) for p in ("mantissa", "exponent")],
    oracle=lambda torch, x, part: getattr(torch.frexp(x), part),
)


# --- zeta and the incomplete gamma functions --------------------------------------------------------------------------
def _float_meta(operands, attributes):
    return Meta(broadcast_shapes("", [o.shape for o in operands]), floating(operands, dtypes.float32)[1])


def _wide(function):
    def evaluate(x, y):
        with np.errstate(all="ignore"):
            # np.float64(x) makes a number of one element before NumPy 2.3.
            wide = function(*np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64)))
            return np.asarray(wide).astype(np.result_type(x, y))

    return evaluate


# (2k)! / B(2k), of Euler and Maclaurin's sum
_ZETA = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
    1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18,
)  # fmt: skip


def _zeta(x, q):
    """The sum of (q + k)^-x over k >= 0: ten terms and those of negative q + k, then Euler and Maclaurin's sum."""
    terms = 10 + int(np.max(np.where(np.isfinite(q) & (q < 0), np.minimum(-q, 1000.0), 0.0), initial=0.0))
    total = np.sum([(q + k) ** -x for k in range(terms)], axis=0)
    a = q + terms
    tail = a ** (1 - x) / (x - 1) + 0.5 * a**-x
    factor, power = x, a ** (-x - 1)
    for k, c in enumerate(_ZETA):
        tail = tail + factor * power / c
        factor, power = factor * (x + 2 * k + 1) * (x + 2 * k + 2), power / (a * a)
    total = np.where(np.isfinite(tail), total + tail, total)
    # As PyTorch has it where one operand is infinite or a NaN: its first questions come last.
    total = np.where(np.isinf(x), np.where(q > 1, np.nan, np.where(q == 1, 1.0, np.inf)), total)
    total = np.where(np.isinf(q) | np.isnan(x) | np.isnan(q), np.nan, total)
    total = np.where((q <= 0) & (x != np.floor(x)), np.nan, total)
    total = np.where((q <= 0) & (q == np.floor(q)), np.inf, total)
    return np.where(x < 1, np.nan, np.where(x == 1, np.inf, total))


zeta = library(
    "zeta",
    _float_meta,
    _wide(_zeta),
    vjp=(NotImplementedRule("zeta"), lambda g, out, x, q: mul(g, mul(neg(x), zeta(add(x, 1.0), q)))),
    samples=samples.binary(1.5, 4.0, 0.5, 3.0, number=False),
    oracle="special.zeta",
    tolerance=1e-7,
    doc="Hurwitz's zeta function: the sum of (other + k) ** -input over k = 0, 1, ...",
    spelling=Spelling("", special="zeta", operands=2, promotes="floating"),
)


def _lgammas(a):
    return np.vectorize(lambda v: math.lgamma(v) if v > 0 else math.inf, otypes=[float])(a) if a.size else a


def _lower_gamma(a, x):
    """P(a, x): the series for x < a + 1 (6.5.29), one less the continued fraction beyond (6.5.31)."""
    scale = np.exp(a * np.log(x) - x - _lgammas(a))
    term = total = 1 / a
    for k in range(1, 500):
        term = term * x / (a + k)
        total = total + np.where(x < a + 1, term, 0)
    return np.where(x < a + 1, scale * total, 1 - scale * _gamma_fraction(a, x))


def _gamma_fraction(a, x):
    """Lentz's method."""
    b = x + 1 - a
    c, d = np.full_like(b, 1e300), 1 / b
    h = d
    for k in range(1, 500):
        an = -k * (k - a)
        b = b + 2
        d = 1 / (an * d + b)
        c = b + an / c
        h = h * d * c
    return h


def _gammainc(a, x):
    result = np.where(x == 0, np.where(a == 0, np.nan, 0.0), np.where(np.isinf(x), 1.0, _lower_gamma(a, x)))
    result = np.where((a == 0) & (x > 0), 1.0, np.where(np.isinf(a), np.where(np.isinf(x), np.nan, 0.0), result))
    # PyTorch's limits hold at the ends of x and of a also where the other one is a NaN.
    result = np.where(np.isnan(a) & (x == 0) | np.isinf(a) & np.isnan(x), 0.0, result)
    known = np.isnan(a) & ((x == 0) | np.isinf(x)) | np.isinf(a) & np.isnan(x)
    return np.where((a < 0) | (x < 0) | (np.isnan(a) | np.isnan(x)) & ~known, np.nan, result)


def _gammaincc(a, x):
    scale = np.exp(a * np.log(x) - x - _lgammas(a))
    far = (x >= a + 1) & np.isfinite(x) & (a > 0) & np.isfinite(a)
    return np.where(far, scale * _gamma_fraction(a, x), 1 - _gammainc(a, x))


def _gamma_density(a, x):
    """x^(a - 1) exp(-x) / gamma(a)"""
    return exp(sub(sub(mul(sub(a, 1.0), log(x)), x), lgamma(a)))


def _incomplete(name, function, sign_of, oracle, **facts):
    return library(
        name,
        _float_meta,
        _wide(function),
        vjp=(NotImplementedRule(f"{name}: input"), lambda g, out, a, x: mul(mul(g, sign_of), _gamma_density(a, x))),
        samples=samples.binary(0.5, 3.0, 0.5, 4.0, number=False),
        oracle=oracle,
        **facts,
    )


igamma = _incomplete(
    "igamma",
    _gammainc,
    1.0,
    "special.gammainc",
    doc="The regularized lower incomplete gamma function P(input, other).",
    spelling=Spelling(special="gammainc", operands=2, numbers="none", promotes="floating"),
)
igammac = _incomplete(
    "igammac",
    _gammaincc,
    -1.0,
    "special.gammaincc",
    doc="The regularized upper incomplete gamma function Q(input, other) = 1 - P(input, other).",
    spelling=Spelling(special="gammaincc", operands=2, numbers="none", promotes="floating"),
)
