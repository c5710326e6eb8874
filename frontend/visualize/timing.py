"""How long each kernel of a program takes, measured inside the program.

The program is compiled once more with the processor's cycle counter read after every kernel call, and run on inputs of
its own, so no user's memory is touched. What it computes is the same code in the same order with the same arena.
"""

import platform
import re
import time

import numpy as np

from ..compiler import dtypes
from ..compiler.graph import parse
from ..compiler.pipeline import ARRAY_DATA_OFFSET, FIRST_SYMBOL_WORD, compile_graph
from ..runtime.code import jit
from ..runtime.programs.program import Program

# llvm.readcyclecounter is a user-mode instruction of constant rate on these only.
_MACHINES = ("x86_64", "amd64")
_ENTRY = re.compile(r"^define i64 @weft_program\(.*?^}", re.MULTILINE | re.DOTALL)
_BODY = re.compile(r"^define internal i64 @body\(.*?^}", re.MULTILINE | re.DOTALL)
# Of a kernel or routine. Waits are none, nor is taking the interpreter's lock, nor are the calls without operands that
# ask whether Ctrl-C was pressed.
_CALL = re.compile(r"^  (?:%\w+ = )?call (?:void|i1) (?:@k\d+\(|%(?!wait|lock)\w+\((?!\)))")


def kernel_times(program, repeats=200):
    """Median nanoseconds of every kernel of a program, in the plan's order; None where the machine cannot tell.

    Kernels of less than some 30 ns are below what the counter resolves.
    """
    if platform.machine().lower() not in _MACHINES:
        return None
    graph = parse(program.meta["graph"])
    compiled = compile_graph(graph, target=jit.kernel_target(), in_one=True)
    kernels = program.meta["plan"]["kernels"]
    if [k.name for k in compiled.plan.kernels] != [k["name"] for k in kernels]:
        raise ValueError(
            f"{graph.name}: compiled again the graph gives other kernels; weft has changed since, or the program "
            "serves many sizes (weft.compile with dynamic=False makes one for each)"
        )
    # This text has all numbers in it, and its own plan of memory.
    meta = {**program.meta, "extents": [], "arena": compiled.plan.arena_bytes}
    meta["outputs"] = [*meta["outputs"], ((len(kernels) + 1,), "int64")]
    first_array = FIRST_SYMBOL_WORD + len(compiled.plan.symbols)
    text = with_stamps(compiled.text, first_array + len(meta["inputs"]) + len(meta["outputs"]) - 1, len(kernels))
    return _measure(Program(meta, jit.link(jit.compile_text(text))), graph, len(kernels), repeats)


def with_stamps(text, word, n_kernels):
    """The program's text, storing the cycle counter at its start and after each kernel into array `word` of the table.

    A kernel called in a loop over batches keeps its last stamp, which is the one wanted. Where threads share the
    program, the caller's stamps count: a kernel's time then has in it what the caller waited for before it.
    """
    entry, body = _ENTRY.search(text), _BODY.search(text)
    entry_lines = []
    for line in entry.group().splitlines():
        entry_lines += [line, *(_array_lines(word) if line == "entry:" else [])]
    lines, count = [], 0
    for line in body.group().splitlines():
        lines.append(line)
        if line == "entry:":
            lines += [*_place_lines(n_kernels), *_stamp_lines(0)]
        elif _CALL.match(line):
            count += 1
            lines += _stamp_lines(count)
    assert count == n_kernels, f"{count} calls in the program for {n_kernels} kernels"
    text = text.replace(entry.group(), "\n".join(entry_lines)).replace(body.group(), "\n".join(lines))
    return f"@stamps = internal global ptr null\n{text}\ndeclare i64 @llvm.readcyclecounter()\n"


def _array_lines(word):
    return [
        f"  %stamp_word = getelementptr i8, ptr %table, i64 {8 * word}",
        "  %stamp_array = load ptr, ptr %stamp_word, align 8",
        f"  %stamp_field = getelementptr i8, ptr %stamp_array, i64 {ARRAY_DATA_OFFSET}",
        "  %stamp_data = load ptr, ptr %stamp_field, align 8",
        "  store ptr %stamp_data, ptr @stamps, align 8",
    ]


def _place_lines(n_kernels):
    """Workers store theirs where nobody looks."""
    return [
        f"  %stamps_ignored = alloca [{n_kernels + 1} x i64], align 8",
        "  %stamps_wanted = load ptr, ptr @stamps, align 8",
        "  %stamps_count = icmp eq i64 %rank, 0",
        "  %stamps = select i1 %stamps_count, ptr %stamps_wanted, ptr %stamps_ignored",
    ]


def _stamp_lines(k):
    return [
        f"  %stamp_time_{k} = call i64 @llvm.readcyclecounter()",
        f"  %stamp_place_{k} = getelementptr i8, ptr %stamps, i64 {8 * k}",
        f"  store i64 %stamp_time_{k}, ptr %stamp_place_{k}, align 8",
    ]


def _measure(program, graph, n_kernels, repeats):
    numbers = {position: 0 if code == -2 else 0.5 for position, code in program.numbers}
    ticks = np.empty((repeats, n_kernels + 1), np.int64)
    # Fresh values every few runs: an update repeated on its own result ends in infinities or denormals.
    for k in range(repeats):
        if k % 20 == 0:
            arrays = [_array_for(v) for v in graph.inputs()]
            program.call(arrays, numbers)
        outputs = program.call(arrays, numbers)
        if outputs is None:
            raise ValueError(f"{graph.name}: a check of the program fails on the values used for timing")
        ticks[k] = outputs[-1]
        if k == 0:
            started = time.perf_counter_ns()
    elapsed = time.perf_counter_ns() - started
    ns_per_tick = elapsed / max(int(ticks[-1, -1] - ticks[0, -1]), 1)
    return [float(t) for t in np.median(np.diff(ticks, axis=1), axis=0) * ns_per_tick]


def _array_for(value):
    """Small positive floats, and zeros, which are valid classes and indices, in the strides the program expects."""
    numpy_dtype = value.dtype.numpy
    steps = value.strides
    size = int(np.prod(value.shape)) if steps is None else 1 + sum((d - 1) * s for d, s in zip(value.shape, steps))
    if value.dtype in (dtypes.float32, dtypes.float64):
        flat = np.random.default_rng(value.number).uniform(0.01, 0.1, max(size, 1)).astype(numpy_dtype)
    else:
        flat = np.zeros(max(size, 1), numpy_dtype)
    if steps is None:
        return flat[: max(size, 0)].reshape(value.shape)
    return np.lib.stride_tricks.as_strided(flat, value.shape, [s * flat.itemsize for s in steps])
