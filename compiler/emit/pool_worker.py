"""What a worker's thread of the pool (pool.py) does: look for work, run it, sleep, and leave."""

WORK = """
define void @weft_pool_work(ptr %slot) #0 {
entry:
  %pool = load ptr, ptr %slot
  %state = getelementptr i8, ptr %slot, i64 $SLOT_STATE
  %cpu_at = getelementptr i8, ptr %slot, i64 $SLOT_CPU
  %signal = getelementptr i8, ptr %pool, i64 $SIGNAL
  %stop_at = getelementptr i8, ptr %pool, i64 $STOP
  %generation = getelementptr i8, ptr %pool, i64 $GENERATION
  %lines = getelementptr i8, ptr %pool, i64 $ARRIVED
  %alive = getelementptr i8, ptr %pool, i64 $ALIVE
  %spin_at = getelementptr i8, ptr %pool, i64 $SPIN_NS
  %spin_ns = load i64, ptr %spin_at
  %syscall_at = getelementptr i8, ptr %pool, i64 $SYSCALL
  %syscall = load ptr, ptr %syscall_at
  %getcpu_at = getelementptr i8, ptr %pool, i64 $GETCPU
  %getcpu = load ptr, ptr %getcpu_at
  %thread = call i64 (i64, ...) %syscall(i64 $GETTID)
  %thread_at = getelementptr i8, ptr %slot, i64 $SLOT_THREAD
  store atomic i64 %thread, ptr %thread_at monotonic, align 8
  br label %show

show:
  %cpu = call i32 %getcpu()
  store atomic i32 %cpu, ptr %cpu_at monotonic, align 4
  store atomic i64 $READY, ptr %state seq_cst, align 8
  br label %begin

begin:
  %begun = call i64 @weft_pool_now(ptr %pool)
  %deadline = add i64 %begun, %spin_ns
  br label %look

look:
  %looks = phi i64 [ 0, %begin ], [ %looked, %idle ], [ 1, %check ], [ 1, %sleep ], [ 1, %leave ]
  %word = load atomic i64, ptr %state acquire, align 8
  %taken = icmp sgt i64 %word, 0
  br i1 %taken, label %join, label %rest

join:
  %rank = and i64 %word, 65535
  %number = and i64 %word, -65536
  br label %await

await:
  %awaits = phi i64 [ 0, %join ], [ %awaited, %await_again ], [ %awaited, %await_yield ]
  %published = load atomic i64, ptr %generation acquire, align 8
  %is_published = icmp eq i64 %published, %number
  br i1 %is_published, label %run, label %await_again

await_again:
  call void @llvm.x86.sse2.pause()
  %awaited = add i64 %awaits, 1
  %awaits_long = icmp sgt i64 %awaited, 4000
  br i1 %awaits_long, label %await_yield, label %await

await_yield:
  ; The caller may be waiting for this CPU.
  %gave_way = call i64 (i64, ...) %syscall(i64 $YIELD)
  br label %await

run:
  %body_at = getelementptr i8, ptr %pool, i64 $BODY
  %body = load ptr, ptr %body_at
  %closure_at = getelementptr i8, ptr %pool, i64 $CLOSURE
  %closure = load ptr, ptr %closure_at
  %size_at = getelementptr i8, ptr %pool, i64 $SIZE
  %size = load i64, ptr %size_at
  %scratch_at = getelementptr i8, ptr %slot, i64 $SLOT_SCRATCH
  %scratch = load atomic ptr, ptr %scratch_at monotonic, align 8
  ; Whether denormals are flushed is a matter of the calling thread, and the results are its own.
  %float_mode = getelementptr i8, ptr %pool, i64 $FLOAT_MODE
  call void @llvm.x86.sse.ldmxcsr(ptr %float_mode)
  %failed = call i64 %body(ptr %closure, i64 %rank, i64 %size, i64 %number, ptr %scratch)
  store atomic i64 $READY, ptr %state release, align 8
  %line_offset = shl i64 %rank, 6
  %line = getelementptr i8, ptr %lines, i64 %line_offset
  %last = or i64 %number, 65535
  store atomic i64 %last, ptr %line release, align 8
  br label %begin

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
  %cpu_now = call i32 %getcpu()
  store atomic i32 %cpu_now, ptr %cpu_at monotonic, align 4
  %may_not = xor i1 %runs, true
  %tired = or i1 %late, %may_not
  br i1 %tired, label %sleep, label %look

sleep:
  %signal_seen = load atomic i32, ptr %signal seq_cst, align 4
  %laid = cmpxchg ptr %state, i64 $READY, i64 $ASLEEP seq_cst seq_cst
  %is_free = extractvalue { i64, i1 } %laid, 1
  br i1 %is_free, label %lie, label %look

lie:
  %stop_now = load atomic i64, ptr %stop_at seq_cst, align 8
  %stopped_now = icmp ne i64 %stop_now, 0
  br i1 %stopped_now, label %gone, label %doze

doze:
  %seen = zext i32 %signal_seen to i64
  %slept = call i64 (i64, ...) %syscall(i64 $FUTEX, ptr %signal, i64 $SLEEP, i64 %seen, ptr null)
  ; Woken on the caller's CPU, it would keep the caller waiting: leave first.
  %left = call i1 @weft_pool_leave_cpu(ptr %pool)
  br label %show

leave:
  %quit = cmpxchg ptr %state, i64 $READY, i64 $ABSENT seq_cst seq_cst
  %is_idle = extractvalue { i64, i1 } %quit, 1
  br i1 %is_idle, label %gone, label %look

gone:
  %dead = atomicrmw sub ptr %alive, i64 1 seq_cst
  ret void
}
"""
