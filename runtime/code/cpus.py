"""How many threads were asked for, and how many CPUs there are for them."""

import os
import sys

requested = []  # by set_num_threads: one number, or none


def wanted():
    """What was set; else WEFT_NUM_THREADS, by which a job scheduler can share out a machine; else all CPUs."""
    if requested:
        return requested[0]
    text = os.environ.get("WEFT_NUM_THREADS", "")
    if not text:
        return n_cpus()
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"WEFT_NUM_THREADS={text}: must be a positive number")
    return int(text)


def n_cpus():
    """CPUs this process may run on: its affinity, and no more than its control group's share of time."""
    if not hasattr(os, "sched_getaffinity"):
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), _cpu_share()))


def _cpu_share():
    """Containers are often given a share of time instead of CPUs; threads beyond it are only halted in turns."""
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError):
        return sys.maxsize
