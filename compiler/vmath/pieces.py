"""What the families of vector functions share: number formats, constants, polynomials, rounding, double-double sums.

Every function here is straight-line and acts on each lane alone. Nothing below may be reassociated: the error terms of
`two_sum` and `two_product` are exact only with IEEE rounding after each operation, which the builder's instructions
promise (no fast-math flag is ever set).
"""

from dataclasses import dataclass

from ..emit.builder import Builder, Reg


@dataclass(frozen=True, slots=True)
class Format:
    """The layout of an IEEE binary format."""

    integer: str
    mantissa_bits: int
    bias: int

    @property
    def min_normal_bits(self):
        return 1 << self.mantissa_bits

    @property
    def infinity_bits(self):
        return (2 * self.bias + 1) << self.mantissa_bits

    @property
    def rounder(self):
        """1.5 * 2**mantissa_bits: adding it rounds a small number to an integer, held in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa_bits


FORMATS = {"f32": Format("i32", 23, 127), "f64": Format("i64", 52, 1023)}


def format_of(x: Reg):
    return FORMATS[x.type.element]


def constants(b: Builder, x: Reg):
    """k(value): the constant in every lane of x's type."""
    return lambda value: b.const(value, x.type)


def to_bits(b, x):
    return b.bitcast(x, format_of(x).integer)


def horner(b, x, coefficients):
    """sum coefficients[k] * x**k, from the highest power down; one fused multiply-add per step.

    Horner has the fewest instructions and the best rounding; its latency is hidden by neighbouring iterations.
    """
    total = b.const(coefficients[-1], x.type)
    for coefficient in reversed(coefficients[:-1]):
        total = b.fma(total, x, b.const(coefficient, x.type))
    return total


def horner_pairs(b, x, coefficients):
    """`horner` over even and odd powers separately: half the latency for one more multiplication, for long sums."""
    square = b.mul(x, x)
    even, odd = horner(b, square, coefficients[::2]), horner(b, square, coefficients[1::2])
    return b.fma(odd, x, even)


def round_scaled(b, x, scale):
    """(n, bits): n = x * scale rounded to an integer as a float, and that integer in the low bits of an integer lane.

    Valid for |x * scale| < 2**22 (f32), 2**51 (f64); NaN gives NaN. Adding the rounder does rounding and conversion in
    one fused multiply-add. The bits above the low ones are those of the rounder: shift them out or subtract them.
    """
    rounder = b.const(format_of(x).rounder, x.type)
    shifted = b.fma(x, b.const(scale, x.type), rounder)
    return b.sub(shifted, rounder), to_bits(b, shifted)


def integer_in(b, bits, x):
    """The signed integer that `round_scaled` left in `bits`."""
    return b.sub(bits, to_bits(b, b.const(format_of(x).rounder, x.type)))


def to_exponent(b, n, x):
    """Integer lanes moved to the exponent field of x's format."""
    return b.shl(n, b.const(format_of(x).mantissa_bits, n.type))


def pow2(b, n, x):
    """2**n as a float for integer lanes n with a normal result; what stands above the low bits of n is ignored."""
    exponent = b.add(to_exponent(b, n, x), b.const(format_of(x).bias << format_of(x).mantissa_bits, n.type))
    return b.bitcast(exponent, x.type.element)


def times_pow2(b, x, n):
    """x * 2**n where x and the result are normal: an integer addition to the exponent field."""
    return b.bitcast(b.add(to_bits(b, x), to_exponent(b, n, x)), x.type.element)


def at_most(b, x, limit):
    """min(x, limit) that keeps NaN."""
    top = b.const(limit, x.type)
    return b.select(b.cmp("gt", x, top), top, x)


def at_least(b, x, limit):
    """max(x, limit) that keeps NaN."""
    bottom = b.const(limit, x.type)
    return b.select(b.cmp("lt", x, bottom), bottom, x)


def outside(b, x, limit):
    """The lanes where |x| <= limit is false, NaN among them."""
    return b.not_(b.cmp("le", b.abs(x), b.const(limit, x.type)))


def repair(b, mask, usual, compute):
    """`usual`, except compute() in the lanes of `mask`; compute() runs only if some lane needs it."""
    (result,) = b.when_rarely(b.any_lane(mask), [usual], lambda: [b.select(mask, compute(), usual)])
    return result


# --- double-double: an unevaluated sum of a head and a tail below half a unit in the head's last place ----------------
def fast_two_sum(b, x, y):
    """(head, tail) with head + tail = x + y exactly; |x| >= |y| or x == 0."""
    head = b.add(x, y)
    return head, b.sub(y, b.sub(head, x))


def two_sum(b, x, y):
    """(head, tail) with head + tail = x + y exactly, in any order of magnitude. [Knuth]"""
    head = b.add(x, y)
    other = b.sub(head, x)
    return head, b.add(b.sub(x, b.sub(head, other)), b.sub(y, other))


def two_product(b, x, y):
    """(head, tail) with head + tail = x * y exactly, without underflow."""
    head = b.mul(x, y)
    return head, b.fma(x, y, b.neg(head))


def quotient(b, numerator, denominator):
    """numerator / denominator, both (head, tail), within 0.51 ulp or so; finite, the denominator normal.

    One division gives the reciprocal; the first quotient is then corrected by its exact residual.
    """
    (x, x_tail), (y, y_tail) = numerator, denominator
    inverse = b.div(b.const(1.0, y.type), y)
    q = b.mul(x, inverse)
    minus_q = b.neg(q)
    residual = b.add(b.fma(minus_q, y, x), b.fma(minus_q, y_tail, x_tail))
    return b.fma(residual, inverse, q)
