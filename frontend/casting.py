"""What mixed precision (amp.py) does to operands: in its open block products are computed in the block's type,
functions that need more digits or range in float32, and all others in the types that the tensors have.

Each function says itself which it is: `lowered` and `widened` convert the operands of one, `in_wide` is for functions
made of products that must not be lowered in turn. Only floats of 16 and 32 bits are converted: what is float64 has been
made so on purpose.
"""

from functools import wraps

from .compiler.dtypes import float32, float64
from .compiler.ops.comparison import cast
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor


def lowered(*operands):
    """The operands of a product, in the type of the open block; as they are where none is open."""
    dtype = state.autocast
    return operands if dtype is None else tuple([_cast(x, dtype) for x in operands])


def widened(*operands):
    """The operands in float32, in an open block; as they are where none is."""
    return operands if state.autocast is None else tuple([_cast(x, float32) for x in operands])


def _cast(x, dtype):
    if not isinstance(x, Tensor) or not x.dtype.is_floating_point or x.dtype is float64 or x.dtype is dtype:
        return x
    return cast(x, dtype=dtype)


def in_wide(function):
    """The function, in an open block called with operands in float32 as if none were open."""

    @wraps(function)
    def wrapper(*args, **kwargs):
        dtype = state.autocast
        if dtype is None:
            return function(*args, **kwargs)
        args, kwargs = widened(*args), dict(zip(kwargs, widened(*kwargs.values())))
        state.autocast = None
        try:
            return function(*args, **kwargs)
        finally:
            state.autocast = dtype

    return wrapper


def all_in_wide(names, functions):
    """`in_wide` of those of a module's functions that have these names."""
    for name in names:
        functions[name] = in_wide(functions[name])
