"""Bessel functions of the first and second kind, modified ones of the second kind, and Airy's function.

Chebyshev coefficients were computed with mpmath from the functions they stand for. Far from 0 a function is its
amplitude and phase: sqrt(2 / (pi x)) (P cos(phase) - Q sin(phase)), by Hankel's expansion (9.2.5 and 9.2.6 of the
handbook that special.py names). PyTorch has the functions without derivatives; here all but Airy's state theirs.
"""

import math

from .. import dtypes
from . import samples
from .arithmetic import abs_, add, div, mul, neg, rsqrt, sign, sqrt, sub
from .bessel import i0, i1
from .comparison import cast, eq, gt, le, lt, where
from .kinds import alias
from .special import _chebyshev, _floating, _special
from .table import Spelling
from .transcendental import cos, exp, log, sin

# J0(x), J1(x) / x, Y0(x) - log(x) J0(x) 2 / pi and (Y1(x) - log(x) J1(x) 2 / pi + 2 / (pi x)) / x on [0, 8], in
# t = x^2 / 32 - 1; P and x Q of both orders beyond, in t = 128 / x^2 - 1
_J0_NEAR = (
    0.15772797147489012, -0.008723442352852221, 0.2651786132033368, -0.37009499387264977, 0.15806710233209725,
    -0.034893769411408884, 0.004819180069467605, -0.00046062616620627504, 3.246032882100508e-05,
    -1.7619469077621507e-06, 7.608163592418782e-08, -2.679253530557673e-09, 7.848696314479465e-11,
    -1.9438346867370164e-12, 4.125320595634374e-14, -7.588508125447546e-16, 1.2218515873961411e-17,
)  # fmt: skip
_J1_NEAR = (
    0.08104484632565812, -0.1489751450676521, 0.1609992623572097, -0.08268049176681791, 0.022213639654966037,
    -0.003646940600769276, 0.0004050337728354822, -3.255554866857259e-05, 1.9858774049915165e-06,
    -9.521984756750436e-08, 3.687133759097148e-09, -1.178026622695885e-10, 3.160154580348003e-12,
    -7.221755239651773e-14, 1.4232144003513942e-15, -2.4441972916190464e-17,
)  # fmt: skip
_Y0_NEAR = (
    -0.03314611320328494, -0.2744743055297453, 0.17903431407718265, 0.26156734625504663, -0.17730201278114358,
    0.04719668959576339, -0.007287962479552079, 0.0007531135932577742, -5.632079141056987e-05,
    3.206532537654801e-06, -1.44072332740187e-07, 5.248794787330516e-09, -1.5837552541812015e-10,
    4.02633081830612e-12, -8.747341203310769e-14, 1.6434898714919468e-15, -2.6977881152566837e-17,
)  # fmt: skip
_Y1_NEAR = (
    0.0025380132357417816, -0.01608717304766875, -0.09591204536083074, 0.08445197259652346, -0.028328123944594365,
    0.005289897544167113, -0.0006414551451326356, 5.505982873338744e-05, -3.53808001868935e-06,
    1.7707804556154404e-07, -7.11055004989928e-09, 2.344337905911516e-10, -6.4651518414115946e-12,
    1.51429151205002e-13, -3.0511859694473254e-15, 5.34668038572867e-17,
)  # fmt: skip
_P0 = (
    0.9994603493475187, -0.0005365220468132117, 3.0751847875194745e-06, -5.1705945376060975e-08,
    1.6306464635151382e-09, -7.86409137723707e-11, 5.168262387349193e-12, -4.3045788699253914e-13,
    4.3265957431549404e-14, -5.069034095935236e-15, 6.748072215733873e-16, -1.0011513723467786e-16,
    1.6305919233744186e-17,
)  # fmt: skip
_Q0 = (
    -0.12444683684269607, 0.0005470815954089319, -5.9315987288485175e-06, 1.4377965798375193e-07,
    -5.817532749493056e-09, 3.376097523734991e-10, -2.565397936797308e-11, 2.404916100281365e-12,
    -2.6690625482579414e-13, 3.4041800321963686e-14, -4.87994410531204e-15, 7.729703176242605e-16,
    -1.3348852171502517e-16, 2.4865952389390515e-17, -4.952892629886516e-18,
)  # fmt: skip
_P1 = (
    1.0009030408600137, 0.0008989898330859408, -3.987284300488908e-06, 6.177633960644299e-08,
    -1.8718907491063067e-09, 8.816898659582339e-11, -5.704863640395645e-12, 4.699195515230542e-13,
    -4.6842237839904895e-14, 5.452674896044717e-15, -7.221180842274018e-16, 1.0667689114335412e-16,
    -1.7312313216116335e-17,
)  # fmt: skip
_Q1 = (
    0.3742222965562826, -0.0007702178839325664, 7.3108922063643636e-06, -1.676782510726674e-07,
    6.583354662120443e-09, -3.749090950541556e-10, 2.8121750359748866e-11, -2.61145253946232e-12,
    2.8774212663332235e-13, -3.649001916061838e-14, 5.206626366226707e-15, -8.215318025458595e-16,
    1.4141084390211833e-16, -2.626761589838529e-17, 5.2192649196714085e-18,
)  # fmt: skip


_TWO_OVER_PI = 2.0 / math.pi
_ROOT_PI = math.sqrt(math.pi)


def _near(x, coefficients):
    x = where(le(x, 8.0), x, 8.0)
    return _chebyshev(sub(mul(mul(x, x), 1.0 / 32.0), 1.0), coefficients)


def _waves(x, p, q, order):
    """(J, Y) for x > 8: the phase is x less pi / 4, and pi / 2 more for order 1."""
    x = where(le(x, 8.0), 8.0, x)
    inverse = div(8.0, x)
    t = sub(mul(mul(inverse, inverse), 2.0), 1.0)
    even, odd = _chebyshev(t, p), mul(_chebyshev(t, q), div(1.0, x))
    total, rest = add(sin(x), cos(x)), sub(sin(x), cos(x))
    cosine, sine = (rest, neg(total)) if order else (total, rest)
    scale = mul(rsqrt(x), 1.0 / _ROOT_PI)
    first = mul(sub(mul(even, cosine), mul(odd, sine)), scale)
    return first, mul(add(mul(even, sine), mul(odd, cosine)), scale)


def _j0(x):
    a = abs_(x)
    return where(le(a, 8.0), _near(a, _J0_NEAR), _waves(a, _P0, _Q0, 0)[0])


def _j1(x):
    a = abs_(x)
    return where(le(a, 8.0), mul(x, _near(a, _J1_NEAR)), mul(_waves(a, _P1, _Q1, 1)[0], sign(x)))


def _positive(x, value):
    """The value where x > 0, -inf at 0, else NaN."""
    return where(gt(x, 0.0), value, where(eq(x, 0.0), -math.inf, math.nan))


def _logarithm(x):
    return log(where(gt(x, 0.0), x, 1.0))


def _y0(x):
    near = add(mul(mul(_logarithm(x), _TWO_OVER_PI), _j0(x)), _near(x, _Y0_NEAR))
    return where(le(x, 8.0), _positive(x, near), _waves(x, _P0, _Q0, 0)[1])


def _y1(x):
    near = add(mul(mul(_logarithm(x), _TWO_OVER_PI), _j1(x)), mul(x, _near(x, _Y1_NEAR)))
    return where(le(x, 8.0), _positive(x, sub(near, div(_TWO_OVER_PI, x))), _waves(x, _P1, _Q1, 1)[1])


def _over(value, x, limit):
    """value / x, and at 0 its limit."""
    zero = eq(x, 0.0)
    return where(zero, limit, div(value, where(zero, 1.0, x)))


def _bessel(name, formula, vjp, doc, low=-12.0):
    """The tolerance is PyTorch's error, which is 7e-6 around 5."""
    return _special(name, formula, vjp, low, 12.0, doc=doc, tolerance=1e-5, spelling=Spelling("", special=name))


bessel_j0 = _bessel(
    "bessel_j0",
    _j0,
    lambda g, out, x: neg(mul(g, bessel_j1(x))),
    "The Bessel function of the first kind, of order 0.",
)
bessel_j1 = _bessel(
    "bessel_j1",
    _j1,
    lambda g, out, x: mul(g, sub(bessel_j0(x), _over(out, x, 0.5))),
    "The Bessel function of the first kind, of order 1.",
)
bessel_y0 = _bessel(
    "bessel_y0",
    _y0,
    lambda g, out, x: neg(mul(g, bessel_y1(x))),
    "The Bessel function of the second kind, of order 0; nan below 0.",
    0.5,
)
bessel_y1 = _bessel(
    "bessel_y1",
    _y1,
    lambda g, out, x: mul(g, sub(bessel_y0(x), div(out, x))),
    "The Bessel function of the second kind, of order 1; nan below 0.",
    0.5,
)


# --- modified functions of the second kind ----------------------------------------------------------------------------
# K0(x) + log(x) I0(x) and (K1(x) - log(x) I1(x) - 1 / x) / x on [0, 2], in t = x^2 / 2 - 1; sqrt(x) exp(x) K(x) beyond,
# in t = 4 / x - 1
_K0_NEAR = (
    0.8433977275772223, 0.787078990859296, 0.06152577860244072, 0.0019458946141853283, 3.3247998700597626e-05,
    3.5563825166277007e-07, 2.6056207418988497e-09, 1.3895141631982779e-11, 5.635214661841847e-14,
    1.7966278703136082e-16,
)  # fmt: skip
_K1_NEAR = (
    -0.5089237845320825, -0.2114356597763456, -0.010725575310322739, -0.0002513233586483403,
    -3.4112002554142968e-06, -3.026704146655771e-08, -1.89459722399161e-10, -8.819221396228751e-13,
    -3.1733487638923218e-15, -9.092150880033067e-18,
)  # fmt: skip
_K0_FAR = (
    1.2201515410329777, -0.0314481013119645, 0.0015698838857300533, -0.00012849549581627802, 1.39498137188765e-05,
    -1.8317555227191195e-06, 2.766813639445015e-07, -4.660489897687948e-08, 8.574034017414225e-09,
    -1.6975345093890614e-09, 3.5773972814003283e-10, -7.957489244477396e-11, 1.8559491149549264e-11,
    -4.514597883374519e-12, 1.1403405882073441e-12, -2.9800969231481784e-13, 8.032890775068375e-14,
    -2.2275133267462965e-14, 6.340076476276646e-15, -1.848593377920907e-15, 5.5120559994043335e-16,
    -1.6782311257549006e-16, 5.2103917776435543e-17, -1.6475805939842632e-17,
)  # fmt: skip
_K1_FAR = (
    1.3603130952422213, 0.10392373657681724, -0.002857816859622779, 0.00019521551847135162, -1.936197974166083e-05,
    2.406484947837217e-06, -3.5019606030878126e-07, 5.7410841254500495e-08, -1.0345762465678097e-08,
    2.0150497551970347e-09, -4.1903547593419254e-10, 9.218315187605315e-11, -2.129967838427791e-11,
    5.139639673482343e-12, -1.2891739609498229e-12, 3.348419666052243e-13, -8.976705182010146e-14,
    2.4771544242195988e-14, -7.0198370892147685e-15, 2.038703166239861e-15, -6.057047270643018e-16,
    1.8380935752430455e-16, -5.689462849193648e-17, 1.7940510478863572e-17,
)  # fmt: skip


def _low(x):
    """Both variables of expansions up to 2: x there, else 2, and t."""
    x = where(le(x, 2.0), x, 2.0)
    return x, sub(mul(mul(x, x), 0.5), 1.0)


def _k0_low(x):
    x, t = _low(x)
    return sub(_chebyshev(t, _K0_NEAR), mul(_logarithm(x), i0(x)))


def _k1_low(x):
    x, t = _low(x)
    return add(add(mul(_logarithm(x), i1(x)), div(1.0, x)), mul(x, _chebyshev(t, _K1_NEAR)))


def _scaled_high(x, coefficients):
    x = where(le(x, 2.0), 2.0, x)
    return mul(_chebyshev(sub(div(4.0, x), 1.0), coefficients), rsqrt(x))


def _decaying(low, coefficients):
    """(the function, exp(x) times it)"""

    def scaled(x):
        near = mul(low(x), exp(where(le(x, 2.0), x, 2.0)))
        return where(le(x, 2.0), neg(_positive(x, neg(near))), _scaled_high(x, coefficients))

    def plain(x):
        far = mul(_scaled_high(x, coefficients), exp(neg(where(le(x, 2.0), 2.0, x))))
        return where(le(x, 2.0), neg(_positive(x, neg(low(x)))), far)

    return plain, scaled


_k0, _k0_scaled = _decaying(_k0_low, _K0_FAR)
_k1, _k1_scaled = _decaying(_k1_low, _K1_FAR)

modified_bessel_k0 = _bessel(
    "modified_bessel_k0",
    _k0,
    lambda g, out, x: neg(mul(g, modified_bessel_k1(x))),
    "The modified Bessel function of the second kind, of order 0; nan below 0.",
    0.5,
)
modified_bessel_k1 = _bessel(
    "modified_bessel_k1",
    _k1,
    lambda g, out, x: neg(mul(g, add(modified_bessel_k0(x), div(out, x)))),
    "The modified Bessel function of the second kind, of order 1; nan below 0.",
    0.5,
)
scaled_modified_bessel_k0 = _bessel(
    "scaled_modified_bessel_k0",
    _k0_scaled,
    lambda g, out, x: mul(g, sub(out, scaled_modified_bessel_k1(x))),
    "exp(x) * modified_bessel_k0(x).",
    0.5,
)
scaled_modified_bessel_k1 = _bessel(
    "scaled_modified_bessel_k1",
    _k1_scaled,
    lambda g, out, x: mul(g, sub(out, add(scaled_modified_bessel_k0(x), div(out, x)))),
    "exp(x) * modified_bessel_k1(x).",
    0.5,
)


# --- Airy's function --------------------------------------------------------------------------------------------------
# Ai(x) on [-3, 1], in t = (x + 1) / 2; with z = 2 |x|^1.5 / 3: exp(z) x^0.25 Ai(x) beyond, in t = 4 / (3 z) - 1; below,
# the factors of cos(z - pi / 4) and of sin(z - pi / 4) / z in sqrt(pi) |x|^0.25 Ai(x), in t = 24 / z^2 - 1
_AIRY_MIDDLE = (
    0.15343091351488505, 0.23435152098136108, -0.32881534036159304, 0.04316485512151891, 0.05391117986969125,
    -0.022342496362349983, 0.00012760701229158253, 0.0019039836996186243, -0.0004417826522093097,
    -2.060950090526704e-05, 2.684421191842913e-05, -4.099147679584506e-06, -3.3938026923840503e-07,
    2.0279285811161477e-07, -2.183879176305064e-08, -2.5175338821092882e-09, 9.530592120736436e-10,
    -7.463627653845031e-11, -1.120249890583654e-11, 3.0520125610994773e-12, -1.7500369688809936e-13,
    -3.3730222805245435e-14, 7.081672414069283e-15, -2.9301309329379295e-16, -7.372482867469049e-17,
    1.2445262324167154e-17,
)  # fmt: skip
_AIRY_RIGHT = (
    0.2718740351103066, -0.0091443848250055, 0.0009010457337825075, -0.00013941841272214914, 2.738158157852094e-05,
    -6.275042111995942e-06, 1.606484418483152e-06, -4.476392158510355e-07, 1.3346358746516685e-07,
    -4.207353342632158e-08, 1.3902199024636421e-08, -4.783184806804818e-09, 1.704789790746561e-09,
    -6.268389576018443e-10, 2.369824276612219e-10, -9.18641139267555e-11, 3.642785430376733e-11,
    -1.4747555172589307e-11, 6.085100655664285e-12, -2.5552772234878823e-12, 1.090618725052938e-12,
    -4.725870319654398e-13, 2.0769690647720663e-13, -9.249762148175594e-14, 4.1709672345892114e-14,
    -1.9029909366221092e-14, 8.779067693054217e-15, -4.092755920992811e-15, 1.9271070340544504e-15,
    -9.16020339558546e-16, 4.393575136280042e-16, -2.125517351655371e-16, 1.036761378267675e-16,
    -5.0969087071463125e-17, 2.5246795420509105e-17, -1.2596344247626125e-17, 6.328461552007309e-18,
    -3.2007497234499955e-18,
)  # fmt: skip
_AIRY_LEFT_REAL = (
    0.9985699626310912, -0.0013951995769053717, 3.267841506400246e-05, -1.9404091544431855e-06,
    1.8869330795558386e-07, -2.5081398395940352e-08, 4.147665235330316e-09, -8.070839465359446e-10,
    1.7827924805699562e-10, -4.361705273201904e-11, 1.161185427365765e-11, -3.319778087279854e-12,
    1.0089771012367244e-12, -3.2341424638014315e-13, 1.086339783463564e-13, -3.803935598638535e-14,
    1.382553936868321e-14, -5.196785439951606e-15, 2.0139656226370203e-15, -8.025754109984114e-16,
    3.281280744795809e-16, -1.3735972268163205e-16, 5.877253876349653e-17, -2.56636083224799e-17,
    1.142071422106555e-17,
)  # fmt: skip
_AIRY_LEFT_IMAGINARY = (
    0.06807534474256373, -0.0013083854582772593, 5.551763035572022e-05, -4.544765865946546e-06,
    5.465428712800189e-07, -8.490632985289182e-08, 1.5863608897257044e-08, -3.4107384772845923e-09,
    8.195292084272133e-10, -2.1559704007789517e-10, 6.117533123357895e-11, -1.851185487143232e-11,
    5.921734198169083e-12, -1.9885901380079363e-12, 6.970913701405051e-13, -2.539035245734919e-13,
    9.572030893384093e-14, -3.722887715017506e-14, 1.4896665595239407e-14, -6.117760930462744e-15,
    2.5732888544750425e-15, -1.1065951356139461e-15, 4.857346858060479e-16, -2.1732261971205334e-16,
    9.898257822059331e-17, -4.584274189090521e-17, 2.15674962592159e-17, -1.0297889173902581e-17,
    4.986033289482962e-18, -2.446201457087581e-18, 1.2152328274817175e-18,
)  # fmt: skip


def _airy_middle(x):
    x = where(gt(x, 1.0), 1.0, where(lt(x, -3.0), -3.0, x))
    return _chebyshev(mul(add(x, 1.0), 0.5), _AIRY_MIDDLE)


def _airy_right(x):
    x = where(gt(x, 1.0), x, 1.0)
    z = mul(mul(x, sqrt(x)), 2.0 / 3.0)
    return mul(mul(_chebyshev(sub(div(4.0 / 3.0, z), 1.0), _AIRY_RIGHT), exp(neg(z))), rsqrt(sqrt(x)))


def _airy_left(x):
    x = where(lt(x, -3.0), neg(x), 3.0)
    z = mul(mul(x, sqrt(x)), 2.0 / 3.0)
    t = sub(div(24.0, mul(z, z)), 1.0)
    # The sum and the difference over sqrt(2) are the sine and the cosine less pi / 4.
    cosine, sine = add(cos(z), sin(z)), sub(sin(z), cos(z))
    wave = add(mul(_chebyshev(t, _AIRY_LEFT_REAL), cosine), div(mul(_chebyshev(t, _AIRY_LEFT_IMAGINARY), sine), z))
    return mul(mul(wave, math.sqrt(0.5) / _ROOT_PI), rsqrt(sqrt(x)))


def _airy(x):
    value = where(lt(x, -3.0), _airy_left(x), where(gt(x, 1.0), _airy_right(x), _airy_middle(x)))
    # PyTorch has NaN at both infinities, and so has this.
    return where(lt(abs_(x), math.inf), value, math.nan)


def _airy_of_type(x):
    x = _floating(x)
    return _airy(x) if x.dtype is dtypes.float64 else cast(_airy(cast(x, dtype=dtypes.float64)), dtype=x.dtype)


airy_ai = alias(
    "airy_ai",
    _airy_of_type,
    samples=samples.unary(-6.0, 4.0),
    oracle="special.airy_ai",
    tolerance=1e-4,  # PyTorch's error is 2e-5 around -2
    doc="Airy's function Ai; nan at the infinities.",
    spelling=Spelling("", special="airy_ai"),
)
