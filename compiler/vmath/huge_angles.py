"""Reduction of huge angles by multiples of pi/2, exactly, after Payne and Hanek.

A double x = M * 2**k (M an integer of 53 bits) has x * (2/pi) = M * (2/pi * 2**k), of which only the value modulo 4
matters. So the bits of 2/pi * 2**k of weight 4 or more are dropped, 192 bits are kept from there, multiplied by M in
32-bit limbs held in 64-bit integers, and the top 128 bits of the result are the quadrant (2 bits) and the fraction. No
double lies closer to a multiple of pi/2 than 2**-61 [Muller, Elementary Functions, ch. 11], so the fraction keeps more
than 60 good bits.

Such angles are rare, so the lanes are taken one after another in scalar code: about 20 ns a lane, but it compiles four
times faster than vector code with gathers did.
"""

from typing import NamedTuple

from ..emit.builder import Reg
from .pieces import constants, fast_two_sum, to_bits, two_product

# Hexadecimal digits of 2/pi after the point, in limbs of 32 bits; two limbs of zeros serve the smallest angles.
TWO_OVER_PI = (
    "0000000000000000"
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0"
    "06492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f4"
    "9c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d"
    "7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d"
    "a9e39161"
)
LIMB_BITS = 32
LIMB = (1 << LIMB_BITS) - 1
N_LIMBS = 6
# The window starts at the bit of weight 2**1 in 2/pi * 2**k, where k = exponent field - 1075.
WINDOW_START = 1077 - 64
HALF_PI = (float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54"))


class Angle(NamedTuple):
    """n * pi/2 + r + r_tail: `n_bits` holds n in its two lowest bits, |r| <= pi/4."""

    n_bits: Reg
    r: Reg
    r_tail: Reg


def reduce_huge(b, a, mask):
    """a modulo 2 pi in the lanes of `mask`, where 2**16 <= a < infinity; the others hold some angle."""
    element, integer = a.type.element, to_bits(b, a).type
    wide = b.convert(b.select(mask, a, b.const(2.0**30, a.type)), "f64")
    empty = Angle(b.const(0, integer), b.const(0.0, a.type), b.const(0.0, a.type))

    def reduce_lane(x):
        n, r64, tail64 = _reduce_one(b, x)
        r = b.convert(r64, element)
        tail = b.convert(b.add(b.sub(r64, b.convert(r, "f64")), tail64), element)
        return b.convert(n, integer.element), r, tail

    return Angle(*b.each_lane(wide, empty, reduce_lane))


def _reduce_one(b, x):
    """(n, r, r_tail) of one double: 2**16 <= x < infinity."""
    bits = to_bits(b, x)
    i = constants(b, bits)
    high, low = _quadrants(b, bits)
    n = b.lshr(high, i(62))
    high = b.or_(b.shl(high, i(2)), b.lshr(low, i(62)))
    # The fraction is taken as signed: from one half on it belongs to the next n.
    n = b.add(n, b.lshr(high, i(63)))
    return n, *_fraction_of_half_pi(b, high, b.shl(low, i(2)))


def _quadrants(b, bits):
    """x / (pi/2) modulo 4 as a number of 128 bits in two integers: 2 bits before the point, 126 after.

    One limb of 2/pi a turn, the least first, times both limbs of M. Each turn shifts a finished limb of the product in
    from above, so that the upper four are left.
    """
    i = constants(b, bits)
    limbs = [int(TWO_OVER_PI[k : k + 8], 16) for k in range(0, len(TWO_OVER_PI), 8)]
    table = b.module.constant_table("two_over_pi", "i64", limbs)
    mantissa = b.or_(b.and_(bits, i((1 << 52) - 1)), i(1 << 52))
    m0, m1 = b.and_(mantissa, i(LIMB)), b.lshr(mantissa, i(LIMB_BITS))
    start = b.sub(b.lshr(bits, i(52)), i(WINDOW_START))
    last = b.add(b.lshr(start, i(5)), i(N_LIMBS - 1))
    shift = b.and_(start, i(LIMB_BITS - 1))
    with b.loop(0, N_LIMBS, 1, carried=(i(0), i(0), i(0), i(0))) as (turn, loop):
        carry, previous, high, low = loop.values
        limb = _limb(b, b.offset(table, b.sub(last, turn), 8), shift)
        upper, lower = b.mul(m1, previous), b.mul(m0, limb)
        total = b.add(b.add(b.and_(lower, i(LIMB)), b.and_(upper, i(LIMB))), carry)
        carry = b.add(b.add(b.lshr(lower, i(LIMB_BITS)), b.lshr(upper, i(LIMB_BITS))), b.lshr(total, i(LIMB_BITS)))
        low = b.or_(b.lshr(low, i(LIMB_BITS)), b.shl(high, i(LIMB_BITS)))
        high = b.or_(b.lshr(high, i(LIMB_BITS)), b.shl(total, i(LIMB_BITS)))
        loop.next((carry, limb, high, low))
    return loop.results[2:]


def _limb(b, pointer, shift):
    """The 32 bits that begin `shift` bits into the limb at `pointer`."""
    word, following = (b.load(b.offset(pointer, k, 8), shift.type) for k in range(2))
    back = b.sub(b.const(LIMB_BITS, shift.type), shift)
    return b.and_(b.or_(b.shl(word, shift), b.lshr(following, back)), b.const(LIMB, shift.type))


def _fraction_of_half_pi(b, high, low):
    """A signed fraction of 128 bits, times pi/2, as head and tail."""
    i = constants(b, high)
    negative = b.cmp("lt", high, i(0))
    high, low = (b.select(negative, b.not_(v), v) for v in (high, low))
    coarse = b.and_(high, i(-(1 << 11)))
    fine = b.or_(b.shl(b.sub(high, coarse), i(52)), b.lshr(low, i(12)))
    head, tail = b.convert(coarse, "f64"), b.convert(fine, "f64")
    k = constants(b, head)
    head, tail = b.mul(head, k(2.0**-64)), b.mul(tail, k(2.0**-116))
    product, product_tail = two_product(b, head, k(HALF_PI[0]))
    small = b.fma(tail, k(HALF_PI[0]), b.fma(head, k(HALF_PI[1]), product_tail))
    parts = fast_two_sum(b, product, small)
    return [b.select(negative, b.neg(part), part) for part in parts]
