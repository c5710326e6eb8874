"""weft.signal.windows: windows for signals, of M points, computed in float64 and rounded.

sym: symmetric, for filters; else periodic, for spectra: the first M points of a symmetric window of M + 1.

>>> hann(5).tolist()
[0.0, 0.5, 1.0, 0.5, 0.0]
"""

import sys
from collections.abc import Iterable

import numpy as np

from .compiler import dtypes
from .compiler.dtypes import dtype_of
from .placement import check_placement
from .runtime.state.marks import of_numbers
from .runtime.state.modes import state
from .runtime.state.tensor import tensor_of


def _window(name, M, values, dtype, requires_grad, placement):
    """The tensor of `values`, a function of the points 0, 1, ..., M - 1."""
    check_placement(name, placement)
    dtype = dtype_of(dtype or state.default_dtype)
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if dtype not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    made = values(np.arange(M, dtype=np.float64)) if M else np.zeros(0)
    return tensor_of(np.asarray(made, dtype.numpy)).requires_grad_(requires_grad)


def _span(M, sym):
    """How many steps a period has; one where there is one point."""
    return max(M - 1 if sym else M, 1)


def _ends_at(M, sym):
    """Twice the centre."""
    return M if not sym and M > 1 else M - 1


def exponential(M, *, center=None, tau=1.0, sym=True, dtype=None, requires_grad=False, **placement):
    """exp(-|k - center| / tau)."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    middle = _ends_at(M, sym) / 2 if center is None else center
    return _window("exponential", M, lambda k: np.exp(-abs(k - middle) / tau), dtype, requires_grad, placement)


def cosine(M, *, sym=True, dtype=None, requires_grad=False, **placement):
    """sin(pi (k + 1/2) / M)."""
    count = _ends_at(M, sym) + 1
    return _window("cosine", M, lambda k: np.sin(np.pi * (k + 0.5) / count), dtype, requires_grad, placement)


def gaussian(M, *, std=1.0, sym=True, dtype=None, requires_grad=False, **placement):
    """exp(-(k - (M - 1) / 2)^2 / (2 std^2))."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    middle = _ends_at(M, sym) / 2
    return _window("gaussian", M, lambda k: np.exp(-0.5 * ((k - middle) / std) ** 2), dtype, requires_grad, placement)


def kaiser(M, *, beta=12.0, sym=True, dtype=None, requires_grad=False, **placement):
    """I0(beta sqrt(1 - (2 k / N - 1)^2)) / I0(beta), N being M - 1."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")

    def values(k):
        place = 2 * k / _span(M, sym) - 1 if M > 1 else 0 * k
        return np.i0(beta * np.sqrt(np.maximum(1 - place * place, 0))) / np.i0(beta)

    return _window("kaiser", M, values, dtype, requires_grad, placement)


def bartlett(M, *, sym=True, dtype=None, requires_grad=False, **placement):
    """A triangle: 1 - |2 k / N - 1|, N being M - 1."""

    def values(k):
        return 1 - abs(2 * k / _span(M, sym) - 1) if M > 1 else k + 1

    return _window("bartlett", M, values, dtype, requires_grad, placement)


def general_cosine(M, *, a, sym=True, dtype=None, requires_grad=False, **placement):
    """The sum of (-1)^i a[i] cos(2 pi i k / N), N being M - 1."""
    return _general_cosine("general_cosine", M, a, sym, dtype, requires_grad, placement)


def _general_cosine(name, M, a, sym, dtype, requires_grad, placement):
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    a = list(a)
    if not a:
        raise ValueError("Coefficients cannot be empty")

    def values(k):
        angles = 2 * np.pi * k / _span(M, sym)
        return sum((-1) ** i * w * np.cos(i * angles) for i, w in enumerate(a)) if M > 1 else k + 1

    return _window(name, M, values, dtype, requires_grad, placement)


def general_hamming(M, *, alpha=0.54, sym=True, dtype=None, requires_grad=False, **placement):
    """alpha - (1 - alpha) cos(2 pi k / N), N being M - 1."""
    return _general_cosine("general_hamming", M, [alpha, 1 - alpha], sym, dtype, requires_grad, placement)


def hamming(M, *, sym=True, dtype=None, requires_grad=False, **placement):
    """general_hamming with alpha 0.54."""
    return _general_cosine("hamming", M, [0.54, 0.46], sym, dtype, requires_grad, placement)


def hann(M, *, sym=True, dtype=None, requires_grad=False, **placement):
    """(1 - cos(2 pi k / N)) / 2, N being M - 1."""
    return _general_cosine("hann", M, [0.5, 0.5], sym, dtype, requires_grad, placement)


def blackman(M, *, sym=True, dtype=None, requires_grad=False, **placement):
    """0.42 - 0.5 cos(2 pi k / N) + 0.08 cos(4 pi k / N), N being M - 1."""
    return _general_cosine("blackman", M, [0.42, 0.5, 0.08], sym, dtype, requires_grad, placement)


def nuttall(M, *, sym=True, dtype=None, requires_grad=False, **placement):
    """Four cosines, after Nuttall, IEEE Trans. Acoust. Speech Signal Process. 29 (1981)."""
    a = [0.3635819, 0.4891775, 0.1365995, 0.0106411]
    return _general_cosine("nuttall", M, a, sym, dtype, requires_grad, placement)


__all__ = str.split("""
    bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann kaiser nuttall
""")
windows = sys.modules[__name__]

of_numbers(*(globals()[name] for name in __all__))
