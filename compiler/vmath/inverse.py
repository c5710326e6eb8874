"""atan, atan2, asin and acos.

Each ends as base + v + v * w with base a multiple of pi/4 held in two terms, v an argument made small by an identity
and w a polynomial in v**2 without constant term.
"""

from .pieces import constants, fast_two_sum, horner, repair, to_bits

# pi/4 as head and tail; the head's multiples up to 4 are exact.
QUARTER_PI = {
    "f32": (float.fromhex("0x1.921fb00000000p-1"), float.fromhex("0x1.5110b4611a626p-23")),
    "f64": (float.fromhex("0x1.921fb54442d18p-1"), float.fromhex("0x1.1a62633145c07p-55")),
}
TAN_PI_8, TAN_3_PI_8 = 0.4142135623730950, 2.414213562373095
# Where neither a sum of two coordinates overflows nor their comparison suffers from gradual underflow; and a scale.
COMFORTABLE = {"f32": (2.0**-100, 2.0**100), "f64": (2.0**-1000, 2.0**1000)}
RESCALE = {"f32": 2.0**60, "f64": 2.0**200}
# (atan(t) - t) / t**3 in powers of t**2, |t| <= 0.4147; relative error of atan below 2**-28.2 and 2**-58.6.
ATAN_REST = {
    "f32": (-0.33333316445350647, 0.199984610080719, -0.14243310689926147, 0.1059207171201706, -0.06073595955967903),
    "f64": (
        -0.3333333333333319,
        0.19999999999952386,
        -0.1428571428007569,
        0.11111110777425134,
        -0.0909089758445963,
        0.07692057136269267,
        -0.06663069067948539,
        0.05847634669847682,
        -0.05038156136418024,
        0.03803533376645812,
        -0.017875141326041084,
    ),
}
# (asin(s) - s) / s**3 in powers of s**2, |s| <= 1/2; relative error of asin below 2**-27.2 and 2**-55.6.
ASIN_REST = {
    "f32": (0.16666752099990845, 0.07495288550853729, 0.045471590012311935, 0.02417304553091526, 0.04217804968357086),
    "f64": (
        0.16666666666665403,
        0.07500000000338755,
        0.04464285682682996,
        0.030381959200909706,
        0.022371756471191082,
        0.01735972921280967,
        0.013884988165975352,
        0.012170871077187062,
        0.006520651991399582,
        0.019548689021826604,
        -0.016256878350192724,
        0.03193501379298629,
    ),
}


def atan(b, x):
    """Arc tangent within 2 ulp; keeps the sign of zero.

    atan(a) = pi/4 + atan((a - 1) / (a + 1)) = pi/2 + atan(-1 / a) bring the argument below tan(pi/8).
    """
    a, one = b.abs(x), b.const(1.0, x.type)
    quarters, t = _fold_octants(b, a, one)
    return b.copysign(_from_quarters(b, quarters, t, _atan_rest(b, t)), x)


def atan2(b, y, x):
    """The angle of the point (x, y) in [-pi, pi], within 2 ulp, with all special cases of C99 (Annex F.9.1.4)."""
    a, c = b.abs(y), b.abs(x)
    leftward = b.cmp("lt", to_bits(b, x), b.const(0, to_bits(b, x).type))
    largest = b.select(b.cmp("lt", a, c), c, a)
    low, high = COMFORTABLE[x.type.element]
    in_range = b.and_(b.cmp("lt", largest, b.const(high, x.type)), b.cmp("lt", b.const(low, x.type), b.add(a, c)))

    def rare():
        return _angle(b, *_rescale(b, a, c), leftward)

    return b.copysign(repair(b, b.not_(in_range), _angle(b, a, c, leftward), rare), y)


def _rescale(b, a, c):
    """A point in the same direction whose coordinates are in a comfortable range; NaN stays NaN."""
    k = constants(b, a)
    both_zero = b.cmp("eq", b.add(a, c), k(0.0))
    a_infinite, c_infinite = (b.cmp("eq", v, k(float("inf"))) for v in (a, c))
    infinite = b.and_(b.or_(a_infinite, c_infinite), b.not_(b.cmp("uno", a, c)))
    scale = RESCALE[a.type.element]
    shrink = b.or_(b.cmp("gt", a, k(1.0)), b.cmp("gt", c, k(1.0)))
    factor = b.select(shrink, k(1 / scale), k(scale))
    a, c = b.mul(a, factor), b.mul(c, factor)
    a = b.select(infinite, b.convert(a_infinite, a.type.element), a)
    c = b.select(infinite, b.convert(c_infinite, c.type.element), c)
    return a, b.select(both_zero, k(1.0), c)


def _angle(b, a, c, leftward):
    """The angle in [0, pi] of the point (c, a), or (-c, a) where `leftward`; a, c >= 0."""
    k = constants(b, a)
    quarters, t = _fold_octants(b, a, c)
    quarters = b.select(leftward, b.sub(k(4.0), quarters), quarters)
    t = b.select(leftward, b.neg(t), t)
    return _from_quarters(b, quarters, t, _atan_rest(b, t))


def _fold_octants(b, a, c):
    """(q, t) with atan(a / c) = q * pi/4 + atan(t) and |t| <= tan(pi/8); a, c >= 0."""
    k = constants(b, a)
    steep = b.cmp("gt", a, b.mul(c, k(TAN_3_PI_8)))
    middle = b.cmp("gt", a, b.mul(c, k(TAN_PI_8)))
    numerator = b.select(steep, b.neg(c), b.select(middle, b.sub(a, c), a))
    denominator = b.select(steep, a, b.select(middle, b.add(a, c), c))
    quarters = b.select(steep, k(2.0), b.select(middle, k(1.0), k(0.0)))
    return quarters, b.div(numerator, denominator)


def _atan_rest(b, t):
    """atan(t) - t for |t| <= 0.4147."""
    square = b.mul(t, t)
    return b.mul(b.mul(t, square), horner(b, square, ATAN_REST[t.type.element]))


def _from_quarters(b, quarters, v, rest):
    """quarters * pi/4 + v + rest, for quarters 0, 1, 2, 3 or 4; |v| is below the first term unless that is 0."""
    head, tail = QUARTER_PI[v.type.element]
    k = constants(b, v)
    total, lost = fast_two_sum(b, b.mul(quarters, k(head)), v)
    return b.add(total, b.add(b.fma(quarters, k(tail), lost), rest))


def _asin_arguments(b, x):
    """(large, s, rest): asin(s) = s + rest, with s = |x| up to 1/2, and s = sqrt((1 - |x|) / 2) where `large`."""
    k = constants(b, x)
    a = b.abs(x)
    large = b.cmp("gt", a, k(0.5))
    square = b.select(large, b.fma(a, k(-0.5), k(0.5)), b.mul(a, a))
    s = b.select(large, b.sqrt(square), a)
    return large, s, b.mul(b.mul(s, square), horner(b, square, ASIN_REST[x.type.element]))


def asin(b, x):
    """Arc sine within 1.5 ulp; keeps the sign of zero; NaN outside [-1, 1].

    Above 1/2, asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)).
    """
    k = constants(b, x)
    large, s, rest = _asin_arguments(b, x)
    factor = b.select(large, k(-2.0), k(1.0))
    quarters = b.select(large, k(2.0), k(0.0))
    return b.copysign(_from_quarters(b, quarters, b.mul(s, factor), b.mul(rest, factor)), x)


def acos(b, x):
    """Arc cosine in [0, pi] within 1.5 ulp; NaN outside [-1, 1].

    With s as in asin: acos(x) = 2 asin(s) near 1, pi - 2 asin(s) near -1, and pi/2 - asin(x) between.
    """
    k = constants(b, x)
    large, s, rest = _asin_arguments(b, x)
    below = b.cmp("lt", x, k(0.0))
    magnitude = b.select(large, k(2.0), k(1.0))
    factor = b.select(b.xor(large, below), magnitude, b.neg(magnitude))
    quarters = b.select(large, b.select(below, k(4.0), k(0.0)), k(2.0))
    return _from_quarters(b, quarters, b.mul(s, factor), b.mul(rest, factor))
