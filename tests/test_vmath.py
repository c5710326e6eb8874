"""Vector math: error bounds over a deterministic scan, special values, and independence of neighbouring lanes."""

import functools
import math
import re
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import vmath_fit  # noqa: E402
from vmath_harness import DTYPES, Kernel, assembly, kernel_text, mpmath_ulp_errors, ulp_errors  # noqa: E402

from weft.compiler.vmath import FUNCTIONS, ULP_BOUNDS  # noqa: E402

BINARY = {"pow", "atan2"}
ELEMENTS = ("f32", "f64")
CASES = [(name, element) for name in FUNCTIONS for element in ELEMENTS]

# A wider format whose functions in the C library are good to about one of its own ulp; None where there is none.
WIDE = {"f32": np.float64, "f64": np.longdouble if np.finfo(np.longdouble).nmant >= 63 else None}


def _sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x > 0, 1, e) / (1 + e)


def _erf(x):
    return np.array([math.erf(v) for v in x])


NUMPY = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "sigmoid": _sigmoid,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "erf": _erf,
    "pow": np.power,
    "atan2": np.arctan2,
}
MPMATH = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "log2": lambda x: mpmath.log(x, 2),
    "pow": lambda x, y: x**y,
}
# Where a function has most of its changes; the scan of all exponents covers the rest.
INTERVALS = {
    "exp": [(-1, 1), (-110, 95), (-760, 720)],
    "exp2": [(-2, 2), (-160, 130), (-1080, 1030)],
    "expm1": [(-1, 1), (-20, 95), (-40, 715)],
    "sigmoid": [(-2, 2), (-40, 40), (-110, -80), (-760, -700)],
    "log": [(0.25, 4), (0.99, 1.01)],
    "log2": [(0.25, 4), (0.7, 0.8), (0.99, 1.01)],
    "log10": [(0.25, 4), (0.7, 0.8), (0.99, 1.01)],
    "log1p": [(-1, 1), (-0.3, -0.2), (1, 100)],
    "sin": [(-4, 4), (-70000, 70000), (-(2**31), 2**31)],
    "cos": [(-4, 4), (-70000, 70000), (-(2**31), 2**31)],
    "tan": [(-4, 4), (-70000, 70000), (-(2**31), 2**31)],
    "asin": [(-1, 1), (0.4, 0.6), (0.999, 1)],
    "acos": [(-1, 1), (0.4, 0.6), (0.999, 1)],
    "atan": [(-1.1, 1.1), (-10, 10)],
    "sinh": [(-1, 1), (-10, 10), (-720, 720), (-90, 90)],
    "cosh": [(-1, 1), (-10, 10), (-720, 720), (-90, 90)],
    "tanh": [(-0.1, 0.1), (-1, 1), (-20, 20)],
    "erf": [(-0.1, 0.1), (-1.1, 1.1), (-6, 6)],
}


@functools.cache
def kernel(name, element, lanes=None):
    return Kernel(FUNCTIONS[name], element, 2 if name in BINARY else 1, lanes)


def every_exponent(element, per_exponent, seed):
    """Random significands and signs for every exponent, those of subnormals, infinity and NaN included."""
    random = np.random.default_rng(seed)
    bits, exponent_bits, integer = (23, 8, np.uint32) if element == "f32" else (52, 11, np.uint64)
    exponents = np.repeat(np.arange(2**exponent_bits, dtype=np.uint64), per_exponent)
    fractions = random.integers(0, 2**bits, exponents.size, dtype=np.uint64)
    signs = random.integers(0, 2, exponents.size, dtype=np.uint64)
    patterns = signs << np.uint64(bits + exponent_bits) | exponents << np.uint64(bits) | fractions
    return patterns.astype(integer).view(DTYPES[element])


def special_values(element):
    form = np.finfo(DTYPES[element])
    positive = [
        0,
        form.smallest_subnormal,
        form.tiny / 2,
        form.tiny,
        form.eps,
        0.5,
        1,
        1.5,
        2,
        3,
        1e10,
        form.max,
        np.inf,
    ]
    near_one = [1 - form.eps / 2, 1 + form.eps]
    values = np.array([*positive, *near_one], DTYPES[element])
    return np.concatenate([values, -values, np.array([np.nan], DTYPES[element])])


def multiples_of_half_pi(element):
    """The floats on both sides of k * pi/2: the worst cancellation in the reduction of angles."""
    dtype = DTYPES[element]
    near = (np.arange(-20000, 20000) * (np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16)) / 2).astype(dtype)
    # Of all floats these come closest to a multiple of pi/2. [Muller, Elementary Functions, ch. 11]
    closest = dtype(16367173 * 2.0**72) if element == "f32" else dtype(6381956970095103 * 2.0**797)
    return np.concatenate([near, np.nextafter(near, dtype(np.inf)), np.array([closest, -closest])])


def arguments(name, element):
    """A deterministic scan of 50,000 to 150,000 arguments."""
    dtype = DTYPES[element]
    random = np.random.default_rng(len(name))
    if name in BINARY:
        return binary_arguments(name, element, random)
    parts = [special_values(element), every_exponent(element, 60 if element == "f32" else 10, 1)]
    parts += [random.uniform(*interval, 10000).astype(dtype) for interval in INTERVALS[name]]
    if name in ("sin", "cos", "tan"):
        parts.append(multiples_of_half_pi(element))
    return (np.concatenate(parts),)


def binary_arguments(name, element, random):
    dtype = DTYPES[element]
    special = special_values(element)
    x, y = (grid.ravel() for grid in np.meshgrid(special, special))
    pairs = [(x, y), (every_exponent(element, 10, 1), random.permutation(every_exponent(element, 10, 2)))]
    if name == "pow":
        largest = 88 if element == "f32" else 709
        for spread in (largest, 1, 1e-3):
            base = np.exp(random.uniform(-spread, spread, 10000)).astype(dtype)
            log = np.log(base.astype(np.float64))
            exponent = random.uniform(-1.05, 1.02, base.size) * largest / np.where(log == 0, 1, log)
            pairs.append((base, exponent.astype(dtype)))
        integers = random.integers(-20, 21, 10000).astype(dtype)
        pairs.append((random.uniform(-20, 20, 10000).astype(dtype), integers))
    else:
        pairs.append((random.uniform(-2, 2, 20000).astype(dtype), random.uniform(-2, 2, 20000).astype(dtype)))
    return tuple(np.concatenate(column) for column in zip(*pairs, strict=True))


@pytest.mark.parametrize("name, element", CASES)
def test_error_is_within_the_bound(name, element):
    """Against a wider format of the C library, special values included."""
    if WIDE[element] is None or (name, element) == ("erf", "f64"):
        return  # no wider function to compare with: test_error_against_mpmath stands for this one
    operands = arguments(name, element)
    got = kernel(name, element)(*operands)
    with np.errstate(all="ignore"):
        want = NUMPY[name](*[v.astype(WIDE[element]) for v in operands])
    errors = ulp_errors(got, want)
    worst = np.argmax(errors)
    assert errors[worst] <= ULP_BOUNDS[name, element], ([v[worst] for v in operands], got[worst], want[worst])
    numbers = ~np.isnan(got)
    assert np.array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


@pytest.mark.parametrize("name, element", CASES)
def test_error_against_mpmath(name, element):
    """A thinner scan, independent of the C library."""
    operands = arguments(name, element)
    got = kernel(name, element)(*operands)
    usual = np.isfinite(got) & (got != 0) & np.all([np.isfinite(v) for v in operands], axis=0)
    chosen = np.flatnonzero(usual)[:: max(1, usual.sum() // 1200)]
    function = MPMATH.get(name) or getattr(mpmath, name)
    errors = mpmath_ulp_errors(function, got[chosen], *[v[chosen] for v in operands])
    worst = np.argmax(errors)
    assert errors[worst] <= ULP_BOUNDS[name, element], ([v[chosen[worst]] for v in operands], got[chosen[worst]])


@pytest.mark.parametrize("name, element", CASES)
def test_a_lane_depends_on_itself_alone(name, element):
    """The same bits in other company, at other positions and in vectors of other lengths."""
    operands = [v[::7] for v in arguments(name, element)]
    integer = {"f32": np.uint32, "f64": np.uint64}[element]
    expected = kernel(name, element)(*operands)
    order = np.random.default_rng(0).permutation(expected.size)
    shuffled = np.empty_like(expected)
    shuffled[order] = kernel(name, element)(*[v[order] for v in operands])
    narrow = kernel(name, element, 4)(*operands)
    numbers = ~np.isnan(expected)
    for other in (shuffled, narrow):
        assert np.array_equal(other.view(integer)[numbers], expected.view(integer)[numbers])
        assert np.all(np.isnan(other[~numbers]))


@pytest.mark.parametrize("name, element", CASES)
def test_no_external_function_is_called(name, element):
    text = assembly(kernel_text(FUNCTIONS[name], element, 2 if name in BINARY else 1))
    assert not re.search(r"\bcall", text)


def test_every_function_has_bounds():
    assert set(ULP_BOUNDS) == set(CASES)


inf, nan = math.inf, math.nan
SPECIAL_CASES = {
    "exp": [(0, 1), (-0.0, 1), (inf, inf), (-inf, 0), (nan, nan), (1e30, inf), (-1e30, 0)],
    "exp2": [(0, 1), (10, 1024), (-3, 0.125), (inf, inf), (-inf, 0), (nan, nan)],
    "expm1": [(0, 0), (-0.0, -0.0), (inf, inf), (-inf, -1), (nan, nan), (-1e30, -1)],
    "sigmoid": [(0, 0.5), (inf, 1), (-inf, 0), (nan, nan), (1e30, 1), (-1e30, 0)],
    "log": [(1, 0), (0, -inf), (-0.0, -inf), (inf, inf), (-1, nan), (-inf, nan), (nan, nan)],
    "log2": [(1, 0), (8, 3), (0.25, -2), (0, -inf), (inf, inf), (-1, nan), (nan, nan)],
    "log10": [(1, 0), (1000, 3), (1e5, 5), (0, -inf), (inf, inf), (-1, nan), (nan, nan)],
    "log1p": [(0, 0), (-0.0, -0.0), (-1, -inf), (-2, nan), (inf, inf), (-inf, nan), (nan, nan)],
    "sin": [(0, 0), (-0.0, -0.0), (inf, nan), (-inf, nan), (nan, nan)],
    "cos": [(0, 1), (-0.0, 1), (inf, nan), (-inf, nan), (nan, nan)],
    "tan": [(0, 0), (-0.0, -0.0), (inf, nan), (-inf, nan), (nan, nan)],
    "asin": [(0, 0), (-0.0, -0.0), (2, nan), (-inf, nan), (nan, nan)],
    "acos": [(1, 0), (2, nan), (-2, nan), (inf, nan), (nan, nan)],
    "atan": [(0, 0), (-0.0, -0.0), (nan, nan)],
    "sinh": [(0, 0), (-0.0, -0.0), (inf, inf), (-inf, -inf), (nan, nan)],
    "cosh": [(0, 1), (-0.0, 1), (inf, inf), (-inf, inf), (nan, nan)],
    "tanh": [(0, 0), (-0.0, -0.0), (inf, 1), (-inf, -1), (nan, nan), (1e30, 1)],
    "erf": [(0, 0), (-0.0, -0.0), (inf, 1), (-inf, -1), (nan, nan), (1e30, 1)],
    # C99, Annex F.9.4.4.
    "pow": [
        ((0, -3), inf), ((-0.0, -3), -inf), ((-0.0, -2), inf), ((-0.0, -2.5), inf), ((-0.0, 3), -0.0), ((-0.0, 2), 0),
        ((-1, inf), 1), ((-1, -inf), 1), ((1, nan), 1), ((1, inf), 1), ((nan, 0), 1), ((inf, -0.0), 1), ((0, 0), 1),
        ((-2, 0.5), nan), ((-2, 3), -8), ((-2, -2), 0.25), ((0.5, -inf), inf), ((-2, -inf), 0), ((0.5, inf), 0),
        ((-2, inf), inf), ((-inf, -3), -0.0), ((-inf, -2.5), 0), ((-inf, 3), -inf), ((-inf, 2.5), inf),
        ((inf, -1), 0), ((inf, 0.5), inf), ((nan, 1), nan), ((2, nan), nan), ((-inf, 0.5), inf), ((0, inf), 0),
        ((0, -inf), inf), ((2, 10), 1024), ((10, 2), 100), ((-3, 1), -3), ((1e30, 1e30), inf), ((1e30, -1e30), 0),
    ],
    "atan2": [
        ((0, 1), 0), ((-0.0, 1), -0.0), ((0, 0), 0), ((-0.0, 0), -0.0), ((1, inf), 0), ((-1, inf), -0.0),
        ((nan, 1), nan), ((1, nan), nan),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name, element", CASES)
def test_special_cases(name, element):
    rows = [(x if isinstance(x, tuple) else (x,), want) for x, want in SPECIAL_CASES[name]]
    operands = [np.array(column, DTYPES[element]) for column in zip(*(x for x, _ in rows), strict=True)]
    got = kernel(name, element)(*operands)
    for (x, want), result in zip(rows, got, strict=True):
        assert np.array_equal(result, DTYPES[element](want), equal_nan=True), (x, result, want)
        assert math.isnan(want) or math.copysign(1, result) == math.copysign(1, want), (x, result, want)


@pytest.mark.parametrize("name", ["sin", "cos", "tanh", "erf"])
@pytest.mark.parametrize("element", ELEMENTS)
def test_results_stay_within_one(name, element):
    random = np.random.default_rng(5)
    x = np.concatenate([random.uniform(-8, 8, 100000).astype(DTYPES[element]), *arguments(name, element)])
    got = kernel(name, element)(x)
    assert np.nanmax(np.abs(got)) <= 1


@pytest.mark.parametrize("fit", vmath_fit.fits(), ids=lambda fit: fit.name)
def test_polynomials_are_as_good_as_their_comments_say(fit):
    assert vmath_fit.largest_error(fit) <= 2.0**fit.error_log2
