"""How many threads compiled programs use, and the life of the worker threads.

    set_num_threads(4)      # the calling thread and three workers
    get_num_threads()       # at first: the CPUs this process may run on, or WEFT_NUM_THREADS

Workers run native code only (compiler/emit/pool.py draws how) and never meet the interpreter lock. The first program
that is worth sharing starts them. They leave before the interpreter ends, and before a fork, which copies one thread
only and would leave their locks and counters behind; the next program starts new ones.

Programs of compiled calls run while the calling thread holds the interpreter lock, so none is in flight while Python
code here runs. Those of eager mode may be (large.py): workers finish what they were taken for before they leave, and
the caller needs neither them nor their memory.

Only Linux on x86-64 has workers; elsewhere there is one thread, and set_num_threads changes nothing.
"""

import atexit
import ctypes
import os
import sys
import time

import numpy as np

from ...compiler.emit.pool import POOL, SERIAL_POOL
from ...compiler.emit.pool_memory import MAX_WORKERS, POOL_BYTES, SLOT_BYTES, SLOTS, Pool, Slot
from ...compiler.translate.kinds import offset_of
from . import jit, translated

# A worker spins this long after a job: longer than what Python does between two steps of a training loop, and about
# thirty times what waking a sleeping one costs.
_SPIN_NS = 1_000_000
# Workers finish their program before they leave.
_LEAVE_SECONDS = 10
_pools = []
# The pool's code need not be loaded, or compiled, to set a number: that comes with the first program.
_requested = []


def get_num_threads():
    """How many threads a compiled program uses at most, the calling one included."""
    if _pools:
        return _pools[0].threads
    return min(_wanted(), MAX_WORKERS + 1) if _has_workers() else 1


def set_num_threads(n):
    """Use at most n threads in compiled programs: 1 keeps everything in the calling thread.

    Results have the same bits for every n. No more workers are started than there are CPUs the process may run on.
    Raises RuntimeError unless n is positive, TypeError unless it is an integer.
    """
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"set_num_threads: expects an int, got {type(n).__name__}")
    if n < 1:
        raise RuntimeError(f"set_num_threads: expects a positive integer, got {n}")
    _requested[:] = [n]
    if _pools:
        _pools[0].set_threads(n)


def pool_address():
    """The pool's memory, which begins with the addresses of its functions: a word of every program's table."""
    return _pool().address


def reserve_scratch(size_bytes):
    """Give every worker at least this much scratch memory."""
    _pool().reserve(size_bytes)


class _Pool:
    """The block of memory the native side works on, and what starts and stops its workers.

    Who stops workers or moves their scratch memory holds `jit.compiling`: while it waits for workers to leave, another
    thread would let new ones start, and the wait would have no end. It is that lock because new programs ask for
    scratch memory, and a fork takes it anyway.

    Neither the memory nor the code is ever freed: a worker may be executing its last instruction.
    """

    def __init__(self, library, has_workers):
        self.memory = np.zeros(POOL_BYTES // 8 + 8, np.int64)
        skipped = -self.memory.ctypes.data % 64 // 8
        self.words = self.memory[skipped : skipped + POOL_BYTES // 8]
        self.address = self.words.ctypes.data
        self.scratch_bytes, self.scratch = 0, []
        self.n_workers = 0
        self.threads = 1
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.memory))
        self.use(library)
        if has_workers:
            self.prepare(library)
            self.set_threads(_wanted())

    def use(self, library):
        """Give programs, which look here every time, the functions of this library."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
        for field in ("begin", "wait", "end"):
            self.write(field, library.address(f"weft_pool_{field}"))

    def prepare(self, library):
        self.wake = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("weft_pool_wake"))
        process = ctypes.CDLL(None)
        self.write("spin_ns", _SPIN_NS)
        self.write("start_thread", _address(ctypes.pythonapi.PyThread_start_new_thread))
        self.write("syscall", _address(process.syscall))
        self.write("getcpu", _address(process.sched_getcpu))
        self.write("clock", _address(process.clock_gettime))
        self.slots = self.words[SLOTS // 8 :].reshape(MAX_WORKERS, SLOT_BYTES // 8)
        self.slots[:, _word_of_slot("pool")] = self.address
        atexit.register(self.end)

    @property
    def is_prepared(self):
        """Whether it can have workers."""
        return self.read("syscall") != 0

    def write(self, field, value):
        self.words[offset_of(Pool, field) // 8] = value

    def read(self, field):
        return int(self.words[offset_of(Pool, field) // 8])

    def set_threads(self, n):
        with jit.compiling:
            if n > 1 and not self.is_prepared and _has_workers():
                library = translated.load("pool", POOL)
                self.use(library)
                self.prepare(library)
            if not self.is_prepared:
                return
            self.quiesce()
            self.threads = min(n, MAX_WORKERS + 1)
            self.n_workers = min(self.threads, _n_cpus()) - 1
            self.write("threads", self.threads)
            self.give_scratch()
            self.resume()

    def reserve(self, size_bytes):
        with jit.compiling:
            if size_bytes > self.scratch_bytes:
                # Twice as much as before, because what workers had is kept: a program that runs may still use it.
                self.scratch_bytes = max(size_bytes, 2 * self.scratch_bytes)
                self.give_scratch()

    def give_scratch(self):
        if self.n_workers and self.scratch_bytes:
            step = -(-self.scratch_bytes // 4096) * 4096 + 64
            memory = np.empty(self.n_workers * step + 64, np.uint8)
            self.scratch.append(memory)
            first = (memory.ctypes.data + 63) & ~63
            self.slots[: self.n_workers, _word_of_slot("scratch")] = first + step * np.arange(self.n_workers)

    def quiesce(self):
        """Stop the workers, and wait until the system has taken their threads down."""
        self.write("workers", 0)
        if not self.read("alive"):
            return
        self.write("stop", 1)
        self.wake(self.address, MAX_WORKERS)
        end = time.monotonic() + _LEAVE_SECONDS
        while (self.read("alive") or self.threads_exist()) and time.monotonic() < end:
            time.sleep(0.0001)

    def threads_exist(self):
        numbers = self.slots[:, _word_of_slot("thread")]
        return any(os.path.exists(f"/proc/self/task/{number}") for number in numbers[numbers != 0].tolist())

    def resume(self):
        """Let the next program start workers. If one did not leave in time, there will be none."""
        if not self.read("alive"):
            self.slots[:, _word_of_slot("thread")] = self.slots[:, _word_of_slot("state")] = 0
            self.write("process", os.getpid())
            self.write("stop", 0)
            self.write("workers", self.n_workers)

    def forget(self):
        """In the child of a fork, where the threads of the parent do not exist."""
        for field in ("alive", "busy"):
            self.write(field, 0)
        self.resume()

    def end(self):
        """At exit: no worker may run while the interpreter's memory goes. Who compiles then is not waited for."""
        self.n_workers = 0
        self.quiesce()


def _word_of_slot(field):
    return offset_of(Slot, field) // 8


# --- forks ------------------------------------------------------------------------------------------------------------
# Registered here once, not by each pool: one may be made while a fork waits for the thread that makes it, and who
# registers then is called after the fork alone, for what was not done before it.
_stopped_for_fork = []


def _before_fork():
    jit.compiling.acquire()
    _stopped_for_fork[:] = [pool for pool in _pools if pool.is_prepared]
    for pool in _stopped_for_fork:
        pool.quiesce()


def _after_fork_in_parent():
    for pool in _stopped_for_fork:
        pool.resume()
    jit.compiling.release()


def _after_fork_in_child():
    for pool in _stopped_for_fork:
        pool.forget()
    jit.compiling.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


# --- the pool of the process ------------------------------------------------------------------------------------------
def _pool():
    if not _pools:
        with jit.compiling:
            if not _pools:
                _pools.append(_new_pool())
    return _pools[0]


def _new_pool():
    """The code of workers takes ten times as long to make, and many processes have one thread."""
    if _has_workers() and _wanted() > 1:
        return _Pool(translated.load("pool", POOL), has_workers=True)
    return _Pool(translated.load("serial pool", SERIAL_POOL), has_workers=False)


def _has_workers():
    return jit.target().triple == "x86_64-linux"


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def _wanted():
    """What was set; else WEFT_NUM_THREADS, by which a job scheduler can share out a machine; else all CPUs."""
    if _requested:
        return _requested[0]
    text = os.environ.get("WEFT_NUM_THREADS", "")
    if not text:
        return _n_cpus()
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"WEFT_NUM_THREADS={text}: must be a positive number")
    return int(text)


def _n_cpus():
    """CPUs this process may run on: its affinity, and no more than its control group's share of time."""
    if not hasattr(os, "sched_getaffinity"):
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), _cpu_share()))


def _cpu_share():
    """Containers are often given a share of time instead of CPUs; threads beyond it are only halted in turns."""
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError):
        return sys.maxsize
