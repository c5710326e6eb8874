"""What a worker's thread of the pool (pool.py) does: look for work, run it, sleep, and leave."""

from ..translate.kinds import I64, Bool
from ..translate.language import ACQUIRE, RELAXED, RELEASE, SEQ_CST, cast, native
from .pool_memory import (
    ABSENT,
    ASLEEP,
    FUTEX,
    GETTID,
    LAST,
    READY,
    SLEEP,
    YIELD,
    Line,
    Pool,
    Slot,
    leave_cpu,
    load_float_mode,
    now,
    pause,
)

# Looks at a word before others may have the CPU, and between two looks at the clock.
PATIENT_LOOKS, CLOCK_LOOKS = 4000, 32


@native(name="weft_pool_work")
def work(slot: Slot):
    """Until it is stopped. The order of operations at sleeping must not be changed; pool.py says why."""
    pool = cast(Pool, slot.pool)
    slot.thread.store(pool.syscall(GETTID), RELAXED)
    show(pool, slot)
    begun = now(pool)
    looks = 0
    while True:
        word = slot.state.load(ACQUIRE)
        if word > 0:
            run(pool, slot, word & LAST, word & ~LAST)
            begun = now(pool)
            looks = 0
        elif pool.stop.load(SEQ_CST) != 0:
            if slot.state.swap_if(READY, ABSENT, SEQ_CST):
                break
        else:
            pause()
            looks += 1
            if looks & (CLOCK_LOOKS - 1) == 1 and is_tired(pool, slot, begun):
                seen = pool.signal.load(SEQ_CST)
                if slot.state.swap_if(READY, ASLEEP, SEQ_CST):
                    if pool.stop.load(SEQ_CST) != 0:
                        break
                    pool.syscall(FUTEX, pool.signal, SLEEP, seen, 0)
                    # Woken on the caller's CPU, it would keep the caller waiting.
                    leave_cpu(pool)
                    show(pool, slot)
                    begun = now(pool)
                    looks = 0
    pool.alive.add(-1, SEQ_CST)


@native()
def show(pool: Pool, slot: Slot):
    """That it looks for work, and where."""
    slot.cpu.store(pool.getcpu(), RELAXED)
    slot.state.store(READY, SEQ_CST)


@native()
def is_tired(pool: Pool, slot: Slot, begun: I64) -> Bool:
    """Whether it has looked for work long enough, or may run on no other CPU than the caller's."""
    is_late = now(pool) > begun + pool.spin_ns
    runs = leave_cpu(pool)
    slot.cpu.store(pool.getcpu(), RELAXED)
    return is_late or not runs


@native()
def run(pool: Pool, slot: Slot, rank: I64, number: I64):
    """The worker's part of the job of this number, once it is published."""
    looks = 0
    while pool.generation.load(ACQUIRE) != number:
        looks = give_way(pool, looks)
    # Whether denormals are flushed is a matter of the calling thread, and the results are its own.
    load_float_mode(pool.float_mode)
    pool.body(pool.closure, rank, pool.size, number, slot.scratch.load(RELAXED))
    # In this order: the caller takes it again as soon as all have come to the end.
    slot.state.store(READY, RELEASE)
    pool.arrived[rank].number.store(number | LAST, RELEASE)


@native()
def await_number(pool: Pool, line: Line, number: I64):
    """Until a member has come to this number, or a later one."""
    looks = 0
    while line.number.load(ACQUIRE) < number:
        looks = give_way(pool, looks)


@native(inline=True)
def give_way(pool: Pool, looks: I64) -> I64:
    """Wait a little; after many looks the other may be waiting for this CPU. Returns how many looks there were."""
    pause()
    if looks >= PATIENT_LOOKS:
        pool.syscall(YIELD)
    return looks + 1
