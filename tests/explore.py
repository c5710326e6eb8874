"""The thread pool (compiler/emit/pool.py), through all orders in which its threads can take steps.

    python -m tests.explore             all scenarios, also those that take minutes, and all faults
    python -m tests.explore fork        those whose name contains a word

A scenario is a few jobs of one caller. Members of a job count their runs; in long jobs they also write, wait for each
other and read what the others wrote. At the end the workers are told to leave. Every member must run every job once,
no plain field may be read or written without knowing what was written before, and all threads must be able to end.
FAULTS are changes of the pool's text, each with a scenario that must find it.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from explorer import Ref, Scenario, Wrong, explore
from explorer_code import Code

from weft.compiler.emit import pool as pool_text
from weft.compiler.emit import pool_worker
from weft.compiler.emit.pool import LONG_NS, begin, end, wait, wake
from weft.compiler.emit.pool_memory import FUTEX, SLEEP, WAKE, Pool
from weft.compiler.translate.kinds import I64, Address, Inline, Pointer, Struct
from weft.compiler.translate.language import ACQUIRE, RELAXED

_LATE = 10**12
_N = 3  # members at most


class Record(Struct):
    """What members write: how often each ran, and in long jobs the job's number."""

    pool: Address
    runs: Inline(I64, _N)
    data: Inline(I64, _N)


# --- what the threads do, beside the pool's own text ------------------------------------------------------------------
def short_job(record, rank, size, number, scratch):
    record.runs[rank] = record.runs[rank] + 1
    return 0


def long_job(record, rank, size, number, scratch):
    record.data[rank] = number
    wait(record.pool, rank, size, number + 1)
    for k in range(size):
        check(record.data[k] == number)
    record.runs[rank] = record.runs[rank] + 1
    return 0


def call(pool, record, members, ahead_ns):
    size = begin(pool, None, "job", record, members, ahead_ns)
    job(record, 0, size, pool.generation.load(RELAXED), None)
    end(pool, None, size)
    return size


def caller(pool, record, members, jobs, ahead_ns):
    total = 0
    for _ in range(jobs):
        total += call(pool, record, members, ahead_ns)
        require_free_workers(pool)
        check(record.runs[0] + record.runs[1] + record.runs[2] == total)
    stop(pool)


def stop(pool):
    """As threads.py: quiesce."""
    pool.workers.store(0, RELAXED)
    if pool.alive.load(ACQUIRE) != 0:
        pool.stop.store(1, RELAXED)
        wake(pool, 127)
        while pool.alive.load(ACQUIRE) != 0:
            pause()


def forking_caller(pool, record, members, jobs, ahead_ns):
    """As before and after a fork: the workers leave, and the next program starts new ones."""
    call(pool, record, members, ahead_ns)
    stop(pool)
    for k in range(members - 1):
        pool.slots[k].state.store(0, RELAXED)
    pool.stop.store(0, RELAXED)
    pool.workers.store(members - 1, RELAXED)
    call(pool, record, members, ahead_ns)
    stop(pool)


def stopping_thread(pool):
    """Another Python thread that stops the workers in the middle of a call, which the interpreter lock rules out."""
    stop(pool)


def require_free_workers(pool):
    raise AssertionError("a model stands in its place")


def check(condition):
    raise AssertionError("a model stands in its place")


def job(*arguments):
    raise AssertionError("the scenario's job stands in its place")


def pause():
    raise AssertionError("a model stands in its place")


# --- what the system does ---------------------------------------------------------------------------------------------
def _syscall(step, number, *arguments):
    if number != FUTEX:
        return step.number
    cell, operation, value, *_ = arguments
    if operation == SLEEP:
        if step.state.memory.get(cell.path, 0) == value:
            step.thread.sleeps = cell.path
    elif operation == WAKE:
        for thread in step.state.threads:
            if thread is not None and thread.sleeps == cell.path:
                thread.sleeps = None
    return 0


def _start_worker(step, pool, k):
    step.start_thread(k + 1, "work", pool.slots[k])
    return True


def _may_refuse(step, pool, k):
    return False if step.pick(2) else _start_worker(step, pool, k)


def _now(step, pool):
    """Only where a caller waits for workers does the time matter: it may be late, or not yet."""
    return _LATE if step.thread.frames[-1][0].name == "await_ready" and step.pick(2) else 0


def _check(step, condition):
    if not condition:
        raise Wrong(f"thread {step.number}: a check fails")


def _require_free_workers(step, pool):
    """A job that follows at once finds the workers of the one before."""
    for path, value in step.state.memory.items():
        if path[-1] == "state" and value > 0:
            raise Wrong("a call has ended while its worker is not looking for work")


_MODELS = {
    "require_free_workers": _require_free_workers,
    "syscall": _syscall,
    "start_worker": _start_worker,
    "now": _now,
    "check": _check,
    "getcpu": lambda step: step.number,
    "prefers_team": lambda step, pool, choice: 1,
    "postpone": lambda step, choice: None,
    "learn": lambda step, pool, choice: None,
    "pause": lambda step: None,
    "leave_cpu": lambda step, pool: True,
    "is_tired": lambda step, pool, slot, begun: bool(step.pick(2)),
    "give_way": lambda step, pool, looks: looks,
    "store_float_mode": lambda step, place: None,
    "load_float_mode": lambda step, place: None,
}
_SILENT = set(_MODELS) - {"syscall", "start_worker"}
_NATIVE = [
    f.declaration.function
    for module in (pool_text, pool_worker)
    for f in vars(module).values()
    if hasattr(f, "declaration") and f.__module__ == module.__name__ and f.__name__ not in _MODELS
]
_OURS = (call, caller, stop, forking_caller, stopping_thread)
# Counts of looks and times say nothing about order.
_CONSTANT = {"looks": 1, "begun": 0}


def scenario(*, workers=1, jobs=1, job=short_job, ahead_ns=0, start=caller, buffers=False, refuse=False, stops=False,
             changes=(), most_states=10**7):  # fmt: skip
    """A Scenario of the pool with these changes of its text: (function's name, text, other text)."""
    code = {}
    for function in (*_NATIVE, *_OURS):
        name = function.__name__
        code[name] = Code(function, [(old, new) for f, old, new in changes if f == name], _CONSTANT)
    code["job"] = Code(job)
    pool, record = Ref(Pointer(Pool), ("pool",)), Ref(Pointer(Record), ("record",))
    memory = {("pool", "workers"): workers, ("record", "pool"): pool}
    memory |= {("pool", "slots", k, "pool"): pool for k in range(workers)}
    threads = [(0, start.__name__, pool, record, workers + 1, jobs, ahead_ns)]
    if stops:
        threads.append((workers + 1, "stopping_thread", pool))
    models = _MODELS | ({"start_worker": _may_refuse} if refuse else {})
    return Scenario(threads, code, models, _SILENT, memory, buffers, most_states)


QUICK = {
    "one worker, one short job": {},
    "one worker, one long job": {"job": long_job},
    "one worker, one job, store buffers": {"buffers": True},
    "the system has no threads": {"refuse": True},
    "a long program wakes and waits": {"ahead_ns": LONG_NS},
    "one worker, two short jobs": {"jobs": 2},
    "fork": {"start": forking_caller},
}
LONG = {
    "one worker, two long jobs": {"jobs": 2, "job": long_job},
    "one worker, two jobs, store buffers": {"jobs": 2, "job": long_job, "buffers": True},
    "one worker, two long programs that wait": {"jobs": 2, "ahead_ns": LONG_NS},
    "fork, long jobs": {"start": forking_caller, "job": long_job},
    "another thread stops": {"stops": True, "jobs": 2},
    "two workers, one short job": {"workers": 2},
    "two workers, one long job": {"workers": 2, "job": long_job},
    "two workers, two jobs, the first states": {"workers": 2, "jobs": 2, "most_states": 200_000},
}
# Faults that take the explorer more than a few seconds.
LONG_FAULTS = ("leaving without compare-and-swap",)
SCENARIOS = QUICK | LONG

# name: (changes, the scenario that must find them)
FAULTS = {
    "published before the body": (
        [
            (
                "publish",
                "    pool.body = body\n",
                "",
            ),
            (
                "publish",
                "JOB, RELEASE)\n",
                "JOB, RELEASE)\n    pool.body = body\n",
            ),
        ],
        {},
    ),
    "published without release": (
        [
            (
                "publish",
                "JOB, RELEASE)",
                "JOB, RELAXED)",
            ),
        ],
        {},
    ),
    "awaited without acquire": (
        [
            (
                "run",
                "pool.generation.load(ACQUIRE)",
                "pool.generation.load(RELAXED)",
            ),
        ],
        {},
    ),
    "last number before READY": (
        [
            (
                "run",
                "    slot.state.store(READY, RELEASE)\n",
                "",
            ),
            (
                "run",
                "number | LAST, RELEASE)\n",
                "number | LAST, RELEASE)\n    slot.state.store(READY, RELEASE)\n",
            ),
        ],
        {"jobs": 2, "ahead_ns": LONG_NS},
    ),
    "stop not tested after ASLEEP": (
        [
            (
                "work",
                "if pool.stop.load(SEQ_CST) != 0:\n                        break",
                "pass",
            ),
        ],
        {},
    ),
    "signal read after ASLEEP": (
        [
            (
                "work",
                "                seen = pool.signal.load(SEQ_CST)\n",
                "",
            ),
            (
                "work",
                "                    pool.syscall(FUTEX",
                "                    seen = pool.signal.load(SEQ_CST)\n                    pool.syscall(FUTEX",
            ),
        ],
        {},
    ),
    "taken without compare-and-swap": (
        [
            (
                "take_ready",
                "if is_useful and slot.state.swap_if(READY, number | size, ACQ_REL):",
                "if is_useful:\n            slot.state.store(number | size, RELEASE)",
            ),
        ],
        {},
    ),
    "end waits for nobody": (
        [
            (
                "end",
                "        await_all(pool, size, last)\n",
                "",
            ),
        ],
        {},
    ),
    "a member's end without release": (
        [
            (
                "run",
                "number | LAST, RELEASE)",
                "number | LAST, RELAXED)",
            ),
        ],
        {},
    ),
    "others awaited without acquire": (
        [
            (
                "await_number",
                "load(ACQUIRE)",
                "load(RELAXED)",
            ),
        ],
        {},
    ),
    "arrived without release": (
        [
            (
                "wait",
                "store(number, RELEASE)",
                "store(number, RELAXED)",
            ),
        ],
        {"job": long_job},
    ),
    "a wait that does not wait": (
        [
            (
                "wait",
                "        await_all(pool, size, number)\n",
                "",
            ),
        ],
        {"job": long_job},
    ),
    "ASLEEP without compare-and-swap": (
        [
            (
                "work",
                "if slot.state.swap_if(READY, ASLEEP, SEQ_CST):",
                "slot.state.store(ASLEEP, SEQ_CST)\n                if True:",
            ),
        ],
        {},
    ),
    "leaving without compare-and-swap": (
        [
            (
                "work",
                "if slot.state.swap_if(READY, ABSENT, SEQ_CST):",
                "slot.state.store(ABSENT, SEQ_CST)\n            if True:",
            ),
        ],
        {"stops": True},
    ),
    "woken before the signal is raised": (
        [
            (
                "wake",
                "    pool.signal.add(1, SEQ_CST)\n",
                "",
            ),
            (
                "wake",
                "WAKE, count)\n",
                "WAKE, count)\n    pool.signal.add(1, SEQ_CST)\n",
            ),
        ],
        {},
    ),
    "the signal overtakes stop": (
        [
            (
                "wake",
                "pool.signal.add(1, SEQ_CST)",
                "pool.signal.add(1, RELAXED)",
            ),
        ],
        {"buffers": True},
    ),
    "the signal waits in the store buffer": (
        [
            (
                "wake",
                "pool.signal.add(1, SEQ_CST)",
                "pool.signal.store(pool.signal.load(RELAXED) + 1, RELEASE)",
            ),
        ],
        {"buffers": True},
    ),
    "a worker that is refused counts as alive": (
        [
            (
                "start_workers",
                "            pool.alive.add(-1, SEQ_CST)\n",
                "",
            ),
        ],
        {"refuse": True},
    ),
    "a worker that leaves counts as alive": (
        [
            (
                "work",
                "    pool.alive.add(-1, SEQ_CST)",
                "    pass",
            ),
        ],
        {},
    ),
}


def fault(name):
    """What the explorer says of a fault, or None if it does not find it."""
    changes, options = FAULTS[name]
    try:
        explore(scenario(changes=changes, **options))
    except Wrong as wrong:
        return str(wrong)
    return None


def main(words):
    for name, options in SCENARIOS.items():
        if all(word in name for word in words):
            begun = time.perf_counter()
            print(f"{name}: {explore(scenario(**options))} states, {time.perf_counter() - begun:.1f} s", flush=True)
    for name in FAULTS:
        if all(word in name for word in words):
            begun, found = time.perf_counter(), fault(name)
            said = "NOT FOUND" if found is None else found.splitlines()[0]
            print(f"fault: {name}: {said}, {time.perf_counter() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
