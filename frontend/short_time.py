"""Short-time Fourier transforms: spectra of windows that move over a signal, and the signal that has such spectra."""

import numpy as np

from .compiler.later import later
from .compiler.ops.table import OpError
from .complex_numbers import view_as_real
from .creation import ones, zeros
from .functions import index_add, index_select
from .runtime.state.said import warn
from .runtime.state.tensor import tensor_of
from .shaping import cat, narrow, reshape, transpose, unsqueeze

_fft, _ifft, _rfft, _irfft = (later(f"fft:{name}") for name in ("fft", "ifft", "rfft", "irfft"))
# PyTorch's words for np.pad's.
_PADDED = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_LEAST_WEIGHT = 1e-11


def _of_frame(name, n_fft, hop_length, win_length, window, like):
    """(steps between frames, the window in the middle of n_fft elements)."""
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    if not 0 < length <= n_fft:
        raise OpError(f"{name}: expected 0 < win_length <= n_fft, but got win_length={length} and n_fft={n_fft}")
    if hop <= 0:
        raise OpError(f"{name}: expected hop_length > 0, but got hop_length={hop}")
    if window is not None and window.shape != (length,):
        raise OpError(f"{name}: expected a 1D window tensor of size equal to win_length={length}, got {window.shape}")
    if window is None:
        window = ones(length, dtype=like.dtype.to_real() if like.dtype.is_complex else like.dtype)
    before = (n_fft - length) // 2
    if length < n_fft:
        sides = (zeros(before, dtype=window.dtype), zeros(n_fft - length - before, dtype=window.dtype))
        window = cat([sides[0], window, sides[1]])
    return hop, window


def stft(
    input,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    pad_mode="reflect",
    normalized=False,
    onesided=None,
    return_complex=None,
    align_to_window=None,
):
    """Transforms of the parts of a signal (..., length): every hop_length elements n_fft of them, times the window.

    Shape: (length) or (batch, length) gives (..., frequencies, frames), complex; with return_complex=False a last
    dimension of real and imaginary parts. Frequencies are those of rfft, if input and window are real and onesided is
    not False. With `center` frames are centred at their positions, on a signal that is padded by pad_mode.
    """
    if input.ndim not in (1, 2) or not input.dtype.is_differentiable:
        raise OpError(f"stft: expected a 1D or 2D tensor of floating point or complex values, got {input.shape}")
    is_complex = input.dtype.is_complex or window is not None and window.dtype.is_complex
    if return_complex is None and not is_complex:
        raise RuntimeError("stft requires the return_complex parameter be given for real inputs")
    if align_to_window is not None and center:
        raise RuntimeError("stft: align_to_window should only be set when center = false")
    onesided = not is_complex if onesided is None else onesided
    if onesided and is_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    hop, window = _of_frame("stft", n_fft, hop_length, win_length, window, input)
    signal, places = _padded(input, n_fft, center, pad_mode)
    if not 0 < n_fft <= len(places):
        raise OpError(f"stft: expected 0 < n_fft <= {len(places)}, but got n_fft={n_fft}")
    n_frames = 1 + (len(places) - n_fft) // hop
    frames = places[np.arange(n_frames)[:, None] * hop + np.arange(n_fft)]
    parts = reshape(
        index_select(signal, -1, tensor_of(np.ascontiguousarray(frames.reshape(-1)))),
        (*input.shape[:-1], n_frames, n_fft),
    )
    transform = _rfft if onesided else _fft
    spectra = transpose(transform(parts * window, norm="ortho" if normalized else None), -1, -2)
    return spectra if return_complex or return_complex is None else view_as_real(spectra)


def _padded(signal, n_fft, center, pad_mode):
    """(signal, the position in it of every element of the padded one)."""
    length, around = signal.shape[-1], n_fft // 2 if center else 0
    if pad_mode == "constant" and around:
        sides = zeros((*signal.shape[:-1], around), dtype=signal.dtype)
        signal, around = cat([sides, signal, sides], -1), 0
        length = signal.shape[-1]
    elif around and pad_mode not in _PADDED:
        raise NotImplementedError(f"stft: pad_mode must be constant, reflect, replicate or circular, got {pad_mode!r}")
    if around >= length + (pad_mode != "reflect"):
        raise OpError(f"stft: Padding size should be less than the input dimension, but got {around} for {length}")
    places = np.arange(length)
    return signal, np.pad(places, around, _PADDED[pad_mode]) if around else places


def istft(
    input,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    normalized=False,
    onesided=None,
    length=None,
    return_complex=False,
):
    """The signal whose stft is nearest to the input, (..., frequencies, frames): the frames, times the window, added up
    at their places and divided by the sum of the squares of the windows there. RuntimeError where that sum is 0.
    """
    if not input.dtype.is_complex:
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft")
    if input.ndim not in (2, 3) or not input.numel():
        raise OpError(f"istft: expected a tensor with 2 or 3 dimensions and with elements, got {input.shape}")
    if onesided is None:
        onesided = input.shape[-2] != n_fft
    expected = n_fft // 2 + 1 if onesided else n_fft
    if input.shape[-2] != expected:
        raise OpError(
            f"istft: expected the frequency dimension to match {expected} when onesided={onesided}, got {input.shape}"
        )
    if return_complex and onesided:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    hop, window = _of_frame("istft", n_fft, hop_length, win_length, window, input)
    if hop > (n_fft if win_length is None else win_length):
        raise OpError(f"istft: expected 0 < hop_length <= win_length, but got hop_length={hop}")
    frames, norm = transpose(input, -1, -2), "ortho" if normalized else None
    if return_complex:
        parts = _ifft(frames, n_fft, norm=norm)
    else:
        # Of two sides one is read: the signal is real.
        parts = _irfft(narrow(frames, -1, 0, n_fft // 2 + 1), n_fft, norm=norm)
    batch, n_frames = input.shape[:-2], input.shape[-1]
    places = tensor_of((np.arange(n_frames)[:, None] * hop + np.arange(n_fft)).reshape(-1))
    whole = n_fft + hop * (n_frames - 1)

    def added_up(x):
        flat = reshape(x, (*x.shape[:-2], n_frames * n_fft))
        return index_add(zeros((*x.shape[:-2], whole), dtype=x.dtype), -1, places, flat)

    start = n_fft // 2 if center else 0
    end = start + length if length is not None else whole - n_fft // 2 if center else whole
    kept = max(min(end, whole) - start, 0)
    squares = unsqueeze(window * window, 0).expand(n_frames, n_fft)
    weights = narrow(added_up(squares), -1, start, kept)
    least = weights.detach().abs().min().item() if kept else 0.0
    if least < _LEAST_WEIGHT:
        raise RuntimeError(f"istft: window overlap add min: {least}; every element of the signal needs a window")
    signal = narrow(added_up(parts * window), -1, start, kept) / weights
    if end > whole:
        warn("istft: the signal is shorter than `length`; it is padded with zeros at its end", stacklevel=2)
        signal = cat([signal, zeros((*batch, end - whole), dtype=signal.dtype)], -1)
    return signal


METHODS = ["stft", "istft"]
PUBLIC = METHODS
