"""Complex numbers in PyTorch's spelling: made of parts, taken apart, conjugated."""

import math

from .compiler.dtypes import dtype_of
from .compiler.ops import arithmetic, comparison, transcendental
from .compiler.ops import complex_numbers as ops
from .compiler.ops.table import OpError
from .operands import to_dtype
from .runtime.state.modes import state
from .runtime.state.said import warn
from .runtime.state.tensor import Tensor
from .shaping import transpose


def complex(real, imag):
    """real + i imag, of two float32 or two float64 tensors."""
    return ops.complex_(real, imag)


def polar(abs, angle):
    """abs (cos angle + i sin angle)."""
    for name, x in (("abs", abs), ("angle", angle)):
        if not isinstance(x, Tensor):
            raise TypeError(f"polar(): argument '{name}' must be Tensor, not {type(x).__name__}")
        if not x.dtype.is_floating_point:
            raise OpError(f"polar: Expected both inputs to be floating, but got {x.dtype.name} for '{name}'")
    return ops.complex_(abs * transcendental.cos(angle), abs * transcendental.sin(angle))


def real(input):
    """The real parts, as a view; a real tensor itself."""
    return ops.real_part(input)


def imag(input):
    """The imaginary parts, as a view. RuntimeError for real tensors."""
    return ops.imag(input)


def view_as_real(input):
    """A view of complex numbers as pairs in a new last dimension."""
    return ops.view_as_real(input)


def view_as_complex(input):
    """A view of pairs in the last dimension as complex numbers."""
    return ops.view_as_complex(input)


def conj(input):
    """The conjugates, a new tensor; a real tensor itself."""
    return ops.conjugate(input)


def conj_physical(input):
    """The conjugates."""
    return ops.conj(input) if input.dtype.is_complex else input


def angle(input):
    """The angle in radians. Of real numbers 0, or pi where they are negative; NaN stays."""
    if input.dtype.is_complex:
        return ops.angle(input)
    x = input if input.dtype.is_floating_point else to_dtype(input, state.default_dtype)
    # The derivative of a NaN is 0 as well, which that of trunc is.
    return comparison.where(comparison.isnan(x), arithmetic.trunc(x), to_dtype(x < 0, x.dtype) * math.pi)


def sgn(input):
    """x / |x|, 0 at 0: the sign of real numbers."""
    return ops.sgn(input) if input.dtype.is_complex else input.sign()


def isreal(input):
    """Whether the imaginary part is 0."""
    return comparison.eq(imag(input), 0) if input.dtype.is_complex else comparison.eq(input, input) | True


def is_conj(input):
    """False: conjugates are computed at once."""
    return False


def resolve_conj(input):
    """The tensor itself: conjugates are computed at once."""
    return input


resolve_neg = resolve_conj


def converted(input, dtype):
    """`input` as dtype, because the user asks for it. Imaginary parts are dropped with PyTorch's warning."""
    dtype = dtype_of(dtype)
    if not input.dtype.is_complex or dtype.is_complex or not dtype.category:
        return to_dtype(input, dtype)
    warn("Casting complex values to real discards the imaginary part", stacklevel=3)
    return comparison.cast(input, dtype=dtype)


def _write_part(part):
    def write(self, value):
        part(self).copy_(value if isinstance(value, Tensor) else self.new_tensor(value, dtype=self.dtype.to_real()))

    return write


def _transposed(self):
    """The conjugate of the matrices, their last two dimensions exchanged."""
    if self.ndim < 2:
        if self.ndim:
            raise OpError("tensor.mH is only supported on matrices or batches of matrices. Got 1-D tensor.")
        return conj(self)
    return conj(transpose(self, -1, -2))


def _conjugate_of_matrix(self):
    if self.ndim not in (0, 2):
        raise OpError(f"tensor.H is only supported on matrices (2-D tensors), got shape {self.shape}")
    return _transposed(self)


Tensor.real = property(real, _write_part(real))
Tensor.imag = property(imag, _write_part(imag))
Tensor.mH, Tensor.H = property(_transposed), property(_conjugate_of_matrix)
Tensor.adjoint = _transposed

INPLACE = ["conj_physical"]
METHODS = str.split("conj conj_physical angle sgn isreal is_conj")
PUBLIC = [*METHODS, *str.split("complex polar real imag view_as_real view_as_complex resolve_conj resolve_neg")]
