"""Functions that reduce dimensions: sums, extremes, statistics, softmax. In PyTorch's spelling, made from the op table.

`dim` is an int, a tuple, or None for all dimensions. NumPy's words `axis` and `keepdims` are understood, as in PyTorch.
"""

import builtins

from .casting import in_wide
from .compiler.dtypes import bool_, int64
from .compiler.ops import TABLE, arithmetic, comparison, reduction, spelling, statistics
from .compiler.shapes import normalize_axes, normalize_axis
from .creation import zeros
from .half_floats import in_float32
from .numpy_words import BY_NUMPY, is_numpys, without_numpys
from .operands import flag, operand, tensor_of, to_dtype
from .results import result_type
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor, shape_of
from .shaping import flatten, reshape, unsqueeze

_ALL = [tuple(range(ndim)) for ndim in range(65)]  # NumPy has no arrays of more dimensions


def _axes(name, x, dim):
    return normalize_axes(name, dim, x.ndim)


def _kept(name, keepdim, keepdims):
    """Whether reduced dimensions are kept, by either word."""
    return flag(name, "keepdim", keepdim) or flag(name, "keepdims", keepdims)


def _reduce(op, name):
    def function(input, dim=None, keepdim=False, *, dtype=None, axis=None, keepdims=False, out=BY_NUMPY):
        if out is not BY_NUMPY:
            is_numpys(name, out)
        if dim is None and axis is None and dtype is None and input.__class__ is Tensor:
            if keepdim.__class__ is not bool or keepdims is not False:
                keepdim = _kept(name, keepdim, keepdims)
            return op(input, axes=_ALL[len(shape_of(input))], keepdim=keepdim)
        if dtype is not None:
            input = to_dtype(input, dtype)
        dim = dim if axis is None else axis
        if keepdim.__class__ is not bool or keepdims is not False:
            keepdim = _kept(name, keepdim, keepdims)
        if input.__class__ is not Tensor:
            tensor_of(name, input)
        result = op(input, axes=normalize_axes(name, dim, len(shape_of(input))), keepdim=keepdim)
        # A sum of integers is int64 unless told otherwise.
        return result if dtype is None else to_dtype(result, dtype)

    function.__name__ = name
    function.__doc__ = f"{name} over the dimensions `dim` (an int, a tuple, or None for all)."
    return without_numpys(function)


sum = _reduce(reduction.sum_, "sum")
mean = _reduce(statistics.mean, "mean")
prod = in_wide(_reduce(reduction.prod, "prod"))
amax = _reduce(reduction.amax, "amax")
amin = _reduce(reduction.amin, "amin")
any = _reduce(reduction.any_, "any")
all = _reduce(reduction.all_, "all")


def _given(name, dim, axis):
    """A dimension that must be given, as `dim` or as `axis`."""
    dim = dim if axis is None else axis
    if dim is None:
        raise TypeError(f"{name}() missing 1 required positional argument: 'dim'")
    return dim


def logsumexp(input, dim=None, keepdim=False, *, axis=None):
    """log(sum(exp(input))) without overflow."""
    dim = _given("logsumexp", dim, axis)
    if not (input.dtype.is_floating_point or input.dtype.is_complex):
        input = to_dtype(input, state.default_dtype)
    shape = shape_of(input)
    axes = normalize_axes("logsumexp", dim, len(shape))
    if 0 in shape and builtins.any(shape[a] == 0 for a in axes):
        # The logarithm of an empty sum.
        return TABLE["log"](reduction.sum_(input, axes=axes, keepdim=keepdim))
    return statistics.logsumexp(input, axes=axes, keepdim=keepdim)


def _deviation(op, name):
    def function(
        input,
        dim=None,
        unbiased=None,
        keepdim=False,
        *,
        correction=1,
        axis=None,
        keepdims=False,
        out=BY_NUMPY,
        ddof=BY_NUMPY,
        dtype=BY_NUMPY,
    ):
        if out is not BY_NUMPY and is_numpys(name, out):
            correction, input = ddof, input if dtype is None else to_dtype(input, dtype)
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if unbiased is not None:
            correction = int(unbiased)
        correction = 1 if correction is None else correction
        dim = dim if axis is None else axis
        if keepdim.__class__ is not bool or keepdims is not False:
            keepdim = _kept(name, keepdim, keepdims)
        axes = _axes(name, tensor_of(name, input), dim)
        if not input.dtype.is_complex:
            return op(input, axes=axes, keepdim=keepdim, correction=correction)
        parts = [statistics.var(x, axes=axes, keepdim=keepdim, correction=correction) for x in (input.real, input.imag)]
        return parts[0] + parts[1] if op is statistics.var else (parts[0] + parts[1]).sqrt()

    function.__name__ = name
    function.__doc__ = f"{name} over `dim`: the squared deviations are divided by their number less `correction`."
    return without_numpys(function)


var = _deviation(statistics.var, "var")
std = _deviation(statistics.std, "std")


@in_float32
def norm(input, p=2, dim=None, keepdim=False, *, dtype=None):
    """Vector norm, sum(|x|**p)**(1/p): p is 2 ("fro") or another number; inf and -inf give the extremes of |x|."""
    if input.__class__ is not Tensor:
        tensor_of("norm", input)
    if keepdim is not False:
        keepdim = flag("norm", "keepdim", keepdim)
    input = input if dtype is None else to_dtype(input, dtype)
    input = arithmetic.abs_(input) if input.dtype.is_complex else input
    axes = _axes("norm", input, dim)
    p = p if isinstance(p, str) or p is None else operand(p)
    if p in (2, 2.0, "fro", None):
        return statistics.norm(input, axes=axes, keepdim=keepdim)
    if p in (float("inf"), -float("inf")):
        extreme = reduction.amax if p > 0 else reduction.amin
        return extreme(arithmetic.abs_(input), axes=axes, keepdim=keepdim)
    if p == 0:
        # trunc, for its derivative, which is 0.
        ones = comparison.where(comparison.ne(input, 0), 1.0, arithmetic.abs_(arithmetic.trunc(input)))
        return reduction.sum_(ones, axes=axes, keepdim=keepdim)
    if p == 1:
        return reduction.sum_(arithmetic.abs_(input), axes=axes, keepdim=keepdim)
    if not isinstance(p, (int, float)):
        raise ValueError(f"norm: p must be a number or 'fro', got {p!r}")
    powers = _power_or_zero(arithmetic.abs_(input), p) if p < 1 else arithmetic.abs_(input) ** p
    total = reduction.sum_(powers, axes=axes, keepdim=keepdim)
    return _power_or_zero(total, 1.0 / p) if p > 1 else total ** (1.0 / p)


def _power_or_zero(x, p):
    """x ** p for p < 1, with the gradient 0 at 0, where its limit is infinite."""
    zero = comparison.eq(x, 0.0)
    return comparison.where(zero, 0.0 if p > 0 else float("inf"), comparison.where(zero, 1.0, x) ** p)


_Largest, _Smallest = (result_type(name, "values", "indices") for name in ("max", "min"))


def _extreme(name, made, alone, total, position, pairwise):
    def function(input, dim=None, keepdim=False, *, other=None, axis=None, keepdims=False, out=BY_NUMPY):
        if out is not BY_NUMPY and is_numpys(name, out):
            # NumPy's has no positions; of all elements that are alike it is the value of each.
            return alone(input, dim, keepdim, axis=axis, keepdims=keepdims)
        dim = dim if axis is None else axis
        if keepdim.__class__ is not bool or keepdims is not False:
            keepdim = _kept(name, keepdim, keepdims)
        other = dim if isinstance(dim, Tensor) else other
        if other is not None:
            return pairwise(tensor_of(name, input), other)
        if dim is None:
            return total(tensor_of(name, input))
        if input.__class__ is not Tensor:
            tensor_of(name, input)
        axis = normalize_axis(name, dim, input.ndim)
        if input.ndim == 0:
            return made(total(input), zeros((), dtype=int64))
        indices = position(input, axis=axis)
        values = spelling.pick(input, indices, axis=axis, of=name)
        if keepdim:
            indices, values = unsqueeze(indices, axis), unsqueeze(values, axis)
        return made(values, indices)

    function.__name__ = name
    function.__doc__ = f"{name} of all elements; (values, indices) along `dim`; or of two tensors, element by element."
    return without_numpys(function)


max = _extreme("max", _Largest, amax, spelling.max_, reduction.argmax, arithmetic.maximum)
min = _extreme("min", _Smallest, amin, spelling.min_, reduction.argmin, arithmetic.minimum)


def _position(name, op):
    def function(input, dim=None, keepdim=False, *, axis=None, keepdims=False):
        dim = dim if axis is None else axis
        if keepdim.__class__ is not bool or keepdims is not False:
            keepdim = _kept(name, keepdim, keepdims)
        if input.__class__ is not Tensor:
            tensor_of(name, input)
        if input.dtype is bool_:
            raise RuntimeError(f"{name}(): does not support bool input; convert it with .int() first")
        if dim is None:
            result = op(flatten(input), axis=0)
            return reshape(result, (1,) * input.ndim) if keepdim else result
        axis = normalize_axis(name, dim, input.ndim)
        if input.ndim == 0:
            return zeros((), dtype=int64)
        result = op(input, axis=axis)
        return unsqueeze(result, axis) if keepdim else result

    function.__name__ = name
    function.__doc__ = f"{name}: int64 position of the first extreme, in the flattened tensor or along `dim`."
    return function


argmax = _position("argmax", reduction.argmax)
argmin = _position("argmin", reduction.argmin)


def softmax(input, dim=None, dtype=None, *, axis=None):
    if input.__class__ is not Tensor:
        tensor_of("softmax", input)
    dim = _given("softmax", dim, axis)
    input = input if dtype is None else to_dtype(input, dtype)
    axis = normalize_axis("softmax", dim, input.ndim)
    return statistics.softmax(input, axis=axis) if input.numel() else input * 1


def log_softmax(input, dim=None, dtype=None, *, axis=None):
    if input.__class__ is not Tensor:
        tensor_of("log_softmax", input)
    dim = _given("log_softmax", dim, axis)
    input = input if dtype is None else to_dtype(input, dtype)
    axis = normalize_axis("log_softmax", dim, input.ndim)
    return statistics.log_softmax(input, axis=axis) if input.numel() else input * 1


METHODS = str.split("""
    sum mean prod amax amin any all logsumexp var std max min argmax argmin softmax log_softmax
""")
PUBLIC = METHODS
