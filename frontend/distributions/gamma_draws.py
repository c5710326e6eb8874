"""Gamma-distributed numbers with the derivative for the concentration.

Drawn by Marsaglia and Tsang's rejection (ACM TOMS 26, 2000), by NumPy. A draw x has no formula in the concentration a;
its derivative is that of the quantile it stands for (Figurnov et al., 1805.08498):

    dx/da = -(dP(a, x)/da) / (dP(a, x)/dx),    P(a, x) = x^a e^-x sum_n x^n / Gamma(a + n + 1)

where the derivative of the series is taken term by term, and for large a that of Wilson and Hilferty's quantile.
"""

import numpy as np

from ..compiler.dtypes import float32
from ..draws import numpy_generator
from ..functions import to_dtype
from ..runtime.eager.function import Function, once_differentiable
from ..runtime.state.tensor import tensor_of
from ..special import digamma

_LARGE = 1000.0  # from here on the relative error of the quantile's derivative is below 1e-5
_TERMS = 2000


class _Gamma(Function):
    @staticmethod
    def forward(ctx, concentration):
        drawn = tensor_of(_draw(concentration.array))
        ctx.save_for_backward(concentration, drawn)
        return drawn

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        concentration, drawn = ctx.saved_tensors
        return gradient * tensor_of(standard_gamma_derivative(concentration.array, drawn.array))


def standard_gamma(concentration):
    """Draws of the rate 1, one for every concentration; of 16 bits by way of float32."""
    if concentration.dtype.is_half:
        return to_dtype(_Gamma.apply(to_dtype(concentration, float32)), concentration.dtype)
    return _Gamma.apply(concentration)


def _draw(concentration):
    # Of a single number NumPy makes a float of Python's.
    drawn = np.asarray(numpy_generator(None).standard_gamma(concentration.astype(np.float64)))
    drawn = drawn.astype(concentration.dtype)
    # Small concentrations give numbers that are 0 in this type: their logarithm is to be finite.
    return np.asarray(np.maximum(drawn, np.finfo(concentration.dtype).tiny))


def standard_gamma_derivative(concentration, drawn):
    """dx/da for draws x of concentrations a."""
    shape, dtype = drawn.shape, drawn.dtype
    a, x = (v.astype(np.float64).reshape(-1) for v in np.broadcast_arrays(concentration, drawn))
    found = np.empty_like(x)
    large = a > _LARGE
    found[large] = _by_quantile(a[large], x[large])
    found[~large] = _by_series(a[~large], x[~large])
    return found.reshape(shape).astype(dtype)


def _by_quantile(a, x):
    """x = a (1 - 1/(9a) + z / (3 sqrt a))^3 with z fixed."""
    root = np.cbrt(x / a)
    z = (root - 1 + 1 / (9 * a)) * 3 * np.sqrt(a)
    return root**3 + 3 * a * root**2 * (1 / (9 * a**2) - z / (6 * a**1.5))


def _by_series(a, x):
    """The sum of terms x^n / Gamma(a + n + 1), relative to the first, and of their derivatives for a."""
    log_x, digammas = np.log(x), _function(digamma, a + 1)
    term, total, slopes = np.ones_like(a), np.ones_like(a), log_x - digammas
    for n in range(1, _TERMS):
        digammas = digammas + 1 / (a + n)
        term = term * x / (a + n)
        total = total + term
        slopes = slopes + term * (log_x - digammas)
        if n % 16 == 0 and np.all(term * (1 + np.abs(log_x - digammas)) < 1e-17 * total):
            break
    # The density x^(a-1) e^-x / Gamma(a), relative to x^a e^-x / Gamma(a + 1), is a / x.
    return -slopes * x / a


def _function(function, x):
    return function(tensor_of(x)).array
