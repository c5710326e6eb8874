"""Reduction of huge angles by multiples of pi/2, exactly, after Payne and Hanek.

A double x = M * 2**k (M an integer of 53 bits) has x * (2/pi) = M * (2/pi * 2**k), of which only the value modulo 4
matters. So the bits of 2/pi * 2**k of weight 4 or more are dropped, 192 bits are kept from there, multiplied by M in
32-bit limbs held in 64-bit lanes, and the top 128 bits of the result are the quadrant (2 bits) and the fraction. No
double lies closer to a multiple of pi/2 than 2**-61 [Muller, Elementary Functions, ch. 11], so the fraction keeps more
than 60 good bits.
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
N_LIMBS = 6
# x = M * 2**(exponent field - 1075); the window starts at the bit of weight 2**1 in 2/pi * 2**(field - 1075).
WINDOW_START = 1077 - 64
HALF_PI = (float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54"))


class Angle(NamedTuple):
    """n * pi/2 + r + r_tail: `n_bits` holds n in its two lowest bits, |r| <= pi/4."""

    n_bits: Reg
    r: Reg
    r_tail: Reg


def reduce_huge(b, x, mask):
    """|x| modulo 2 pi, for the f64 lanes of x in `mask`: 2**16 <= |x| < infinity."""
    bits = to_bits(b, x)
    i = _integers(b, bits)
    high, low = _quadrants(b, bits, mask)
    n = b.lshr(high, i(62))
    high = b.or_(b.shl(high, i(2)), b.lshr(low, i(62)))
    # The fraction is taken as signed: from one half on it belongs to the next n.
    n = b.add(n, b.lshr(high, i(63)))
    return Angle(n, *_fraction_of_half_pi(b, x, high, b.shl(low, i(2))))


def _integers(b, bits):
    return lambda value: b.const(value, bits.type)


def _window(b, bits, mask):
    """The 6 limbs of 2/pi that matter for x, most significant first."""
    i = _integers(b, bits)
    limbs = [int(TWO_OVER_PI[k : k + 8], 16) for k in range(0, len(TWO_OVER_PI), 8)]
    table = b.module.constant_table("two_over_pi", "i64", limbs)
    exponent = b.and_(b.lshr(bits, i(52)), i(0x7FF))
    start = b.sub(exponent, i(WINDOW_START))
    index, shift = b.lshr(start, i(5)), b.and_(start, i(LIMB_BITS - 1))
    words = [b.gather(table, b.add(index, i(k)), bits.type, mask) for k in range(N_LIMBS + 1)]
    back = b.sub(i(LIMB_BITS), shift)
    return [
        b.and_(b.or_(b.shl(word, shift), b.lshr(following, back)), i(0xFFFFFFFF))
        for word, following in zip(words, words[1:], strict=False)
    ]


def _quadrants(b, bits, mask):
    """|x| / (pi/2) modulo 4 as a 128-bit number in two integer lanes: 2 bits before the point, 126 after."""
    i = _integers(b, bits)
    mantissa = b.or_(b.and_(bits, i((1 << 52) - 1)), i(1 << 52))
    m0, m1 = b.and_(mantissa, i(0xFFFFFFFF)), b.lshr(mantissa, i(LIMB_BITS))
    carry, previous, product = i(0), i(0), []
    for limb in reversed(_window(b, bits, mask)):
        low, high = b.mul(m0, limb), b.mul(m1, previous)
        total = b.add(b.add(b.and_(low, i(0xFFFFFFFF)), b.and_(high, i(0xFFFFFFFF))), carry)
        carry = b.add(b.add(b.lshr(low, i(LIMB_BITS)), b.lshr(high, i(LIMB_BITS))), b.lshr(total, i(LIMB_BITS)))
        product.append(b.and_(total, i(0xFFFFFFFF)))
        previous = limb
    top = [b.or_(b.shl(product[k + 1], i(LIMB_BITS)), product[k]) for k in (4, 2)]
    return top[0], top[1]


def _fraction_of_half_pi(b, x, high, low):
    """A signed fraction of 128 bits, times pi/2, as head and tail."""
    i, k = _integers(b, high), constants(b, x)
    negative = b.cmp("lt", high, i(0))
    high, low = (b.select(negative, b.not_(v), v) for v in (high, low))
    coarse = b.and_(high, i(-(1 << 11)))
    fine = b.or_(b.shl(b.sub(high, coarse), i(52)), b.lshr(low, i(12)))
    head = b.mul(b.convert(coarse, "f64"), k(2.0**-64))
    tail = b.mul(b.convert(fine, "f64"), k(2.0**-116))
    product, product_tail = two_product(b, head, k(HALF_PI[0]))
    small = b.fma(tail, k(HALF_PI[0]), b.fma(head, k(HALF_PI[1]), product_tail))
    parts = fast_two_sum(b, product, small)
    return [b.select(negative, b.neg(part), part) for part in parts]
