"""sin, cos and tan.

x = n * pi/2 + r with |r| <= pi/4. The multiple of pi/2 is subtracted in three fused steps (Cody and Waite): the first
is exact, the others add one rounding of r. Sine and cosine of r are both computed, and the parity of n selects. Huge
arguments take the exact reduction of huge_angles.py, in a rare path.
"""

from .huge_angles import Angle, reduce_huge
from .pieces import fast_two_sum, horner, outside, quotient, repair, round_scaled, to_bits, two_product, two_sum

# pi/2 as three terms; the sum of the first k is pi/2 rounded to k words.
HALF_PI = {
    "f32": tuple(map(float.fromhex, ("0x1.921fb6p+0", "-0x1.777a5cp-25", "-0x1.ee59dap-50"))),
    "f64": tuple(map(float.fromhex, ("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54", "-0x1.f1976b7ed8fbcp-110"))),
}
TWO_OVER_PI = 0.6366197723675814
# (sin(r) - r) / r**3 in powers of r**2, |r| <= 0.7917; relative error of sin below 2**-27.3 and 2**-57.4.
SIN_REST = {
    "f32": (-0.16666653752326965, 0.008332123048603535, -0.00019510052516125143),
    "f64": (
        -0.16666666666666627,
        0.008333333333321183,
        -0.00019841269828817793,
        2.7557313346272348e-06,
        -2.5050703634950795e-08,
        1.5893616348369879e-10,
    ),
}
# cos(r) in powers of r**2, |r| <= 0.7917, the first two as in the Taylor series; error below 2**-30.5 and 2**-59.2.
COS = {
    "f32": (1.0, -0.5, 0.04166664555668831, -0.0013887264067307115, 2.442718505335506e-05),
    "f64": (
        1.0,
        -0.5,
        0.04166666666666659,
        -0.0013888888888871724,
        2.480158728800264e-05,
        -2.755731392950707e-07,
        2.0875666320834626e-09,
        -1.1356721811029934e-11,
    ),
}
# Up to here the three steps hold: n * pi/2 is known well enough, and n itself is the right integer.
SMALL_ANGLE = {"f32": 2.0**16, "f64": 2.0**30}


def sin(b, x):
    """Sine within 1.6 ulp for every finite x; keeps the sign of zero; NaN for infinities."""
    return _with_angle(b, x, _reduce, _sin_of_angle)


def cos(b, x):
    """Cosine within 1.6 ulp for every finite x; NaN for infinities."""
    return _with_angle(b, x, _reduce, _cos_of_angle)


def tan(b, x):
    """Tangent within 2 ulp for every finite x; keeps the sign of zero; NaN for infinities."""
    return _with_angle(b, x, _reduce_with_tail, _tan_of_angle)


def _with_angle(b, x, reduce, of_angle):
    """of_angle(angle, x) for the reduced |x|, whatever its size; `reduce` serves up to SMALL_ANGLE."""
    a = b.abs(x)
    usual = of_angle(b, reduce(b, a), x)
    too_large = outside(b, a, SMALL_ANGLE[x.type.element])

    def rare():
        finite = b.cmp("lt", a, b.const(float("inf"), x.type))
        value = of_angle(b, reduce_huge(b, a, b.and_(too_large, finite)), x)
        return b.select(finite, value, b.const(float("nan"), x.type))

    return repair(b, too_large, usual, rare)


def _reduce(b, a):
    """|x| modulo pi/2 for |x| up to SMALL_ANGLE, with r rounded about once."""
    n, n_bits = round_scaled(b, a, TWO_OVER_PI)
    r = a
    for part in HALF_PI[a.type.element]:
        r = b.fma(n, b.const(-part, a.type), r)
    return Angle(n_bits, r, b.const(0.0, a.type))


def _reduce_with_tail(b, a):
    """As `_reduce`, but what the rounding of r loses is kept."""
    first, second, third = (b.const(-part, a.type) for part in HALF_PI[a.type.element])
    n, n_bits = round_scaled(b, a, TWO_OVER_PI)
    product, product_tail = two_product(b, n, second)
    near, lost = two_sum(b, b.fma(n, first, a), product)
    r, r_tail = fast_two_sum(b, near, b.fma(n, third, b.add(product_tail, lost)))
    return Angle(n_bits, r, r_tail)


def _sin_and_cos(b, r):
    """sin(r) and cos(r) for |r| <= 0.7917."""
    element = r.type.element
    square = b.mul(r, r)
    sine = b.fma(b.mul(r, square), horner(b, square, SIN_REST[element]), r)
    return sine, horner(b, square, COS[element])


def _sin_of_angle(b, angle, x):
    sine, cosine = _sin_and_cos(b, angle.r)
    sign = b.xor(_second_bit_as_sign(b, angle.n_bits), _sign(b, to_bits(b, x)))
    return _flip(b, b.select(_is_odd(b, angle.n_bits), cosine, sine), sign)


def _cos_of_angle(b, angle, x):
    sine, cosine = _sin_and_cos(b, angle.r)
    following = b.add(angle.n_bits, b.const(1, angle.n_bits.type))
    return _flip(b, b.select(_is_odd(b, angle.n_bits), sine, cosine), _second_bit_as_sign(b, following))


def _tan_of_angle(b, angle, x):
    """tan(r), or -1 / tan(r) if n is odd, from sine and cosine as head and tail."""
    n_bits, r, r_tail = angle
    element = r.type.element
    square = b.mul(r, r)
    sine_rest = b.fma(b.mul(r, square), horner(b, square, SIN_REST[element]), r_tail)
    cosine_rest = b.fma(b.neg(r), r_tail, b.mul(square, horner(b, square, COS[element][1:])))
    sine, cosine = fast_two_sum(b, r, sine_rest), fast_two_sum(b, b.const(1.0, r.type), cosine_rest)
    odd = _is_odd(b, n_bits)
    numerator = [b.select(odd, c, s) for c, s in zip(cosine, sine, strict=True)]
    denominator = [b.select(odd, s, c) for c, s in zip(cosine, sine, strict=True)]
    top = b.const(8 * x.type.element_bytes - 1, n_bits.type)
    return _flip(b, quotient(b, numerator, denominator), b.xor(b.shl(n_bits, top), _sign(b, to_bits(b, x))))


def _is_odd(b, n_bits):
    return b.cmp("ne", b.and_(n_bits, b.const(1, n_bits.type)), b.const(0, n_bits.type))


def _second_bit_as_sign(b, n_bits):
    return _sign(b, b.shl(n_bits, b.const(8 * n_bits.type.element_bytes - 2, n_bits.type)))


def _sign(b, bits):
    """The sign bit alone."""
    return b.and_(bits, b.const(-(1 << (8 * bits.type.element_bytes - 1)), bits.type))


def _flip(b, x, sign):
    """x, negated where the sign bit is set in `sign`."""
    return b.bitcast(b.xor(to_bits(b, x), sign), x.type.element)
