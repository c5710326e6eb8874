"""What calls leave behind, told from what is made once, here or by a thread in the background, at a time of its own."""

import gc
import sys


def growth(use, *objects, rounds=3):
    """The least by which the interpreter's blocks of memory, and references to each object, grow while `use()` runs."""

    def counts():
        gc.collect()
        return [sys.getallocatedblocks(), *map(sys.getrefcount, objects)]

    grown, before = [], counts()
    for _ in range(rounds):
        use()
        after = counts()
        grown.append([b - a for a, b in zip(before, after)])
        before = after
    return [min(values, key=abs) for values in zip(*grown)]
