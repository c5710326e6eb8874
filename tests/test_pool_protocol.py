"""The pool's protocol under random delays: every order of atomic operations that they provoke must end well."""

import os
import subprocess
import sys

from weft.compiler.emit.pool import POOL
from weft.compiler.emit.pool_memory import Pool
from weft.compiler.translate.kinds import offset_of
from weft.compiler.translate.translate import translate

_DELAY = """
define internal void @weft_pool_delay() #0 {
entry:
  %time = call i64 @llvm.readcyclecounter()
  %mixed = mul i64 %time, 6364136223846793005
  %dice = lshr i64 %mixed, 54
  %long = icmp eq i64 %dice, 0
  %some = lshr i64 %dice, 3
  %count = select i1 %long, i64 4000, i64 %some
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @llvm.x86.sse2.pause()
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}

; Every member counts its runs, and shows how far it has come; nobody may lag behind after a wait.
define internal i64 @body(ptr %closure, i64 %rank, i64 %size, i64 %number, ptr %scratch) #0 {
entry:
  %pool = load ptr, ptr %closure
  %runs = getelementptr i64, ptr %closure, i64 16
  %run_at = getelementptr i64, ptr %runs, i64 %rank
  %run = load i64, ptr %run_at
  %run_more = add i64 %run, 1
  store i64 %run_more, ptr %run_at
  %steps = getelementptr i64, ptr %closure, i64 32
  %own = getelementptr i64, ptr %steps, i64 %rank
  %errors = getelementptr i64, ptr %closure, i64 1
  br label %round
round:
  %k = phi i64 [ 1, %entry ], [ %following, %after ]
  %now = add i64 %number, %k
  store i64 %now, ptr %own
  call void @weft_pool_wait(ptr %pool, i64 %rank, i64 %size, i64 %now)
  br label %others
others:
  %r = phi i64 [ 0, %round ], [ %next, %others ]
  %its_at = getelementptr i64, ptr %steps, i64 %r
  %its = load i64, ptr %its_at
  %late = icmp slt i64 %its, %now
  %wrong = zext i1 %late to i64
  %counted = atomicrmw add ptr %errors, i64 %wrong seq_cst
  %next = add i64 %r, 1
  %more = icmp slt i64 %next, %size
  br i1 %more, label %others, label %after
after:
  %following = add i64 %k, 1
  %again = icmp sle i64 %following, 7
  br i1 %again, label %round, label %done
done:
  ret i64 0
}

define i64 @job(ptr %pool, ptr %state, ptr %closure, i64 %most, i64 %ahead) #0 {
  %size = call i64 @weft_pool_begin(ptr %pool, ptr %state, ptr @body, ptr %closure, i64 %most, i64 %ahead)
  %generation = getelementptr i8, ptr %pool, i64 GENERATION
  %number = load i64, ptr %generation
  %failed = call i64 @body(ptr %closure, i64 0, i64 %size, i64 %number, ptr null)
  call void @weft_pool_end(ptr %pool, ptr %state, i64 %size)
  ret i64 %size
}
"""


def delayed_pool():
    """The pool's text with random delays after every atomic operation, and a job whose members watch each other."""
    lines = ["declare i64 @llvm.readcyclecounter()"]
    for line in translate(POOL).text().splitlines():
        lines.append(line)
        if any(word in line for word in (" atomic ", "atomicrmw", "cmpxchg")) and not line.lstrip().startswith(";"):
            lines.append("  call void @weft_pool_delay()")
    return "\n".join(lines) + _DELAY.replace("GENERATION", str(offset_of(Pool, "generation")))


STRESS = """
import ctypes
import sys
import time
import numpy as np
from weft.runtime.code import workers
from weft.runtime.code import jit
library = jit.link(jit.compile_text(sys.stdin.read()))
pool = workers.WorkerPool(library, has_workers=True)
pool.set_threads(4)
pool.n_workers = 3
job = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)(library.address("job"))
state, closure = np.zeros(16, np.int64), np.zeros(48, np.int64)
closure[0] = pool.address
runs, sizes, end = np.zeros(16, np.int64), [], time.monotonic() + 3
random = np.random.default_rng(0)
while time.monotonic() < end or set(sizes) < {1, 2, 3}:
    pool.quiesce()
    pool.write("spin_ns", int(random.choice([0, 2_000, 50_000])))
    pool.resume()
    for _ in range(random.integers(1, 60)):
        state[:] = 0
        most, ahead_ns = int(random.integers(1, 6)), int(random.choice([0, 10**6]))
        sizes.append(job(pool.address, state.ctypes.data, closure.ctypes.data, most, ahead_ns))
        runs[: sizes[-1]] += 1
        assert sizes[-1] <= max(most, 1)
        if random.integers(8) == 0:
            time.sleep(random.choice([0, 1e-5, 1e-4]))
    assert closure[1] == 0, closure
    assert (closure[16:32] == runs).all(), (closure, runs)
assert len(sizes) > 20, len(sizes)
"""


def test_protocol_with_delays_between_all_atomic_operations():
    """Three workers, jobs, sleep and stop in the orders that delays provoke: every member runs every job once, nobody
    passes a wait before the others have come, and none hangs."""
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        return
    done = subprocess.run(
        [sys.executable, "-c", STRESS], input=delayed_pool(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
