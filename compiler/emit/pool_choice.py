"""The parts of the thread pool (pool.py) that choose: whether a program wants a team this time, and where workers run.

Whether workers help is not certain. Data that changes threads passes between caches, at a price that depends on where
the system happens to place the threads, and a worker may have to wait for its CPU while others compute. So a program
that shares work measures itself:

    i64 @weft_pool_prefers_team(ptr pool, ptr state)    at the beginning: the time now, or 0 for the caller alone
    void @weft_pool_postpone(ptr state)                 no worker came
    void @weft_pool_learn(ptr pool, ptr state)          at the end: takes the time

The way that was faster is taken, and now and then the other one. Results do not depend on it. `state` is a block of
zeros of the program's own, STATE_WORDS long.
"""

# Offsets in the state. TIMES: two estimates in nanoseconds, alone and in a team. A trial is a few calls that go the way
# that seemed slower: LEFT of them are to come after this one; SUM, WORST and COUNT of their times.
STATE_WORDS = 16
STATE = {"CALLS": 0, "STARTED": 8, "SHARED": 16, "IN_A_ROW": 24, "TIMES": 32}
STATE |= {"TRIAL": 48, "LEFT": 56, "TRIAL_STARTED": 64, "NEXT_TRIAL": 72, "SUM": 80, "WORST": 88, "COUNT": 96}
STATE |= {"POSTPONED": 104, "LOST": 112}

# The first 8 calls ask for a team. A trial has 6 calls, of which the first two are not counted, because caches and
# workers have to get used to the change; the next one comes after 32 times the time it took. Workers that were asleep
# come late to a trial, which therefore waits for them, for some calls. Other calls to which no worker came count as
# those of a team: asking takes time too, in vain where no worker may run.
TRYING = {"FIRST_CALLS": 8, "MORE_CALLS": 5, "WARMING": 2, "REST": 32, "MOST_POSTPONED": 40}

# A worker that loses its CPU makes one call late by milliseconds, and such a call should not end teams. So the estimate
# of the way that is taken follows the times by a quarter of the difference, but by no more than a sixteenth of itself;
# and a trial is judged by its mean without the worst call.
#
# Where many processes share the CPUs, late calls are not rare: most calls of a team are faster, and yet four processes
# with a team each did a third of the steps of four with one thread. So LOST adds up by how much the calls of a team
# took longer than one alone usually takes, less what others gained, but not below 0. LOST_NS and the time of one call
# alone may be lost before teams end. Of what is beyond that, 32 times as much passes until the next trial.
TRYING |= {"LOST_NS": 16_000_000}
PREFERENCE = """
define internal i64 @weft_pool_prefers_team(ptr %pool, ptr %state) #0 {
entry:
  %started_at = getelementptr i8, ptr %state, i64 $STARTED
  store i64 0, ptr %started_at
  %threads_at = getelementptr i8, ptr %pool, i64 $THREADS
  %threads = load atomic i64, ptr %threads_at monotonic, align 8
  %workers_at = getelementptr i8, ptr %pool, i64 $WORKERS
  %workers = load atomic i64, ptr %workers_at monotonic, align 8
  %several = icmp sgt i64 %threads, 1
  %helped = icmp sgt i64 %workers, 0
  %useful = and i1 %several, %helped
  br i1 %useful, label %choose, label %alone

alone:
  ret i64 0

choose:
  %now = call i64 @weft_pool_now(ptr %pool)
  store i64 %now, ptr %started_at
  %calls_at = getelementptr i8, ptr %state, i64 $CALLS
  %calls = load i64, ptr %calls_at
  %next_calls = add i64 %calls, 1
  store i64 %next_calls, ptr %calls_at
  %serial_at = getelementptr i8, ptr %state, i64 $TIMES
  %shared_at = getelementptr i8, ptr %serial_at, i64 8
  %serial_ns = load i64, ptr %serial_at
  %shared_ns = load i64, ptr %shared_at
  %is_known = icmp ne i64 %serial_ns, 0
  %is_slower = icmp sge i64 %serial_ns, %shared_ns
  %is_unknown = xor i1 %is_known, true
  %prefers_shared = or i1 %is_unknown, %is_slower
  %trial_at = getelementptr i8, ptr %state, i64 $TRIAL
  %left_at = getelementptr i8, ptr %state, i64 $LEFT
  %mode_at = getelementptr i8, ptr %state, i64 $SHARED
  %last_mode = load i64, ptr %mode_at
  %left = load i64, ptr %left_at
  %goes_on = icmp sgt i64 %left, 0
  br i1 %goes_on, label %continue, label %maybe

continue:
  %fewer = sub i64 %left, 1
  store i64 %fewer, ptr %left_at
  br label %go

maybe:
  %due_at = getelementptr i8, ptr %state, i64 $NEXT_TRIAL
  %due = load i64, ptr %due_at
  %is_due = icmp sge i64 %now, %due
  %is_settled = icmp sge i64 %calls, $FIRST_CALLS
  %tries = and i1 %is_due, %is_settled
  %trial = zext i1 %tries to i64
  store i64 %trial, ptr %trial_at
  %goes_shared = xor i1 %prefers_shared, %tries
  %chosen_mode = zext i1 %goes_shared to i64
  br i1 %tries, label %try, label %go

try:
  store i64 $MORE_CALLS, ptr %left_at
  %trial_started_at = getelementptr i8, ptr %state, i64 $TRIAL_STARTED
  store i64 %now, ptr %trial_started_at
  %postponed_at = getelementptr i8, ptr %state, i64 $POSTPONED
  store i64 0, ptr %postponed_at
  br label %go

go:
  %mode = phi i64 [ %last_mode, %continue ], [ %chosen_mode, %maybe ], [ %chosen_mode, %try ]
  store i64 %mode, ptr %mode_at
  %row_at = getelementptr i8, ptr %state, i64 $IN_A_ROW
  %row = load i64, ptr %row_at
  %longer = add i64 %row, 1
  %same = icmp eq i64 %mode, %last_mode
  %new_row = select i1 %same, i64 %longer, i64 1
  store i64 %new_row, ptr %row_at
  %is_shared = icmp eq i64 %mode, 1
  %answer = select i1 %is_shared, i64 %now, i64 0
  ret i64 %answer
}

define internal void @weft_pool_postpone(ptr %state) #0 {
entry:
  %trial_at = getelementptr i8, ptr %state, i64 $TRIAL
  %trial = load i64, ptr %trial_at
  %in_trial = icmp eq i64 %trial, 1
  %postponed_at = getelementptr i8, ptr %state, i64 $POSTPONED
  %postponed = load i64, ptr %postponed_at
  %patient = icmp slt i64 %postponed, $MOST_POSTPONED
  %again = and i1 %in_trial, %patient
  br i1 %again, label %later, label %done

later:
  %started_at = getelementptr i8, ptr %state, i64 $STARTED
  store i64 0, ptr %started_at
  %row_at = getelementptr i8, ptr %state, i64 $IN_A_ROW
  store i64 0, ptr %row_at
  %more = add i64 %postponed, 1
  store i64 %more, ptr %postponed_at
  %left_at = getelementptr i8, ptr %state, i64 $LEFT
  %left = load i64, ptr %left_at
  %longer = add i64 %left, 1
  store i64 %longer, ptr %left_at
  br label %done

done:
  ret void
}

define internal void @weft_pool_learn(ptr %pool, ptr %state) #0 {
entry:
  %started_at = getelementptr i8, ptr %state, i64 $STARTED
  %started = load i64, ptr %started_at
  %trial_at = getelementptr i8, ptr %state, i64 $TRIAL
  %trial = load i64, ptr %trial_at
  %in_trial = icmp eq i64 %trial, 1
  %sum_at = getelementptr i8, ptr %state, i64 $SUM
  %worst_at = getelementptr i8, ptr %state, i64 $WORST
  %count_at = getelementptr i8, ptr %state, i64 $COUNT
  %row_at = getelementptr i8, ptr %state, i64 $IN_A_ROW
  %row = load i64, ptr %row_at
  %mode_at = getelementptr i8, ptr %state, i64 $SHARED
  %mode = load i64, ptr %mode_at
  %times = getelementptr i8, ptr %state, i64 $TIMES
  %estimate_at = getelementptr i64, ptr %times, i64 %mode
  %estimate = load i64, ptr %estimate_at
  %measured = icmp ne i64 %started, 0
  %warm = icmp sgt i64 %row, $WARMING
  %counts = and i1 %measured, %warm
  br i1 %counts, label %measure, label %trials

measure:
  %now = call i64 @weft_pool_now(ptr %pool)
  %time = sub i64 %now, %started
  br i1 %in_trial, label %collect, label %follow

collect:
  %sum = load i64, ptr %sum_at
  %new_sum = add i64 %sum, %time
  store i64 %new_sum, ptr %sum_at
  %worst = load i64, ptr %worst_at
  %new_worst = call i64 @llvm.smax.i64(i64 %worst, i64 %time)
  store i64 %new_worst, ptr %worst_at
  %count = load i64, ptr %count_at
  %new_count = add i64 %count, 1
  store i64 %new_count, ptr %count_at
  br label %trials

follow:
  %difference = sub i64 %time, %estimate
  %quarter = ashr i64 %difference, 2
  %most = ashr i64 %estimate, 4
  %least = sub i64 0, %most
  %bounded = call i64 @llvm.smin.i64(i64 %quarter, i64 %most)
  %step = call i64 @llvm.smax.i64(i64 %bounded, i64 %least)
  %followed = add i64 %estimate, %step
  %is_first = icmp eq i64 %estimate, 0
  %new = select i1 %is_first, i64 %time, i64 %followed
  store i64 %new, ptr %estimate_at
  %alone_ns = load i64, ptr %times
  %is_known = icmp ne i64 %alone_ns, 0
  %is_team = icmp eq i64 %mode, 1
  %compares = and i1 %is_known, %is_team
  br i1 %compares, label %account, label %trials

account:
  %lost_at = getelementptr i8, ptr %state, i64 $LOST
  %lost_before = load i64, ptr %lost_at
  %later = sub i64 %time, %alone_ns
  %lost_now = add i64 %lost_before, %later
  %lost = call i64 @llvm.smax.i64(i64 %lost_now, i64 0)
  %bearable = add i64 %alone_ns, $LOST_NS
  %too_much = icmp sgt i64 %lost, %bearable
  %kept = call i64 @llvm.smin.i64(i64 %lost, i64 %bearable)
  store i64 %kept, ptr %lost_at
  br i1 %too_much, label %give_up, label %done

give_up:
  %twice = shl i64 %alone_ns, 1
  store i64 %twice, ptr %estimate_at
  %beyond = sub i64 %lost, %bearable
  %pause_ns = mul i64 %beyond, $REST
  %resumes = add i64 %now, %pause_ns
  %resumes_at = getelementptr i8, ptr %state, i64 $NEXT_TRIAL
  store i64 %resumes, ptr %resumes_at
  br label %done

trials:
  %left_at = getelementptr i8, ptr %state, i64 $LEFT
  %left = load i64, ptr %left_at
  %is_last = icmp eq i64 %left, 0
  %ends = and i1 %in_trial, %is_last
  br i1 %ends, label %judge, label %done

judge:
  %total = load i64, ptr %sum_at
  %outlier = load i64, ptr %worst_at
  %calls = load i64, ptr %count_at
  store i64 0, ptr %sum_at
  store i64 0, ptr %worst_at
  store i64 0, ptr %count_at
  store i64 0, ptr %trial_at
  %enough = icmp sgt i64 %calls, 1
  br i1 %enough, label %replace, label %rest

replace:
  %others = sub i64 %calls, 1
  %others_time = sub i64 %total, %outlier
  %mean = sdiv i64 %others_time, %others
  store i64 %mean, ptr %estimate_at
  br label %rest

rest:
  %end = call i64 @weft_pool_now(ptr %pool)
  %trial_started_at = getelementptr i8, ptr %state, i64 $TRIAL_STARTED
  %trial_started = load i64, ptr %trial_started_at
  %trial_ns = sub i64 %end, %trial_started
  %rest_ns = mul i64 %trial_ns, $REST
  %due = add i64 %end, %rest_ns
  %due_at = getelementptr i8, ptr %state, i64 $NEXT_TRIAL
  store i64 %due, ptr %due_at
  br label %done

done:
  ret void
}
"""

# Masks of 1024 CPUs, as the system calls take them. On larger systems a thread counts as free to run anywhere.
CLOCK_AND_CPUS = """
define internal i64 @weft_pool_now(ptr %pool) #0 {
  %time = alloca [2 x i64], align 8
  %clock_at = getelementptr i8, ptr %pool, i64 $CLOCK
  %clock = load ptr, ptr %clock_at
  %status = call i32 %clock(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest_at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest_at
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %rest
  ret i64 %now
}

; The CPUs a thread may run on; thread 0 is the one that asks.
define internal void @weft_pool_allowed(ptr %syscall, i64 %thread, ptr %mask) #0 {
  store [16 x i64] zeroinitializer, ptr %mask
  %size = call i64 (i64, ...) %syscall(i64 $GETAFFINITY, i64 %thread, i64 128, ptr %mask)
  ret void
}

define internal i64 @weft_pool_count(ptr %mask) #0 {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %following, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %total, %loop ]
  %word_at = getelementptr i64, ptr %mask, i64 %k
  %word = load i64, ptr %word_at
  %bits = call i64 @llvm.ctpop.i64(i64 %word)
  %total = add i64 %sum, %bits
  %following = add i64 %k, 1
  %more = icmp slt i64 %following, 16
  br i1 %more, label %loop, label %exit
exit:
  ret i64 %total
}

define internal i1 @weft_pool_is_confined(ptr %pool) #0 {
  %mask = alloca [16 x i64], align 8
  %syscall_at = getelementptr i8, ptr %pool, i64 $SYSCALL
  %syscall = load ptr, ptr %syscall_at
  call void @weft_pool_allowed(ptr %syscall, i64 0, ptr %mask)
  %count = call i64 @weft_pool_count(ptr %mask)
  %one = icmp eq i64 %count, 1
  ret i1 %one
}

; Whether the worker runs elsewhere than the caller; if not at first, it moves to another CPU that the main thread may
; run on.
define internal i1 @weft_pool_leave_cpu(ptr %pool) #0 {
entry:
  %chosen = alloca [16 x i64], align 8
  %getcpu_at = getelementptr i8, ptr %pool, i64 $GETCPU
  %getcpu = load ptr, ptr %getcpu_at
  %here = call i32 %getcpu()
  %caller_at = getelementptr i8, ptr %pool, i64 $CALLER_CPU
  %caller = load atomic i32, ptr %caller_at monotonic, align 4
  %elsewhere = icmp ne i32 %here, %caller
  %unknown = icmp ugt i32 %here, 1023
  %fine = or i1 %elsewhere, %unknown
  br i1 %fine, label %yes, label %move

move:
  %syscall_at = getelementptr i8, ptr %pool, i64 $SYSCALL
  %syscall = load ptr, ptr %syscall_at
  %process_at = getelementptr i8, ptr %pool, i64 $PROCESS
  %process = load i64, ptr %process_at
  call void @weft_pool_allowed(ptr %syscall, i64 %process, ptr %chosen)
  %cpu = zext i32 %here to i64
  %index = lshr i64 %cpu, 6
  %word_at = getelementptr i64, ptr %chosen, i64 %index
  %word = load i64, ptr %word_at
  %position = and i64 %cpu, 63
  %bit = shl i64 1, %position
  %others = xor i64 %bit, -1
  %cleared = and i64 %word, %others
  store i64 %cleared, ptr %word_at
  %count = call i64 @weft_pool_count(ptr %chosen)
  %none = icmp eq i64 %count, 0
  br i1 %none, label %no, label %set

set:
  %status = call i64 (i64, ...) %syscall(i64 $SETAFFINITY, i64 0, i64 128, ptr %chosen)
  %moved = icmp eq i64 %status, 0
  ret i1 %moved

yes:
  ret i1 true

no:
  ret i1 false
}
"""
