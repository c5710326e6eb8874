"""Dirichlet-distributed vectors with the derivative for the concentration.

A draw is gamma-distributed numbers divided by their sum. What is known of it afterwards is the vector x alone, whose
element j is Beta(a_j, A - a_j)-distributed, A the sum of all concentrations. Its derivative is that of the quantile it
stands for, and what x_j gains the other elements lose in proportion (Jankowiak and Obermeyer, 1806.01851):

    dx_i/da_j = D_j (1[i = j] - x_i),    D_j = -(dI/da) / (dI/dx) / (1 - x_j),    I = I_x(a_j, A - a_j)

This has less variance than the derivatives of the gamma-distributed numbers themselves. I is
x^a (1 - x)^b / (a B(a, b)) times a continued fraction (DLMF 8.17.22), which is differentiated step by step.
"""

import numpy as np

from ..compiler.dtypes import float32
from ..functions import to_dtype
from ..runtime.eager.function import Function, once_differentiable
from ..runtime.state.tensor import tensor_of
from ..special import digamma
from .gamma_draws import standard_gamma

_STEPS = 20000  # about the root of the larger concentration is enough: they go to 1e8


class _Dirichlet(Function):
    @staticmethod
    def forward(ctx, concentration):
        gammas = standard_gamma(concentration)
        drawn = gammas / gammas.sum(-1, keepdim=True)
        ctx.save_for_backward(concentration, drawn)
        return drawn

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        concentration, drawn = ctx.saved_tensors
        total = concentration.array.sum(-1, keepdims=True)
        slopes = tensor_of(dirichlet_derivative(drawn.array, concentration.array, total))
        return slopes * (gradient - (drawn * gradient).sum(-1, keepdim=True))


def dirichlet(concentration):
    """Draws along the last dimension; of 16 bits by way of float32."""
    if concentration.dtype.is_half:
        return to_dtype(_Dirichlet.apply(to_dtype(concentration, float32)), concentration.dtype)
    return _Dirichlet.apply(concentration)


def dirichlet_derivative(drawn, concentration, total):
    """D of an element x of a draw, its concentration a, and the sum of all concentrations."""
    x, a, b = (
        np.ascontiguousarray(v, np.float64).reshape(-1)
        for v in np.broadcast_arrays(drawn, concentration, np.subtract(total, concentration, dtype=np.float64))
    )
    x = np.maximum(x, np.finfo(np.float64).tiny)
    found = np.zeros_like(x)  # an element that is alone is 1 whatever its concentration
    # The fraction converges quickly on either side of the mean; the other side is 1 - I_(1-x)(b, a).
    lower = (x < (a + 1) / (a + b + 2)) & (b > 0)
    upper = ~lower & (b > 0)
    found[lower] = _below(x[lower], a[lower], b[lower])
    found[upper] = _above(x[upper], a[upper], b[upper])
    return found.reshape(np.shape(drawn)).astype(np.asarray(drawn).dtype)


def _below(x, a, b):
    def step(m):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        slope = -1 / (a + 2 * m - 1) - 1 / (a + 2 * m)
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        return (even, even * slope), (
            odd,
            odd * (1 / (a + m) + 1 / (a + b + m) - 1 / (a + 2 * m) - 1 / (a + 2 * m + 1)),
        )

    first = -(a + b) * x / (a + 1)
    fraction, slope = _fraction(step, first, first * (1 / (a + b) - 1 / (a + 1)))
    return -x / a * fraction * (np.log(x) + _digamma(a + b) - _digamma(a + 1) + slope)


def _above(x, a, b):
    y = 1 - x

    def step(m):
        even = m * y / ((b + 2 * m - 1) * (b + 2 * m))
        odd = -(b + m) * y / ((b + 2 * m) * (b + 2 * m + 1))
        return (even * (a - m), even), (odd * (a + b + m), odd)

    fraction, slope = _fraction(step, -(a + b) * y / (b + 1), -y / (b + 1))
    return x / b * fraction * (np.log(x) + _digamma(a + b) - _digamma(a) + slope)


def _fraction(step, d, d_slope):
    """1 / (1 + d_1 / (1 + d_2 / ...)) and the derivative of its logarithm. `step(m)` gives d_2m and d_2m+1, each with
    its derivative; d_1 comes with its own."""
    over, under = (np.zeros_like(d), np.ones_like(d)), (np.ones_like(d), np.ones_like(d))  # of the last two steps
    over_slope, under_slope = (np.zeros_like(d), np.zeros_like(d)), (np.zeros_like(d), np.zeros_like(d))
    value = slope = np.full_like(d, np.nan)
    terms = ((d, d_slope),)
    for m in range(1, _STEPS):
        for d, d_slope in terms:
            over_slope = over_slope[1], over_slope[1] + d * over_slope[0] + d_slope * over[0]
            under_slope = under_slope[1], under_slope[1] + d * under_slope[0] + d_slope * under[0]
            over, under = (over[1], over[1] + d * over[0]), (under[1], under[1] + d * under[0])
            # Everything is relative to the last denominator: they would grow without bound.
            scale = 1 / under[1]
            over, under, over_slope, under_slope = (
                (earlier * scale, last * scale) for earlier, last in (over, under, over_slope, under_slope)
            )
        before, value = (value, slope), over[1]
        slope = over_slope[1] / over[1] - under_slope[1]
        if np.all((abs(value - before[0]) < 1e-15 * value) & (abs(slope - before[1]) < 1e-15 + 1e-13 * abs(slope))):
            break
        terms = step(m)
    return value, slope


def _digamma(x):
    return digamma(tensor_of(x)).array
