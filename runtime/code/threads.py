"""How many threads compiled programs use, and the life of the worker threads.

    set_num_threads(4)      # the calling thread and three workers
    get_num_threads()       # at first: the CPUs this process may run on, or WEFT_NUM_THREADS

Workers run native code only (compiler/emit/pool.py draws how) and never meet the interpreter lock. The first program
that is worth sharing starts them. They leave before the interpreter ends, and before a fork, which copies one thread
only and would leave their locks and counters behind; the next program starts new ones.

Long programs run without the interpreter lock (compiler/emit/unlocked.py, large.py), so one may be in flight while
Python code here runs: workers finish what they were taken for before they leave, and the caller needs neither them nor
their memory.

Only Linux on x86-64 has workers; elsewhere there is one thread, and set_num_threads changes nothing.
"""

import os

from ...compiler.conventions import MAX_WORKERS
from ...compiler.later import later
from . import jit
from .cpus import requested, wanted

_new_pool = later("runtime.code.workers:new_pool")
_pools = []


def get_num_threads():
    """How many threads a compiled program uses at most, the calling one included."""
    if _pools:
        return _pools[0].threads
    return min(wanted(), MAX_WORKERS + 1) if has_workers() else 1


def set_num_threads(n):
    """Use at most n threads in compiled programs: 1 keeps everything in the calling thread.

    Results have the same bits for every n. No more workers are started than there are CPUs the process may run on.
    NumPy's linear algebra, which eager decompositions are computed with, is told by OPENBLAS_NUM_THREADS how many it
    may take: its bits depend on that.
    Raises RuntimeError unless n is positive, TypeError unless it is an integer.
    """
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"set_num_threads: expects an int, got {type(n).__name__}")
    if n < 1:
        raise RuntimeError(f"set_num_threads: expects a positive integer, got {n}")
    # The pool's code need not be loaded, or compiled, to set a number: that comes with the first program.
    requested[:] = [n]
    if _pools:
        _pools[0].set_threads(n)


def pool_address():
    """The pool's memory, which begins with the addresses of its functions: a word of every program's table."""
    return _pool().address


def reserve_scratch(size_bytes):
    """Give every worker at least this much scratch memory."""
    _pool().reserve(size_bytes)


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


def has_workers():
    return jit.target().triple == "x86_64-linux"
