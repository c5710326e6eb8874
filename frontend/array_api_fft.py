"""The extension `fft` of the array API standard, with its keywords."""

from . import fft as _fft


def _of_one(name):
    function = getattr(_fft, name)

    def transform(x, /, *, n=None, axis=-1, norm="backward"):
        return function(x, n, axis, norm)

    transform.__name__ = name
    return transform


def _of_several(name):
    function = getattr(_fft, name)

    def transform(x, /, *, s=None, axes=None, norm="backward"):
        return function(x, s, axes, norm)

    transform.__name__ = name
    return transform


fft, ifft, rfft, irfft, hfft, ihfft = map(_of_one, str.split("fft ifft rfft irfft hfft ihfft"))
fftn, ifftn, rfftn, irfftn = map(_of_several, str.split("fftn ifftn rfftn irfftn"))


def fftfreq(n, /, *, d=1.0, dtype=None, device=None):
    return _fft.fftfreq(n, d, dtype=dtype)


def rfftfreq(n, /, *, d=1.0, dtype=None, device=None):
    return _fft.rfftfreq(n, d, dtype=dtype)


def fftshift(x, /, *, axes=None):
    return _fft.fftshift(x, axes)


def ifftshift(x, /, *, axes=None):
    return _fft.ifftshift(x, axes)
