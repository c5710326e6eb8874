"""tanh, sinh and cosh."""

from typing import NamedTuple

from ..emit.builder import Reg
from .exponential import expm1_parts, reduce_by_log2, scale_to_extremes
from .pieces import at_most, constants, fast_two_sum, horner, outside, pow2, quotient, repair

# Above these tanh rounds to 1.
TANH_ONE = {"f32": 9.1, "f64": 19.1}
# (sinh(r) - r) / r**3 in powers of r**2, |r| <= 0.3473; relative error of sinh below 2**-26 and 2**-61.
SINH_REST = {
    "f32": (0.16666541993618011, 0.008366662077605724),
    "f64": (
        0.16666666666666677,
        0.008333333333321492,
        0.00019841269886534276,
        2.7557243746446516e-06,
        2.5109215120132803e-08,
    ),
}
# (cosh(r) - 1) / r**2 in powers of r**2, |r| <= 0.3473; relative error of cosh below 2**-29.9 and 2**-56.8.
COSH_REST = {
    "f32": (0.5, 0.041666265577077866, 0.0013946245890110731),
    "f64": (
        0.5000000000000013,
        0.041666666666514085,
        0.0013888888947396242,
        2.4801489505789573e-05,
        2.7631452236664383e-07,
    ),
}
# Up to here 2**n is finite for certain; above the others sinh and cosh are infinite.
MODERATE = {"f32": 87.0, "f64": 708.0}
INFINITE = {"f32": 90.0, "f64": 711.0}


def tanh(b, x):
    """Hyperbolic tangent within 2.2 ulp (f32) or 2 ulp (f64); keeps the sign of zero.

    tanh(|x|) = m / (m + 2) = -m' / (m' + 2) with m = exp(2|x|) - 1 and m' = exp(-2|x|) - 1. Near zero m' is the better
    one: m'/2 is below the result, while m/2 may lie one binade above it, which doubles the weight of m's rounding
    error. Further out m is: m' comes from a cancellation. The change is where the reduction begins to subtract log(2).
    In f64 what the denominator loses to rounding is also carried into the quotient.
    """
    k = constants(b, x)
    a = at_most(b, b.abs(x), TANH_ONE[x.type.element])
    twice = b.mul(a, b.select(b.cmp("lt", a, k(0.1733)), k(-2.0), k(2.0)))
    # The tail of r would not show in the result: where it is not zero, m weighs half.
    reduced = reduce_by_log2(b, twice)._replace(r_tail=k(-0.0))
    parts = expm1_parts(b, twice, reduced)
    m = b.fma(parts.scale, parts.rest, parts.head)
    if x.type.element == "f32":
        return b.copysign(b.div(m, b.add(m, k(2.0))), x)
    return b.copysign(quotient(b, (m, k(0.0)), fast_two_sum(b, k(2.0), m)), x)


def sinh(b, x):
    """Hyperbolic sine within 1.5 ulp; keeps the sign of zero.

    With |x| = n * log(2) + r: sinh|x| = (A - B) * cosh(r) + (A + B) * sinh(r), A = 2**(n - 1), B = 2**(-n - 1).
    """
    parts = _parts(b, x)
    usual = b.copysign(_combine(b, parts, parts.difference, parts.total), x)
    return _repair_large(b, x, usual, lambda: b.copysign(_growth(b, parts), x))


def cosh(b, x):
    """Hyperbolic cosine within 2 ulp: (A + B) * cosh(r) + (A - B) * sinh(r), as in sinh."""
    parts = _parts(b, x)
    usual = _combine(b, parts, parts.total, parts.difference)
    return _repair_large(b, x, usual, lambda: _growth(b, parts))


class Parts(NamedTuple):
    """|x| = n * log(2) + r, what sinh(r) and cosh(r) have beyond r and 1, and 2**(n-1) plus and minus 2**(-n-1)."""

    a: Reg
    n_bits: Reg
    r: Reg
    sinh_rest: Reg
    cosh_rest: Reg
    total: Reg
    difference: Reg


def _parts(b, x):
    element = x.type.element
    a = b.abs(x)
    n_bits, r, r_tail = reduce_by_log2(b, a)
    square = b.mul(r, r)
    sinh_rest = b.fma(b.mul(r, square), horner(b, square, SINH_REST[element]), r_tail)
    cosh_rest = b.mul(square, horner(b, square, COSH_REST[element]))
    half = b.const(0.5, x.type)
    growing = b.mul(pow2(b, n_bits, x), half)
    falling = b.mul(pow2(b, b.neg(n_bits), x), half)
    return Parts(a, n_bits, r, sinh_rest, cosh_rest, b.add(growing, falling), b.sub(growing, falling))


def _combine(b, parts, of_cosh, of_sinh):
    """of_cosh * cosh(r) + of_sinh * sinh(r); the large terms first, their rounding error with the small ones."""
    head = b.fma(of_sinh, parts.r, of_cosh)
    lost = b.fma(of_sinh, parts.r, b.sub(of_cosh, head))
    small = b.fma(of_sinh, parts.sinh_rest, b.mul(of_cosh, parts.cosh_rest))
    return b.add(head, b.add(small, lost))


def _repair_large(b, x, usual, compute):
    return repair(b, outside(b, x, MODERATE[x.type.element]), usual, compute)


def _growth(b, parts):
    """exp(|x|) / 2, which both functions become."""
    k = constants(b, parts.r)
    exp = b.add(k(1.0), b.add(parts.r, b.add(parts.sinh_rest, parts.cosh_rest)))
    return scale_to_extremes(b, parts.a, b.mul(exp, k(0.5)), parts.n_bits, INFINITE[parts.r.type.element], 0.0)
