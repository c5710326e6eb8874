"""erf.

erf(x) = 1 - exp(-x * q(x)) for x >= 0, where q(x) = -log(erfc(x)) / x is smooth: it rises from 2/sqrt(pi) almost as a
straight line. One polynomial serves the whole range, and taking exp(...) - 1 without cancellation keeps the relative
error near zero.
"""

from .exponential import expm1_parts, expm1_sum, reduce_by_log2
from .pieces import at_most, constants, fast_two_sum, horner_pairs, two_product

# Above these erf rounds to 1.
ERF_ONE = {"f32": 3.95, "f64": 5.95}
# -log(erfc(x)) / x on 0 <= x <= ERF_ONE; relative error of erf below 2**-56 in f64 and, with the
# tail of the first coefficient added, 2**-27 in f32.
ERF_RATE = {
    "f32": (
        1.128379225730896,
        0.6366193890571594,
        0.10277783125638962,
        -0.019153069704771042,
        -0.00016038531612139195,
        0.0016670164186507463,
        -0.0006328305462375283,
        0.0001176394143840298,
        -9.256043995264918e-06,
    ),
    "f64": (
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
    ),
}
# 2 / sqrt(pi) less the first coefficient as it is rounded.
FIRST_TAIL = {"f32": float.fromhex("-0x1.f7ac925dca38bp-25"), "f64": float.fromhex("0x1.1ae3a914fed80p-56")}


def erf(b, x):
    """Error function within 1.6 ulp; keeps the sign of zero.

    q = q0 + a * (...) and a * q are carried as head and tail: near zero their rounding errors are those of the result.
    (Beyond 1.7 the first sum is in the wrong order for its error to be exact, but there exp(-a * q) hides it.)
    """
    element = x.type.element
    k = constants(b, x)
    first, *others = ERF_RATE[element]
    a = at_most(b, b.abs(x), ERF_ONE[element])
    q, q_tail = fast_two_sum(b, k(first), b.mul(a, horner_pairs(b, a, others)))
    q_tail = b.add(q_tail, k(FIRST_TAIL[element]))
    z, z_tail = two_product(b, a, q)
    exponent = b.neg(z)
    reduced = reduce_by_log2(b, exponent)
    # The tail of r itself would not show in the result: where it is not zero, erf changes less than z does.
    tail = b.neg(b.fma(a, q_tail, z_tail))
    return b.copysign(expm1_sum(b, expm1_parts(b, exponent, reduced._replace(r_tail=tail)))[0], x)
