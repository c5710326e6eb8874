"""Fourier transforms over several axes, by NumPy: complex to complex, real to half of the complex, and back.

`forward` says the sign of the exponent (minus), `scale` what the sums are multiplied by. The matrix of a transform is
symmetric, so its derivative is a transform in the other direction.

What transforms rows is NumPy's inner functions: finding out which, and of what their results are, takes its outer ones
longer than a small transform does. Bits are equal. The inner ones are no part of NumPy's interface: where one is not
there under its name, or NumPy is older than 2.0 and computes in float64, the outer ones are called.
"""

import numpy as np

from ..dtypes import int64
from .arithmetic import mul
from .comparison import ge, logical_and, lt, where
from .complex_numbers import require_complex
from .kinds import library, require_floating
from .source import arange, full
from .table import Meta
from .view import cat, reshape

_CONJUGATE = frozenset(["conjugate"])


try:
    from numpy.fft import _pocketfft_umath as _inner

    _FFT, _IFFT, _IRFFT = _inner.fft, _inner.ifft, _inner.irfft
    _RFFT = _inner.rfft_n_even, _inner.rfft_n_odd
except (ImportError, AttributeError):
    _inner = None


def _transformed(function, x, axis, size, dtype, scale=1.0):
    """An array like x with `size` elements along an axis, of this type: what an inner function makes of x."""
    out = np.empty((*x.shape[:axis], size, *x.shape[axis + 1 :]), dtype)
    return function(x, x.real.dtype.type(scale), axes=[(axis,), (), (axis,)], out=out)


def _complex_along(x, axes, forward, scale=1.0):
    """Complex to complex, along the last of these axes first."""
    function = _FFT if forward else _IFFT
    for k in range(len(axes) - 1, -1, -1):
        x = _transformed(function, x, axes[k], x.shape[axes[k]], x.dtype, scale if k == 0 else 1.0)
    return x


def _scaled(out, scale, kind):
    # NumPy before 2.0 computes in float64.
    return np.multiply(out, scale, dtype=kind) if scale != 1.0 else out.astype(kind, copy=False)


def _evaluate_c2c(x, axes, forward, scale):
    if _inner is not None:
        return _complex_along(x, axes, forward, scale)
    if len(axes) == 1:
        # NumPy's functions of several dimensions call these, and take as long to find that out.
        made = np.fft.fft(x, axis=axes[0]) if forward else np.fft.ifft(x, axis=axes[0], norm="forward")
    else:
        made = np.fft.fftn(x, axes=axes) if forward else np.fft.ifftn(x, axes=axes, norm="forward")
    return _scaled(made, scale, x.dtype)


def _infer_c2c(operands, attributes):
    require_complex("fft", operands[0])
    return Meta(operands[0].shape, operands[0].dtype)


fft_c2c = library(
    "fft_c2c",
    _infer_c2c,
    _evaluate_c2c,
    vjp=(lambda g, out, x, axes, forward, scale: fft_c2c(g, axes=axes, forward=not forward, scale=scale),),
    on_complex=True,
    traits=_CONJUGATE,
)


def _evaluate_r2c(x, axes, forward, scale):
    if _inner is not None:
        *others, last = axes
        n, kind = x.shape[last], np.complex64 if x.dtype == np.float32 else np.complex128
        made = _transformed(_RFFT[n % 2], x, last, n // 2 + 1, kind, 1.0 if others else scale)
        made = _complex_along(made, others, True, scale)
        return made if forward else np.conjugate(made, out=made)
    made = np.fft.rfft(x, axis=axes[0]) if len(axes) == 1 else np.fft.rfftn(x, axes=axes)
    return _scaled(made if forward else made.conj(), scale, np.result_type(x.dtype, np.complex64))


def _with_size(shape, axis, size):
    return tuple(size if k == axis else d for k, d in enumerate(shape))


def _infer_r2c(operands, attributes):
    x, last = operands[0], attributes["axes"][-1]
    require_floating("rfft", x)
    return Meta(_with_size(x.shape, last, x.shape[last] // 2 + 1), x.dtype.to_complex())


def _r2c_vjp(g, out, x, axes, forward, scale):
    """The half that is not there got no cotangent."""
    last = axes[-1]
    missing = x.shape[last] - g.shape[last]
    if missing:
        zeros = g.apply_op(full, (0,), {"shape": _with_size(g.shape, last, missing), "dtype": g.dtype})
        g = cat(g, zeros, axis=last)
    return fft_c2c(g, axes=axes, forward=not forward, scale=scale)


fft_r2c = library("fft_r2c", _infer_r2c, _evaluate_r2c, vjp=(_r2c_vjp,), on_complex=True, traits=_CONJUGATE)


def _evaluate_c2r(x, axes, size, forward, scale):
    x = x.conj() if forward else x
    if _inner is not None:
        *others, last = axes
        return _transformed(_IRFFT, _complex_along(x, others, False), last, size, x.real.dtype, scale)
    if len(axes) == 1:
        made = np.fft.irfft(x, size, axes[0], norm="forward")
    else:
        made = np.fft.irfftn(x, [*(x.shape[a] for a in axes[:-1]), size], axes, norm="forward")
    return _scaled(made, scale, x.real.dtype)


def _infer_c2r(operands, attributes):
    x = operands[0]
    require_complex("irfft", x)
    return Meta(_with_size(x.shape, attributes["axes"][-1], attributes["size"]), x.dtype.to_real())


def _c2r_vjp(g, out, x, axes, size, forward, scale):
    """The result was made of the half that is there and its mirror image: all that has one counts twice."""
    last = axes[-1]
    half = fft_r2c(g, axes=axes, forward=not forward, scale=scale)
    kept = half.shape[last]
    position = g.apply_op(arange, (0, 1), {"shape": (kept,), "dtype": int64})
    weight = where(logical_and(ge(position, 1), lt(position, 1 + size - kept)), 2.0, 1.0)
    return mul(half, reshape(weight, shape=_with_size((1,) * len(g.shape), last, kept)))


fft_c2r = library("fft_c2r", _infer_c2r, _evaluate_c2r, vjp=(_c2r_vjp,), on_complex=True, traits=_CONJUGATE)
