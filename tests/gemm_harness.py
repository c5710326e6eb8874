"""Compiles the matrix multiplication kernels, calls them on NumPy arrays and times them: for tests and benchmarks.

Arrays of any strides are passed as they are; the kernel is told where element (0, 0) is and how far apart rows and
columns lie. Only the columns of the result must be adjacent.

    OPENBLAS_NUM_THREADS=1 python tests/gemm_harness.py      # Gflop/s beside np.matmul's
"""

import ctypes
import functools
import time

import llvmlite.binding as llvm
import numpy as np

from weft.compiler.emit.builder import I64, PTR, Builder, Module
from weft.compiler.emit.gemm import emit_gemm, scratch_bytes
from weft.compiler.emit.gemv import emit_gemv
from weft.compiler.target import AVX2, AVX512

DTYPES = {"f32": np.float32, "f64": np.float64}


def target_machine():
    """The host's target machine, at the code generation level the runtime uses."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)


def host_target():
    return AVX512 if llvm.get_host_cpu_features().get("avx512f") else AVX2


def kernel_text(emit, element, target):
    """(name, text) of a module with one kernel, and a `repeat` that calls it many times without Python between."""
    module = Module(target)
    name = emit(module, element, target)
    types = [PTR, I64, I64] * 2 + [PTR] + [I64] * 4 + [PTR]
    b = Builder(module, "repeat", [("times", I64), *((f"x{i}", t) for i, t in enumerate(types))])
    times, *operands = b.arguments
    with b.loop(0, times, 1):
        b.call("void", name, operands)
    b.finish()
    return name, str(module)


class Product:
    """A compiled kernel of one element type; call it with two arrays, or time it with `seconds`."""

    def __init__(self, emit, element, target, change=str):
        """change: of the text, before it is compiled."""
        self.element = element
        self.dtype = np.dtype(DTYPES[element])
        self.target = target
        name, text = kernel_text(emit, element, target)
        text = change(text)
        start = time.perf_counter()
        module = llvm.parse_assembly(text)
        self.engine = llvm.create_mcjit_compiler(module, target_machine())
        self.engine.finalize_object()
        self.compile_seconds = time.perf_counter() - start
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        signature = [pointer, integer, integer] * 2 + [pointer] + [integer] * 4 + [pointer]
        self.address = self.engine.get_function_address(name)
        self.function = ctypes.CFUNCTYPE(None, *signature)(self.address)
        self.repeat = ctypes.CFUNCTYPE(None, integer, *signature)(self.engine.get_function_address("repeat"))

    def __call__(self, a, b, out=None):
        """a @ b; `out` may be any array whose last axis is contiguous."""
        (m, k), n = a.shape, b.shape[1]
        out = np.empty((m, n), self.dtype) if out is None else out
        scratch = self.scratch(n, k)
        self.function(*self.arguments(a, b, out, scratch))
        return out

    def seconds(self, a, b, budget=0.02, rounds=5):
        """The least time of one product, over `rounds` runs of about `budget` seconds, without Python in between."""
        out = np.empty((a.shape[0], b.shape[1]), self.dtype)
        scratch = self.scratch(b.shape[1], a.shape[1])
        operands = self.arguments(a, b, out, scratch)
        times = max(1, int(budget * 20e9 / (2 * out.size * a.shape[1] + 2000)))
        return min(_elapsed(self.repeat, times, *operands) for _ in range(rounds)) / times

    def scratch(self, n, k):
        size = scratch_bytes(self.element, n, k, self.target)
        raw = np.empty(size + 64, np.uint8)
        return raw[-raw.ctypes.data % 64 :][:size]

    def arguments(self, a, b, out, scratch):
        size = self.dtype.itemsize
        assert a.dtype == b.dtype == out.dtype == self.dtype and a.shape[1] == b.shape[0]
        assert out.shape == (a.shape[0], b.shape[1]) and (out.size == 0 or out.shape[1] < 2 or out.strides[1] == size)
        strides = [[s // size for s in x.strides] for x in (a, b, out)]
        return (
            a.ctypes.data, *strides[0], b.ctypes.data, *strides[1], out.ctypes.data, strides[2][0],
            *out.shape, a.shape[1], scratch.ctypes.data,
        )  # fmt: skip


def _elapsed(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


@functools.cache
def gemm(element, target=None):
    """The kernel for all products, with those of one row or column made by `gemv`; `general` is the one without."""
    target = target or host_target()
    kernel = Product(emit_gemv, element, target)
    kernel.general = Product(emit_gemm, element, target)
    begin = kernel.engine.get_function_address(f"weft_gemv_{element}_begin")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(begin)(kernel.general.address)
    return kernel


SHAPES = [
    (3, 3, 3), (8, 8, 8), (16, 16, 16), (32, 64, 16), (64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512),
    (1024, 1024, 1024), (128, 512, 784), (784, 512, 128), (128, 10, 512), (32, 10, 64), (61, 67, 71), (4, 512, 784),
    (1, 512, 784), (1, 10, 784), (1000, 1, 1000), (1024, 1, 1024), (10000, 1, 100), (1, 100, 10000), (100000, 3, 10),
]  # fmt: skip


def compare(element):
    """Print Gflop/s, first for b and then for b.T stored by rows, of the kernel and of np.matmul."""
    kernel, r = gemm(element), np.random.default_rng(0)
    milliseconds = [round(1e3 * x.compile_seconds) for x in (kernel.general, kernel)]
    print(f"{element}: gemm, gemv compiled in {milliseconds} ms\n{'m x n x k':>16}  weft nn, nt   numpy nn, nt")
    for m, n, k in SHAPES:
        a, b = r.standard_normal((m, k)).astype(kernel.dtype), r.standard_normal((k, n)).astype(kernel.dtype)
        layouts = b, np.asfortranarray(b)
        out = np.empty((m, n), kernel.dtype)
        times = max(1, int(3e8 / (2 * m * n * k + 30000)))
        ours = [kernel.seconds(a, x) for x in layouts]
        numpy = [min(_elapsed(_repeat_numpy, times, a, x, out) for _ in range(5)) / times for x in layouts]
        print(f"{f'{m}x{n}x{k}':>16}", *(f"{2e-9 * m * n * k / t:6.1f}" for t in ours + numpy), flush=True)


def _repeat_numpy(times, a, b, out):
    for _ in range(times):
        np.matmul(a, b, out=out)


if __name__ == "__main__":
    compare("f32")
    compare("f64")
