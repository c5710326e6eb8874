"""The thread pool: native workers that run a program together with the thread that calls it, as a team.

    i64  @weft_pool_begin(pool, state, body, closure, most, ahead_ns)    in the caller: the size of the team
    void @weft_pool_wait(pool, rank, size, number)                       in every member: until all came this far
    void @weft_pool_end(pool, state, size)                               in the caller: until all are done

Every member runs `i64 body(closure, rank, size, base, scratch)` once, from its first step to its last: it does its part
of the steps that are shared, and waits for the others where a step needs what they wrote. The caller has rank 0, calls
the body itself between begin and end, and has no scratch: it uses the program's own. A team of one is the caller alone.

`begin` takes those workers that are looking for work at that moment, at most `most` - 1 of them, and so never waits
for one that sleeps, unless the program is long: `ahead_ns` estimates its shared work. Whether a team is better than
the caller alone, programs find out by the clock: see pool_choice.py.

How it works. All that is shared lies in one block of memory (pool_memory.py). Every job has a number, its
generation times 2^16. A worker's own word, `state`, is READY while it looks for work; the caller takes the worker by a
compare-and-swap to the job's number plus a rank. When all are taken it fills in the job and publishes it, by storing
the job's number in `generation`, which the taken workers wait for. A member that has come to its k-th wait stores the
job's number plus k in the line of its rank, and looks at the lines of the others; after its last step it stores the
number plus 2^16 - 1, so that nobody waits for it any more. These words only ever rise.

A worker without work looks at its state for `spin_ns` (a following job then starts within a fraction of a microsecond),
then sleeps on a futex, the word `signal`. Two orders of operations must not be changed:

    worker:  read signal, READY -> ASLEEP, test stop, sleep if signal is as it was read
    caller:  find it ASLEEP, raise signal, wake                   stopping:  set stop, raise signal, wake
    worker:  last step, READY, last number                        caller:  last number of all, next job

By the first no wake and no stop is slept through; by the second a job that follows at once finds its workers.

On one processor, a worker that spins would only delay the caller. So the caller notes on which CPU it runs, and a
worker that finds itself there moves itself off that CPU, or goes to sleep if it may run nowhere else. The caller takes
no worker that was last seen on its own CPU.

This is for Linux on x86-64; elsewhere there is a pool of one thread. The functions are native ones (docs/native.md),
and tests/explore.py runs the same text as Python through all orders in which threads can take their steps.
"""

from ..translate.kinds import I64, Address, Bool
from ..translate.language import ACQ_REL, ACQUIRE, RELAXED, RELEASE, SEQ_CST, local_array, native
from .pool_choice import Choice, learn, postpone, prefers_team
from .pool_memory import (
    ASLEEP,
    FUTEX,
    JOB,
    LAST,
    READY,
    SETMASK,
    SIGPROCMASK,
    WAKE,
    Body,
    Pool,
    now,
    pause,
    store_float_mode,
)
from .pool_worker import await_number, work

# Waking a worker takes 10 to 30 us, of the caller's time too. For a program with LONG_NS of shared work it is done, and
# waited for. For a smaller one it is done if such programs follow each other before a worker sleeps again.
LONG_NS, PATIENCE_NS, AGAIN_NS = 200_000, 100_000, 1_000_000
# Signals that workers do not take, as the system's mask. Faults of a thread (SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE,
# SIGSEGV) are its own, and by 32 and 33 the C library talks to all threads: setuid waits until each has answered.
SIGNALS = ~sum(1 << signal - 1 for signal in (4, 5, 6, 7, 8, 11, 32, 33))


# --- a team begins ----------------------------------------------------------------------------------------------------
@native(name="weft_pool_begin")
def begin(pool: Pool, choice: Choice, body: Body, closure: Address, most: I64, ahead_ns: I64) -> I64:
    time = prefers_team(pool, choice)
    if time == 0:
        return 1
    # If not, a job of another thread has the workers.
    if pool.busy.swap_if(0, 1, ACQUIRE):
        size = gather(pool, time, most, ahead_ns)
        if size > 1:
            publish(pool, body, closure, size)
            return size
        pool.busy.store(0, RELEASE)
    postpone(choice)
    return 1


@native()
def publish(pool: Pool, body: Body, closure: Address, size: I64):
    """Fill in the job, and let the workers that were taken begin."""
    pool.body = body
    pool.closure = closure
    pool.size = size
    store_float_mode(pool.float_mode)
    pool.generation.store(pool.generation.load(RELAXED) + JOB, RELEASE)


@native()
def gather(pool: Pool, time: I64, most: I64, ahead_ns: I64) -> I64:
    """Start the workers there should be, wake them if that pays, and take those that are ready: the team's size."""
    cpu = pool.getcpu()
    if cpu != pool.caller_cpu.load(RELAXED):
        pool.caller_cpu.store(cpu, RELAXED)
    candidates = start_workers(pool, min(pool.workers.load(RELAXED), most - 1))
    since = time - pool.tried_at
    pool.tried_at = time
    is_long = ahead_ns >= LONG_NS
    if (since < AGAIN_NS or is_long) and count_state(pool, candidates, ASLEEP) > 0:
        wake(pool, candidates)
    if is_long:
        await_ready(pool, candidates, time + PATIENCE_NS)
    return take_ready(pool, candidates, cpu)


@native()
def start_workers(pool: Pool, wanted: I64) -> I64:
    """How many there are of those that are wanted."""
    while pool.alive.load(RELAXED) < wanted:
        k = pool.alive.add(1, SEQ_CST)
        if not start_worker(pool, k):
            # The system has no more threads: go on with those there are.
            pool.alive.add(-1, SEQ_CST)
            pool.workers.store(k, RELAXED)
            return k
    return wanted


@native()
def start_worker(pool: Pool, k: I64) -> Bool:
    """A thread begins with the signals blocked that its maker blocks. What is sent to the process is for its own
    threads."""
    blocked = local_array(I64, 1)
    before = local_array(I64, 1)
    blocked[0] = SIGNALS
    pool.syscall(SIGPROCMASK, SETMASK, blocked, before, 8)
    thread = pool.start_thread(work, pool.slots[k])
    pool.syscall(SIGPROCMASK, SETMASK, before, 0, 8)
    return thread != -1


@native()
def count_state(pool: Pool, candidates: I64, wanted: I64) -> I64:
    found = 0
    for k in range(candidates):
        found += int(pool.slots[k].state.load(ACQUIRE) == wanted)
    return found


@native()
def await_ready(pool: Pool, candidates: I64, deadline: I64):
    while count_state(pool, candidates, READY) < candidates:
        pause()
        if now(pool) > deadline:
            break


@native()
def take_ready(pool: Pool, candidates: I64, cpu: I64) -> I64:
    """Give ranks of the next job to the workers that look for work, elsewhere than here: the team's size."""
    number = pool.generation.load(RELAXED) + JOB
    size = 1
    for k in range(candidates):
        slot = pool.slots[k]
        is_useful = slot.state.load(RELAXED) == READY and slot.cpu.load(RELAXED) != cpu
        if is_useful and slot.state.swap_if(READY, number | size, ACQ_REL):
            size += 1
    return size


@native(name="weft_pool_wake")
def wake(pool: Pool, count: I64):
    pool.signal.add(1, SEQ_CST)
    pool.syscall(FUTEX, pool.signal, WAKE, count)


# --- a team goes on, and ends -----------------------------------------------------------------------------------------
@native(name="weft_pool_wait")
def wait(pool: Pool, rank: I64, size: I64, number: I64):
    if size > 1:
        pool.arrived[rank].number.store(number, RELEASE)
        await_all(pool, size, number)


@native()
def await_all(pool: Pool, size: I64, number: I64):
    for rank in range(size):
        await_number(pool, pool.arrived[rank], number)


@native(name="weft_pool_end")
def end(pool: Pool, choice: Choice, size: I64):
    if size > 1:
        last = pool.generation.load(RELAXED) | LAST
        pool.arrived[0].number.store(last, RELEASE)
        await_all(pool, size, last)
        pool.busy.store(0, RELEASE)
    learn(pool, choice)


# --- a pool of one thread ---------------------------------------------------------------------------------------------
@native(name="weft_pool_begin")
def begin_alone(pool: Pool, choice: Choice, body: Body, closure: Address, most: I64, ahead_ns: I64) -> I64:
    return 1


@native(name="weft_pool_wait")
def wait_alone(pool: Pool, rank: I64, size: I64, number: I64):
    pass


@native(name="weft_pool_end")
def end_alone(pool: Pool, choice: Choice, size: I64):
    pass


# What programs call, and what Python calls after setting stop; the same for one thread.
POOL, SERIAL_POOL = (begin, wait, end, wake), (begin_alone, wait_alone, end_alone)
