"""The life of the worker threads: the memory they share with the caller, who starts them and who stops them.

Loaded with the first program (threads.py says how many threads there are). emit/pool.py draws what they do.
"""

import atexit
import ctypes
import os
import time

import numpy as np

from ...compiler.conventions import MAX_WORKERS
from ...compiler.emit.pool import POOL, SERIAL_POOL
from ...compiler.emit.pool_memory import POOL_BYTES, SLOT_BYTES, SLOTS, Pool, Slot
from ...compiler.translate.kinds import offset_of
from . import jit, lasting, threads, translated
from .cpus import n_cpus, wanted

# A worker spins this long after a job: longer than what Python does between two steps of a training loop, and about
# thirty times what waking a sleeping one costs.
_SPIN_NS = 1_000_000
# Workers finish their program before they leave.
_LEAVE_SECONDS = 10


def new_pool():
    """The code of workers takes ten times as long to make, and many processes have one thread."""
    if threads.has_workers() and wanted() > 1:
        return WorkerPool(translated.load("pool", POOL), has_workers=True)
    return WorkerPool(translated.load("serial pool", SERIAL_POOL), has_workers=False)


class WorkerPool:
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
        lasting.keep_for_ever(self.memory)
        self.use(library)
        if has_workers:
            self.prepare(library)
            self.set_threads(wanted())

    def use(self, library):
        """Give programs, which look here every time, the functions of this library."""
        lasting.keep_for_ever(library)
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
            if n > 1 and not self.is_prepared and threads.has_workers():
                library = translated.load("pool", POOL)
                self.use(library)
                self.prepare(library)
            if not self.is_prepared:
                return
            self.quiesce()
            self.threads = min(n, MAX_WORKERS + 1)
            self.n_workers = min(self.threads, n_cpus()) - 1
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


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value
