"""The memory of the thread pool (pool.py), and what its functions ask of the system: the clock, CPUs, signals.

What different threads write is kept on different cache lines.
"""

from ..conventions import MAX_WORKERS
from ..translate.kinds import I32, I64, Address, At, Atomic, Bool, Function, Inline, Struct, offset_of, struct_bytes
from ..translate.language import RELAXED, Intrinsic, local_array, native

# A job's number is its generation times JOB; members store it plus how many waits they have come to, at last plus LAST.
JOB, LAST = 1 << 16, (1 << 16) - 1
# Numbers of waits in one program: more would run into the next job's.
MOST_WAITS = 65_000
# A worker's state; a job's number plus a rank is positive.
ABSENT, READY, ASLEEP = 0, -1, -2
# Linux on x86-64: numbers of system calls, and the private forms of futex.
GETTID, YIELD, SIGPROCMASK, SETMASK = 186, 24, 14, 2
FUTEX, SLEEP, WAKE = 202, 128, 129
SETAFFINITY, GETAFFINITY = 203, 204
MONOTONIC = 1
# Masks of 1024 CPUs, as the system calls take them. On larger systems a thread counts as free to run anywhere.
N_CPUS, MASK_WORDS = 1024, 16

# Does every part of a program that is a member's, from the first step to the last.
Body = Function((Address, I64, I64, I64, Address), I64)  # closure, rank, size, number, scratch


class Line(Struct, size_bytes=64):
    """How far the member of a rank has come."""

    number: Atomic(I64)


class Slot(Struct, size_bytes=128):
    """Of one worker: the pool, its scratch memory, its thread's number in the system; then what it writes itself."""

    pool: Address
    scratch: Atomic(Address)
    thread: Atomic(I64)
    state: At(64, Atomic(I64))
    cpu: Atomic(I32)


class Pool(Struct):
    # Written by Python, read by all. Programs call the first three.
    begin: Address
    wait: Address
    end: Address
    threads: Atomic(I64)  # of a team, the caller included
    workers: Atomic(I64)  # that may be started: fewer if there are fewer CPUs
    stop: Atomic(I64)
    spin_ns: I64
    start_thread: Function((Address, Address), I64)
    syscall: Function((I64,), I64, variadic=1)
    getcpu: Function((), I32)
    clock: Function((I32, Address), I32)
    process: I64
    # The job, written by the caller.
    generation: At(128, Atomic(I64))
    body: Body
    closure: Address
    size: I64
    float_mode: Inline(I32, 1)
    caller_cpu: At(192, Atomic(I32))
    busy: At(256, Atomic(I64))
    tried_at: I64
    signal: At(320, Atomic(I32))
    alive: At(384, Atomic(I64))
    arrived: At(448, Inline(Line, MAX_WORKERS + 1))
    slots: Inline(Slot, MAX_WORKERS)


POOL_BYTES, SLOT_BYTES = struct_bytes(Pool), struct_bytes(Slot)
SLOTS = offset_of(Pool, "slots")

pause = Intrinsic("llvm.x86.sse2.pause", (), python=lambda: None)
# Whether denormals are flushed.
store_float_mode = Intrinsic("llvm.x86.sse.stmxcsr", (Address,), python=lambda place: None)
load_float_mode = Intrinsic("llvm.x86.sse.ldmxcsr", (Address,), python=lambda place: None)
count_bits = Intrinsic("llvm.ctpop.i64", (I64,), I64, python=lambda x: bin(x & (1 << 64) - 1).count("1"))


@native()
def now(pool: Pool) -> I64:
    """Nanoseconds of a clock that only goes forward."""
    time = local_array(I64, 2)
    pool.clock(MONOTONIC, time)
    return time[0] * 1_000_000_000 + time[1]


@native()
def leave_cpu(pool: Pool) -> Bool:
    """Whether the worker runs elsewhere than the caller; if not at first, it moves to another CPU that the main thread
    may run on."""
    here = pool.getcpu()
    if here != pool.caller_cpu.load(RELAXED) or here < 0 or here >= N_CPUS:
        return True
    chosen = local_array(I64, MASK_WORDS)
    pool.syscall(GETAFFINITY, pool.process, 8 * MASK_WORDS, chosen)
    chosen[here >> 6] = chosen[here >> 6] & ~(1 << (here & 63))
    left = 0
    for word in chosen:
        left += count_bits(word)
    if left == 0:
        return False
    return pool.syscall(SETAFFINITY, 0, 8 * MASK_WORDS, chosen) == 0
