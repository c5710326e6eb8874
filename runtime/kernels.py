"""Native kernels by name: from memory, from the disk cache, or compiled now.

Eager mode needs one kernel per transcendental op and dtype, two per reduction, and the matrix product; each is built
once ever per machine. Data addresses come from NumPy through ctypes.
"""

import ctypes

import numpy as np

from ..compiler import eager_kernels
from ..compiler.emit.builder import Module
from ..compiler.emit.gemm import emit_gemm, scratch_bytes
from ..compiler.emit.gemv import emit_gemv
from . import jit
from .cache import default_cache, pack, unpack

_libraries = {}
_functions = {}
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_int64


def library(key, make_text):
    """The loaded library for `key`, whose IR text `make_text()` gives if it must be compiled."""
    found = _libraries.get(key)
    if found is None:
        with jit.compiling:
            found = _libraries.get(key) or _load(key, make_text)
            _libraries[key] = found
    return found


def _load(key, make_text):
    cache = default_cache()
    entry = cache.get(key)
    if entry is not None:
        return jit.link(unpack(entry.payload)[1])
    code = jit.compile_text(make_text())
    cache.put(key, pack({}, code))
    return jit.link(code)


def _function(key, make_text, name, argument_types):
    function = _functions.get(key)
    if function is None:
        address = library(key, make_text).address(name)
        # PYFUNCTYPE keeps the interpreter lock: releasing it costs more than a small kernel takes.
        function = _functions[key] = ctypes.PYFUNCTYPE(None, *argument_types)(address)
    return function


# --- elementwise ----------------------------------------------------------------------------------------------------
def run_elementwise(op, dtypes, attributes, arrays, out):
    """op on contiguous arrays of out's shape, into out."""
    names = ",".join(d.name for d in dtypes)
    key = f"eager {op.name} {names} {sorted(attributes.items())}"
    function = _functions.get(key)
    if function is None:
        function = _function(
            key,
            lambda: eager_kernels.elementwise_text(op, dtypes, attributes, jit.kernel_target()),
            "weft_kernel",
            (_POINTER, _SIZE),
        )
    table = (ctypes.c_size_t * (len(arrays) + 1))(*[a.ctypes.data for a in arrays], out.ctypes.data)
    function(ctypes.addressof(table), out.size)
    return out


# --- reductions -----------------------------------------------------------------------------------------------------
def run_reduction_inner(op, dtype, x, out, outer, n):
    function = _reduction(op, dtype, "inner", (_POINTER, _POINTER, _SIZE, _SIZE))
    function(x.ctypes.data, out.ctypes.data, outer, n)


def run_reduction_outer(op, dtype, x, out, outer, n, inner):
    function = _reduction(op, dtype, "outer", (_POINTER, _POINTER, _SIZE, _SIZE, _SIZE))
    function(x.ctypes.data, out.ctypes.data, outer, n, inner)


def _reduction(op, dtype, form, types):
    def text():
        return eager_kernels.reduction_text(op, dtype, form, jit.kernel_target())

    return _function(f"eager {op.name} {dtype.name} {form}", text, "weft_kernel", types)


# --- matrix product -------------------------------------------------------------------------------------------------
def _product_text(emit, element):
    module = Module(jit.kernel_target())
    emit(module, element, module.target)
    return str(module)


def gemm_address(element):
    """The address of weft_gemm_f32 or weft_gemm_f64."""
    return library(f"gemm {element}", lambda: _product_text(emit_gemm, element)).address(f"weft_gemm_{element}")


def gemv_address(element):
    """The address of weft_gemv_f32 or weft_gemv_f64: any product too, but faster where it has one row or one column."""
    loaded = library(f"gemv {element}", lambda: _product_text(emit_gemv, element))
    begin = ctypes.PYFUNCTYPE(None, _POINTER)(loaded.address(f"weft_gemv_{element}_begin"))
    begin(gemm_address(element))
    return loaded.address(f"weft_gemv_{element}")


_ROUTINES = {"gemm": gemm_address, "gemv": gemv_address}


def routine(symbol):
    """The address of a routine that programs call, such as "gemm_f32"."""
    name, element = symbol.split("_")
    return _ROUTINES[name](element)


_GEMM_TYPES = (_POINTER, _SIZE, _SIZE, _POINTER, _SIZE, _SIZE, _POINTER, _SIZE, _SIZE, _SIZE, _SIZE, _POINTER)


def run_gemm(x, y, out):
    """out = x @ y for stacks of matrices (batch, rows, columns); x and y may be strided."""
    element = "f32" if out.dtype == np.float32 else "f64"
    find = gemv_address if 1 in out.shape[-2:] else gemm_address
    function = _functions.get((find, element))
    if function is None:
        function = _functions[find, element] = ctypes.PYFUNCTYPE(None, *_GEMM_TYPES)(find(element))
    size = out.itemsize
    m, n, k = x.shape[-2], y.shape[-1], x.shape[-1]
    scratch = np.empty(scratch_bytes(element, k, jit.kernel_target()) + 64, np.uint8)
    scratch_address = (scratch.ctypes.data + 63) & ~63
    x_strides, y_strides = [s // size for s in x.strides], [s // size for s in y.strides]
    x_data, y_data, out_data = x.ctypes.data, y.ctypes.data, out.ctypes.data
    for batch in range(out.shape[0]):
        function(
            x_data + batch * x.strides[0],
            *x_strides[1:],
            y_data + batch * y.strides[0],
            *y_strides[1:],
            out_data + batch * out.strides[0],
            n,
            m,
            n,
            k,
            scratch_address,
        )
