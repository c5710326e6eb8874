"""Special functions, composed of the ops that have kernels: gamma, error and Bessel functions and their relatives.

Float32 is computed in float64, so its results are rounded once or twice. In float64 the relative error is below 1e-13
where a docstring says nothing else; next to a zero of a function that error is absolute. Sources: Abramowitz and
Stegun, Handbook of Mathematical Functions (1964), by number of formula; the Chebyshev coefficients were computed with
mpmath from the functions they stand for.
"""

import math

from .. import dtypes
from . import samples
from .arithmetic import abs_, add, div, mul, neg, reciprocal, round_, sqrt, sub
from .comparison import cast, eq, ge, gt, le, logical_and, lt, where
from .kinds import alias
from .table import Spelling
from .transcendental import cos, erf, exp, log, log1p, sin


def _floating(x):
    return x if x.dtype.is_floating_point else mul(x, 1.0)


def _special(name, formula, vjp, low=-2.0, high=2.0, oracle=None, rough=None, **facts):
    """An entry of one operand. The formula gets float64. `rough`, also in float64, is precise enough for float32."""

    def decompose(x):
        x = _floating(x)
        if x.dtype is dtypes.float64:
            return formula(x)
        return cast((rough or formula)(cast(x, dtype=dtypes.float64)), dtype=x.dtype)

    return alias(
        name, decompose, vjp=(vjp,), samples=samples.unary(low, high), oracle=oracle or f"special.{name}", **facts
    )


def _polynomial(x, coefficients):
    """Horner's rule, the highest coefficient first."""
    total = mul(x, coefficients[0])
    for c in coefficients[1:-1]:
        total = mul(add(total, c), x)
    return add(total, coefficients[-1])


def _chebyshev(t, coefficients):
    """The sum of c[k] T_k(t) by Clenshaw's recurrence."""
    twice = mul(t, 2.0)
    later, last = add(mul(t, 0.0), coefficients[-1]), None
    for c in reversed(coefficients[1:-1]):
        turned = add(mul(twice, later), c)
        later, last = (turned if last is None else sub(turned, last)), later
    return add(sub(mul(t, later), last), coefficients[0])


def _from_whole(x):
    """x less the nearest whole number: the sine of pi x is that of the difference, but for its sign."""
    return sub(x, round_(x))


# --- inverse hyperbolic functions -------------------------------------------------------------------------------------
def _asinh(x):
    a = abs_(x)
    near = log1p(add(a, div(mul(a, a), add(sqrt(add(mul(a, a), 1.0)), 1.0))))
    return mul(where(gt(a, 1e8), add(log(a), math.log(2.0)), near), where(lt(x, 0.0), -1.0, 1.0))


def _acosh(x):
    t = sub(x, 1.0)
    near = log1p(add(t, sqrt(mul(t, add(t, 2.0)))))
    return where(lt(x, 1.0), math.nan, where(gt(x, 1e8), add(log(x), math.log(2.0)), near))


def _atanh(x):
    a = abs_(x)
    return mul(log1p(div(mul(a, 2.0), sub(1.0, a))), where(lt(x, 0.0), -0.5, 0.5))


asinh = _special(
    "asinh",
    _asinh,
    lambda g, out, x: div(g, sqrt(add(mul(x, x), 1.0))),
    oracle="asinh",
    doc="The inverse hyperbolic sine.",
    spelling=Spelling("asinh arcsinh"),
)
acosh = _special(
    "acosh",
    _acosh,
    lambda g, out, x: div(g, sqrt(sub(mul(x, x), 1.0))),
    1.5,
    4.0,
    oracle="acosh",
    doc="The inverse hyperbolic cosine; nan below 1.",
    spelling=Spelling("acosh arccosh"),
)
atanh = _special(
    "atanh",
    _atanh,
    lambda g, out, x: div(g, sub(1.0, mul(x, x))),
    -0.75,
    0.75,
    oracle="atanh",
    doc="The inverse hyperbolic tangent; nan outside [-1, 1].",
    spelling=Spelling("atanh arctanh"),
)


# --- the error function's relatives -----------------------------------------------------------------------------------
# (1 + x) erfcx(x) for x >= 0, in t = (3 - x) / (3 + x)
_ERFCX = (
    0.7537126744747984,
    0.2241538079990932,
    0.03331141869936043,
    -0.004729202203160197,
    -0.004667584028574755,
    -0.001505458991859158,
    -0.00026627940185075776,
    -1.4873372028813446e-05,
    4.608056130651458e-06,
    9.676802292406118e-07,
    -4.5804960221247864e-08,
    -3.403835840664945e-08,
    -2.518340232091328e-10,
    1.1966477481196763e-09,
    3.164433134634344e-11,
    -4.632116432053921e-11,
    -8.079023721827319e-13,
    1.962398333458031e-12,
    -3.400898153707074e-14,
    -8.654949442875412e-14,
    6.547149324532097e-15,
    3.6838625312481265e-15,
    -6.0613192213158115e-16,
    -1.3273004386476393e-16,
    4.3937306511658953e-17,
)


def _erfcx_positive(x):
    """exp(x^2) erfc(x) for x >= 0."""
    return div(_chebyshev(sub(div(6.0, add(x, 3.0)), 1.0), _ERFCX), add(x, 1.0))


def _erfcx(x):
    right = _erfcx_positive(abs_(x))
    return where(lt(x, 0.0), sub(mul(exp(mul(x, x)), 2.0), right), right)


def _erfc(x):
    a = abs_(x)
    tail = mul(exp(neg(mul(a, a))), _erfcx_positive(a))
    return where(lt(a, 0.5), sub(1.0, erf(x)), where(lt(x, 0.0), sub(2.0, tail), tail))


# erfcx(x) / t of t = 1 / (1 + x / 2), by t - 0.6: to 7e-10 up to x = 10.2, beyond which a float32 is 0.
_ERFCX_OF_FLOAT32 = (
    -0.03058183971, 0.02670870429, 0.03695381529, -0.06716000542, -0.009613402068, 0.1133003967, -0.03779074918,
    -0.2078004009, 0.06868666699, 0.5914703174, 0.8025886529, 0.58522449,
)  # fmt: skip


def _rough_erfc(x):
    """The tail alone."""
    a = abs_(x)
    t = reciprocal(add(mul(a, 0.5), 1.0))
    tail = mul(exp(neg(mul(a, a))), mul(t, _polynomial(sub(t, 0.6), _ERFCX_OF_FLOAT32)))
    return where(lt(x, 0.0), sub(2.0, tail), tail)


_TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)
erfc = _special(
    "erfc",
    _erfc,
    lambda g, out, x: mul(mul(g, -_TWO_OVER_ROOT_PI), exp(neg(mul(x, x)))),
    rough=_rough_erfc,
    doc="1 - erf(x), exact also where x is large.",
    spelling=Spelling(special="erfc"),
)
erfcx = _special(
    "erfcx",
    _erfcx,
    lambda g, out, x: mul(g, sub(mul(mul(x, out), 2.0), _TWO_OVER_ROOT_PI)),
    doc="exp(x ** 2) * erfc(x), which neither overflows nor vanishes.",
    spelling=Spelling("", special="erfcx"),
)


def _ndtr(x):
    return mul(_erfc(mul(x, -math.sqrt(0.5))), 0.5)


def _log_ndtr(x):
    low = sub(log(mul(_erfcx(mul(x, -math.sqrt(0.5))), 0.5)), mul(mul(x, x), 0.5))
    return where(lt(x, -1.0), low, log1p(mul(_erfc(mul(x, math.sqrt(0.5))), -0.5)))


def _density(x):
    """The standard normal density."""
    return mul(exp(mul(mul(x, x), -0.5)), 1.0 / math.sqrt(2.0 * math.pi))


def _log_ndtr_vjp(g, out, x):
    """density / ndtr = sqrt(2 / pi) / erfcx(-x / sqrt(2))."""
    return div(mul(g, math.sqrt(2.0 / math.pi)), erfcx(mul(x, -math.sqrt(0.5))))


def _ndtri(p):
    """26.2.23 and three steps of Newton's method, in the tail where p is below a half."""
    tail = where(gt(p, 0.5), sub(1.0, p), p)
    t = sqrt(mul(log(tail), -2.0))
    rational = div(_polynomial(t, (0.010328, 0.802853, 2.515517)), _polynomial(t, (0.001308, 0.189269, 1.432788, 1.0)))
    y = sub(rational, t)
    for _ in range(3):
        y = sub(y, div(sub(_ndtr(y), tail), _density(y)))
    y = where(gt(p, 0.5), neg(y), y)
    y = where(eq(p, 0.0), -math.inf, where(eq(p, 1.0), math.inf, y))
    return where(logical_and(ge(p, 0.0), le(p, 1.0)), y, math.nan)


def _erfinv(x):
    """The tail by ndtri, the middle by Newton's method for erf."""
    a = abs_(x)
    near = where(gt(a, 0.7), 0.0, x)
    # The series 7.4.? of the inverse: z + z^3 / 3 + 7 z^5 / 30 ... with z = x sqrt(pi) / 2.
    z = mul(near, 0.5 * math.sqrt(math.pi))
    square = mul(z, z)
    y = mul(z, _polynomial(square, (4369 / 22680, 127 / 630, 7 / 30, 1 / 3, 1.0)))
    for _ in range(3):
        y = sub(y, div(sub(erf(y), near), mul(exp(neg(mul(y, y))), _TWO_OVER_ROOT_PI)))
    far = mul(_ndtri(where(gt(a, 0.7), mul(sub(1.0, a), 0.5), 0.1)), -math.sqrt(0.5))
    return where(gt(a, 0.7), mul(far, where(lt(x, 0.0), -1.0, 1.0)), where(eq(x, x), y, x))


# erfinv(x) / x by w = -log(1 - x^2): around 2.5 for w up to 5, and by sqrt(w) around 3 up to w = 17.6. Fitted with
# mpmath, to 2e-7; the form is that of M. Giles (2010).
_ERFINV = (
    2.26059776e-08, 3.42224709e-07, -3.45477951e-06, -4.38034671e-06, 0.00021831298, -0.00125375888, -0.00417734652,
    0.246640766, 1.50140935,
)  # fmt: skip
_ERFINV_FAR = (
    -9.04661638e-05, -4.4688443e-07, 0.00121659356, -0.00356452576, 0.00579305985, -0.00765554008, 0.00943127389,
    1.00167654, 2.83297711,
)  # fmt: skip


def _rough_erfinv(x):
    """Those polynomials, and a step of Newton's method: 3e-11 for what a float32 can be."""
    w = neg(log(mul(sub(1.0, x), add(x, 1.0))))
    ratio = where(lt(w, 5.0), _polynomial(sub(w, 2.5), _ERFINV), _polynomial(sub(sqrt(w), 3.0), _ERFINV_FAR))
    y = mul(x, ratio)
    y = sub(y, div(sub(erf(y), x), mul(exp(neg(mul(y, y))), _TWO_OVER_ROOT_PI)))
    # Of 1 the logarithm is infinite; beyond it, and of NaN, all is NaN.
    return where(eq(abs_(x), 1.0), mul(x, math.inf), y)


ndtr = _special(
    "ndtr",
    _ndtr,
    lambda g, out, x: mul(g, _density(x)),
    doc="The standard normal distribution function.",
    spelling=Spelling("", special="ndtr"),
)
log_ndtr = _special(
    "log_ndtr",
    _log_ndtr,
    _log_ndtr_vjp,
    doc="log(ndtr(x)), exact also far below 0.",
    spelling=Spelling("", special="log_ndtr"),
)
ndtri = _special(
    "ndtri",
    _ndtri,
    lambda g, out, x: div(g, _density(out)),
    0.05,
    0.95,
    doc="The x with ndtr(x) = p: normal quantiles.",
    spelling=Spelling("", special="ndtri"),
)
erfinv = _special(
    "erfinv",
    _erfinv,
    lambda g, out, x: mul(mul(g, 1.0 / _TWO_OVER_ROOT_PI), exp(mul(out, out))),
    -0.95,
    0.95,
    rough=_rough_erfinv,
    doc="The y with erf(y) = x; nan outside [-1, 1].",
    spelling=Spelling(special="erfinv"),
)


# --- gamma and its logarithm's derivatives ----------------------------------------------------------------------------
# Lanczos' sum with g = 607 / 128 (P. Godfrey, 2001).
_LANCZOS = (
    57.156235665862923517, -59.597960355475491248, 14.136097974741747174, -0.49191381609762019978,
    0.33994649984811888699e-4, 0.46523628927048575665e-4, -0.98374475304879564677e-4, 0.15808870322491248884e-3,
    -0.21026444172410488319e-3, 0.21743961811521264320e-3, -0.16431810653676389022e-3, 0.84418223983852743293e-4,
    -0.26190838401581408670e-4, 0.36899182659531622704e-5,
)  # fmt: skip


def _lgamma_positive(x):
    total = add(mul(x, 0.0), 0.99999999999999709182)
    for k, c in enumerate(_LANCZOS):
        total = add(total, div(c, add(x, float(k))))
    t = add(x, 607 / 128 - 0.5)
    return add(sub(mul(sub(x, 0.5), log(t)), t), log(mul(total, math.sqrt(2.0 * math.pi))))


def _lgamma(x):
    mirrored = _lgamma_positive(where(lt(x, 0.5), sub(1.0, x), x))
    reflected = sub(math.log(math.pi), add(log(abs_(sin(mul(_from_whole(x), math.pi)))), mirrored))
    result = where(lt(x, 0.5), reflected, mirrored)
    return where(eq(abs_(x), math.inf), math.inf, result)


lgamma = _special(
    "lgamma",
    _lgamma,
    lambda g, out, x: mul(g, digamma(x)),
    0.25,
    4.0,
    oracle="lgamma",
    tolerance=1e-8,
    doc="The logarithm of |gamma(x)|.",
    spelling=Spelling(special="gammaln"),
)

# B(2k) / (2k), the terms of 6.3.18
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _digamma_positive(x):
    """6.3.18 at x + 8, brought back by 6.3.5."""
    total = reciprocal(x)
    for k in range(1, 8):
        total = add(total, reciprocal(add(x, float(k))))
    y = add(x, 8.0)
    inverse = reciprocal(mul(y, y))
    series = mul(_polynomial(inverse, _DIGAMMA[::-1]), inverse)
    return sub(sub(sub(log(y), mul(reciprocal(y), 0.5)), series), total)


def _digamma(x):
    """6.3.7 for negative numbers; NaN at negative whole ones, an infinity of the other sign at 0."""
    positive = _digamma_positive(where(lt(x, 0.0), sub(1.0, x), x))
    rest = _from_whole(x)
    reflected = sub(positive, div(mul(cos(mul(rest, math.pi)), math.pi), sin(mul(rest, math.pi))))
    result = where(lt(x, 0.0), where(eq(rest, 0.0), math.nan, reflected), positive)
    return where(eq(x, 0.0), neg(reciprocal(x)), where(eq(x, math.inf), math.inf, result))


digamma = _special(
    "digamma",
    _digamma,
    lambda g, out, x: mul(g, polygamma(x, n=1)),
    0.5,
    4.0,
    tolerance=1e-8,
    doc="The derivative of lgamma.",
    spelling=Spelling(special="digamma psi"),
)

# B(2k) / (2k)!
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600)


def _whole_power(x, n):
    """x ** n for a whole n >= 1, by squaring."""
    result = None
    while n:
        if n & 1:
            result = x if result is None else mul(result, x)
        x, n = (mul(x, x) if n > 1 else x), n >> 1
    return result


def _hurwitz(s, x):
    """The sum of (x + k)^-s over k >= 0, x > 0, for a whole s >= 2: Euler and Maclaurin's sum after 12 terms."""
    total = _whole_power(reciprocal(x), s)
    for k in range(1, 12):
        total = add(total, _whole_power(reciprocal(add(x, float(k))), s))
    inverse = reciprocal(add(x, 12.0))
    power, square = _whole_power(inverse, s), mul(inverse, inverse)
    total = add(total, add(div(mul(power, add(x, 12.0)), float(s - 1)), mul(power, 0.5)))
    term, factor = mul(power, inverse), float(s)
    for j, b in enumerate(_BERNOULLI):
        total = add(total, mul(term, b * factor))
        term, factor = mul(term, square), factor * (s + 2 * j + 1) * (s + 2 * j + 2)
    return total


def _cotangent_derivative(n):
    """d^n/dx^n of cot(pi x) / pi^n as a polynomial in cot(pi x), the lowest power first."""
    p = [0.0, 1.0]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(p)][1:]
        p = [-(a + b) for a, b in zip(slope + [0.0, 0.0], [0.0, 0.0] + slope)]
    return p


def _polygamma(x, n):
    """6.4.10, and 6.4.7 for negative numbers."""
    x = _floating(x)
    if x.dtype is not dtypes.float64:
        return cast(_polygamma(cast(x, dtype=dtypes.float64), n), dtype=x.dtype)
    sign_of = -1.0 if n % 2 == 0 else 1.0
    negative = lt(x, 0.0)
    positive = mul(_hurwitz(n + 1, where(negative, sub(1.0, x), x)), sign_of * math.factorial(n))
    rest = _from_whole(x)
    cot = div(cos(mul(rest, math.pi)), sin(mul(rest, math.pi)))
    slope = mul(_polynomial(cot, _cotangent_derivative(n)[::-1]), math.pi ** (n + 1))
    reflected = sub(mul(positive, 1.0 if n % 2 == 0 else -1.0), slope)
    return where(negative, where(eq(rest, 0.0), sign_of * math.inf, reflected), positive)


polygamma = alias(
    "polygamma",
    _polygamma,
    vjp=(lambda g, out, x, n: mul(g, polygamma(x, n=n + 1)),),
    samples=lambda: [samples.Sample((samples.numbers(k, (5,), 0.5, 4.0),), {"n": n}) for k, n in enumerate((1, 2, 3))],
    oracle=lambda torch, x, n: torch.polygamma(n, x),
    tolerance=1e-8,
)
