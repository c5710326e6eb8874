"""python -m tests.attack --minutes N [--seed S] [--folder F] [--beside B]: see the package's docstring.

Prints a line of figures for every worker and at the end; ends with 1 if a program differed or a worker died.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .worker import FINDS, program_of, work

SECONDS_PER_WORKER = 240
# How the workers run in turn: native replay, and the same in Python.
ENVIRONMENTS = ({}, {}, {"WEFT_NATIVE_REPLAY": "0"})


def main():
    options = _options()
    folder = Path(options.folder or tempfile.mkdtemp(prefix="attack-"))
    folder.mkdir(parents=True, exist_ok=True)
    if options.worker is not None:
        work(options.seed, folder, options.worker, options.beside)
        return 0
    print(f"seed {options.seed}; reproducers in {folder} (run them with PYTHONPATH=tests)", flush=True)
    return _attack(options.seed, folder, 60 * options.minutes, options.beside)


def _options():
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--folder", default=None, help="where reproducers are written")
    parser.add_argument("--beside", choices=FINDS, default="compiled", help="what eager mode is compared with")
    parser.add_argument("--worker", type=float, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.seed is None:
        options.seed = int(time.time()) % 1_000_000 * 1000
    return options


def _attack(first, folder, seconds, beside):
    """Workers one after the other, until the time is over. A seed is never run twice."""
    environments = ENVIRONMENTS[:1] if beside == "python" else ENVIRONMENTS
    deadline, seed, turn, n_same, found = time.monotonic() + seconds, first, 0, 0, []
    while time.monotonic() < deadline:
        given = min(SECONDS_PER_WORKER, max(deadline - time.monotonic(), 1))
        report = _run_worker(seed, folder, given, environments[turn % len(environments)], beside)
        seeds = [int(line.split()[1]) for line in report if line.startswith("run")]
        n_same += report.count("same")
        bad = [s for s, word in zip(seeds, [line for line in report if not line.startswith("run")]) if word != "same"]
        found += bad
        how = environments[turn % len(environments)] or "native"
        print(f"seeds {seed} to {seeds[-1]}, {how}: not the same {bad}", flush=True)
        seed, turn = seeds[-1] + 1, turn + 1
    print(f"{seed - first} programs, seeds {first} to {seed - 1}: {n_same} the same, {len(found)} not: {found}")
    return 1 if found else 0


def _run_worker(seed, folder, seconds, environment, beside):
    """The lines that a worker has printed. If it died, the last says so, and its program is kept."""
    command = [sys.executable, "-m", "tests.attack", "--worker", str(seconds), "--seed", str(seed)]
    command += ["--folder", str(folder), "--beside", beside]
    done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)
    report = done.stdout.split("\n")[:-1]
    if done.returncode != 0:
        died_at = int([line for line in report if line.startswith("run")][-1].split()[1]) if report else seed
        kind, source = program_of(died_at, beside)
        (folder / f"died_{kind}_{died_at}.py").write_text(f"# ended by {done.returncode}, {environment}\n{source}")
        report = report if report else [f"run {seed}"]
        report.append("died")
    return report


if __name__ == "__main__":
    sys.exit(main())
