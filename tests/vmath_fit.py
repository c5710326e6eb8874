"""Where the polynomials of vector math come from: minimax fits by the Remez exchange, in mpmath.

    python tests/vmath_fit.py        fits every polynomial anew and prints its coefficients

Each fit minimises the largest |weight(t) * (polynomial(t) - exact(t))| over an interval. `exact` is what the polynomial
stands for and `weight` its share in the result, so that the error is relative to the result of the function.
"""

from dataclasses import dataclass
from typing import Any

import mpmath
from mpmath import mpf

from weft.compiler.vmath import error, exponential, hyperbolic, inverse, power, trigonometric
from weft.compiler.vmath import logarithm as logarithms

PRECISION_BITS = 200
# Below this the quotients in `exact` would cancel to nothing; their limits are taken there.
TINY = mpf(10) ** -18


@dataclass(frozen=True)
class Fit:
    """One polynomial: its coefficients, rounded as in the code, and their error as `exact` on [low, high]."""

    name: str
    coefficients: tuple
    error_log2: float
    exact: Any
    weight: Any
    low: Any
    high: Any


def odd_rest(function, limit):
    """(exact, weight) for function(x) = x + x**3 * P(x**2); the share of P is x**3 / function(x)."""

    def exact(t):
        x = mpmath.sqrt(t)
        return limit if t < TINY else (function(x) - x) / x**3

    def weight(t):
        x = mpmath.sqrt(t)
        return mpf(0) if t == 0 else x**3 / function(x)

    return exact, weight


def exp_rest(x):
    return mpf(1) / 2 if abs(x) < TINY else (mpmath.expm1(x) - x) / x**2


def exp_share(x):
    return x**2 / mpmath.exp(x)


def exp2_share(x):
    return x / mpf(2) ** x


def exp2_rest(x):
    return mpmath.log(2) if abs(x) < TINY else mpmath.expm1(x * mpmath.log(2)) / x


def log_rest(f):
    return mpf(1) / 3 if abs(f) < TINY else (mpmath.log1p(f) - f + f * f / 2) / f**3


def log_share(f):
    return f * f if abs(f) < TINY else f**3 / mpmath.log1p(f)


def log2_series(z):
    """log2((1 + s) / (1 - s)) / s for z = s**2."""
    s = mpmath.sqrt(z)
    return 2 / mpmath.log(2) if z < TINY else 2 * mpmath.atanh(s) / mpmath.log(2) / s


def log2_rest(z):
    first = 2 / mpmath.log(2)
    return first / 5 if z < TINY else (log2_series(z) - first - first / 3 * z) / z**2


def log2_share(z):
    return 1 / log2_series(z)


def log2_rest_share(z):
    return z**2 / log2_series(z)


def log_series(z):
    """(2 atanh(s) - 2 s) / s**3 for z = s**2."""
    s = mpmath.sqrt(z)
    return mpf(2) / 3 if z < TINY else (2 * mpmath.atanh(s) - 2 * s) / s**3


def cos_rest(z):
    return mpf(1) / 24 if z < TINY else (mpmath.cos(mpmath.sqrt(z)) - 1 + z / 2) / z**2


def cos_share(z):
    return z**2 / mpmath.cos(mpmath.sqrt(z))


def cosh_share(z):
    return z / mpmath.cosh(mpmath.sqrt(z))


def cosh_rest(z):
    return mpf(1) / 2 if z < TINY else (mpmath.cosh(mpmath.sqrt(z)) - 1) / z


def erf_rate(x):
    return 2 / mpmath.sqrt(mpmath.pi) if x < TINY else -mpmath.log(mpmath.erfc(x)) / x


def erf_rest(z):
    x = mpmath.sqrt(z)
    return (2 / mpmath.sqrt(mpmath.pi) if z < TINY else mpmath.erf(x) / x) - 1


def erf_rest_share(z):
    return 1 / (1 + erf_rest(z))


def erfc_root(x):
    return mpmath.erfc(x) ** (mpf(1) / 4)


def erfc_root_share(x):
    """erf(x) = 1 - erfc_root(x)**4, which is near 1."""
    return 4 * erfc_root(x) ** 3


def erf_share(x):
    """An error d of z = x * erf_rate(x) changes erf(x) = 1 - exp(-z) by a share z * d / (exp(z) - 1)."""
    z = x * erf_rate(x)
    return (mpf(1) if z < TINY else z / mpmath.expm1(z)) / erf_rate(x)


def fits():
    """All fits, with the errors that the comments beside the coefficients state."""
    half_log2 = mpmath.log(2) / 2 * mpf("1.002")
    quarter_pi = mpmath.pi / 4 * mpf("1.008")
    tan_pi_8 = mpmath.tan(mpmath.pi / 8) * mpf("1.001")
    sin, atan = odd_rest(mpmath.sin, -mpf(1) / 6), odd_rest(mpmath.atan, -mpf(1) / 3)
    asin, sinh = odd_rest(mpmath.asin, mpf(1) / 6), odd_rest(mpmath.sinh, mpf(1) / 6)
    to_half = (-mpf("0.501"), mpf("0.501"))
    cos_series = {element: table[2:] for element, table in trigonometric.COS.items()}
    log_square, log2_square = mpf("0.2001") ** 2, mpf("0.1716") ** 2
    far, erf_one = mpf(error.ERF_FAR), {element: mpf(end) for element, end in error.ERF_ONE.items()}
    rows = [
        ("exp", exponential.EXP_REST, {"f32": -27.8, "f64": -56.7}, exp_rest, exp_share, -half_log2, half_log2),
        ("exp2", exponential.EXP2_REST, {"f32": -25.4, "f64": -55.5}, exp2_rest, exp2_share, *to_half),
        ("exp2 short", {"f64": power.EXP2_SHORT}, {"f64": -31.9}, exp2_rest, exp2_share, *to_half),
        ("log", {"f32": logarithms.LOG_REST_F32}, {"f32": -27.2}, log_rest, log_share, -mpf("0.2501"), mpf("0.5001")),
        ("log", {"f64": logarithms.LOG_REST_F64}, {"f64": -55.8}, log_series, lambda z: z / 2, mpf(0), log_square),
        (
            "log2 short",
            {"f64": power.LOG2_SHORT},
            {"f64": -45},
            log2_series,
            log2_share,
            mpf(0),
            log2_square,
        ),
        (
            "log2",
            {"f64": power.LOG2_REST},
            {"f64": -65.3},
            log2_rest,
            log2_rest_share,
            mpf(0),
            log2_square,
        ),
        ("sin", trigonometric.SIN_REST, {"f32": -27.3, "f64": -57.4}, *sin, mpf(0), quarter_pi**2),
        ("cos", cos_series, {"f32": -30.5, "f64": -59.2}, cos_rest, cos_share, mpf(0), quarter_pi**2),
        ("atan", inverse.ATAN_REST, {"f32": -28.2, "f64": -58.6}, *atan, mpf(0), tan_pi_8**2),
        ("asin", inverse.ASIN_REST, {"f32": -27.2, "f64": -55.6}, *asin, mpf(0), mpf("0.2501")),
        ("sinh", hyperbolic.SINH_REST, {"f32": -26, "f64": -61}, *sinh, mpf(0), half_log2**2),
        ("cosh", hyperbolic.COSH_REST, {"f32": -29.9, "f64": -56.8}, cosh_rest, cosh_share, mpf(0), half_log2**2),
        ("erf", {"f32": error.ERF_REST_F32}, {"f32": -27.5}, erf_rest, erf_rest_share, mpf(0), far**2),
        ("erfc root", {"f32": error.ERFC_ROOT_F32}, {"f32": -24.6}, erfc_root, erfc_root_share, far, erf_one["f32"]),
        ("erf", {"f64": error.ERF_RATE_F64}, {"f64": -55.9}, erf_rate, erf_share, mpf(0), erf_one["f64"]),
    ]
    return [
        Fit(f"{name} {element}", tables[element], bound, exact, weight, low, high)
        for name, tables, bounds, exact, weight, low, high in rows
        for element, bound in bounds.items()
    ]


def grid(fit, n_points):
    """Chebyshev points of the interval: dense at the ends, where the error peaks."""
    middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    return [middle - half * mpmath.cos(mpmath.pi * (k + mpf(1) / 2) / n_points) for k in range(n_points)]


def largest_error(fit, n_points=60):
    """The largest weighted error of the coefficients as they stand in the code."""
    with mpmath.workprec(PRECISION_BITS):
        backwards = list(reversed(fit.coefficients))
        return max(abs(fit.weight(t) * (mpmath.polyval(backwards, t) - fit.exact(t))) for t in grid(fit, n_points))


def remez(fit, n_points=500, n_rounds=12):
    """Coefficients of the best polynomial of the same degree, and its error."""
    n = len(fit.coefficients)
    points = grid(fit, n_points)
    weights, values = [fit.weight(t) for t in points], [fit.exact(t) for t in points]
    chosen = [round(n_points * (k + 0.5) / (n + 1)) for k in range(n + 1)]
    for _ in range(n_rounds):
        rows = [[weights[i] * points[i] ** k for k in range(n)] + [mpf(-1) ** j] for j, i in enumerate(chosen)]
        solution = mpmath.lu_solve(mpmath.matrix(rows), mpmath.matrix([weights[i] * values[i] for i in chosen]))
        coefficients = [solution[k] for k in range(n)]
        backwards = coefficients[::-1]
        errors = [w * (mpmath.polyval(backwards, t) - v) for t, w, v in zip(points, weights, values, strict=True)]
        peaks = alternating_peaks(errors)
        if len(peaks) < n + 1:
            break
        while len(peaks) > n + 1:
            peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
        chosen = peaks
    return coefficients, max(map(abs, errors))


def alternating_peaks(errors):
    """The index of the largest error in each run of one sign."""
    peaks = []
    for k, value in enumerate(errors):
        if not peaks or (value > 0) != (errors[peaks[-1]] > 0):
            peaks.append(k)
        elif abs(value) > abs(errors[peaks[-1]]):
            peaks[-1] = k
    return peaks


def main():
    with mpmath.workprec(PRECISION_BITS):
        for fit in fits():
            coefficients, error_size = remez(fit)
            print(f"{fit.name}: error 2**{float(mpmath.log(error_size, 2)):.1f}")
            with mpmath.workprec(24 if fit.name.endswith("f32") else 53):
                print("   ", ", ".join(repr(float(+c)) for c in coefficients))


if __name__ == "__main__":
    main()
