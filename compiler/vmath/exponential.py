"""exp, exp2, expm1 and what sigmoid and tanh take from them.

exp and expm1 reduce x = n * log(2) + r with |r| <= log(2)/2 by Cody and Waite: log(2) is split in a head whose product
with n is exact and a tail. exp2 has r = x - n, exactly. The polynomials of all families are minimax fits by the
Remez exchange (tests/vmath_fit.py); the errors stated beside them are those of the rounded coefficients.
"""

from typing import NamedTuple

from ..emit.builder import Reg
from .pieces import (
    constants,
    fast_two_sum,
    horner,
    integer_in,
    outside,
    pow2,
    quotient,
    repair,
    round_scaled,
    times_pow2,
)

LOG2_E = 1.4426950408889634
# Heads with at most 16 (f32) and 42 (f64) bits: the product with any exponent is exact.
LOG_2 = {
    "f32": (float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cf79abcap-20")),
    "f64": (float.fromhex("0x1.62e42fefa3800p-1"), float.fromhex("0x1.ef35793c76730p-45")),
}
# (exp(r) - 1 - r) / r**2 on |r| <= 0.3473; relative error of exp below 2**-27.8 and 2**-56.7.
EXP_REST = {
    "f32": (0.4999999403953552, 0.1666651964187622, 0.041668400168418884, 0.008368851616978645, 0.0013814374106004834),
    "f64": (
        0.5000000000000011,
        0.16666666666666408,
        0.0416666666665281,
        0.008333333333496933,
        0.001388888894424979,
        0.00019841269502730602,
        2.480149238764152e-05,
        2.755758842443209e-06,
        2.7630523691370947e-07,
        2.4999858299275272e-08,
    ),
}
# (2**r - 1) / r on |r| <= 0.501; relative error of 2**r below 2**-25.4 and 2**-55.5.
EXP2_REST = {
    "f32": (
        0.6931472420692444,
        0.24022652208805084,
        0.05550309643149376,
        0.009617689065635204,
        0.001340694958344102,
        0.00015595473814755678,
    ),
    "f64": (
        0.6931471805599453,
        0.24022650695910072,
        0.055504108664821736,
        0.009618129107628564,
        0.0013333558146380966,
        0.00015403530393168243,
        1.5252733865598176e-05,
        1.3215487006152521e-06,
        1.0178047214022037e-07,
        7.05481399813199e-09,
        4.4572874456208176e-10,
        2.5856027418568595e-11,
    ),
}
# Where the result is a normal number for certain; where it is infinite; where it rounds to zero.
EXP_NORMAL = {"f32": 87.0, "f64": 708.0}
EXP_INFINITE = {"f32": 89.0, "f64": 710.0}
EXP_ZERO = {"f32": -104.0, "f64": -746.0}
EXP2_NORMAL = {"f32": 125.5, "f64": 1021.5}
EXP2_INFINITE = {"f32": 128.5, "f64": 1024.5}
EXP2_ZERO = {"f32": -150.5, "f64": -1075.5}


class Reduced(NamedTuple):
    """x = n * log(2) + r + r_tail, with n in the low bits of `n_bits` (see round_scaled)."""

    n_bits: Reg
    r: Reg
    r_tail: Reg


def reduce_by_log2(b, x):
    """Split x by the nearest multiple of log(2). The tail is what rounding r lost; few callers need it."""
    k = constants(b, x)
    head, tail = LOG_2[x.type.element]
    n, bits = round_scaled(b, x, LOG2_E)
    high = b.fma(n, k(-head), x)
    r = b.fma(n, k(-tail), high)
    return Reduced(bits, r, b.fma(n, k(-tail), b.sub(high, r)))


def exp_of_reduced(b, r):
    """exp(r) for |r| <= 0.3473."""
    k = constants(b, r)
    rest = horner(b, r, EXP_REST[r.type.element])
    return b.fma(b.fma(rest, r, k(1.0)), r, k(1.0))


def exp_tail(b, r, p):
    """What p = exp_of_reduced(r) lost to its last rounding."""
    k = constants(b, p)
    slope = b.fma(horner(b, r, EXP_REST[r.type.element]), r, k(1.0))
    return b.fma(slope, r, b.sub(k(1.0), p))


def scale_to_extremes(b, x, p, n_bits, infinite, zero):
    """p * 2**n with gradual underflow, infinity above `infinite` and zero below `zero`; NaN where x is NaN."""
    k = constants(b, x)
    scaled = b.scale_pow2(p, integer_in(b, n_bits, x))
    scaled = b.select(b.cmp("gt", x, k(infinite)), k(float("inf")), scaled)
    return b.select(b.cmp("lt", x, k(zero)), k(0.0), scaled)


def exp(b, x):
    """e**x within 1 ulp. Cody-Waite reduction by log(2), polynomial of degree 6 (f32) or 11 (f64)."""
    element = x.type.element
    reduced = reduce_by_log2(b, x)
    p = exp_of_reduced(b, reduced.r)

    def extremes():
        return scale_to_extremes(b, x, p, reduced.n_bits, EXP_INFINITE[element], EXP_ZERO[element])

    return repair(b, outside(b, x, EXP_NORMAL[element]), times_pow2(b, p, reduced.n_bits), extremes)


def exp2(b, x):
    """2**x within 1.1 ulp; exact for integers. r = x - n is exact; polynomial of degree 6 (f32) or 12 (f64)."""
    element = x.type.element
    n, bits = round_scaled(b, x, 1.0)
    r = b.sub(x, n)
    p = b.fma(horner(b, r, EXP2_REST[element]), r, b.const(1.0, x.type))

    def extremes():
        return scale_to_extremes(b, x, p, bits, EXP2_INFINITE[element], EXP2_ZERO[element])

    return repair(b, outside(b, x, EXP2_NORMAL[element]), times_pow2(b, p, bits), extremes)


class Expm1(NamedTuple):
    """exp(x) - 1 = head + head_tail + scale * rest, the last two being small beside the head."""

    head: Reg
    head_tail: Reg
    scale: Reg
    rest: Reg


def expm1_parts(b, x, reduced):
    """The terms of exp(x) - 1 = 2**n * r + (2**n - 1) + 2**n * (exp(r) - 1 - r), for 2**n normal."""
    k = constants(b, x)
    r = reduced.r
    rest = b.fma(b.mul(r, r), horner(b, r, EXP_REST[x.type.element]), reduced.r_tail)
    scale = pow2(b, reduced.n_bits, x)
    whole = b.sub(scale, k(1.0))
    head = b.fma(r, scale, whole)
    return Expm1(head, b.fma(r, scale, b.sub(whole, head)), scale, rest)


def expm1_sum(b, parts):
    """(head, tail): the parts added up."""
    total = b.fma(parts.scale, parts.rest, parts.head)
    lost = b.fma(parts.scale, parts.rest, b.sub(parts.head, total))
    return total, b.add(parts.head_tail, lost)


def expm1(b, x):
    """exp(x) - 1 within 1.5 ulp, without cancellation near zero; keeps the sign of zero.

    Reduction as in exp; 2**n * r + (2**n - 1) is rounded once and the rest is added to it.
    """
    element = x.type.element
    k = constants(b, x)
    reduced = reduce_by_log2(b, x)
    parts = expm1_parts(b, x, reduced)
    usual = b.copysign(expm1_sum(b, parts)[0], x)

    def extremes():
        p = exp_of_reduced(b, reduced.r)
        grown = scale_to_extremes(b, x, p, reduced.n_bits, EXP_INFINITE[element], EXP_ZERO[element])
        return b.select(b.cmp("lt", x, k(0.0)), k(-1.0), grown)

    return repair(b, outside(b, x, EXP_NORMAL[element]), usual, extremes)


def sigmoid(b, x):
    """1 / (1 + exp(-x)) within 2.5 ulp (f32) or 1.2 ulp (f64), with gradual underflow for very negative x.

    With e = exp(-|x|) <= 1 it is 1 / (1 + e) or e / (1 + e): nothing overflows and no digits cancel.
    """
    element = x.type.element
    k = constants(b, x)
    below = b.neg(b.abs(x))
    reduced = reduce_by_log2(b, below)
    p = exp_of_reduced(b, reduced.r)
    e = times_pow2(b, p, reduced.n_bits)
    if element == "f32":
        usual = _logistic_f32(b, x, e)
    else:
        usual = _logistic_f64(b, x, e, b.mul(exp_tail(b, reduced.r, p), pow2(b, reduced.n_bits, x)))

    def extremes():
        e = scale_to_extremes(b, below, p, reduced.n_bits, EXP_INFINITE[element], EXP_ZERO[element])
        return b.select(b.cmp("gt", x, k(0.0)), k(1.0), e)

    return repair(b, outside(b, x, EXP_NORMAL[element]), usual, extremes)


def _logistic_f32(b, x, e):
    """The three roundings of e, 1 + e and the quotient, up to 2.4 ulp together."""
    one, zero = b.const(1.0, x.type), b.const(0.0, x.type)
    return b.div(b.select(b.cmp("lt", x, zero), e, one), b.add(one, e))


def _logistic_f64(b, x, e, e_tail):
    """As in f32, with the errors of e and 1 + e carried into the quotient."""
    one, zero = b.const(1.0, x.type), b.const(0.0, x.type)
    negative = b.cmp("lt", x, zero)
    numerator = b.select(negative, e, one), b.select(negative, e_tail, zero)
    total, lost = fast_two_sum(b, one, e)
    return quotient(b, numerator, (total, b.add(lost, e_tail)))
