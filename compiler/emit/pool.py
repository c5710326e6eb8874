"""The thread pool: native workers that take parts of a kernel or a product, and the function that shares work out.

    void @weft_pool_run(ptr pool, ptr part, ptr closure, i64 extent, i64 most, i64 ahead_ns)

runs `void part(closure, first, stop, scratch)` over [0, extent), cut into at most `most` chunks and no more than the
pool has threads, and returns when all of it is done. `scratch` is the memory of the worker that runs the chunk, or null
in the calling thread, which uses the program's own. A pool that is busy, or has one thread, means one call of `part`.
`ahead_ns` estimates the shared work of the program from here on, which decides whether sleeping workers are woken.

How it works. All that is shared lies in one block of memory, whose fields are below. A job is published as one word,

    claim:  generation (32 bits) | chunks (16) | next chunk (16)

and whoever raises the word by one with a compare-and-swap owns that chunk: the caller as well as the workers. So the
caller never waits for a worker that did not show up, only for chunks that were claimed. Every job has its own
generation, which makes the swap fail for a worker that read the fields of a job that is over.

A worker without work looks at the word for `spin_ns` (a following job then starts within a fraction of a microsecond),
then sleeps on a futex, the word `signal`. Two orders of operations must not be changed:

    worker:  read signal, test stop, count itself a sleeper, look for a chunk, sleep if signal is as it was read
    caller:  publish the job, look for sleepers, raise signal, wake         stopping:  set stop, raise signal, wake

Whichever of the two is first, one sees the other: no job and no stop is slept through.

Whether workers help is not certain, so programs measure themselves: see pool_choice.py.

On one processor, a worker that spins would only delay the caller. So the caller notes on which CPU it runs, and a
worker that finds itself there moves itself off that CPU, or goes to sleep if it may run nowhere else.

This is text for Linux on x86-64. Elsewhere `emit_serial_pool` makes a pool of one thread.
"""

from string import Template

from .pool_choice import BEGIN_AND_END, CLOCK_AND_CPUS, STATE, TRYING

# Byte offsets of the fields. What different threads write is kept on different cache lines.
FIELDS = {
    # Written by Python, read by all.
    "RUN": 0,
    "BEGIN": 8,
    "END": 16,
    "THREADS": 24,  # that share a job, the caller included
    "WORKERS": 32,  # that may be started: fewer if there are fewer CPUs
    "STOP": 40,
    "SPIN_NS": 48,
    "START_THREAD": 56,
    "SYSCALL": 64,
    "GETCPU": 72,
    "CLOCK": 80,
    "PROCESS": 88,
    # The job, written by the caller.
    "CLAIM": 128,
    "PART": 136,
    "CLOSURE": 144,
    "EXTENT": 152,
    "CALLER_CPU": 160,
    "FLOAT_MODE": 168,
    "TRIED_AT": 176,
    "TRIED": 184,
    "DONE": 256,
    "SIGNAL": 320,
    "SLEEPERS": 328,
    "ALIVE": 384,
    "BUSY": 448,
    "SLOTS": 512,
}
# One per worker: the pool, the worker's scratch memory, its thread's number in the system.
SLOT_BYTES, SLOT_POOL, SLOT_SCRATCH, SLOT_THREAD = 64, 0, 8, 16
MAX_WORKERS = 127
POOL_BYTES = FIELDS["SLOTS"] + MAX_WORKERS * SLOT_BYTES


def emit_pool(module):
    """Define weft_pool_run, weft_pool_work (what a worker's thread runs) and weft_pool_wake (after setting stop)."""
    values = {
        **FIELDS,
        **_SYSTEM,
        **_WAKING,
        **TRYING,
        **STATE,
        "SLOT_BYTES": SLOT_BYTES,
        "SLOT_SCRATCH": SLOT_SCRATCH,
        "SLOT_THREAD": SLOT_THREAD,
    }
    module.declare("llvm.x86.sse2.pause", "void", [])
    module.declare("llvm.x86.sse.ldmxcsr", "void", ["ptr"])
    module.declare("llvm.x86.sse.stmxcsr", "void", ["ptr"])
    module.declare("llvm.ctpop.i64", "i64", ["i64"])
    module.declare("llvm.smin.i64", "i64", ["i64", "i64"])
    for text in (BEGIN_AND_END, _RUN, _WAKE, _CHUNK, _WORK, CLOCK_AND_CPUS):
        module.functions.append(Template(text).substitute(values).strip())


def emit_serial_pool(module):
    """Define a weft_pool_run that calls the part once."""
    module.functions.append(_SERIAL.strip())


# Linux on x86-64: numbers of system calls, and the private forms of futex.
_SYSTEM = {"GETTID": 186, "YIELD": 24, "FUTEX": 202, "WAIT": 128, "WAKE": 129, "SETAFFINITY": 203, "GETAFFINITY": 204}
# Waking a worker takes 10 to 30 us, of the caller's time too: it is done for a program with that much shared work, and
# for a smaller one that runs again and again.
_WAKING = {"WAKE_NS": 40_000, "AGAIN_NS": 300_000}

_SERIAL = """
define void @weft_pool_run(ptr %pool, ptr %part, ptr %closure, i64 %extent, i64 %most, i64 %ahead_ns) #0 {
  call void %part(ptr %closure, i64 0, i64 %extent, ptr null)
  ret void
}

define i64 @weft_pool_begin(ptr %pool, ptr %state) #0 {
  ret i64 1
}

define i64 @weft_pool_end(ptr %pool, ptr %state) #0 {
  ret i64 0
}
"""

_RUN = """
define void @weft_pool_run(ptr %pool, ptr %part, ptr %closure, i64 %extent, i64 %most, i64 %ahead_ns) #0 {
entry:
  %float_mode = getelementptr i8, ptr %pool, i64 $FLOAT_MODE
  %claim = getelementptr i8, ptr %pool, i64 $CLAIM
  %done = getelementptr i8, ptr %pool, i64 $DONE
  %busy = getelementptr i8, ptr %pool, i64 $BUSY
  %alive = getelementptr i8, ptr %pool, i64 $ALIVE
  %threads_at = getelementptr i8, ptr %pool, i64 $THREADS
  %threads = load atomic i64, ptr %threads_at monotonic, align 8
  %chunks = call i64 @llvm.smin.i64(i64 %threads, i64 %most)
  %workers_at = getelementptr i8, ptr %pool, i64 $WORKERS
  %workers = load atomic i64, ptr %workers_at monotonic, align 8
  %enough = icmp sgt i64 %chunks, 1
  %helped = icmp sgt i64 %workers, 0
  %shared = and i1 %enough, %helped
  br i1 %shared, label %ask, label %serial

ask:
  ; A job of another thread, or the job this call is a part of, has the workers.
  %asked = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic
  %granted = extractvalue { i64, i1 } %asked, 1
  br i1 %granted, label %count, label %serial

count:
  %n_alive = load atomic i64, ptr %alive monotonic, align 8
  %missing = icmp slt i64 %n_alive, %workers
  br i1 %missing, label %start, label %publish

start:
  %raised = atomicrmw add ptr %alive, i64 1 seq_cst
  %slot_offset = mul i64 %raised, $SLOT_BYTES
  %slots = getelementptr i8, ptr %pool, i64 $SLOTS
  %slot = getelementptr i8, ptr %slots, i64 %slot_offset
  %start_at = getelementptr i8, ptr %pool, i64 $START_THREAD
  %start_thread = load ptr, ptr %start_at
  %identity = call i64 %start_thread(ptr @weft_pool_work, ptr %slot)
  %refused = icmp eq i64 %identity, -1
  br i1 %refused, label %do_without, label %count

do_without:
  ; The system has no more threads: go on with those there are.
  %lowered = atomicrmw sub ptr %alive, i64 1 seq_cst
  store atomic i64 %raised, ptr %workers_at monotonic, align 8
  br label %publish

publish:
  %getcpu_at = getelementptr i8, ptr %pool, i64 $GETCPU
  %getcpu = load ptr, ptr %getcpu_at
  %cpu = call i32 %getcpu()
  %cpu_at = getelementptr i8, ptr %pool, i64 $CALLER_CPU
  store atomic i32 %cpu, ptr %cpu_at monotonic, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %float_mode)
  %part_at = getelementptr i8, ptr %pool, i64 $PART
  store atomic ptr %part, ptr %part_at monotonic, align 8
  %closure_at = getelementptr i8, ptr %pool, i64 $CLOSURE
  store atomic ptr %closure, ptr %closure_at monotonic, align 8
  %extent_at = getelementptr i8, ptr %pool, i64 $EXTENT
  store atomic i64 %extent, ptr %extent_at monotonic, align 8
  store atomic i64 0, ptr %done monotonic, align 8
  %before = load atomic i64, ptr %claim monotonic, align 8
  %generation = lshr i64 %before, 32
  %next_generation = add i64 %generation, 1
  %high = shl i64 %next_generation, 32
  %middle = shl i64 %chunks, 16
  %word = or i64 %high, %middle
  %replaced = atomicrmw xchg ptr %claim, i64 %word seq_cst
  %sleepers_at = getelementptr i8, ptr %pool, i64 $SLEEPERS
  %sleepers = load atomic i64, ptr %sleepers_at seq_cst, align 8
  %n_alive_now = load atomic i64, ptr %alive monotonic, align 8
  %awake = sub i64 %n_alive_now, %sleepers
  %helpers = sub i64 %chunks, 1
  %wanted = sub i64 %helpers, %awake
  %few = icmp sgt i64 %wanted, 0
  br i1 %few, label %judge, label %work

judge:
  %large = icmp sge i64 %ahead_ns, $WAKE_NS
  br i1 %large, label %consider, label %remember

remember:
  ; Within a program less and less is ahead. As much as before means that the program runs again.
  %tried_at = getelementptr i8, ptr %pool, i64 $TRIED_AT
  %tried = getelementptr i8, ptr %pool, i64 $TRIED
  %last_time = load i64, ptr %tried_at
  %last_ahead = load i64, ptr %tried
  %now = call i64 @weft_pool_now(ptr %pool)
  store i64 %now, ptr %tried_at
  store i64 %ahead_ns, ptr %tried
  %gap = sub i64 %now, %last_time
  %recent = icmp slt i64 %gap, $AGAIN_NS
  %again = icmp sge i64 %ahead_ns, %last_ahead
  %repeats = and i1 %recent, %again
  br i1 %repeats, label %consider, label %work

consider:
  ; A caller that is confined to one CPU was meant to use one; its workers may be confined to the same one.
  %confined = call i1 @weft_pool_is_confined(ptr %pool)
  br i1 %confined, label %work, label %wake

wake:
  call void @weft_pool_wake(ptr %pool, i64 %wanted)
  br label %work

work:
  %own = call i1 @weft_pool_chunk(ptr %pool, ptr null)
  br i1 %own, label %work, label %wait

wait:
  %looks = phi i64 [ 0, %work ], [ %looked, %patient ], [ %looked, %yield ]
  %n_done = load atomic i64, ptr %done acquire, align 8
  %all_done = icmp sge i64 %n_done, %chunks
  br i1 %all_done, label %finish, label %look_again

look_again:
  %looked = add i64 %looks, 1
  call void @llvm.x86.sse2.pause()
  %long = icmp sgt i64 %looked, 4000
  br i1 %long, label %yield, label %patient

patient:
  br label %wait

yield:
  ; A worker may be waiting for this CPU.
  %syscall_at = getelementptr i8, ptr %pool, i64 $SYSCALL
  %syscall = load ptr, ptr %syscall_at
  %yielded = call i64 (i64, ...) %syscall(i64 $YIELD)
  br label %wait

finish:
  store atomic i64 0, ptr %busy release, align 8
  ret void

serial:
  call void %part(ptr %closure, i64 0, i64 %extent, ptr null)
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

# Chunk i of n is [extent * i / n, extent * (i + 1) / n).
_CHUNK = """
define internal i1 @weft_pool_chunk(ptr %pool, ptr %slot) #0 {
entry:
  %claim = getelementptr i8, ptr %pool, i64 $CLAIM
  %word = load atomic i64, ptr %claim acquire, align 8
  %next = and i64 %word, 65535
  %shifted = lshr i64 %word, 16
  %chunks = and i64 %shifted, 65535
  %available = icmp ult i64 %next, %chunks
  br i1 %available, label %take, label %none

take:
  %part_at = getelementptr i8, ptr %pool, i64 $PART
  %part = load atomic ptr, ptr %part_at monotonic, align 8
  %closure_at = getelementptr i8, ptr %pool, i64 $CLOSURE
  %closure = load atomic ptr, ptr %closure_at monotonic, align 8
  %extent_at = getelementptr i8, ptr %pool, i64 $EXTENT
  %extent = load atomic i64, ptr %extent_at monotonic, align 8
  %raised = add i64 %word, 1
  %swapped = cmpxchg ptr %claim, i64 %word, i64 %raised acq_rel acquire
  %owned = extractvalue { i64, i1 } %swapped, 1
  br i1 %owned, label %bounds, label %some

bounds:
  %following = add i64 %next, 1
  %start_product = mul i64 %extent, %next
  %stop_product = mul i64 %extent, %following
  %first = udiv i64 %start_product, %chunks
  %stop = udiv i64 %stop_product, %chunks
  %is_caller = icmp eq ptr %slot, null
  br i1 %is_caller, label %call, label %prepare

prepare:
  %scratch_at = getelementptr i8, ptr %slot, i64 $SLOT_SCRATCH
  %scratch = load atomic ptr, ptr %scratch_at monotonic, align 8
  ; Whether denormals are flushed is a matter of the calling thread, and the results are its own.
  %float_mode = getelementptr i8, ptr %pool, i64 $FLOAT_MODE
  call void @llvm.x86.sse.ldmxcsr(ptr %float_mode)
  br label %call

call:
  %memory = phi ptr [ null, %bounds ], [ %scratch, %prepare ]
  call void %part(ptr %closure, i64 %first, i64 %stop, ptr %memory)
  %done = getelementptr i8, ptr %pool, i64 $DONE
  %before = atomicrmw add ptr %done, i64 1 release
  br label %some

some:
  ret i1 true

none:
  ret i1 false
}
"""

_WORK = """
define void @weft_pool_work(ptr %slot) #0 {
entry:
  %pool = load ptr, ptr %slot
  %signal = getelementptr i8, ptr %pool, i64 $SIGNAL
  %stop_at = getelementptr i8, ptr %pool, i64 $STOP
  %claim = getelementptr i8, ptr %pool, i64 $CLAIM
  %sleepers = getelementptr i8, ptr %pool, i64 $SLEEPERS
  %alive = getelementptr i8, ptr %pool, i64 $ALIVE
  %spin_at = getelementptr i8, ptr %pool, i64 $SPIN_NS
  %spin_ns = load i64, ptr %spin_at
  %syscall_at = getelementptr i8, ptr %pool, i64 $SYSCALL
  %syscall = load ptr, ptr %syscall_at
  %thread = call i64 (i64, ...) %syscall(i64 $GETTID)
  %thread_at = getelementptr i8, ptr %slot, i64 $SLOT_THREAD
  store atomic i64 %thread, ptr %thread_at monotonic, align 8
  br label %begin

begin:
  %begun = call i64 @weft_pool_now(ptr %pool)
  %deadline = add i64 %begun, %spin_ns
  br label %look

look:
  %looks = phi i64 [ 0, %begin ], [ %looked, %idle ], [ 1, %check ]
  %worked = call i1 @weft_pool_chunk(ptr %pool, ptr %slot)
  br i1 %worked, label %begin, label %rest

rest:
  %stop = load atomic i64, ptr %stop_at seq_cst, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %leave, label %idle

idle:
  call void @llvm.x86.sse2.pause()
  %looked = add i64 %looks, 1
  %low = and i64 %looks, 31
  %due = icmp eq i64 %low, 0
  br i1 %due, label %check, label %look

check:
  %now = call i64 @weft_pool_now(ptr %pool)
  %late = icmp sgt i64 %now, %deadline
  %runs = call i1 @weft_pool_leave_cpu(ptr %pool)
  %may_not = xor i1 %runs, true
  %tired = or i1 %late, %may_not
  br i1 %tired, label %sleep, label %look

sleep:
  %signal_seen = load atomic i32, ptr %signal seq_cst, align 4
  %stop_now = load atomic i64, ptr %stop_at seq_cst, align 8
  %stopped_now = icmp ne i64 %stop_now, 0
  br i1 %stopped_now, label %leave, label %announce

announce:
  %sleeping = atomicrmw add ptr %sleepers, i64 1 seq_cst
  %word = load atomic i64, ptr %claim seq_cst, align 8
  %next = and i64 %word, 65535
  %shifted = lshr i64 %word, 16
  %chunks = and i64 %shifted, 65535
  %available = icmp ult i64 %next, %chunks
  br i1 %available, label %awake, label %doze

doze:
  %seen = zext i32 %signal_seen to i64
  %slept = call i64 (i64, ...) %syscall(i64 $FUTEX, ptr %signal, i64 $WAIT, i64 %seen, ptr null)
  ; Woken on the caller's CPU, it would keep the caller waiting: leave first, work then.
  %left = call i1 @weft_pool_leave_cpu(ptr %pool)
  br label %awake

awake:
  %woken = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  br label %begin

leave:
  %last = atomicrmw sub ptr %alive, i64 1 seq_cst
  ret void
}
"""
