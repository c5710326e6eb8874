"""The first call and the memory of each side, in processes that do nothing else.

Cold: the compiler's cache is empty. Warm: another process, with the cache the cold one left. A library without a cache
is measured the same way, for what else a second start saves.
"""

import statistics
import tempfile
import time

from .process import SideFailed, SideProcess

# Further repetitions are not begun after this long: some compilers take half a minute.
BUDGET_SECONDS = 15


def measure(workload, side, form, threads, repetitions):
    """{"cold": ..., "warm": ...}, medians of the repetitions, or {"error": ...}."""
    samples = {"cold": [], "warm": []}
    end = time.perf_counter() + BUDGET_SECONDS
    try:
        while len(samples["cold"]) < repetitions and (time.perf_counter() < end or not samples["cold"]):
            with tempfile.TemporaryDirectory() as cache:
                for kind in samples:
                    with SideProcess(workload.name, side, threads, cache) as process:
                        samples[kind].append(process.ask("first", form=form))
    except SideFailed as error:
        return {"error": str(error)}
    return {kind: summary(answers) for kind, answers in samples.items()}


def summary(answers):
    medians = {key: statistics.median(a[key] for a in answers) for key in answers[0]}
    return {**medians, "repetitions": len(answers)}
