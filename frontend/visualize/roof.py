"""What this machine can do at most, and how near to that a kernel comes: the roofline model of S. Williams, A. Waterman
and D. Patterson, Roofline: An Insightful Visual Performance Model, Communications of the ACM 52 (2009).

Measured once per process, when somebody asks: multiply-adds of registers alone, and vectors that are read, added to and
written where they were, which no way to move as many bytes outdoes, within memory of several sizes. A kernel of few
bytes may find them in a cache, so it is held against what memory of that size gives.
"""

import ctypes
import time
from typing import NamedTuple

import numpy as np

from ..runtime.code import jit

# Two multiply-adds a cycle of four cycles' latency want eight sums; a register more holds what they are added to.
_SUMS = 12
# Within a level-1 cache, a level-2 cache, what cores share, and beyond.
_SIZES = (24 << 10, 384 << 10, 6 << 20, 192 << 20)
_ROUNDS, _ROUND_SECONDS = 5, 0.004
_LLVM = {"float32": "float", "float64": "double"}


class Roof(NamedTuple):
    """Of one thread. `flops_per_ns`: {"float32": ..., "float64": ...}, a multiply-add counting as two; `bytes_per_ns`:
    pairs of (size of the memory in use, bytes read and written per nanosecond), small ones first."""

    flops_per_ns: dict
    bytes_per_ns: tuple

    def least_ns(self, n_flops, n_bytes, element="float32", threads=1):
        """Nanoseconds below which no kernel of so much arithmetic and memory can stay. Of several threads it is taken
        that each has a roof of its own, which memory that they share does not give."""
        # Half of a little more than what a cache holds is still found there.
        of_memory = next((rate for size, rate in self.bytes_per_ns if n_bytes <= 2 * size), self.bytes_per_ns[-1][1])
        of_arithmetic = self.flops_per_ns.get(element, self.flops_per_ns["float32"])
        return max(n_flops / of_arithmetic, n_bytes / of_memory) / threads


_measured = []


def machine_roof():
    """The Roof of this machine, measured when it is first asked for, which takes a quarter of a second. Other work on
    the machine makes it lower than it is."""
    if not _measured:
        library = jit.link(jit.compile_text(_text(jit.target().float_lanes)))
        flops = {element: _flops_per_ns(library, element) for element in _LLVM}
        _measured.append(Roof(flops, tuple((size, _bytes_per_ns(library, size)) for size in _SIZES)))
    return _measured[0]


# --- measuring --------------------------------------------------------------------------------------------------------
def _flops_per_ns(library, element):
    multiply = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double)(library.address(f"sums_{element}"))
    lanes = jit.target().float_lanes * 4 // np.dtype(element).itemsize
    return _per_ns(lambda count: multiply(count, 0.5), 2 * _SUMS * lanes)


def _bytes_per_ns(library, size):
    add = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.address("additions"))
    memory = np.ones(size // 4 + 16, np.float32)
    start = memory.ctypes.data + -memory.ctypes.data % 64  # a cache line's
    return _per_ns(lambda count: add(start, size // (4 * jit.target().float_lanes), count), 2 * size)


def _per_ns(run, amount):
    """How much of what run(count) does `count` times is done in a nanosecond: the best of some rounds."""
    count = 1
    while _seconds(run, count) < _ROUND_SECONDS / 4:
        count *= 2
    return count * amount / (1e9 * min(_seconds(run, count) for _ in range(_ROUNDS)))


def _seconds(run, count):
    began = time.perf_counter()
    run(count)
    return time.perf_counter() - began


# --- what is measured -------------------------------------------------------------------------------------------------
def _text(lanes):
    """The LLVM text of the functions, for vectors of so many float32."""
    return "\n\n".join(
        [_additions(f"<{lanes} x float>")]
        + [_sums(name, llvm, f"<{lanes * 4 // np.dtype(name).itemsize} x {llvm}>") for name, llvm in _LLVM.items()]
    )


def _sums(name, llvm, vector):
    """sums_NAME(count, x): `count` times, each of _SUMS vectors becomes itself times x plus x. (Where there is no
    instruction for it, that is two.)"""
    kind = {"float": "f32", "double": "f64"}[llvm]
    function = f"@llvm.fmuladd.v{vector[1:].split()[0]}{kind}"
    phis = [f"  %s{k} = phi {vector} [ %start{k}, %entry ], [ %t{k}, %loop ]" for k in range(_SUMS)]
    steps = [f"  %t{k} = call {vector} {function}({vector} %s{k}, {vector} %x, {vector} %x)" for k in range(_SUMS)]
    starts = [f"  %start{k} = insertelement {vector} %x, {llvm} {float(k)}, i32 0" for k in range(_SUMS)]
    totals = [f"  %sum{k + 1} = fadd {vector} %sum{k}, %t{k}" for k in range(_SUMS)]
    narrow = "%x.in" if llvm == "double" else "%x.narrow"
    wide = "%first" if llvm == "double" else "%first.wide"
    return "\n".join(
        [
            f"declare {vector} {function}({vector}, {vector}, {vector})",
            f"define double @sums_{name}(i64 %count, double %x.in) {{",
            "entry:",
            *([] if llvm == "double" else ["  %x.narrow = fptrunc double %x.in to float"]),
            f"  %x.0 = insertelement {vector} poison, {llvm} {narrow}, i32 0",
            f"  %x = shufflevector {vector} %x.0, {vector} poison, {vector.replace(llvm, 'i32')} zeroinitializer",
            *starts,
            "  br label %loop",
            "loop:",
            "  %n = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *phis,
            *steps,
            "  %next = add i64 %n, 1",
            "  %more = icmp slt i64 %next, %count",
            "  br i1 %more, label %loop, label %end",
            "end:",
            f"  %sum0 = fadd {vector} %x, %x",
            *totals,
            f"  %first = extractelement {vector} %sum{_SUMS}, i32 0",
            *([] if llvm == "double" else ["  %first.wide = fpext float %first to double"]),
            f"  ret double {wide}",
            "}",
        ]
    )


def _additions(vector):
    """additions(place, n, count): `count` times, one is added to n vectors."""
    ones = ", ".join(["float 1.0"] * int(vector[1:].split()[0]))
    return f"""define void @additions(ptr %place, i64 %n, i64 %count) {{
entry:
  br label %round
round:
  %r = phi i64 [ 0, %entry ], [ %r.next, %round.end ]
  br label %loop
loop:
  %k = phi i64 [ 0, %round ], [ %k.next, %loop ]
  %at = getelementptr {vector}, ptr %place, i64 %k
  %x = load {vector}, ptr %at, align 64
  %y = fadd {vector} %x, <{ones}>
  store {vector} %y, ptr %at, align 64
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %n
  br i1 %more, label %loop, label %round.end
round.end:
  %r.next = add i64 %r, 1
  %again = icmp slt i64 %r.next, %count
  br i1 %again, label %round, label %end
end:
  ret void
}}"""
