"""What functions take: tensors and numbers as the operands of ops, and their types, by PyTorch's rules."""

import numpy as np

from .compiler import dtypes
from .compiler.dtypes import dtype_of
from .compiler.ops import comparison
from .creation import as_tensor
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor


def operand(x):
    """What an op takes: a tensor, or a plain Python number for a NumPy scalar or an enum. Arrays become tensors."""
    if isinstance(x, Tensor) or type(x) in (float, int, bool, complex):
        return x
    if isinstance(x, np.generic):  # np.float64 is a float, too
        return x.item()
    if isinstance(x, np.ndarray):
        return as_tensor(x)
    if isinstance(x, (int, float, complex)):
        return int(x) if isinstance(x, int) else float(x) if isinstance(x, float) else complex(x)
    raise TypeError(f"expected a Tensor or a number, got {type(x).__name__}")


def factor_first(name, *given):
    """Tensors and their factor in PyTorch's older order, x.add_(factor, other), as (*tensors, factor)."""
    if any(not isinstance(x, Tensor) for x in given[1:]) or not is_factor(given[0]):
        kinds = ", ".join(type(x).__name__ for x in given)
        raise TypeError(f"{name}(): got positional arguments ({kinds}); the factor is a keyword: alpha= or value=")
    return *given[1:], given[0]


def is_factor(x):
    """Whether PyTorch takes it for a number that stands before a tensor: a 0-d tensor without gradients is one, too."""
    return not isinstance(x, Tensor) or x.ndim == 0 and not x.requires_grad


def tensor_of(name, x, argument="input"):
    """An argument of a function that takes no number for it."""
    if isinstance(x, Tensor):
        return x
    raise TypeError(not_a_tensor(name, f"'{argument}'", x, ""))


def not_a_tensor(name, argument, x, number="; write weft.tensor({!r})"):
    """What is said of an argument that is no tensor. number: what to do about one."""
    if isinstance(x, np.ndarray):
        return (
            f"{name}(): argument {argument} must be Tensor, got ndarray of shape {x.shape}: weft.tensor(array), or "
            "weft.for_numpy(function); in a compiled function, annotate the parameter as weft.Tensor"
        )
    hint = number.format(x) if isinstance(x, (bool, int, float, complex)) else ""
    return f"{name}(): argument {argument} must be Tensor, not {type(x).__name__}{hint}"


def flag(function, argument, given):
    """A bool that a user gives, also one of NumPy's. TypeError for anything else."""
    if not isinstance(given, (bool, np.bool_)):
        raise TypeError(f"{function}(): argument '{argument}' must be bool, not {type(given).__name__}")
    return bool(given)


def require_one_tensor(name, input, other):
    """TypeError for two numbers."""
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise TypeError(f"{name}(): needs a Tensor among its arguments, got {input!r} and {other!r}")


def tensor_of_one(input, other):
    """The first operand; of two numbers it becomes a tensor, so that one of them is."""
    return input if isinstance(input, Tensor) or isinstance(other, Tensor) else as_tensor(input)


def require_tensors(name, *operands):
    """TypeError for a number where PyTorch takes only tensors."""
    for k, x in enumerate(operands):
        if not isinstance(x, Tensor):
            raise TypeError(not_a_tensor(name, f"'{('input', 'other')[k]}' (position {k + 1})", x))


def tensors(name, input, other):
    """Both operands as tensors, a number having the other's type unless it needs a higher one."""
    input, other = operand(input), operand(other)
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        return input, other
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise TypeError(f"{name}(): needs a Tensor among its arguments, got {input!r} and {other!r}")
    like = input if isinstance(input, Tensor) else other
    return tuple(x if isinstance(x, Tensor) else _number_like(x, like) for x in (input, other))


def _number_like(number, like):
    if isinstance(number, float) and not like.dtype.is_floating_point:
        return as_tensor(number)
    if like.dtype is dtypes.bool_ and not isinstance(number, bool):
        return as_tensor(number)
    return as_tensor(number, dtype=like.dtype)


def alike(input, other, floating=False):
    """Both converted to the type that arithmetic on them gives (a floating one, if asked)."""
    if input.__class__ is Tensor and other.__class__ is Tensor:
        dtype = input.dtype
        if dtype is other.dtype and (dtype.is_floating_point or not floating):
            return input, other
    operands = (input, other)
    dtype = dtypes.result_type(operands, state.default_dtype)
    if floating and not dtype.is_floating_point:
        dtype = state.default_dtype
    return tuple(to_dtype(x, dtype) for x in operands)


def to_dtype(input, dtype):
    """The tensor as dtype. NotImplementedError where that would drop imaginary parts: what asks for it here has no
    meaning for complex numbers, or none yet."""
    if input.dtype is dtype:
        return input
    dtype = dtype_of(dtype)
    if input.dtype.is_complex and not dtype.is_complex and dtype.category:
        raise NotImplementedError(f"not implemented for {input.dtype.name}; compute with x.real and x.imag")
    return comparison.cast(input, dtype=dtype)
