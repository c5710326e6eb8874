"""Windows for signals: hann_window and its relatives, computed in float64 and rounded."""

import numpy as np

from .compiler.dtypes import dtype_of
from .compiler.storage import convert
from .placement import check_placement
from .runtime.state.marks import of_numbers
from .runtime.state.modes import state
from .runtime.state.tensor import tensor_of


def _finished(values, dtype, requires_grad):
    made = tensor_of(np.ascontiguousarray(convert(np.asarray(values), dtype_of(dtype or state.default_dtype))))
    return made.requires_grad_(requires_grad)


def _angles(name, length, periodic):
    """2 pi k / N, N being one less for a symmetric window."""
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    count = length if periodic else length - 1
    return 2 * np.pi * np.arange(length) / max(count, 1)


def _one(length, values):
    return np.ones(1) if length == 1 else values


def hamming_window(
    window_length, periodic=True, alpha=0.54, beta=0.46, *, dtype=None, requires_grad=False, **placement
):
    """alpha - beta cos(2 pi k / N)."""
    check_placement("hamming_window", placement)
    angles = _angles("hamming_window", window_length, periodic)
    return _finished(_one(window_length, alpha - beta * np.cos(angles)), dtype, requires_grad)


def hann_window(window_length, periodic=True, *, dtype=None, requires_grad=False, **placement):
    """(1 - cos(2 pi k / N)) / 2."""
    check_placement("hann_window", placement)
    angles = _angles("hann_window", window_length, periodic)
    return _finished(_one(window_length, 0.5 - 0.5 * np.cos(angles)), dtype, requires_grad)


def blackman_window(window_length, periodic=True, *, dtype=None, requires_grad=False, **placement):
    """0.42 - 0.5 cos(2 pi k / N) + 0.08 cos(4 pi k / N)."""
    check_placement("blackman_window", placement)
    angles = _angles("blackman_window", window_length, periodic)
    values = 0.42 - 0.5 * np.cos(angles) + 0.08 * np.cos(2 * angles)
    return _finished(_one(window_length, values), dtype, requires_grad)


def bartlett_window(window_length, periodic=True, *, dtype=None, requires_grad=False, **placement):
    """A triangle from 0 to 1 and back."""
    check_placement("bartlett_window", placement)
    place = _angles("bartlett_window", window_length, periodic) / np.pi
    return _finished(_one(window_length, 1 - np.abs(place - 1)), dtype, requires_grad)


def kaiser_window(window_length, periodic=True, beta=12.0, *, dtype=None, requires_grad=False, **placement):
    """I0(beta sqrt(1 - (2 k / N - 1)^2)) / I0(beta)."""
    check_placement("kaiser_window", placement)
    place = _angles("kaiser_window", window_length, periodic) / np.pi - 1
    values = np.i0(beta * np.sqrt(np.maximum(1 - place * place, 0))) / np.i0(beta)
    return _finished(_one(window_length, values), dtype, requires_grad)


PUBLIC = str.split("hamming_window hann_window blackman_window bartlett_window kaiser_window")


of_numbers(hamming_window, hann_window, blackman_window, bartlett_window, kaiser_window)
