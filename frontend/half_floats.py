"""Functions composed of several ops, on floats of 16 bits: computed in float32 and rounded once, as PyTorch's kernels
are. Rounded after every op, squares would overflow that never leave PyTorch's kernel."""

from functools import wraps

from .compiler.dtypes import float32, result_type
from .functions import to_dtype
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor


def in_float32(function):
    """The function, in float32 of an `input` of 16 bits; the result has the input's type."""

    @wraps(function)
    def wrapper(input, *args, **kwargs):
        if not isinstance(input, Tensor) or not input.dtype.is_half or kwargs.get("dtype") is not None:
            return function(input, *args, **kwargs)
        return to_dtype(function(to_dtype(input, float32), *args, **kwargs), input.dtype)

    return wrapper


def both_in_float32(function):
    """The same for functions of two tensors, whose result has the type that both promote to."""

    @wraps(function)
    def wrapper(input, other, *args, **kwargs):
        tensors = isinstance(input, Tensor) and isinstance(other, Tensor)
        common = result_type((input, other), state.default_dtype) if tensors else None
        if common is None or not common.is_half:
            return function(input, other, *args, **kwargs)
        return to_dtype(function(to_dtype(input, float32), to_dtype(other, float32), *args, **kwargs), common)

    return wrapper
