"""Programs on a GPU: one for each op, derivative or update on operands of given shapes and types, made once.

    key -> Program: graph -> compile_for_gpu -> PTX -> the driver's module -> launches

A call gives kernels their memory and begins them; nobody waits, unless a program checks something (an index that may
be out of range): then the error belongs to the line that asked.
"""

from collections import OrderedDict

import numpy as np

from ...compiler.decompose import decompose
from ...compiler.dtypes import float64
from ...compiler.gpu import NotForGpu, compile_for_gpu
from ...compiler.graph import INPUT, SCALAR
from ...compiler.ops.view import clone
from ..code import jit
from ..record.build import has_kernel, pruned
from .arrays import GpuArray

_MOST_PROGRAMS, _MOST_NUMBERS = 4096, 1024
_ARCHITECTURES = [(tuple(map(int, (name[3:-1], name[-1]))), name) for name in jit.PTX_ARCHITECTURES]


class Program:
    """Kernels of one graph on one GPU. `given` are the positions of the arrays that they are given, `numbers` those of
    the run-time numbers, each with its type. `notes` are those of who has made the graph."""

    __slots__ = (
        "given", "numbers", "outputs", "arena_bytes", "scratch_bytes", "checks", "launches", "_module", "name", "notes",
    )  # fmt: skip

    def __init__(self, gpu, graph, given, numbers, notes):
        compiled = compile_for_gpu(graph)
        self.name, self.given, self.numbers, self.notes = graph.name, given, numbers, notes
        self.outputs = [(tuple(v.shape), v.dtype) for v in graph.outputs]
        self.arena_bytes, self.scratch_bytes, self.checks = (
            compiled.arena_bytes,
            compiled.scratch_bytes,
            compiled.checks,
        )
        self.launches, self._module = [], None
        if compiled.launches:
            text = jit.ptx(compiled.text, _architecture(gpu))
            with gpu:
                self._module = gpu.device.load(text)
                kernels = {name: self._module.kernel(name) for name in {launch.kernel for launch in compiled.launches}}
            self.launches = [(kernels[one.kernel], one.blocks, one.threads, one.operands) for one in compiled.launches]

    def run(self, gpu, arrays, numbers):
        """The results for the GpuArrays and numbers at the positions that the program was told."""
        with gpu:
            made = [GpuArray.empty(gpu, shape, dtype) for shape, dtype in self.outputs]
            taken = {
                kind: gpu.take(n) for kind, n in (("arena", self.arena_bytes), ("scratch", self.scratch_bytes)) if n
            }
            areas = {kind: block.address for kind, block in taken.items()}
            areas["input"], areas["output"] = [arrays[k].address for k in self.given], [x.address for x in made]
            if self.numbers:
                taken["numbers"] = block = _numbers_on(gpu, self.numbers, numbers)
                areas["numbers"] = block.address
            failed = np.zeros(1, np.uint8)
            if self.checks:
                taken["failed"] = block = gpu.take(1)
                areas["failed"] = block.address
                gpu.write(block.address, failed)
            for kernel, blocks, threads, operands in self.launches:
                gpu.launch(kernel, blocks, threads, [_address(areas, o.kind, o.index) for o in operands])
            if self.checks:
                gpu.read(failed, areas["failed"])
        if failed[0]:
            raise IndexError(f"{self.name}: index out of range in self; nothing was changed")
        return made


def _address(areas, kind, index):
    if kind in ("input", "output"):
        return areas[kind][index]
    return areas.get(kind, 0) + (8 * index if kind == "numbers" else index)


def _architecture(gpu):
    known = [name for capability, name in _ARCHITECTURES if capability <= gpu.capability]
    if not known:
        raise RuntimeError(
            f"{gpu.name} has compute capability {'.'.join(map(str, gpu.capability))}, and weft's kernels need "
            f"{_ARCHITECTURES[0][1]} or newer"
        )
    return known[-1]


# --- numbers ----------------------------------------------------------------------------------------------------------
_numbers = OrderedDict()  # (gpu, bytes) -> block: the same few come again and again


def _numbers_on(gpu, kinds, given):
    packed = b"".join(kind.type(given[k]).tobytes() for k, kind in kinds)
    key = gpu.number, packed
    block = _numbers.get(key)
    if block is None:
        array = np.frombuffer(packed, np.uint8)
        block = gpu.take(array.nbytes)
        gpu.write(block.address, array)
        while len(_numbers) >= _MOST_NUMBERS:
            _numbers.popitem(last=False)
        _numbers[key] = block
    return block


def number_type(dtype):
    """As programs read a run-time number."""
    return np.dtype(np.float64 if dtype is float64 or dtype.is_floating_point else np.int64)


# --- making them ------------------------------------------------------------------------------------------------------
_programs = OrderedDict()


def program_for(gpu, key, make):
    """The Program of a key, or the reason why there is none: a NotForGpu. make() gives (graph, the values that stand
    for what is given, notes); a key of None is not kept."""
    whole = None if key is None else (gpu.number, key)
    found = None if whole is None else _programs.get(whole)
    if found is None:
        try:
            found = _made(gpu, *make())
        except NotForGpu as error:
            found = error.with_traceback(None)
        if whole is not None:
            while len(_programs) >= _MOST_PROGRAMS:
                _programs.popitem(last=False)
            _programs[whole] = found
    return found


def notes_for(key, make):
    """(whether there are kernels for a graph, the notes of who has made it), or the NotForGpu that says why not: what
    has no kernel is to be found at its line, also where it is a part of a larger program."""
    found = _known.get(key)
    if found is None:
        try:
            graph, given, notes = make()
            graph, arrays, _ = _finished(graph, given)
            compile_for_gpu(graph)
            found = True, notes
        except NotForGpu as error:
            found = error.with_traceback(None)
        while len(_known) >= _MOST_PROGRAMS:
            _known.popitem(last=False)
        _known[key] = found
    return found


_known = OrderedDict()


def _made(gpu, graph, given, notes):
    graph, arrays, numbers = _finished(graph, given)
    return Program(gpu, graph, arrays, numbers, notes)


def _finished(graph, given):
    """(a graph as programs are made of it, positions of the arrays that it reads, and of its numbers): what it shows of
    an input is copied, so that every result has its own memory."""
    seen = set()
    for k, v in enumerate(graph.outputs):
        if v.op is INPUT or v.op.kind == "view" or v.number in seen:
            graph.outputs[k] = graph.apply(clone, (v,), {})
        seen.add(v.number)
    if not graph.commits:
        graph, kept = pruned(graph)
        places = {v.number: k for k, v in enumerate(given)}
        order = [places[number] for number in kept]
    else:
        order = list(range(len(given)))
    for v in decompose(graph)[0].values:
        if v.op.kind == "library" or not has_kernel(v):
            raise NotForGpu(v.op.name, "has no kernel for a GPU", None)
    arrays = [k for k in order if not given[k].weak]
    return graph, arrays, [(k, number_type(given[k].dtype)) for k in order if given[k].op is SCALAR]
