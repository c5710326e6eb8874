"""Calls leave nothing behind: a short version of `python -m benchmarks.memory`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))

from benchmarks.memory import USUAL, Growth, growth_of  # noqa: E402

LEAKING = []


def run(*arguments):
    """In a process of its own: it takes one CPU and one thread for itself."""
    command = [sys.executable, "-m", "benchmarks.memory", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_calls_leave_nothing_behind():
    done = run("--calls", "1000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == list(USUAL)


def test_what_a_call_leaves_is_seen():
    found = growth_of("leaking", lambda: LEAKING.append([]), 1000)
    assert found.blocks >= 1000 and not found.is_flat and "GREW" in str(found)


def test_bytes_count_too():
    assert not Growth("bytes", 1000, 0, 0, 1 << 30).is_flat


def test_an_idiom_that_is_not_there():
    done = run("--idiom", "nothing")
    assert done.returncode == 2 and "no idioms: nothing; there are " in done.stderr
