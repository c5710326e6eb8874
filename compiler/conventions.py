"""What programs and who loads and runs them have agreed on, without knowing each other's code."""

# Who looks for Ctrl-C (emit/interrupt.py):
FAILED, INTERRUPTED = 1, 2  # what a program returns: a check failed; it was interrupted; or both, by `or`
SEEN = "interrupt_seen"  # i32 (): whether there was an interrupt, which is forgotten then
AGAIN = "interrupt_again"  # void (): as if there had been one

# Who lets go of the interpreter's lock, and takes it (emit/unlocked.py):
LET_GO = "lock_let_go"  # ptr (): the lock is held before, and not after
TAKE_AGAIN = "lock_take_again"  # void (ptr): the other way round, given what the first one has returned

# How many worker threads there can be (emit/pool_memory.py).
MAX_WORKERS = 127
