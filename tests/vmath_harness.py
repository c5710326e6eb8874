"""Compile one vector function into a loop over arrays, and measure its error in units in the last place.

Not a test: what `test_vmath.py` runs on. The execution engine has no symbol of the C library's mathematics to offer on
purpose: a function that called one would fail to link.
"""

import ctypes
import functools

import llvmlite.binding as llvm
import mpmath
import numpy as np

from weft.compiler.emit.builder import I64, PTR, Builder, Module, Type

LANES = {"f32": 16, "f64": 8}
DTYPES = {"f32": np.float32, "f64": np.float64}


@functools.cache
def _target_machine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2)


def kernel_text(function, element, n_arguments=1, lanes=None):
    """LLVM IR of `kernel(n, x, [y,] out)`: out[i] = function(x[i], ...) in whole vectors, then a masked tail."""
    t = Type(element, lanes or LANES[element])
    pointers = [(f"x{k}", PTR) for k in range(n_arguments)]
    module = Module()
    b = Builder(module, "kernel", [("n", I64), *pointers, ("out", PTR)])
    n, *inputs, out = b.arguments

    def step(i, mask=None):
        values = [b.load(b.offset(p, i, t.element_bytes), t, mask) for p in inputs]
        b.store(function(b, *values), b.offset(out, i, t.element_bytes), mask)

    whole = b.sub(n, b.rem(n, b.i64(t.lanes)))
    with b.loop(0, whole, t.lanes) as i:
        step(i)
    with b.loop(whole, n, t.lanes) as i:
        step(i, b.lane_mask(i, n, t.lanes))
    b.finish()
    return str(module)


def assembly(text):
    return _target_machine().emit_assembly(llvm.parse_assembly(text))


class Kernel:
    """A compiled function over arrays; keeps its machine code alive."""

    def __init__(self, function, element, n_arguments=1, lanes=None):
        self.dtype = DTYPES[element]
        module = llvm.parse_assembly(kernel_text(function, element, n_arguments, lanes))
        self._engine = llvm.create_mcjit_compiler(module, _target_machine_owned())
        self._engine.finalize_object()
        parameters = [ctypes.c_int64] + [ctypes.c_void_p] * (n_arguments + 1)
        self._call = ctypes.CFUNCTYPE(None, *parameters)(self._engine.get_function_address("kernel"))

    def __call__(self, *arrays, out=None):
        arrays = [np.ascontiguousarray(a, self.dtype) for a in arrays]
        out = np.empty_like(arrays[0]) if out is None else out
        self._call(out.size, *[a.ctypes.data for a in arrays], out.ctypes.data)
        return out


def _target_machine_owned():
    """An engine takes its target machine with it, so each gets its own."""
    _target_machine()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2)


def ulp_errors(got, want):
    """|got - want| in units in the last place of `want` rounded to got's type. `want` holds more precision than got.

    Infinities, NaNs and zeros must agree; where they do not the error is infinite. A result that overflows where
    `want` is within half a unit of the largest finite number counts as the next number above it.
    """
    dtype = got.dtype
    with np.errstate(all="ignore"):
        rounded = want.astype(dtype)
        tiny = np.finfo(dtype).tiny * np.finfo(dtype).eps
        exponent = np.frexp(np.where(np.isfinite(want), want, 1))[1]
        unit = np.maximum(np.ldexp(want.dtype.type(1), exponent - np.finfo(dtype).nmant - 1), want.dtype.type(tiny))
        largest = np.finfo(dtype).max
        top = np.ldexp(want.dtype.type(1), np.finfo(dtype).maxexp)
        wide = np.where(np.isinf(got) & (np.abs(want) > largest), np.copysign(top, want), got.astype(want.dtype))
        errors = np.abs(wide - want) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    special = ~np.isfinite(rounded) | ~np.isfinite(wide)
    errors = np.where(special, np.where(same, 0.0, np.inf), errors)
    return errors.astype(np.float64)


def mpmath_ulp_errors(function, got, *arrays):
    """As `ulp_errors`, against mpmath with 40 digits; only where function and result are finite."""
    form = np.finfo(got.dtype)
    errors = np.zeros(got.shape)
    with mpmath.workdps(40):
        for k, row in enumerate(zip(*arrays, strict=True)):
            want = function(*map(mpmath.mpf, map(float, row)))
            exponent = max(mpmath.frexp(want)[1], form.minexp + 1)
            errors[k] = abs(mpmath.mpf(float(got[k])) - want) / mpmath.ldexp(1, exponent - form.nmant - 1)
    return errors
