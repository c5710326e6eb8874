"""python -m benchmarks.memory: calls idioms (benchmarks/idioms) many times over, and says what memory they leave.

    python -m benchmarks.memory                          ten idioms, 200,000 calls each, compiled
    python -m benchmarks.memory --calls 1000 --idiom ring_buffer,hook_on_a_value
    python -m benchmarks.memory --side weft-eager

What is counted after a tenth of the calls, or some hundreds, and at the end: Python's blocks, objects of its collector,
and the bytes of the process. A leak of one object in a call is as many blocks as there are calls; caches that fill up
are few. Ends with 1 if something grew. Every idiom runs in this process, one after the other.
"""

import argparse
import gc
import sys
from dataclasses import dataclass
from pathlib import Path

from .idioms import IDIOMS

USUAL = (
    "step_adamw",
    "backward_outside",
    "second_derivative_outside",
    "views_as_results",
    "dictionary_of_tensors",
    "slice_of_state",
    "condition_with_both_outcomes",
    "number_read_in_the_middle",
    "accumulated_in_place",
    "function_of_ones_own",
)
# What may come once, whatever the number of calls: caches of the interpreter, of weft, of the system's allocator.
SPARE_BLOCKS, SPARE_BYTES = 300, 4 << 20
MOST_BLOCKS_PER_CALL = 0.002
# After some hundreds of calls weft times eager ones against replayed ones (frontend/contest.py), and makes what eager
# mode keeps for its ops. That comes once, so mostly it is over before anything is counted; on a busy machine it may
# come later, so what has grown is counted once more.
LEAST_WARM_CALLS = 700


@dataclass(frozen=True, slots=True)
class Growth:
    """What an idiom has left behind in so many calls."""

    name: str
    calls: int
    blocks: int
    objects: int
    size_bytes: int

    @property
    def is_flat(self):
        most = SPARE_BLOCKS + MOST_BLOCKS_PER_CALL * self.calls
        return self.blocks <= most and self.objects <= most and self.size_bytes <= SPARE_BYTES

    def __str__(self):
        grown = f"{self.blocks:+} blocks, {self.objects:+} objects, {self.size_bytes / 1024:+.0f} KiB"
        return f"{self.name}: {self.calls} calls, {grown}{'' if self.is_flat else '  GREW'}"


def growth_of(name, call, calls):
    for _ in range(max(calls // 10, LEAST_WARM_CALLS)):
        call()
    found = _counted(name, call, calls)
    return found if found.is_flat else _counted(name, call, calls)


def _counted(name, call, calls):
    before = _in_use()
    for _ in range(calls):
        call()
    return Growth(name, calls, *(after - b for after, b in zip(_in_use(), before)))


def _in_use():
    gc.collect()
    return sys.getallocatedblocks(), len(gc.get_objects()), _resident_bytes()


def _resident_bytes():
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def main(arguments=None):
    options = _parse(arguments)
    # Imported here, because libraries count CPUs and threads when they are loaded.
    from .idioms.child import Session

    session, grown = Session(options.side, 1), []
    for name in options.idiom:
        found = growth_of(name, session.built(IDIOMS[name]), options.calls)
        print(found, flush=True)
        grown += [] if found.is_flat else [name]
    return 1 if grown else 0


def _parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--side", default="weft")
    parser.add_argument("--idiom", type=lambda text: text.split(","), default=list(USUAL))
    options = parser.parse_args(arguments)
    unknown = [name for name in options.idiom if name not in IDIOMS]
    if unknown:
        parser.error(f"no idioms: {', '.join(unknown)}; there are {', '.join(IDIOMS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
