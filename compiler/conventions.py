"""What programs and who loads and runs them have agreed on, without knowing each other's code."""

# Who looks for Ctrl-C (emit/interrupt.py):
FAILED, INTERRUPTED = 1, 2  # what a program returns: a check failed; it was interrupted; or both, by `or`
SEEN = "interrupt_seen"  # i32 (): whether there was an interrupt, which is forgotten then
AGAIN = "interrupt_again"  # void (): as if there had been one

# How many worker threads there can be (emit/pool_memory.py).
MAX_WORKERS = 127
