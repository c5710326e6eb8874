"""Division with remainder, and powers of integers: the same bits in NumPy and in generated code."""

import numpy as np

from ..dtypes import bool_
from ..later import later
from . import samples
from .arithmetic import div, mul, neg, trunc
from .kinds import alias, elementwise, integers_only, no_bool
from .source import zeros_like
from .table import Spelling

cut_quotient, fmod_of_floats = (
    later(f"compiler.vmath.remainder:{name}") for name in ("cut_quotient", "fmod_of_floats")
)


def _no_bool(dtypes, attributes):
    """True and false are no numbers to divide by."""
    return "division by truths is computed by NumPy" if bool_ in dtypes else None


def _checked_integers(name, evaluate):
    def run(x, y):
        if x.dtype.kind != "f" and x.size and np.any(y == 0):
            raise RuntimeError(f"{name}: ZeroDivisionError: an element of the integer divisor is 0")
        with np.errstate(all="ignore"):
            return evaluate(x, y)

    return run


def _safe_divisor(b, y, fail):
    """1 for 0, which fails, and for -1, by which the smallest integer cannot be divided: a CPU stops at both."""
    one, is_zero = b.const(1, y.type), b.cmp("eq", y, b.const(0, y.type))
    fail(is_zero)
    return b.select(b.or_(is_zero, b.cmp("eq", y, b.const(-1, y.type))), one, y)


def _lower_fmod(b, x, y, fail=None):
    if x.type.is_float:
        return fmod_of_floats(b, x, y)
    y = _safe_divisor(b, y, fail)
    return b.sub(x, b.mul(cut_quotient(b, x, y), y))


def _lower_floor_divide(b, x, y, fail=None):
    """Of integers: the quotient cut to an integer, and 1 less where something is left and the signs differ."""
    if x.type.is_float:
        return _lower_floor_divide_floats(b, x, y)
    divisor, zero = _safe_divisor(b, y, fail), b.const(0, x.type)
    quotient = cut_quotient(b, x, divisor)
    left = b.sub(x, b.mul(quotient, divisor))
    below = b.select(_is_left_over(b, left, y), b.sub(quotient, b.const(1, x.type)), quotient)
    return b.select(b.cmp("eq", y, b.const(-1, y.type)), b.sub(zero, x), below)


def _lower_floor_divide_floats(b, x, y):
    """As `_floor_divide`, line by line."""
    zero, one = b.const(0, x.type), b.const(1, x.type)
    left = fmod_of_floats(b, x, y)
    quotient = b.div(b.sub(x, left), y)
    quotient = b.select(_is_left_over(b, left, y), b.sub(quotient, one), quotient)
    below = b.floor(quotient)
    is_far = b.cmp("gt", b.sub(quotient, below), b.const(0.5, x.type))
    below = b.select(is_far, b.add(below, one), below)
    below = b.select(b.cmp("ne", quotient, zero), below, b.copysign(zero, b.div(x, y)))
    return b.select(b.cmp("ne", y, zero), below, b.div(x, y))


def _is_left_over(b, left, y):
    """Whether a division leaves something that has not the sign of the divisor."""
    zero = b.const(0, y.type)
    signs_differ = b.xor(b.cmp("lt", left, zero), b.cmp("lt", y, zero))
    return b.and_(b.cmp("ne", left, zero), signs_differ)


def _lower_remainder(b, x, y, fail=None):
    """fmod moved to the sign of the divisor, as Python's %."""
    left = _lower_fmod(b, x, y, fail)
    return b.select(_is_left_over(b, left, y), b.add(left, y), left)


def _remainder(x, y):
    if x.dtype.kind != "f":
        return np.remainder(x, y)
    left = np.fmod(x, y)
    return np.where((left != 0) & ((left < 0) != (y < 0)), left + y, left)


def _floor_divide(x, y):
    if x.dtype.kind != "f":
        return np.floor_divide(x, y)
    left = np.fmod(x, y)
    quotient = (x - left) / y
    quotient = np.where((left != 0) & ((left < 0) != (y < 0)), quotient - 1, quotient)
    below = np.floor(quotient)
    below = np.where(quotient - below > 0.5, below + 1, below)
    below = np.where(quotient != 0, below, np.copysign(x.dtype.type(0), x / y))
    return np.where(y != 0, below, x / y)


def _integer_pow(x, y):
    """Wraps around as products do; negative powers are 1 / x**|y| cut to an integer: 0 unless x is 1 or -1."""
    product = np.power(x, np.maximum(y, 0))
    unit = np.where(y % 2 != 0, x, 1)
    return np.where(y >= 0, product, np.where(np.abs(x) == 1, unit, 0)).astype(x.dtype)


fmod = elementwise(
    "fmod",
    2,
    no_bool("fmod"),
    evaluate=_checked_integers("fmod", np.fmod),
    vjp=(lambda g, out, x, y: g, lambda g, out, x, y: neg(mul(g, trunc(div(x, y))))),
    lower=_lower_fmod,
    samples=samples.binary(right_low=0.6, right_high=2.0),
    oracle="fmod",
    extra={"eager_only": _no_bool},
    traits=frozenset(["checks-integers"]),
    cost="function",
    doc="The remainder of input / other with the sign of input.",
    spelling=Spelling(operands=2, numbers="other"),
)
remainder = elementwise(
    "remainder",
    2,
    no_bool("remainder"),
    evaluate=_checked_integers("remainder", _remainder),
    vjp=(lambda g, out, x, y: g, lambda g, out, x, y: neg(mul(g, floor_divide(x, y)))),
    lower=_lower_remainder,
    samples=samples.binary(right_low=0.6, right_high=2.0),
    oracle="remainder",
    extra={"eager_only": _no_bool},
    traits=frozenset(["checks-integers"]),
    cost="function",
    doc="The remainder of input / other with the sign of other.",
    spelling=Spelling(operands=2),
)
floor_divide = elementwise(
    "floor_divide",
    2,
    no_bool("floor_divide"),
    evaluate=_checked_integers("floor_divide", _floor_divide),
    lower=_lower_floor_divide,
    traits=frozenset(["wide-number", "checks-integers", "multiplies"]),
    # 0, as floor's; PyTorch refuses to differentiate it.
    vjp=(lambda g, out, x, y: zeros_like(g), lambda g, out, x, y: zeros_like(g)),
    samples=samples.binary(right_low=0.6, right_high=2.0),
    oracle="floor_divide",
    extra={"eager_only": _no_bool},
    cost="function",
    doc="input / other, rounded down.",
    spelling=Spelling(operands=2, numbers="both"),
)
# The quotient may have no derivative where this one's is 0: by 0, say.
truncated_quotient = alias(
    "truncated_quotient",
    lambda x, y: trunc(div(x, y)),
    vjp=(lambda g, out, x, y: zeros_like(g), lambda g, out, x, y: zeros_like(g)),
    samples=samples.binary(right_low=0.6, right_high=2.0),
    oracle=lambda torch, x, y: torch.div(x, y, rounding_mode="trunc"),
    node_name="DivBackward1",
    doc="input / other, rounded towards zero.",
)
integer_pow = elementwise(
    "integer_pow",
    2,
    integers_only("integer_pow"),
    evaluate=_integer_pow,
    samples=lambda: [samples.Sample((samples.integers(0, (4,)), samples.integers(1, (3, 1), 0, 4)))],
    oracle="pow",
    extra={"eager_only": lambda dtypes, attributes: "integer powers are computed by NumPy"},
)
