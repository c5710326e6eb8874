"""erf.

In f64 erf(x) = 1 - exp(-x * q(x)) for x >= 0, where q(x) = -log(erfc(x)) / x is smooth: it rises from 2/sqrt(pi) almost
as a straight line. One polynomial serves the whole range, and taking exp(...) - 1 without cancellation keeps the
relative error near zero.

In f32 two short polynomials take 23 instructions, where that takes 40. Near zero erf(x) = x + x * P(x**2). Further out
erf(x) = 1 - p(x)**4, where p(x) = erfc(x)**(1/4) falls slowly enough for a polynomial. (A power of 8 would do with one
coefficient less, but multiplies the rounding error of p twice as much.)
"""

from .exponential import expm1_parts, expm1_sum, reduce_by_log2
from .pieces import at_most, constants, fast_two_sum, horner, horner_pairs, two_product

# Above these erf rounds to 1.
ERF_ONE = {"f32": 4.0, "f64": 5.95}
# Where the second polynomial of f32 begins.
ERF_FAR = 1.07
# erf(x) / x - 1 in powers of x**2, 0 <= x <= ERF_FAR; relative error of erf below 2**-27.5.
ERF_REST_F32 = (
    0.12837916612625122,
    -0.37612611055374146,
    0.11283404380083084,
    -0.026845920830965042,
    0.005172864533960819,
    -0.0007871249690651894,
    7.387719233520329e-05,
)
# erfc(x)**(1/4) on ERF_FAR <= x <= ERF_ONE; error of erf below 2**-24.6.
ERFC_ROOT_F32 = (
    1.0048168897628784,
    -0.30605435371398926,
    -0.06802687793970108,
    -0.046259451657533646,
    0.06384723633527756,
    -0.02149324305355549,
    0.0031102485954761505,
    -0.00017055314674507827,
)
# -log(erfc(x)) / x on 0 <= x <= ERF_ONE; relative error of erf below 2**-56.
ERF_RATE_F64 = (
    1.1283791670955126,
    0.6366197723675816,
    0.1027726033019235,
    -0.01912844700867093,
    -0.00020919464427441475,
    0.001696205953483389,
    -0.0005901230964209343,
    2.5868766030238875e-05,
    6.452078979313859e-05,
    -2.9788385812346663e-05,
    3.5179163947248626e-06,
    2.685536797740873e-06,
    -1.5805714194579356e-06,
    1.9729569973124046e-07,
    2.3420377783437344e-07,
    -1.9659086571546052e-07,
    9.084175972955474e-08,
    -3.025687303752888e-08,
    7.762706584028554e-09,
    -1.5628410598237068e-09,
    2.4629804806943615e-10,
    -2.986209229183399e-11,
    2.6929463556284274e-12,
    -1.7017847722682367e-13,
    6.7237186436915115e-15,
    -1.2493445168599048e-16,
)
# 2 / sqrt(pi) less the first coefficient as it is rounded.
FIRST_TAIL_F64 = float.fromhex("0x1.1ae3a914fed80p-56")


def erf(b, x):
    """Error function within 2 ulp (f32) or 1.6 ulp (f64); keeps the sign of zero."""
    a = at_most(b, b.abs(x), ERF_ONE[x.type.element])
    return b.copysign(_of_positive_f32(b, a) if x.type.element == "f32" else _of_positive_f64(b, a), x)


def _of_positive_f32(b, a):
    k = constants(b, a)
    near = b.fma(a, horner(b, b.mul(a, a), ERF_REST_F32), a)
    root = horner(b, a, ERFC_ROOT_F32)
    square = b.mul(root, root)
    far = b.fma(b.neg(square), square, k(1.0))
    return b.select(b.cmp("lt", a, k(ERF_FAR)), near, far)


def _of_positive_f64(b, a):
    """q = q0 + a * (...) and a * q are carried as head and tail: near zero their rounding errors are the result's.
    (Beyond 1.7 the first sum is in the wrong order for its error to be exact, but there exp(-a * q) hides it.)
    """
    k = constants(b, a)
    first, *others = ERF_RATE_F64
    q, q_tail = fast_two_sum(b, k(first), b.mul(a, horner_pairs(b, a, others)))
    q_tail = b.add(q_tail, k(FIRST_TAIL_F64))
    z, z_tail = two_product(b, a, q)
    exponent = b.neg(z)
    reduced = reduce_by_log2(b, exponent)
    # The tail of r itself would not show in the result: where it is not zero, erf changes less than z does.
    tail = b.neg(b.fma(a, q_tail, z_tail))
    return expm1_sum(b, expm1_parts(b, exponent, reduced._replace(r_tail=tail)))[0]
