"""Elementwise functions in PyTorch's spelling that are made of several ops, beyond those of functions.py."""

import math

from .compiler import dtypes
from .compiler.ops import arithmetic, comparison, pointwise, special
from .compiler.ops.table import OpError
from .creation import full_like
from .functions import pow, sub, where
from .half_floats import both_in_float32
from .operands import alike, require_tensors, to_dtype
from .results import result_type
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor


# --- signs ------------------------------------------------------------------------------------------------------------
def sign(input):
    """-1, 0 or 1; of a bool itself."""
    return arithmetic.sign(input) if input.dtype is not dtypes.bool_ else input.clone()


sgn = sign


def signbit(input):
    """Whether the sign is minus, also of -0.0."""
    if input.dtype is dtypes.bool_:
        return input & False
    return pointwise.is_negative(input)


def positive(input):
    """The tensor itself."""
    if input.dtype is dtypes.bool_:
        raise OpError("positive: The `+` operator, on a bool tensor is not supported; convert with .int() first")
    return input


def isposinf(input):
    """Whether each element is +inf."""
    return comparison.eq(input, math.inf) if input.dtype.is_floating_point else comparison.ne(input, input)


def isneginf(input):
    """Whether each element is -inf."""
    return comparison.eq(input, -math.inf) if input.dtype.is_floating_point else comparison.ne(input, input)


def heaviside(input, values):
    """0 below 0, 1 above, and `values` at 0."""
    require_tensors("heaviside", input, values)
    if input.dtype is not values.dtype:
        raise OpError(f"heaviside: cannot be of different dtypes: {input.dtype.name} and {values.dtype.name}")
    return where(input == 0, values, to_dtype(input > 0, input.dtype)).detach()


# --- scales and powers ------------------------------------------------------------------------------------------------
def deg2rad(input):
    """Degrees as radians."""
    return input * (math.pi / 180.0)


def rad2deg(input):
    """Radians as degrees."""
    return input * (180.0 / math.pi)


def float_power(input, exponent):
    """input ** exponent in float64, or complex128."""
    is_complex = any(x.dtype.is_complex if isinstance(x, Tensor) else isinstance(x, complex) for x in (input, exponent))
    kind, number = (dtypes.complex128, complex) if is_complex else (dtypes.float64, float)
    return pow(*(to_dtype(x, kind) if isinstance(x, Tensor) else number(x) for x in (input, exponent)))


def float_power_(input, exponent):
    """float_power, in place: of float64 and complex128 alone, which it computes in."""
    if input.dtype not in (dtypes.float64, dtypes.complex128):
        raise RuntimeError(
            f"the base given to float_power_ has dtype {input.dtype.name} but the operation's result requires dtype "
            "float64; convert it first, or write pow_"
        )
    return input.pow_(exponent)


def ldexp(input, other):
    """input * 2 ** other."""
    require_tensors("ldexp", input, other)
    if input.dtype.is_complex or other.dtype.is_complex:
        return input * pow(2.0, other)
    floats = [x for x in (input, other) if x.dtype.is_floating_point]
    kind = dtypes.result_type(floats, state.default_dtype) if floats else state.default_dtype
    wide = dtypes.float64 if kind is dtypes.float64 else dtypes.float32
    # The power alone may leave the range of the type where the product does not, so it is made of three.
    limit = 3000.0 if wide is dtypes.float64 else 360.0
    exponent = to_dtype(other, wide).clamp(-limit, limit)
    third = (exponent / 3.0).trunc()
    part = pow(2.0, third)
    return to_dtype(to_dtype(input, wide) * part * part * pow(2.0, exponent - third - third), kind)


_Frexp = result_type("frexp", "mantissa", "exponent")


def frexp(input):
    """(mantissa, exponent): input = mantissa * 2 ** exponent with the mantissa in [0.5, 1)."""
    return _Frexp(pointwise.frexp(input, part="mantissa"), pointwise.frexp(input, part="exponent"))


@both_in_float32
def logaddexp2(input, other):
    """log2(2 ** input + 2 ** other) without overflow."""
    require_tensors("logaddexp2", input, other)
    input, other = alike(input, other)
    difference = where(input == other, 0.0, input - other)
    return arithmetic.maximum(input, other) + (-difference.abs()).exp2().log1p() * (1.0 / math.log(2.0))


def rsub(input, other, *, alpha=1):
    """other - alpha * input."""
    require_tensors("rsub", input)
    return sub(other, input, alpha=alpha)


# --- gamma ------------------------------------------------------------------------------------------------------------
def polygamma(n, input):
    """The n-th derivative of digamma."""
    if isinstance(n, Tensor):
        n, input = input, n  # the method's order: x.polygamma(n)
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, got {n}")
    return special.polygamma(input, n=int(n)) if n else special.digamma(input)


def mvlgamma(input, p):
    """The logarithm of the multivariate gamma function of dimension p."""
    if p < 1:
        raise RuntimeError(f"mvlgamma: p has to be greater than or equal to 1, got {p}")
    if input.dtype is dtypes.bool_:
        raise OpError("mvlgamma: not implemented for bool")
    input = input if input.dtype.is_floating_point else to_dtype(input, state.default_dtype)
    total = full_like(input, p * (p - 1) / 4.0 * math.log(math.pi))
    for k in range(p):
        total = total + special.lgamma(input - 0.5 * k)
    return total


FUNCTIONS = str.split("""
    sign sgn signbit positive isposinf isneginf heaviside deg2rad rad2deg float_power ldexp frexp logaddexp2 polygamma
    mvlgamma
""")
METHODS = [*FUNCTIONS, "float_power_"]
_NOT_INPLACE = str.split("positive isposinf isneginf signbit frexp float_power")
INPLACE = [name for name in FUNCTIONS if name not in _NOT_INPLACE]
PUBLIC = [*FUNCTIONS, "rsub"]
