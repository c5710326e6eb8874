"""Element types and PyTorch's promotion rules.

Promotion looks at three categories (bool < integer < floating) and at how an operand came in: tensors with dimensions
outrank zero-dimensional tensors, which outrank Python numbers; a lower rank only decides if its category is higher.
Source: the "Type Promotion Doc" section of PyTorch's `tensor_attributes` page.
"""

import numpy as np


class DType:
    """One element type. `category` is 0 for bool, 1 for integers, 2 for floating point; `size_bytes` per element."""

    __slots__ = ("name", "numpy", "category", "size_bytes")

    def __init__(self, name, category):
        self.name = name
        self.numpy = np.dtype(name)
        self.category = category
        self.size_bytes = self.numpy.itemsize

    @property
    def is_floating_point(self):
        return self.category == 2

    @property
    def is_complex(self):
        return False

    @property
    def is_signed(self):
        return self.category > 0

    @property
    def itemsize(self):
        return self.size_bytes

    def __repr__(self):
        return f"weft.{self.name}"

    def __reduce__(self):
        return (dtype_named, (self.name,))


bool_ = DType("bool", 0)
int32 = DType("int32", 1)
int64 = DType("int64", 1)
float32 = DType("float32", 2)
float64 = DType("float64", 2)

ALL = (bool_, int32, int64, float32, float64)
_BY_NAME = {d.name: d for d in ALL}
_BY_NUMPY = {d.numpy: d for d in ALL}
_ORDER = {d: k for k, d in enumerate(ALL)}


_ELEMENT = {float32: "f32", float64: "f64", int64: "i64", int32: "i32", bool_: "i1"}


def element_of(dtype):
    """The code generator's name of an element type."""
    return _ELEMENT[dtype]


def memory_element(dtype):
    """The same in memory."""
    return "i8" if dtype is bool_ else _ELEMENT[dtype]


def dtype_named(name):
    return _BY_NAME[name]


def from_numpy(dtype):
    """The DType of a NumPy dtype; TypeError for one weft does not have."""
    try:
        return _BY_NUMPY[dtype]
    except KeyError:
        have = ", ".join(d.name for d in ALL)
        raise TypeError(f"dtype {dtype} is not supported; convert to one of {have} first") from None


def promote(a, b):
    """The smallest type both convert to: category first, then width. promote(int64, float32) is float32."""
    if a is b:
        return a
    return a if _ORDER[a] >= _ORDER[b] else b


def result_type(operands, default_float):
    """PyTorch's result type. `operands` have `.dtype`, `.shape` and `.weak` (true for Python numbers)."""
    ranks = [None, None, None]
    for operand in operands:
        rank = 2 if operand.weak else (0 if operand.shape else 1)
        d = operand.dtype
        if rank == 2 and d.category == 2:
            d = default_float
        ranks[rank] = d if ranks[rank] is None else promote(ranks[rank], d)
    result = None
    for d in ranks:
        if d is not None and (result is None or d.category > result.category):
            result = d
    return result
