"""weft.fft: discrete Fourier transforms, computed by NumPy in the type of their input, with derivatives.

Names end in 2 for two dimensions and in n for any; those that begin with r take or give real numbers, of whose
transform half is kept, and those with h real transforms. `norm` says where the sums are divided by their length n:
"backward" (the default) in inverse transforms, "forward" in forward ones, "ortho" by sqrt(n) in both.
"""

import math

import numpy as np

from .absent import names_in
from .casting import in_wide
from .compiler.dtypes import dtype_of
from .compiler.ops import fourier
from .compiler.ops.table import OpError
from .compiler.shapes import is_whole, normalize_axis, whole_number
from .functions import to_dtype
from .kinds import put_doors
from .out import take_out
from .placement import check_placement
from .public import of_module
from .reference import document
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor, tensor_of
from .shaping import cat, narrow, roll

__getattr__, __dir__ = of_module(__name__)


# --- arguments --------------------------------------------------------------------------------------------------------
def _checked(name, input, real):
    """The input as real or complex numbers of a type that is transformed."""
    if not isinstance(input, Tensor):
        raise TypeError(f"fft.{name}(): argument 'input' must be Tensor, not {type(input).__name__}")
    if real and input.dtype.is_complex:
        raise OpError(f"fft.{name}: expects a real input tensor, but got {input.dtype.name}; use the complex transform")
    if input.dtype.is_half:
        raise OpError(f"fft.{name}: Unsupported dtype {input.dtype.name}; convert with .float()")
    if not input.dtype.is_differentiable:
        input = to_dtype(input, state.default_dtype)
    return input if real else to_dtype(input, input.dtype.to_complex())


def _places(name, input, s, dim):
    """(axes, the sizes of the signals along them or None where they stay)."""
    if s is not None:
        s = (s,) if is_whole(s) else tuple(s)
    if dim is None:
        if s is not None and len(s) > input.ndim:
            raise OpError(
                f"fft.{name}: Got shape with {len(s)} values but input tensor only has {input.ndim} dimensions"
            )
        dim = range(input.ndim) if s is None else range(input.ndim - len(s), input.ndim)
    dim = (dim,) if is_whole(dim) else tuple(dim)
    axes = tuple(normalize_axis(f"fft.{name}", d, input.ndim) for d in dim)
    if len(set(axes)) != len(axes):
        raise OpError(f"fft.{name}: FFT dims must be unique, got {dim}")
    if s is not None and len(s) != len(axes):
        raise OpError(f"fft.{name}: When given, dim and shape arguments must have the same length, got {dim} and {s}")
    sizes = (None,) * len(axes) if s is None else tuple(None if n == -1 else whole_number(name, "n", n) for n in s)
    for axis, size in zip(axes, sizes):
        size = input.shape[axis] if size is None else size
        if size < 1:
            raise OpError(f"fft.{name}: Invalid number of data points ({size}) specified")
    return axes, sizes


def _resized(input, axes, sizes):
    """The signals cut or filled with zeros at their ends."""
    for axis, size in zip(axes, sizes):
        given = input.shape[axis]
        if size is not None and size < given:
            input = narrow(input, axis, 0, size)
        elif size is not None and size > given:
            zeros = input.new_zeros([size - given if k == axis else d for k, d in enumerate(input.shape)])
            input = cat([input, zeros], axis)
    return input


def _scale(name, norm, forward, count):
    if norm == "ortho":
        return 1.0 / math.sqrt(count)
    if norm not in (None, "backward", "forward"):
        raise OpError(f'fft.{name}: Invalid normalization mode: "{norm}"; it is "backward", "ortho" or "forward"')
    return 1.0 / count if forward == (norm == "forward") else 1.0


# --- the three transforms ---------------------------------------------------------------------------------------------
def _complex_to_complex(name, input, s, dim, norm, forward):
    input = _checked(name, input, real=False)
    axes, sizes = _places(name, input, s, dim)
    input = _resized(input, axes, sizes)
    if not axes:
        return input
    scale = _scale(name, norm, forward, math.prod(input.shape[a] for a in axes))
    return fourier.fft_c2c(input, axes=axes, forward=forward, scale=scale)


def _real_to_complex(name, input, s, dim, norm, forward):
    input = _checked(name, input, real=True)
    axes, sizes = _places(name, input, s, dim)
    _require_axis(name, axes)
    input = _resized(input, axes, sizes)
    scale = _scale(name, norm, forward, math.prod(input.shape[a] for a in axes))
    return fourier.fft_r2c(input, axes=axes, forward=forward, scale=scale)


def _complex_to_real(name, input, s, dim, norm, forward):
    input = _checked(name, input, real=False)
    axes, sizes = _places(name, input, s, dim)
    _require_axis(name, axes)
    size = 2 * (input.shape[axes[-1]] - 1) if sizes[-1] is None else sizes[-1]
    if size < 1:
        raise OpError(f"fft.{name}: Invalid number of data points ({size}) specified")
    input = _resized(input, axes, (*sizes[:-1], size // 2 + 1))
    scale = _scale(name, norm, forward, size * math.prod(input.shape[a] for a in axes[:-1]))
    return fourier.fft_c2r(input, axes=axes, size=size, forward=forward, scale=scale)


def _require_axis(name, axes):
    if not axes:
        raise OpError(f"fft.{name}: must transform at least one axis")


def _family(name, transform, forward, doc):
    """The transform over one, two and any dimensions, named `name`, `name`2 and `name`n."""

    def one(input, n=None, dim=-1, norm=None):
        return transform(name, input, n, dim, norm, forward)

    def two(input, s=None, dim=(-2, -1), norm=None):
        return transform(f"{name}2", input, s, dim, norm, forward)

    def many(input, s=None, dim=None, norm=None):
        return transform(f"{name}n", input, s, dim, norm, forward)

    for function, ending in ((one, ""), (two, "2"), (many, "n")):
        function.__name__ = function.__qualname__ = name + ending
        function.__doc__ = doc
    return in_wide(one), in_wide(two), in_wide(many)


fft, fft2, fftn = _family("fft", _complex_to_complex, True, "Sums of x exp(-2 pi i k m / n) over m.")
ifft, ifft2, ifftn = _family("ifft", _complex_to_complex, False, "The inverse of fft.")
rfft, rfft2, rfftn = _family("rfft", _real_to_complex, True, "fft of real numbers: k up to n / 2.")
irfft, irfft2, irfftn = _family("irfft", _complex_to_real, False, "The inverse of rfft, by default of an even size.")
hfft, hfft2, hfftn = _family("hfft", _complex_to_real, True, "fft of half a signal whose transform is real.")
ihfft, ihfft2, ihfftn = _family("ihfft", _real_to_complex, False, "The inverse of hfft.")


# --- frequencies ------------------------------------------------------------------------------------------------------
def _frequencies(name, values, n, d, dtype, requires_grad, placement):
    check_placement(name, placement)
    dtype = dtype_of(dtype or state.default_dtype)
    if not dtype.is_differentiable:
        raise OpError(f"{name} requires a floating point or complex dtype, got {dtype.name}")
    made = tensor_of((values * (1.0 / (n * d))).astype(np.float64))
    return to_dtype(made, dtype).requires_grad_(requires_grad)


def fftfreq(n, d=1.0, *, dtype=None, requires_grad=False, **placement):
    """The frequencies of fft's results: 0, 1, ..., -2, -1 over n d."""
    n = whole_number("fftfreq", "n", n)
    values = np.concatenate([np.arange((n + 1) // 2), np.arange(-(n // 2), 0)])
    return _frequencies("fftfreq", values, n, d, dtype, requires_grad, placement)


def rfftfreq(n, d=1.0, *, dtype=None, requires_grad=False, **placement):
    """The frequencies of rfft's results: 0, 1, ..., n / 2 over n d."""
    n = whole_number("rfftfreq", "n", n)
    return _frequencies("rfftfreq", np.arange(n // 2 + 1), n, d, dtype, requires_grad, placement)


def _axes_to_shift(input, dim):
    return list(range(input.ndim)) if dim is None else [dim] if is_whole(dim) else list(dim)


def fftshift(input, dim=None):
    """Results of fft with the frequency 0 in the middle."""
    axes = _axes_to_shift(input, dim)
    return roll(input, [input.shape[a] // 2 for a in axes], axes)


def ifftshift(input, dim=None):
    """The inverse of fftshift."""
    axes = _axes_to_shift(input, dim)
    return roll(input, [(input.shape[a] + 1) // 2 for a in axes], axes)


# PyTorch does not list them.
TAKING_OUT = str.split("hfft2 hfftn ihfft2 ihfftn")
__all__ = str.split("""
    fft fft2 fftn ifft ifft2 ifftn rfft rfft2 rfftn irfft irfft2 irfftn hfft hfft2 hfftn ihfft ihfft2 ihfftn fftfreq
    rfftfreq fftshift ifftshift
""")

take_out("fft", globals())
put_doors("fft", globals(), names_in("fft") & globals().keys() | set(TAKING_OUT))
document("fft", __name__)
