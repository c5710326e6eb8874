"""What tests of the GPU share: graphs of one op with its samples and derivatives, and NVIDIA's assembler."""

import functools
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
from gpu_grid import Grid
from graph_interpreter import CheckFailed, assert_same, interpret, place_like

from weft.compiler import autodiff, dtypes
from weft.compiler.autodiff import has_rule
from weft.compiler.gpu import compile_for_gpu
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE
from weft.compiler.ops.kinds import is_unknown


def graph_of(name, floating, arrange=lambda x: x):
    """(graph, arrays): all samples of an op, each with the gradients of its floating operands."""
    op, graph, arrays, results = TABLE[name], Graph(name, dtypes.float32), [], []
    for sample in op.samples():
        operands = []
        for x in sample.operands:
            if isinstance(x, np.ndarray):
                x = arrange(x.astype(floating.numpy) if x.dtype.kind == "f" else x)
                steps = tuple(s // x.itemsize for s in x.strides)
                is_plain = x.flags.c_contiguous
                operands.append(graph.input(x.shape, dtypes.from_numpy(x.dtype), None if is_plain else steps))
                arrays.append(x)
            else:
                operands.append(graph.constant(x))
        y = graph.apply(op, tuple(operands), sample.attributes)
        results.append(y)
        wanted = [
            x
            for k, x in enumerate(operands)
            if not x.op.is_number and x.dtype.is_floating_point and has_rule(op, k) and not is_unknown(op, k)
        ]
        if wanted and y.dtype.is_floating_point:
            cotangent = graph.input(y.shape, y.dtype)
            arrays.append(np.random.default_rng(len(arrays)).uniform(0.5, 1.5, y.shape).astype(y.dtype.numpy))
            found = autodiff.backward(graph, [y], [cotangent], wanted)
            results += [g for g in found if g is not None]
    graph.outputs = results
    return graph, arrays


def check_on_grid(graph, arrays, scalars=()):
    """Every output and every input that is changed has the bits of eager mode; where a check fails there, it fails
    here, and nothing is changed. Returns the GpuProgram."""
    program = compile_for_gpu(graph)
    placed = [place_like(v, x) for v, x in zip(graph.inputs(), arrays)]
    grid, results = Grid(program), [np.empty(v.shape, v.dtype.numpy) for v in graph.outputs]
    before = [x.copy() for x in placed]
    try:
        wanted, committed = interpret(graph, [x.copy() for x in placed], scalars)
    except CheckFailed:
        grid(placed, results, packed(graph, scalars))
        assert grid.failed and all(map(np.array_equal, placed, before)), graph.name
        return program
    outputs = grid(placed, results, packed(graph, scalars))
    assert not grid.failed
    for k, (x, y) in enumerate(zip(outputs, wanted, strict=True)):
        assert_same(x, y, f"{graph.name}: output {k}")
    places = {v: k for k, v in enumerate(graph.inputs())}
    for (target, _), y in zip(graph.commits, committed):
        assert_same(placed[places[target]], y, f"{graph.name}: input {places[target]}")
    return program


def packed(graph, scalars):
    kinds = [np.float64 if v.dtype.is_floating_point else np.int64 for v in graph.scalars()]
    return b"".join(kind(x).tobytes() for kind, x in zip(kinds, scalars))


# --- the assembler ----------------------------------------------------------------------------------------------------
@functools.cache
def ptxas():
    """The path of NVIDIA's assembler: on PATH, or in the package nvidia-cuda-nvcc-cu12. None if it is not there."""
    found = shutil.which("ptxas")
    spec = importlib.util.find_spec("nvidia") if found is None else None
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder, "cuda_nvcc", "bin", "ptxas")
        if path.exists():
            return str(path)
    return found


_REPORT = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
    re.DOTALL,
)


def assembled(text, architecture, folder):
    """kernel -> (registers, bytes spilled), as the assembler says. AssertionError with its words if it refuses."""
    source = Path(folder, "kernels.ptx")
    source.write_text(text)
    command = [ptxas(), "-v", f"-arch={architecture}", str(source), "-o", str(Path(folder, "kernels.cubin"))]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return {name: (int(used), int(stores) + int(loads)) for name, stores, loads, used in _REPORT.findall(ran.stderr)}
