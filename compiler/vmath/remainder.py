"""Divisions cut to an integer, and fmod: what they leave.

The remainder of two floats is a float, and what is computed here on the way is exact too, so that the bits are those of
C's fmod, which NumPy calls. That one divides bit by bit, a lane at a time.
"""

from .pieces import repair

_MANTISSA_BITS = {"f32": 24, "f64": 53}


def fmod_of_floats(b, x, y):
    """x - y * trunc(x / y), exactly, with the sign of x: 0 ulp.

    With m the bits of a mantissa, r = |x| and d = |y|: let q be r / d, rounded. Where 1 <= q < 2**m, r lies on the grid
    of d's last bit, and so does r - k * d for every whole k. It is exact where it is not above d: for k, the whole
    number next to q, |r - k * d| <= d, and d more makes it positive. A greater q is a whole number of m bits times a
    power of two p, so r - q * d lies on the grid of the last bit of p * d, and |r - q * d| <= p * d / 2: exact again,
    and small enough that what is left goes through the first case, for all q up to 2**(2 * m - 1). C's fmod takes the
    lanes with greater ones, and what is no number: of a division by 0, of infinity, of NaN, whose bits are its own."""
    bits = _MANTISSA_BITS[x.type.element]
    limit, far = (b.const(2.0**n, x.type) for n in (bits, 2 * bits))
    r, d = b.abs(x), b.abs(y)
    q = b.div(r, d)
    usual = b.select(b.cmp("lt", r, d), r, _left(b, r, d, q))

    def rare():
        less = b.fma(b.neg(q), d, r)
        again = b.div(less, d)
        return repair(b, _beyond(b, q, far), b.copysign(_left(b, less, d, again), x), lambda: b.rem(x, y))

    return repair(b, _beyond(b, q, limit), b.copysign(usual, x), rare)


def _left(b, r, d, q):
    """What is left of r, from 0 on."""
    left = b.fma(b.neg(b.round_even(q)), d, r)
    return b.select(b.cmp("lt", left, b.const(0, left.type)), b.add(left, d), left)


def _beyond(b, q, limit):
    """The lanes where q < limit is false, NaN among them."""
    return b.not_(b.cmp("lt", q, limit))


def cut_quotient(b, x, y):
    """x / y of integers, toward zero. Those of 32 bits are divided as floats of 64, which hold them and are precise
    enough for what is cut off to be the same: CPUs have no division of a vector of integers."""
    if x.type.element != "i32":
        return b.div(x, y)
    return b.convert(b.trunc(b.div(b.convert(x, "f64"), b.convert(y, "f64"))), "i32")
