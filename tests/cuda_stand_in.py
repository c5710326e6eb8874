"""What stands in for NVIDIA's driver in tests: it records calls, keeps books of what is taken and freed, and can run
kernels on an emulated grid. Not a test."""

import ctypes
import re
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
from gpu_grid import Grid

from weft import Tensor, gpu_tensors
from weft.runtime.code import cuda, jit
from weft.runtime.gpu import memory, programs

gpu_tensors.answer(gpu_tensors.BEFORE)

_ERRORS = {
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    218: ("CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"),
}
_TAKEN = {"cuMemAlloc_v2", "cuStreamCreate", "cuModuleLoadDataEx"}
_FREED = {"cuMemFree_v2", "cuStreamDestroy_v2", "cuModuleUnload"}


class StandIn:
    """A library whose functions are attributes, as ctypes wants them.

    `calls`: (name, its arguments) of all; `fail`: name -> the error it gives; `launched`: (kernel, blocks, threads).
    `kernels_text`: the LLVM IR that the PTX was made from, or where there are several texts a dict: PTX -> IR. Memory
    is of this machine then, and kernels run; else addresses mean nothing.
    """

    def __init__(self, kernels_text=None):
        self.calls, self.fail, self.launched, self.freed_twice = [], {}, [], []
        self.capability, self.depth, self.contexts = (9, 0), 0, 0
        self.emulating = kernels_text is not None
        self.kernels_text, self.grids = kernels_text, {}
        self.taken, self.next, self.kernels, self.texts, self.sizes = {}, 0x1000, {}, {}, {}

    def held(self):
        return len(self.taken) + self.contexts

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)
        return _Function(self, name)

    # --- the functions ------------------------------------------------------------------------------------------------
    def answer(self, name, arguments):
        if name in ("cuGetErrorName", "cuGetErrorString"):
            return self.said(name, *arguments)
        self.calls.append((name, *arguments))
        code = self.fail.get(name, 0)
        if name == "cuModuleLoadDataEx" and code:
            _, _, _, _, values = arguments
            ctypes.memmove(values[0], b"ptxas application ptx input, line 7; fatal\0", 43)
        if code:
            return code
        if name in _TAKEN:
            self.take(name, *arguments)
        elif name in _FREED:
            self.free(arguments[0])
        elif hasattr(self, f"do_{name}"):
            getattr(self, f"do_{name}")(*arguments)
        return 0

    def said(self, name, code, place):
        text = _ERRORS.get(code, (None, None))[name == "cuGetErrorString"]
        _at(place, ctypes.c_char_p).value = None if text is None else text.encode()
        return 0

    def take(self, name, place, *arguments):
        assert self.depth or not self.emulating
        if name == "cuMemAlloc_v2":
            assert arguments[0] > 0
            memory = np.full(arguments[0] + 256, 0xA5, np.uint8) if self.emulating else None
            handle = self.next if memory is None else memory.ctypes.data + -memory.ctypes.data % 256
            _at(place, ctypes.c_uint64).value = handle
            self.sizes[handle] = arguments[0]
        else:
            memory, handle = None, self.next
            _at(place, ctypes.c_void_p).value = handle
        if name == "cuModuleLoadDataEx":
            self.texts[handle] = text = arguments[0].value.decode()
            if self.emulating:
                ir = self.kernels_text[text] if isinstance(self.kernels_text, dict) else self.kernels_text
                self.grids[handle] = Grid(SimpleNamespace(text=ir))
        self.next += 0x1000
        self.taken[handle] = memory

    def free(self, handle):
        if handle not in self.taken:
            self.freed_twice.append(handle)
        self.taken.pop(handle, None)

    def is_taken(self, address, n_bytes):
        """Whether so many bytes lie in one piece of memory that was taken."""
        return any(at <= address and address + n_bytes <= at + n for at, n in self.sizes.items() if at in self.taken)

    def do_cuDeviceGetCount(self, place):
        _at(place, ctypes.c_int).value = 1

    def do_cuDeviceGet(self, place, number):
        _at(place, ctypes.c_int).value = number

    def do_cuDeviceGetName(self, text, n_bytes, device):
        text.value = b"Stand-in"

    def do_cuDeviceGetAttribute(self, place, kind, device):
        _at(place, ctypes.c_int).value = self.capability[kind - 75]

    def do_cuDevicePrimaryCtxRetain(self, place, device):
        self.contexts += 1
        _at(place, ctypes.c_void_p).value = 0xC0

    def do_cuDevicePrimaryCtxRelease_v2(self, device):
        self.contexts -= 1

    def do_cuCtxPushCurrent_v2(self, context):
        assert context == 0xC0
        self.depth += 1

    def do_cuCtxPopCurrent_v2(self, place):
        self.depth -= 1

    def do_cuModuleGetFunction(self, place, module, name):
        assert re.search(rf"\.entry {name.decode()}\(", self.texts[module])
        handle = 0xF000_0000 + len(self.kernels)
        self.kernels[handle] = name.decode(), self.grids.get(module)
        _at(place, ctypes.c_void_p).value = handle

    def do_cuMemcpyHtoDAsync_v2(self, to, source, n_bytes, stream):
        assert self.is_taken(to, n_bytes) and stream in self.taken
        if self.emulating:
            ctypes.memmove(to, source, n_bytes)

    def do_cuMemcpyDtoHAsync_v2(self, to, source, n_bytes, stream):
        assert self.is_taken(source, n_bytes) and stream in self.taken
        if self.emulating:
            ctypes.memmove(to, source, n_bytes)

    def do_cuLaunchKernel(self, kernel, blocks, by, bz, threads, ty, tz, shared, stream, pointers, extra):
        assert (by, bz, ty, tz, shared, extra) == (1, 1, 1, 1, 0, None) and stream in self.taken and self.depth == 1
        name, grid = self.kernels[kernel]
        self.launched.append((name, blocks, threads))
        if self.emulating:
            words = [ctypes.c_uint64.from_address(p).value for p in pointers]
            grid.launch(SimpleNamespace(kernel=name, blocks=blocks, threads=threads), words)


class _Function:
    """One function of the library; argtypes and restype are set from outside, and arguments come as they are given."""

    def __init__(self, library, name):
        self.library, self.name = library, name

    def __call__(self, *arguments):
        assert len(arguments) == len(self.argtypes), self.name
        return self.library.answer(self.name, arguments)


def _at(place, kind):
    """What a byref, or an object of ctypes, points to."""
    return place._obj if hasattr(place, "_obj") else kind.from_address(place)


# --- a GPU for tensors ------------------------------------------------------------------------------------------------
_ENTRY = re.compile(r"define ptx_kernel void @(\w+)\(")


def gpu_for_tensors(monkeypatch, ptx=None):
    """A GPU on this machine until the test ends: the StandIn, whose kernels run. In place of PTX there is a text that
    names the kernels, unless `ptx` is what makes it."""
    texts = {}

    def written(ir, architecture):
        text = "".join(f".entry {name}(\n" for name in _ENTRY.findall(ir)) + f"// {len(texts)}\n"
        text += "" if ptx is None else ptx(ir, architecture)
        texts[text] = ir
        return text

    library = StandIn(texts)
    gpu_tensors.answer(gpu_tensors.BEFORE)
    for name, value in gpu_tensors.ANSWERS.items():
        monkeypatch.setattr(Tensor, name, value)
    monkeypatch.setattr(jit, "ptx", written)
    monkeypatch.setattr(memory, "_drivers", [cuda.Driver(library)])
    monkeypatch.setattr(memory, "_gpus", {})
    monkeypatch.setattr(programs, "_programs", OrderedDict())
    monkeypatch.setattr(programs, "_numbers", OrderedDict())
    return library
