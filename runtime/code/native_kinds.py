"""What native functions of weft know of its objects and of CPython: kinds with their fields, and C functions.

Offsets come from `layout()` of native.py, whose names stand beside the kinds of the fields.
"""

import threading

import numpy as np

from ...compiler.translate.kinds import F64, I32, I64, Address, Borrowed, Dict, List, Maybe, Object, ObjectKind, Tuple
from ...compiler.translate.language import External
from ..state.tensor import Tensor

ArrayObject = ObjectKind(
    "Array",
    np.ndarray,
    {
        "data": ("array_data", Address),
        "ndim": ("array_ndim", I32),
        "base": ("array_base", Object),
        "dtype": ("array_dtype", Object),
    },
)
TensorObject = ObjectKind(
    "Tensor",
    Tensor,
    {
        f"_{name}": (name, Object)
        for name in ("data", "frame", "vid", "requires_grad", "grad", "node", "accumulator", "storage", "base", "meta")
    }
    | {"_is_apart": ("is_apart", Maybe(Object))},
)

# In Python 2 is Py_EQ.
compare = External("PyObject_RichCompareBool", (Object, Object, I32), I32, python=lambda x, y, _: int(x == y))
has_error = External("PyErr_Occurred", (), Borrowed(Maybe(Object)), quiet=True, python=lambda: None)
as_long = External("PyLong_AsLongLong", (Object,), I64, quiet=True, python=int)
new_long = External("PyLong_FromLongLong", (I64,), Object, fails="null", quiet=True, python=int)
as_double = External("PyFloat_AsDouble", (Object,), F64, python=float)
real_of = External("PyComplex_RealAsDouble", (Object,), F64, quiet=True, python=lambda x: x.real)
imaginary_of = External("PyComplex_ImagAsDouble", (Object,), F64, quiet=True, python=lambda x: x.imag)
get_attribute = External("PyObject_GetAttr", (Object, Object), Object, fails="null", python=getattr)
set_attribute = External("PyObject_SetAttr", (Object, Object, Object), I32, fails="nonzero", python=setattr)
new_list = External("PyList_New", (I64,), List, fails="null", quiet=True, python=lambda n: [None] * n)
call_with = External(
    "PyObject_Call", (Object, Tuple, Maybe(Dict)), Object, fails="null", python=lambda f, a, k: f(*a, **(k or {}))
)
thread = External("PyThreadState_Get", (), Address, quiet=True, python=threading.get_ident)
