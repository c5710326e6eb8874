"""WEFT_DUMP=graph,fusion,loops,llvm,asm: every stage of every program compiled, as numbered text files.

The files go to WEFT_DUMP_DIR, or ./weft_dump. Environment variables, because one wants to see the stages of a program
one does not want to edit.
"""

import itertools
import os

from . import jit

_numbers = itertools.count()
STAGES = ("graph", "decomposed", "simplified", "fusion", "loops", "llvm", "asm")


def wanted_stages():
    """The stages named in WEFT_DUMP; ValueError for a name that is none."""
    names = [n for n in os.environ.get("WEFT_DUMP", "").split(",") if n]
    for n in names:
        if n not in STAGES:
            raise ValueError(f"WEFT_DUMP: unknown stage {n!r}; choose from {','.join(STAGES)}")
    return names


def watcher(program_name):
    """What the pipeline calls after every stage, or None if nothing is to be dumped."""
    wanted = wanted_stages()
    if not wanted:
        return None
    folder = os.environ.get("WEFT_DUMP_DIR", "weft_dump")
    os.makedirs(folder, exist_ok=True)
    number = next(_numbers)

    def watch(stage, text):
        if stage in wanted:
            name = f"{number:03d}_{program_name}_{STAGES.index(stage)}_{stage}.txt"
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        if stage == "llvm" and "asm" in wanted:
            watch("asm", jit.assembly(text))

    return watch
