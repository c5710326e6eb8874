"""Starting values. Every function fills its tensor in place, without recording, and returns it.

Random numbers come from `generator` or else from weft's own. PyTorch's older names, without an underscore at the end,
warn and do the same.
"""

import math
import warnings

import numpy as np

from ..compiler import dtypes
from ..compiler.storage import convert, readable
from ..public import of_module
from ..runtime.state import random
from ..runtime.state.modes import no_grad
from ..runtime.state.tensor import tensor_of

__getattr__, __dir__ = of_module(__name__)

_CONVOLUTIONS = [f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)]


def calculate_gain(nonlinearity, param=None):
    """The factor that keeps the variance of activations through a nonlinearity, as PyTorch tabulates it."""
    if nonlinearity in ("linear", "sigmoid") or nonlinearity in _CONVOLUTIONS:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


@no_grad
def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Uniform in [a, b)."""
    return tensor.uniform_(a, b, generator=generator)


@no_grad
def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Normal with this mean and standard deviation."""
    return tensor.normal_(mean, std, generator=generator)


@no_grad
def constant_(tensor, val):
    return tensor.fill_(val)


@no_grad
def zeros_(tensor):
    return tensor.zero_()


@no_grad
def ones_(tensor):
    return tensor.fill_(1.0)


@no_grad
def eye_(tensor):
    """1 on the diagonal, 0 elsewhere."""
    if len(tensor.shape) != 2:
        raise ValueError(f"eye_: Only tensors with 2 dimensions are supported, got shape {tensor.shape}")
    return _copy(tensor, np.eye(*tensor.shape))


@no_grad
def dirac_(tensor, groups=1):
    """Weights (out, in, ...) of a convolution that passes on as many channels of each group as there are."""
    if len(tensor.shape) not in (3, 4, 5):
        raise ValueError(f"dirac_: Only tensors with 3, 4, or 5 dimensions are supported, got shape {tensor.shape}")
    channels, rest = divmod(tensor.shape[0], groups)
    if rest:
        raise ValueError(f"dirac_: dim 0 must be divisible by groups, got shape {tensor.shape} and {groups} groups")
    weights = np.zeros(tensor.shape)
    passed = np.arange(min(channels, tensor.shape[1]))
    centre = tuple(size // 2 for size in tensor.shape[2:])
    for start in range(0, tensor.shape[0], max(channels, 1)):
        weights[(start + passed, passed, *centre)] = 1
    return _copy(tensor, weights)


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """Uniform with variance 2 gain^2 / (fan_in + fan_out) (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """Normal with variance 2 gain^2 / (fan_in + fan_out)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Uniform with variance gain^2 / fan (He et al., arXiv 1502.01852); `a` is the slope of leaky_relu."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    bound = math.sqrt(3.0) * calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Normal with variance gain^2 / fan; `a` is the slope of leaky_relu."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    return normal_(
        tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode)), generator
    )


@no_grad
def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Normal with this mean and standard deviation, given that it falls in [a, b]: the inverse distribution function
    of uniform numbers."""
    if not a - 2 * std <= mean <= b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=3,
        )
    low, high = (math.erf((bound - mean) / (std * math.sqrt(2.0))) for bound in (a, b))
    quantiles = tensor.uniform_(low, high, generator=generator).array
    quantiles = readable(quantiles).astype(np.float64)
    numbers = mean + std * math.sqrt(2.0) * _erfinv(quantiles)
    return _copy(tensor, np.clip(numbers, a, b))


@no_grad
def orthogonal_(tensor, gain=1.0, generator=None):
    """A (semi-)orthogonal matrix, uniform among all, times gain (Saxe et al., arXiv 1312.6120).

    Tensors of more dimensions count as matrices of shape (shape[0], the rest).
    """
    if len(tensor.shape) < 2:
        raise ValueError(f"orthogonal_: Only tensors with 2 or more dimensions are supported, got shape {tensor.shape}")
    if 0 in tensor.shape:
        return tensor
    drawn = readable(tensor.normal_(0.0, 1.0, generator=generator).array)
    matrix = drawn.reshape(tensor.shape[0], -1).astype(np.float64)
    wide = matrix.shape[0] < matrix.shape[1]
    q, r = np.linalg.qr(matrix.T if wide else matrix)
    # Signs of R's diagonal make Q unique, and so uniformly distributed (Mezzadri, math-ph/0609050).
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return _copy(tensor, gain * (q.T if wide else q).reshape(tensor.shape))


@no_grad
def sparse_(tensor, sparsity, std=0.01, generator=None):
    """Normal with mean 0 and standard deviation std, but for a share `sparsity` of every column, which is 0
    (Martens 2010)."""
    if len(tensor.shape) != 2:
        raise ValueError(f"sparse_: Only tensors with 2 dimensions are supported, got shape {tensor.shape}")
    numbers = readable(tensor.normal_(0.0, std, generator=generator).array).copy()
    places = random.uniform(tensor.shape, dtypes.float64, generator).array.argsort(axis=0, kind="stable")
    np.put_along_axis(numbers, places[: math.ceil(sparsity * tensor.shape[0])], 0, axis=0)
    return _copy(tensor, numbers)


def fans(tensor):
    """(fan_in, fan_out): how many inputs make an output, and how many outputs an input makes."""
    if len(tensor.shape) < 2:
        raise ValueError(
            f"Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, got shape {tensor.shape}"
        )
    positions = math.prod(tensor.shape[2:])
    return tensor.shape[1] * positions, tensor.shape[0] * positions


# Code that initialises layers of its own calls PyTorch's private name.
_calculate_fan_in_and_fan_out = fans


def _calculate_correct_fan(tensor, mode):
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return fans(tensor)[mode == "fan_out"]


def _copy(tensor, array):
    return tensor.copy_(tensor_of(np.ascontiguousarray(convert(array, tensor.dtype))))


# Coefficients of Giles, "Approximating the erfinv function", GPU Computing Gems Jade Edition, 2011, table 10.1.
_CENTRE = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_TAIL = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def _erfinv(x):
    """The inverse of erf on (-1, 1), within 1e-6 relative (for x in float64, |x| <= 1 - 2^-24)."""
    w = -np.log(np.maximum((1.0 - x) * (1.0 + x), 2.0**-52))
    centre = np.polyval(_CENTRE, w - 2.5)
    tail = np.polyval(_TAIL, np.sqrt(w) - 3.0)
    return x * np.where(w < 5.0, centre, tail)


# --- PyTorch's older names --------------------------------------------------------------------------------------------
def _older(function):
    name = function.__name__.rstrip("_")

    def renamed(*arguments, **options):
        warnings.warn(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning, stacklevel=2)
        return function(*arguments, **options)

    renamed.__name__ = renamed.__qualname__ = name
    renamed.__doc__ = f"{name}_ under its older name."
    return renamed


_FILLING = (uniform_, normal_, constant_, eye_, xavier_uniform_, xavier_normal_, kaiming_uniform_, kaiming_normal_)
uniform, normal, constant, eye, xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal = map(_older, _FILLING)
orthogonal, dirac, sparse = map(_older, (orthogonal_, dirac_, sparse_))
