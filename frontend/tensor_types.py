"""PyTorch's older names for types of tensors: `weft.FloatTensor` is a constructor, a type for `isinstance`, and a name
that `.type(...)` takes.

They are made from the element types: what has an entry in `_WORDS` and exists gets one.
"""

from typing import Union

import numpy as np

from .compiler.dtypes import ALL, DType
from .creation import empty, from_numpy, tensor
from .runtime.state.device import require_cpu
from .runtime.state.modes import set_default_dtype, state
from .runtime.state.size import Size
from .runtime.state.tensor import Tensor

# The element type, PyTorch's word for a class of tensors, and the method that converts to it.
_WORDS = {
    "float32": ("Float", "float"),
    "float64": ("Double", "double"),
    "float16": ("Half", "half"),
    "bfloat16": ("BFloat16", "bfloat16"),
    "uint8": ("Byte", "byte"),
    "int8": ("Char", "char"),
    "int16": ("Short", "short"),
    "int32": ("Int", "int"),
    "int64": ("Long", "long"),
    "bool": ("Bool", "bool"),
    "complex64": ("ComplexFloat", "cfloat"),
    "complex128": ("ComplexDouble", "cdouble"),
}


class TensorType:
    """FloatTensor(2, 3), FloatTensor([1, 2]), FloatTensor(array), isinstance(x, FloatTensor)."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.__name__ = _WORDS[dtype.name][0] + "Tensor"

    def __call__(self, *data, device=None):
        """A tensor of this type: of sizes, of a sequence or an array of numbers, of nothing, or of a tensor."""
        require_cpu(self.__name__, device)
        if len(data) == 1 and isinstance(data[0], Size):
            return empty(data[0], dtype=self.dtype)
        if not data or all(isinstance(d, int) and not isinstance(d, bool) for d in data):
            return empty(*data or (0,), dtype=self.dtype)
        if len(data) > 1:
            raise TypeError(f"{self.__name__}: expected sizes, or one sequence of numbers, got {len(data)} arguments")
        if isinstance(data[0], Tensor):
            return self._checked(data[0])
        if isinstance(data[0], (float, bool, str)):
            raise TypeError(
                f"{self.__name__}: data must be a sequence (got {type(data[0]).__name__}); use weft.tensor for a number"
            )
        if isinstance(data[0], np.ndarray) and data[0].ndim:
            return from_numpy(data[0]).to(self.dtype)
        return tensor(data[0], dtype=self.dtype)

    def _checked(self, given):
        if given.dtype is not self.dtype:
            raise TypeError(
                f"expected a {self.__name__} (got {type_of(given.dtype).__name__}); convert it with .type(...)"
            )
        return given.detach()

    def __instancecheck__(self, x):
        return isinstance(x, Tensor) and x.dtype is self.dtype

    def __or__(self, other):
        return Union[self, other]  # noqa: UP007

    def __ror__(self, other):
        return Union[other, self]  # noqa: UP007

    def __str__(self):
        return f"weft.{self.__name__}"

    def __repr__(self):
        return f"<class '{self}'>"

    def __reduce__(self):
        return self.__name__


TYPES = {dtype: TensorType(dtype) for dtype in ALL if dtype.name in _WORDS}
globals().update({kind.__name__: kind for kind in TYPES.values()})
PUBLIC = [kind.__name__ for kind in TYPES.values()]


def type_of(dtype):
    """The type of the tensors with this element type."""
    return TYPES[dtype]


def type_named(given):
    """The type that a user names: itself, a dtype, a text as in "torch.FloatTensor", or the class Tensor."""
    if isinstance(given, TensorType):
        return given
    if isinstance(given, DType):
        return TYPES[given]
    if given is Tensor:
        # PyTorch's oldest name for the type of floats that come without one.
        return TYPES[state.default_dtype]
    word = given.rpartition(".")[2] if isinstance(given, str) else ""
    for kind in TYPES.values():
        if kind.__name__ == word:
            return kind
    raise ValueError(f"invalid type: {given!r}; expected a dtype, or one of {', '.join(PUBLIC)}")


def cast_method_names():
    """(name, element type) of the methods that convert, such as `float`."""
    return [(_WORDS[dtype.name][1], dtype) for dtype in TYPES]


def set_default_tensor_type(t):
    """weft.FloatTensor or weft.DoubleTensor, or the name of one: the type of floats that come without one."""
    dtype = type_named(t).dtype
    if not dtype.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {type_named(t)}")
    set_default_dtype(dtype)


PUBLIC.append("set_default_tensor_type")
