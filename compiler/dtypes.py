"""Element types and PyTorch's promotion rules.

Promotion looks at four categories (bool < integer < floating < complex) and at how an operand came in: tensors with
dimensions outrank zero-dimensional tensors, which outrank Python numbers; a lower rank only decides if its category is
higher.
Source: the "Type Promotion Doc" section of PyTorch's `tensor_attributes` page.
"""

import numpy as np


class DType:
    """One element type. `category` is 0 for bool, 1 for integers, 2 for floating point, 3 for complex; `size_bytes` per
    element.
    `numpy` is what arrays of it are (storage.py).

    `element` is the code generator's name of it, None for types that generated code does not compute with: eager mode
    computes these with NumPy, or in the type that `wide` names, which holds every value. Of those it reads and writes
    some, by the name `stored`: programs compute them in the type `computed`.
    """

    __slots__ = ("name", "numpy", "category", "size_bytes", "element", "wide", "stored", "computed")

    def __init__(self, name, category, element=None, wide=None, numpy=None, stored=None, computed=None):
        self.name = name
        self.numpy = np.dtype(numpy or name)
        self.category = category
        self.size_bytes = self.numpy.itemsize
        self.element = element
        self.wide = wide or self
        self.stored = stored
        self.computed = computed or self

    @property
    def is_compiled(self):
        return self.element is not None

    @property
    def is_floating_point(self):
        return self.category == 2

    @property
    def is_narrow(self):
        """Whether generated code converts it where it reads and writes it, and computes with another type."""
        return self.stored is not None

    @property
    def is_half(self):
        """Whether it is a float of 16 bits, whose numbers are computed in float32 and rounded to it after every op."""
        return self.category == 2 and self.size_bytes == 2

    @property
    def is_complex(self):
        return self.category == 3

    @property
    def is_differentiable(self):
        return self.category >= 2

    def to_real(self):
        """The type of the parts of a complex number; itself for other types."""
        return _BY_NAME[f"float{self.size_bytes * 4}"] if self.category == 3 else self

    def to_complex(self):
        """The complex type whose parts have this type, or hold it."""
        return self if self.category == 3 else complex128 if self.size_bytes == 8 and self.category == 2 else complex64

    @property
    def is_signed(self):
        return self.category > 0 and self.numpy.kind != "u"

    @property
    def itemsize(self):
        return self.size_bytes

    def __repr__(self):
        return f"weft.{self.name}"

    def __reduce__(self):
        return (dtype_named, (self.name,))


class AbsentDType(DType):
    """A type of PyTorch's that no tensor here has: programs that list the types compare with it."""

    __slots__ = ()

    def __init__(self, name, category, numpy):
        super().__init__(name, category, numpy=numpy)


bool_ = DType("bool", 0, "i1")
int32 = DType("int32", 1, "i32")
int64 = DType("int64", 1, "i64")
# What 8 or 16 bits hold of a result is the same of 32 bits as of 64.
uint8 = DType("uint8", 1, wide=int64, stored="u8", computed=int32)
int8 = DType("int8", 1, wide=int64, stored="s8", computed=int32)
int16 = DType("int16", 1, wide=int64, stored="s16", computed=int32)
float32 = DType("float32", 2, "f32")
float64 = DType("float64", 2, "f64")
float16 = DType("float16", 2, wide=float32, stored="h16", computed=float32)
# NumPy has no such type. Bytes without meaning: what NumPy is asked to compute with them is an error, not a number.
bfloat16 = DType("bfloat16", 2, wide=float32, numpy="V2", stored="b16", computed=float32)

complex64 = DType("complex64", 3)
complex128 = DType("complex128", 3)

uint16, uint32, uint64 = (AbsentDType(f"uint{8 * n}", 1, f"u{n}") for n in (2, 4, 8))
float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu = (
    AbsentDType(f"float8_{name}", 2, "V1") for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
)
complex32 = chalf = AbsentDType("complex32", 3, "V4")
qint8, quint8, qint32 = (
    AbsentDType(name, 1, kind) for name, kind in (("qint8", "i1"), ("quint8", "u1"), ("qint32", "i4"))
)
ABSENT = (
    *(uint16, uint32, uint64, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu),
    *(complex32, qint8, quint8, qint32),
)

ALL = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64, complex128)
_BY_NAME = {d.name: d for d in ALL}
_OF_PYTHON = {bool: bool_, int: int64, float: float64, complex: complex128}
_BY_NUMPY = {d.numpy: d for d in ALL}
_HOLDING_BOTH = {1: int16, 2: float32}


# Bytes of what kernels call their elements.
SIZES = {"f32": 4, "f64": 8, "i64": 8, "i32": 4, "i8": 1, "u8": 1, "s8": 1, "s16": 2, "h16": 2, "b16": 2}


def element_of(dtype):
    """The code generator's name of an element type."""
    return dtype.element or dtype.stored


def memory_element(dtype):
    """The same in memory."""
    return "i8" if dtype is bool_ else element_of(dtype)


def dtype_named(name):
    found = _BY_NAME.get(name)
    return found or next(d for d in ABSENT if d.name == name)


def dtype_of(given):
    """The type that a user's `dtype=` means: itself, or that of Python's bool, int, float or complex. TypeError for
    anything else, as a name or a type of NumPy's."""
    if given.__class__ is DType:
        return given
    found = _OF_PYTHON.get(given) if isinstance(given, type) else None
    if given.__class__ is AbsentDType:
        have = ", ".join(d.name for d in ALL)
        raise TypeError(f"weft has no tensors of {given.name}; their types are {have}")
    if found is None:
        named = getattr(given, "__name__", given)
        hint = f": write weft.{named}" if named in _BY_NAME else ""
        raise TypeError(f"argument 'dtype' must be weft.dtype, not {type(given).__name__}{hint}")
    return found


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
    if a.category != b.category:
        high, low = (a, b) if a.category > b.category else (b, a)
        return promote(high, low.to_complex()) if high.category == 3 and low.category == 2 else high
    if a.size_bytes == b.size_bytes:
        # Neither holds all of the other: uint8 and int8, float16 and bfloat16.
        return _HOLDING_BOTH[a.category]
    return a if a.size_bytes > b.size_bytes else b


def result_type(operands, default_float):
    """PyTorch's result type. `operands` have `.dtype`, `.shape` and `.weak` (true for Python numbers)."""
    ranks = [None, None, None]
    for operand in operands:
        rank = 2 if operand.weak else (0 if operand.shape else 1)
        d = operand.dtype
        if rank == 2 and d.category >= 2:
            d = default_float if d.category == 2 else default_float.to_complex()
        ranks[rank] = d if ranks[rank] is None else promote(ranks[rank], d)
    result = None
    for d in ranks:
        if d is not None and (result is None or d.category > result.category):
            # Of a number and a tensor with dimensions the width is the tensor's.
            result = result.to_complex() if result is not None and result.category == 2 else d
    return result


def are_computed(given):
    """Whether generated code computes with all element types among these."""
    return all(d.element is not None for d in given if d.__class__ is DType)


def without_kernels(given):
    """Of element types those that no program knows, as a reason; None if there are none."""
    missing = [d.name for d in given if d.__class__ is DType and d.element is None and d.stored is None]
    return f"{missing[0]} has no generated kernels" if missing else None
