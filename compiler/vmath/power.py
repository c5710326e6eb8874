"""pow: 2**(y * log2(|x|)), with log2 carried far beyond the precision of the result.

An error of log2(|x|) is multiplied by y, which makes it up to 2**10 times larger in the result. f32 therefore computes
in f64 lanes. f64 carries log2(|x|) as a double-double of about 65 good bits: with |x| = 2**e * m, m in [0.707, 1.414],
and s = (m - 1) / (m + 1), log2(m) = s * (C1 + C3 s**2 + s**4 * Q(s**2)), where C1, C3 and s are double-doubles and Q,
which contributes less than 2**-12, is a plain polynomial.
"""

from .exponential import EXP2_INFINITE, EXP2_NORMAL, EXP2_REST, EXP2_ZERO, scale_to_extremes
from .pieces import (
    at_least,
    at_most,
    constants,
    fast_two_sum,
    format_of,
    horner,
    outside,
    repair,
    round_scaled,
    times_pow2,
    to_bits,
    to_exponent,
    two_product,
)

SQRT_HALF = 0.7071067811865476
# log2((1 + s) / (1 - s)) / s as a polynomial in s**2, |s| <= 0.1716; relative error below 2**-45.
LOG2_SHORT = (
    2.88539008177785,
    0.9617966941136062,
    0.5770779422822491,
    0.4122092613177288,
    0.3199053067345101,
    0.28290605537931435,
)
# (2**r - 1) / r on |r| <= 0.501; relative error of 2**r below 2**-31.9.
EXP2_SHORT = (
    0.6931471838556345,
    0.24022650923464392,
    0.05550400292089655,
    0.009618056342645977,
    0.0013341983949664035,
    0.00015461598864386077,
    1.3360070801438921e-05,
)
# 2 / log(2) and a third of it, as double-doubles, and what remains of the series; relative error below 2**-65.3.
C1 = (float.fromhex("0x1.71547652b82fep+1"), float.fromhex("0x1.777d0ffda0d24p-55"))
C3 = (float.fromhex("0x1.ec709dc3a03fdp-1"), float.fromhex("0x1.d27f05548af0cp-55"))
LOG2_REST = (
    0.5770780163556178,
    0.41219858309197366,
    0.32059890226808435,
    0.26230770156044836,
    0.22198397965929198,
    0.1912555399151753,
    0.190382281343653,
)


def pow(b, x, y):
    """x**y within 0.6 ulp (f32) or 1.1 ulp (f64), with all special cases of C99 (Annex F.9.4.4)."""
    magnitude = _pow_f32 if x.type.element == "f32" else _pow_f64
    usual = magnitude(b, b.abs(x), y)
    bits = to_bits(b, x)
    ordinary = b.cmp("ult", b.sub(bits, b.const(1, bits.type)), b.const(format_of(x).infinity_bits - 1, bits.type))
    ordinary = b.and_(ordinary, b.cmp("lt", b.abs(y), b.const(float("inf"), y.type)))
    return repair(b, b.not_(ordinary), usual, lambda: _special_cases(b, x, y, usual))


def _split(b, a):
    """(e, m - 1, m + 1, tail of m + 1) for positive normal f64 lanes a = 2**e * m."""
    bits = to_bits(b, a)
    low = to_bits(b, b.const(SQRT_HALF, a.type))
    n = b.ashr(b.sub(bits, low), b.const(format_of(a).mantissa_bits, bits.type))
    m = b.bitcast(b.sub(bits, to_exponent(b, n, a)), "f64")
    one = b.const(1.0, a.type)
    above = b.add(m, one)
    return b.convert(n, "f64"), b.sub(m, one), above, b.sub(m, b.sub(above, one))


def _pow_f32(b, a, y):
    """a**y for a > 0 and finite y, in f64 lanes; the conversion back to f32 rounds once, subnormals included."""
    a, y = b.convert(a, "f64"), b.convert(y, "f64")
    e, below, above, _ = _split(b, a)
    s = b.div(below, above)
    log2 = b.fma(s, horner(b, b.mul(s, s), LOG2_SHORT), e)
    # Beyond these exponents a float32 is infinite or zero for certain.
    exponent = at_least(b, at_most(b, b.mul(y, log2), 300.0), -300.0)
    n, bits = round_scaled(b, exponent, 1.0)
    r = b.sub(exponent, n)
    p = b.fma(horner(b, r, EXP2_SHORT), r, b.const(1.0, r.type))
    return b.convert(times_pow2(b, p, bits), "f32")


def _pow_f64(b, a, y):
    """a**y for a > 0 and finite y."""
    k = constants(b, a)
    subnormal = b.cmp("lt", a, k(2.0**-1022))
    a = b.select(subnormal, b.mul(a, k(2.0**54)), a)
    e, below, above, above_tail = _split(b, a)
    e = b.select(subnormal, b.sub(e, k(54.0)), e)
    log2, log2_tail = fast_two_sum(b, *_log2_of_quotient(b, e, below, above, above_tail))
    exponent, tail = two_product(b, y, log2)
    tail = b.fma(y, log2_tail, tail)
    n, bits = round_scaled(b, exponent, 1.0)
    r = b.add(b.sub(exponent, n), tail)
    p = b.fma(horner(b, r, EXP2_REST["f64"]), r, k(1.0))

    def extremes():
        return scale_to_extremes(b, exponent, p, bits, EXP2_INFINITE["f64"], EXP2_ZERO["f64"])

    return repair(b, outside(b, exponent, EXP2_NORMAL["f64"]), times_pow2(b, p, bits), extremes)


def _log2_of_quotient(b, e, below, above, above_tail):
    """e + log2(m) as an unevaluated sum, from m - 1 and the two parts of m + 1."""
    k = constants(b, e)
    s = b.div(below, above)
    # 1 / (m + 1) = (1 - s) / 2 saves a second division in the correction of s.
    residual = b.fma(b.neg(s), above_tail, b.fma(b.neg(s), above, below))
    s_tail = b.mul(residual, b.fma(s, k(-0.5), k(0.5)))
    z, z_tail = two_product(b, s, s)
    z_tail = b.fma(b.add(s, s), s_tail, z_tail)
    third, third_tail = fast_two_sum(b, k(C3[0]), b.mul(z, horner(b, z, LOG2_REST)))
    third_tail = b.add(third_tail, k(C3[1]))
    product, product_tail = two_product(b, z, third)
    product_tail = b.add(product_tail, b.fma(z, third_tail, b.mul(z_tail, third)))
    series, series_tail = fast_two_sum(b, k(C1[0]), product)
    series_tail = b.add(series_tail, b.add(product_tail, k(C1[1])))
    log2, log2_tail = two_product(b, s, series)
    log2_tail = b.add(log2_tail, b.fma(s, series_tail, b.mul(s_tail, series)))
    total, lost = fast_two_sum(b, e, log2)
    return total, b.add(lost, log2_tail)


def _special_cases(b, x, y, value):
    """pow where x is not positive and finite or y is not finite; `value` is |x|**y where both are finite."""
    k = constants(b, x)
    zero, one, infinity = k(0.0), k(1.0), k(float("inf"))
    a = b.abs(x)
    falling = b.cmp("lt", y, zero)
    is_zero, is_infinite = b.cmp("eq", a, zero), b.cmp("eq", a, infinity)
    vanishes = b.select(b.xor(is_zero, falling), zero, infinity)
    value = b.select(b.or_(is_zero, is_infinite), vanishes, value)
    limit = b.select(b.xor(b.cmp("lt", a, one), falling), zero, infinity)
    limit = b.select(b.cmp("eq", a, one), one, limit)
    value = b.select(b.cmp("eq", b.abs(y), infinity), limit, value)
    half = b.mul(y, k(0.5))
    whole = b.cmp("eq", b.trunc(y), y)
    odd = b.and_(whole, b.cmp("ne", b.trunc(half), half))
    value = b.select(odd, b.copysign(value, x), value)
    below = b.and_(b.cmp("lt", x, zero), b.cmp("lt", a, infinity))
    value = b.select(b.and_(below, b.not_(whole)), k(float("nan")), value)
    value = b.select(b.cmp("uno", x, y), k(float("nan")), value)
    return b.select(b.or_(b.cmp("eq", y, zero), b.cmp("eq", x, one)), one, value)
