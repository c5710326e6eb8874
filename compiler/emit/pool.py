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

How it works. All that is shared lies in one block of memory, whose fields are below. Every job has a number, its
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

This is text for Linux on x86-64. Elsewhere `emit_serial_pool` makes a pool of one thread.
"""

from string import Template

from .pool_choice import CLOCK_AND_CPUS, PREFERENCE, STATE, TRYING
from .pool_worker import WORK

# Byte offsets of the fields. What different threads write is kept on different cache lines.
FIELDS = {
    # Written by Python, read by all.
    "BEGIN": 0,
    "WAIT": 8,
    "END": 16,
    "THREADS": 24,  # of a team, the caller included
    "WORKERS": 32,  # that may be started: fewer if there are fewer CPUs
    "STOP": 40,
    "SPIN_NS": 48,
    "START_THREAD": 56,
    "SYSCALL": 64,
    "GETCPU": 72,
    "CLOCK": 80,
    "PROCESS": 88,
    # The job, written by the caller.
    "GENERATION": 128,
    "BODY": 136,
    "CLOSURE": 144,
    "SIZE": 152,
    "FLOAT_MODE": 160,
    "CALLER_CPU": 192,
    "BUSY": 256,
    "TRIED_AT": 264,
    "SIGNAL": 320,
    "ALIVE": 384,
    # One line per rank.
    "ARRIVED": 448,
    "SLOTS": 448 + 128 * 64,
}
# One slot per worker: the pool, the worker's scratch memory, its thread's number in the system; then what it writes.
SLOT_BYTES, SLOT_POOL, SLOT_SCRATCH, SLOT_THREAD, SLOT_STATE, SLOT_CPU = 128, 0, 8, 16, 64, 72
MAX_WORKERS = 127
POOL_BYTES = FIELDS["SLOTS"] + MAX_WORKERS * SLOT_BYTES
# Numbers of waits in one program: more would run into the next job's.
MOST_WAITS = 65_000


def emit_pool(module):
    """Define begin, wait, end, weft_pool_work (what a worker's thread runs) and weft_pool_wake (after setting stop)."""
    emit_choice(module)
    module.declare("llvm.x86.sse2.pause", "void", [])
    module.declare("llvm.x86.sse.ldmxcsr", "void", ["ptr"])
    module.declare("llvm.x86.sse.stmxcsr", "void", ["ptr"])
    module.globals["signals"] = f"@weft_pool_signals = internal constant i64 {_SIGNALS}"
    _define(module, (_BEGIN, _GATHER, _WAIT, _END, _WAKE, WORK))


def emit_choice(module):
    """Define the part that chooses between a team and the caller alone: text for any processor."""
    for name, n_operands in (("ctpop", 1), ("smin", 2), ("smax", 2)):
        module.declare(f"llvm.{name}.i64", "i64", ["i64"] * n_operands)
    _define(module, (PREFERENCE, CLOCK_AND_CPUS))


def _define(module, texts):
    slot = {"SLOT_BYTES": SLOT_BYTES, "SLOT_SCRATCH": SLOT_SCRATCH, "SLOT_THREAD": SLOT_THREAD}
    slot |= {"SLOT_STATE": SLOT_STATE, "SLOT_CPU": SLOT_CPU}
    values = {**FIELDS, **_SYSTEM, **_WAKING, **_STATES, **TRYING, **STATE, **slot}
    module.functions += [Template(text).substitute(values).strip() for text in texts]


def emit_serial_pool(module):
    """Define the same for teams of one."""
    module.functions.append(_SERIAL.strip())


# Linux on x86-64: numbers of system calls, and the private forms of futex.
_SYSTEM = {"GETTID": 186, "YIELD": 24, "FUTEX": 202, "SLEEP": 128, "WAKE": 129, "SETAFFINITY": 203, "GETAFFINITY": 204}
_SYSTEM |= {"SIGPROCMASK": 14, "SETMASK": 2}
# Signals that workers do not take, as the system's mask. Faults of a thread (SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE,
# SIGSEGV) are its own, and by 32 and 33 the C library talks to all threads: setuid waits until each has answered.
_SIGNALS = ~sum(1 << signal - 1 for signal in (4, 5, 6, 7, 8, 11, 32, 33))
# A worker's state; a job's number and rank are positive.
_STATES = {"ABSENT": 0, "READY": -1, "ASLEEP": -2}
# Waking a worker takes 10 to 30 us, of the caller's time too. For a program with LONG_NS of shared work it is done, and
# waited for. For a smaller one it is done if such programs follow each other before a worker sleeps again.
_WAKING = {"LONG_NS": 200_000, "PATIENCE_NS": 100_000, "AGAIN_NS": 1_000_000}

_SERIAL = """
define i64 @weft_pool_begin(ptr %pool, ptr %state, ptr %body, ptr %closure, i64 %most, i64 %ahead_ns) #0 {
  ret i64 1
}

define void @weft_pool_wait(ptr %pool, i64 %rank, i64 %size, i64 %number) #0 {
  ret void
}

define void @weft_pool_end(ptr %pool, ptr %state, i64 %size) #0 {
  ret void
}
"""

_BEGIN = """
define i64 @weft_pool_begin(ptr %pool, ptr %state, ptr %body, ptr %closure, i64 %most, i64 %ahead_ns) #0 {
entry:
  %now = call i64 @weft_pool_prefers_team(ptr %pool, ptr %state)
  %wanted = icmp ne i64 %now, 0
  br i1 %wanted, label %ask, label %alone

ask:
  ; A job of another thread has the workers.
  %busy = getelementptr i8, ptr %pool, i64 $BUSY
  %asked = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic
  %granted = extractvalue { i64, i1 } %asked, 1
  br i1 %granted, label %gather, label %without

gather:
  %size = call i64 @weft_pool_gather(ptr %pool, i64 %now, i64 %most, i64 %ahead_ns)
  %several = icmp sgt i64 %size, 1
  br i1 %several, label %publish, label %release

release:
  store atomic i64 0, ptr %busy release, align 8
  br label %without

without:
  call void @weft_pool_postpone(ptr %state)
  br label %alone

alone:
  ret i64 1

publish:
  %body_at = getelementptr i8, ptr %pool, i64 $BODY
  store ptr %body, ptr %body_at
  %closure_at = getelementptr i8, ptr %pool, i64 $CLOSURE
  store ptr %closure, ptr %closure_at
  %size_at = getelementptr i8, ptr %pool, i64 $SIZE
  store i64 %size, ptr %size_at
  %float_mode = getelementptr i8, ptr %pool, i64 $FLOAT_MODE
  call void @llvm.x86.sse.stmxcsr(ptr %float_mode)
  %generation = getelementptr i8, ptr %pool, i64 $GENERATION
  %before = load i64, ptr %generation
  %number = add i64 %before, 65536
  store atomic i64 %number, ptr %generation release, align 8
  ret i64 %size
}
"""

# Starts the workers there should be, wakes them if that pays, and takes those that are ready.
_GATHER = """
define internal i64 @weft_pool_gather(ptr %pool, i64 %now, i64 %most, i64 %ahead_ns) #0 {
entry:
  %mask = alloca i64
  %alive = getelementptr i8, ptr %pool, i64 $ALIVE
  %slots = getelementptr i8, ptr %pool, i64 $SLOTS
  %workers_at = getelementptr i8, ptr %pool, i64 $WORKERS
  %workers = load atomic i64, ptr %workers_at monotonic, align 8
  %others = sub i64 %most, 1
  %enough = call i64 @llvm.smin.i64(i64 %workers, i64 %others)
  %getcpu_at = getelementptr i8, ptr %pool, i64 $GETCPU
  %getcpu = load ptr, ptr %getcpu_at
  %cpu = call i32 %getcpu()
  %cpu_at = getelementptr i8, ptr %pool, i64 $CALLER_CPU
  %cpu_noted = load atomic i32, ptr %cpu_at monotonic, align 4
  %moved = icmp ne i32 %cpu, %cpu_noted
  br i1 %moved, label %note, label %count

note:
  store atomic i32 %cpu, ptr %cpu_at monotonic, align 4
  br label %count

count:
  %n_alive = load atomic i64, ptr %alive monotonic, align 8
  %missing = icmp slt i64 %n_alive, %enough
  br i1 %missing, label %start, label %patience

start:
  %raised = atomicrmw add ptr %alive, i64 1 seq_cst
  %syscall_at = getelementptr i8, ptr %pool, i64 $SYSCALL
  %syscall = load ptr, ptr %syscall_at
  ; A thread begins with the signals blocked that its maker blocks. What is sent to the process is for its own threads.
  %blocked = call i64 (i64, ...) %syscall(i64 $SIGPROCMASK, i64 $SETMASK, ptr @weft_pool_signals, ptr %mask, i64 8)
  %new_offset = mul i64 %raised, $SLOT_BYTES
  %new_slot = getelementptr i8, ptr %slots, i64 %new_offset
  %start_at = getelementptr i8, ptr %pool, i64 $START_THREAD
  %start_thread = load ptr, ptr %start_at
  %identity = call i64 %start_thread(ptr @weft_pool_work, ptr %new_slot)
  %restored = call i64 (i64, ...) %syscall(i64 $SIGPROCMASK, i64 $SETMASK, ptr %mask, ptr null, i64 8)
  %refused = icmp eq i64 %identity, -1
  br i1 %refused, label %do_without, label %count

do_without:
  ; The system has no more threads: go on with those there are.
  %lowered = atomicrmw sub ptr %alive, i64 1 seq_cst
  store atomic i64 %raised, ptr %workers_at monotonic, align 8
  br label %patience

patience:
  %candidates = phi i64 [ %enough, %count ], [ %raised, %do_without ]
  %tried_at = getelementptr i8, ptr %pool, i64 $TRIED_AT
  %tried = load i64, ptr %tried_at
  store i64 %now, ptr %tried_at
  %since = sub i64 %now, %tried
  %again = icmp slt i64 %since, $AGAIN_NS
  %long = icmp sge i64 %ahead_ns, $LONG_NS
  %wakes = or i1 %again, %long
  %deadline = add i64 %now, $PATIENCE_NS
  %asleep = call i64 @weft_pool_count_state(ptr %slots, i64 %candidates, i64 $ASLEEP)
  %sleeps = icmp sgt i64 %asleep, 0
  %pays = and i1 %sleeps, %wakes
  br i1 %pays, label %wake, label %wait

wake:
  call void @weft_pool_wake(ptr %pool, i64 %candidates)
  br label %wait

wait:
  br i1 %long, label %look, label %take

look:
  %ready = call i64 @weft_pool_count_state(ptr %slots, i64 %candidates, i64 $READY)
  %all = icmp sge i64 %ready, %candidates
  br i1 %all, label %take, label %look_again

look_again:
  call void @llvm.x86.sse2.pause()
  %late_now = call i64 @weft_pool_now(ptr %pool)
  %late = icmp sgt i64 %late_now, %deadline
  br i1 %late, label %take, label %look

take:
  %generation = getelementptr i8, ptr %pool, i64 $GENERATION
  %number_before = load i64, ptr %generation
  %number = add i64 %number_before, 65536
  br label %each

each:
  %k = phi i64 [ 0, %take ], [ %following, %next ]
  %size = phi i64 [ 1, %take ], [ %new_size, %next ]
  %more = icmp slt i64 %k, %candidates
  br i1 %more, label %try, label %done

try:
  %offset = mul i64 %k, $SLOT_BYTES
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %state = getelementptr i8, ptr %slot, i64 $SLOT_STATE
  %its_cpu_at = getelementptr i8, ptr %slot, i64 $SLOT_CPU
  %word = load atomic i64, ptr %state monotonic, align 8
  %its_cpu = load atomic i32, ptr %its_cpu_at monotonic, align 4
  %is_ready = icmp eq i64 %word, $READY
  %elsewhere = icmp ne i32 %its_cpu, %cpu
  %useful = and i1 %is_ready, %elsewhere
  br i1 %useful, label %swap, label %next

swap:
  %taken_word = or i64 %number, %size
  %swapped = cmpxchg ptr %state, i64 $READY, i64 %taken_word acq_rel monotonic
  %taken = extractvalue { i64, i1 } %swapped, 1
  br label %next

next:
  %joined = phi i1 [ false, %try ], [ %taken, %swap ]
  %more_members = zext i1 %joined to i64
  %new_size = add i64 %size, %more_members
  %following = add i64 %k, 1
  br label %each

done:
  ret i64 %size
}

define internal i64 @weft_pool_count_state(ptr %slots, i64 %candidates, i64 %wanted) #0 {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %following, %body ]
  %count = phi i64 [ 0, %entry ], [ %counted, %body ]
  %more = icmp slt i64 %k, %candidates
  br i1 %more, label %body, label %done
body:
  %offset = mul i64 %k, $SLOT_BYTES
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %state = getelementptr i8, ptr %slot, i64 $SLOT_STATE
  %word = load atomic i64, ptr %state acquire, align 8
  %is_wanted = icmp eq i64 %word, %wanted
  %one = zext i1 %is_wanted to i64
  %counted = add i64 %count, %one
  %following = add i64 %k, 1
  br label %loop
done:
  ret i64 %count
}
"""

_WAIT = """
define void @weft_pool_wait(ptr %pool, i64 %rank, i64 %size, i64 %number) #0 {
entry:
  %several = icmp sgt i64 %size, 1
  br i1 %several, label %arrive, label %done

arrive:
  %lines = getelementptr i8, ptr %pool, i64 $ARRIVED
  %own_offset = shl i64 %rank, 6
  %own = getelementptr i8, ptr %lines, i64 %own_offset
  store atomic i64 %number, ptr %own release, align 8
  call void @weft_pool_others(ptr %pool, i64 %size, i64 %number)
  br label %done

done:
  ret void
}

; Until all members but the caller have stored this number, or a later one; the caller too if it is a worker that asks.
define internal void @weft_pool_others(ptr %pool, i64 %size, i64 %number) #0 {
entry:
  %lines = getelementptr i8, ptr %pool, i64 $ARRIVED
  br label %each

each:
  %rank = phi i64 [ 0, %entry ], [ %following, %next ]
  %more = icmp slt i64 %rank, %size
  br i1 %more, label %member, label %done

member:
  %offset = shl i64 %rank, 6
  %line = getelementptr i8, ptr %lines, i64 %offset
  br label %look

look:
  %looks = phi i64 [ 0, %member ], [ %looked, %patient ], [ %looked, %yield ]
  %arrived = load atomic i64, ptr %line acquire, align 8
  %is_here = icmp sge i64 %arrived, %number
  br i1 %is_here, label %next, label %look_again

look_again:
  %looked = add i64 %looks, 1
  call void @llvm.x86.sse2.pause()
  %long = icmp sgt i64 %looked, 4000
  br i1 %long, label %yield, label %patient

patient:
  br label %look

yield:
  ; The other may be waiting for this CPU.
  %syscall_at = getelementptr i8, ptr %pool, i64 $SYSCALL
  %syscall = load ptr, ptr %syscall_at
  %yielded = call i64 (i64, ...) %syscall(i64 $YIELD)
  br label %look

next:
  %following = add i64 %rank, 1
  br label %each

done:
  ret void
}
"""

_END = """
define void @weft_pool_end(ptr %pool, ptr %state, i64 %size) #0 {
entry:
  %several = icmp sgt i64 %size, 1
  br i1 %several, label %join, label %measure

join:
  %generation = getelementptr i8, ptr %pool, i64 $GENERATION
  %number = load i64, ptr %generation
  %last = or i64 %number, 65535
  %own = getelementptr i8, ptr %pool, i64 $ARRIVED
  store atomic i64 %last, ptr %own release, align 8
  call void @weft_pool_others(ptr %pool, i64 %size, i64 %last)
  %busy = getelementptr i8, ptr %pool, i64 $BUSY
  store atomic i64 0, ptr %busy release, align 8
  br label %measure

measure:
  call void @weft_pool_learn(ptr %pool, ptr %state)
  ret void
}
"""

_WAKE = """
define void @weft_pool_wake(ptr %pool, i64 %count) #0 {
  %signal = getelementptr i8, ptr %pool, i64 $SIGNAL
  %before = atomicrmw add ptr %signal, i32 1 seq_cst
  %syscall_at = getelementptr i8, ptr %pool, i64 $SYSCALL
  %syscall = load ptr, ptr %syscall_at
  %woken = call i64 (i64, ...) %syscall(i64 $FUTEX, ptr %signal, i64 $WAKE, i64 %count)
  ret void
}
"""
