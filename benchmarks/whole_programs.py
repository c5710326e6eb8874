"""python -m benchmarks.whole_programs: twenty small programs, each a process of its own, from its start to its end.

Eager mode of weft and of PyTorch, in turns, one thread each. Seconds are those that the process had the CPU, which
other work on the machine lengthens less than the clock's. Of several turns the fastest counts, with what weft compiles
on disk; its first turn, with nothing there, is listed too. What importing the library takes is measured by itself, and
the last column says how much of the difference that is.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from . import machine
from .small_programs import PROGRAMS, STEPS

ROOT = Path(__file__).parent.parent
LIBRARIES = ("torch", "weft")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole_programs", description=__doc__)
    parser.add_argument("--case", help="names, separated by commas; all by default")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    names = options.case.split(",") if options.case else list(PROGRAMS)
    lines = []
    for line in table(names, options.turns):
        print(line, flush=True)
        lines.append(line)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(library, name):
    """What a process does: import the library, and run a program with it if one is named."""
    imported = __import__(library)
    imported.set_num_threads(1)
    if name:
        imported.manual_seed(0)
        print(PROGRAMS[name](imported))


def seconds(library, name, cache):
    """CPU seconds of a process from its start to its end."""
    child = f"from benchmarks.whole_programs import run; run({library!r}, {name!r})"
    environment = {**os.environ, "WEFT_CACHE_DIR": cache, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", child], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{name} with {library} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def in_turns(name, turns, cache):
    """library -> its times, one of each turn."""
    found = {library: [] for library in LIBRARIES}
    for _ in range(turns):
        for library in LIBRARIES:
            found[library].append(seconds(library, name, cache))
    return found


def table(names, turns):
    where = machine.describe()
    with tempfile.TemporaryDirectory() as cache:
        seconds("weft", None, cache)
        imports = {library: min(times) for library, times in in_turns(None, turns, cache).items()}
    yield f"# Whole programs in eager mode, {where['date']}"
    yield ""
    yield f"{where['cpu']}, {where['cores']} cores, load {where['load_before']:.1f}, Python {where['python']}."
    yield f"CPU seconds of a process that trains {STEPS} steps; one thread. Importing alone, which is part of all:"
    yield "{:.2f} (torch) and {:.2f} (weft).".format(*imports.values())
    yield ""
    yield "| program | torch | weft | weft / torch | weft, nothing on disk | of the difference, imports |"
    yield "|---|---|---|---|---|---|"
    behind = 0
    for name in names:
        with tempfile.TemporaryDirectory() as cache:
            found = in_turns(name, turns + 1, cache)
        first, (theirs, ours) = found["weft"][0], (min(found[library][1:]) for library in LIBRARIES)
        behind += ours >= theirs
        share = f"{(imports['torch'] - imports['weft']) / (theirs - ours):.0%}" if theirs > ours else ""
        yield f"| {name} | {theirs:.2f} | {ours:.2f} | {ours / theirs:.2f} | {first:.2f} | {share} |"
    yield ""
    yield f"Ahead of PyTorch: {len(names) - behind} of {len(names)}."


if __name__ == "__main__":
    main()
