"""log, log2, log10 and log1p.

x = 2**e * (1 + f) with f in [-1/4, 1/2): the interval is placed so that log1p can form f from its argument without
rounding, and all four functions share it. log(1 + f) is a polynomial in f (f32), or the series of atanh in
s = f / (2 + f) (f64), as in fdlibm's e_log.c.
"""

from .exponential import LOG_2
from .pieces import (
    constants,
    fast_two_sum,
    format_of,
    horner,
    pow2,
    repair,
    to_bits,
    to_exponent,
    two_product,
)

# f32: (log(1 + f) - f + f**2/2) / f**3 on -1/4 <= f <= 1/2; relative error of log(1 + f) below 2**-27.2.
LOG_REST_F32 = (
    0.3333345055580139,
    -0.2500009834766388,
    0.19990846514701843,
    -0.16647246479988098,
    0.1447850465774536,
    -0.1316206455230713,
    0.10464305430650711,
    -0.045079756528139114,
)
# f64: (log((1 + s) / (1 - s)) - 2 s) / s**3 as a polynomial in s**2, |s| <= 0.2001; relative error below 2**-55.8.
LOG_REST_F64 = (
    0.6666666666667276,
    0.39999999996137786,
    0.28571429399561177,
    0.22222138153361765,
    0.1818637031541724,
    0.15249903677341325,
    0.15370406554582267,
)
# log10(2) with a head that multiplies any exponent exactly, and log10(e), each as head and tail.
LOG10_2 = {
    "f32": (float.fromhex("0x1.3440p-2"), float.fromhex("0x1.3509f79fef312p-18")),
    "f64": (float.fromhex("0x1.34413509f7800p-2"), float.fromhex("0x1.fef311f12b358p-46")),
}
LOG10_E = {
    "f32": (float.fromhex("0x1.bcb7b2p-2"), float.fromhex("-0x1.5b235e39ab2a9p-27")),
    "f64": (float.fromhex("0x1.bcb7b1526e50ep-2"), float.fromhex("0x1.95355baaafad3p-57")),
}
LOG2_E = {
    "f32": (float.fromhex("0x1.715476p+0"), float.fromhex("0x1.4ae0bf85ddf44p-26")),
    "f64": (float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56")),
}


def split_exponent(b, x):
    """The integer e with x / 2**e in [3/4, 3/2); x positive and normal."""
    bits = to_bits(b, x)
    above = b.sub(bits, to_bits(b, b.const(0.75, x.type)))
    return b.ashr(above, b.const(format_of(x).mantissa_bits, above.type))


def log1p_rest(b, f):
    """log(1 + f) - f for f in [-1/4, 1/2]."""
    k = constants(b, f)
    if f.type.element == "f32":
        square = b.mul(f, f)
        return b.fma(b.mul(square, f), horner(b, f, LOG_REST_F32), b.mul(square, k(-0.5)))
    half_square = b.mul(b.mul(f, f), k(0.5))
    s = b.div(f, b.add(f, k(2.0)))
    z = b.mul(s, s)
    series = b.fma(z, horner(b, z, LOG_REST_F64), half_square)
    return b.fma(s, series, b.neg(half_square))


def _natural(b, e, f):
    """e * log(2) + log(1 + f). The large terms are summed first and their rounding error is kept."""
    k = constants(b, f)
    head, tail = LOG_2[f.type.element]
    total = b.fma(e, k(head), f)
    lost = b.sub(f, b.fma(e, k(-head), total))
    return b.add(total, b.add(b.fma(e, k(tail), log1p_rest(b, f)), lost))


def _binary(b, e, f):
    """e + log2(1 + f), exact where f is zero."""
    k = constants(b, f)
    head, tail = LOG2_E[f.type.element]
    product, product_tail = two_product(b, f, k(head))
    total, lost = fast_two_sum(b, e, product)
    small = b.fma(log1p_rest(b, f), k(head), b.fma(f, k(tail), product_tail))
    return b.add(total, b.add(small, lost))


def _decimal(b, e, f):
    """e * log10(2) + log10(1 + f)."""
    k = constants(b, f)
    element = f.type.element
    (two, two_tail), (unit, unit_tail) = LOG10_2[element], LOG10_E[element]
    product, product_tail = two_product(b, f, k(unit))
    total, lost = fast_two_sum(b, b.mul(e, k(two)), product)
    small = b.fma(log1p_rest(b, f), k(unit), b.fma(f, k(unit_tail), b.fma(e, k(two_tail), product_tail)))
    return b.add(total, b.add(small, lost))


def _decompose(b, x):
    """(e, f) as floats with x = 2**e * (1 + f); x positive and normal; f is exact."""
    n = split_exponent(b, x)
    m = b.bitcast(b.sub(to_bits(b, x), to_exponent(b, n, x)), x.type.element)
    return b.convert(n, x.type.element), b.sub(m, b.const(1.0, x.type))


def _not_between(b, x, low_bits, high_bits):
    """The lanes whose bits are outside [low_bits, high_bits); those of negative numbers and NaN always are."""
    bits = to_bits(b, x)
    low = b.const(low_bits, bits.type)
    return b.not_(b.cmp("ult", b.sub(bits, low), b.const(high_bits - low_bits, bits.type)))


def _logarithm(b, x, combine):
    """combine(e, f), with the special values and the subnormal arguments repaired."""
    form = format_of(x)
    k = constants(b, x)

    def rare():
        # The lanes in need are special or subnormal; the latter are lifted among the normal numbers.
        lift = form.mantissa_bits + 1
        e, f = _decompose(b, b.mul(x, k(2.0**lift)))
        return _at_the_ends(b, x, combine(b, b.sub(e, k(float(lift))), f))

    usual = combine(b, *_decompose(b, x))
    return repair(b, _not_between(b, x, form.min_normal_bits, form.infinity_bits), usual, rare)


def _at_the_ends(b, x, value):
    """log's special values: x itself for infinity and NaN, minus infinity for zeros, NaN below."""
    k = constants(b, x)
    value = b.select(b.cmp("lt", x, k(float("inf"))), value, x)
    value = b.select(b.cmp("eq", x, k(0.0)), k(float("-inf")), value)
    return b.select(b.cmp("lt", x, k(0.0)), k(float("nan")), value)


def log(b, x):
    """Natural logarithm within 1 ulp."""
    return _logarithm(b, x, _natural)


def log2(b, x):
    """Base-2 logarithm within 1.5 ulp; exact for powers of two."""
    return _logarithm(b, x, _binary)


def log10(b, x):
    """Base-10 logarithm within 1.5 ulp."""
    return _logarithm(b, x, _decimal)


def log1p(b, x):
    """log(1 + x) within 1 ulp, keeping the sign of zero.

    1 + x only chooses e. f = x * 2**-e + (2**-e - 1) is exact for the e that matter: with |f| <= 1/2 its last bit is
    never below that of x * 2**-e, whose value is near 1 - 2**-e.
    """
    form = format_of(x)
    k = constants(b, x)
    above = b.add(x, k(1.0))
    n = split_exponent(b, above)
    shrink = pow2(b, b.neg(n), x)
    f = b.fma(x, shrink, b.sub(shrink, k(1.0)))
    usual = b.copysign(_natural(b, b.convert(n, x.type.element), f), x)

    def rare():
        value = _natural(b, *_decompose(b, x))
        value = b.select(b.cmp("lt", x, k(float("inf"))), value, x)
        value = b.select(b.cmp("eq", x, k(-1.0)), k(float("-inf")), value)
        return b.select(b.cmp("lt", x, k(-1.0)), k(float("nan")), value)

    huge_bits = (form.bias + 60) << form.mantissa_bits
    return repair(b, _not_between(b, above, form.min_normal_bits, huge_bits), usual, rare)
