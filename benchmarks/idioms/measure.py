"""Idioms side by side: every side has one process for all of them, and the processes take turns, A B C, A B C, ..."""

import contextlib
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ..agreement import load, relative_difference, same_bits
from ..process import ChildProcess, SideFailed
from ..rounds import attempt, running
from . import IDIOMS


@dataclass(frozen=True, slots=True)
class Effort:
    rounds: int = 9
    turn_seconds: float = 0.01


class Processes:
    """A process per side, made when it is asked for; one that failed is not asked again, but made anew."""

    def __init__(self, threads, cache):
        self._threads, self._cache = threads, cache
        self._running, self._stack = {}, contextlib.ExitStack()

    def ask(self, side, do, **request):
        if side not in self._running:
            command = ["benchmarks.idioms.child", side, str(self._threads)]
            self._running[side] = self._stack.enter_context(ChildProcess(command, self._cache))
        try:
            return self._running[side].ask(do, **request)
        except SideFailed:
            del self._running[side]
            raise

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._stack.close()


def measure_all(names, sides, threads, effort, seconds, say):
    """(records by name, names for which there was no time)."""
    records, end = {}, time.perf_counter() + seconds
    with tempfile.TemporaryDirectory() as cache, Processes(threads, cache) as processes:
        for name in names:
            if time.perf_counter() > end:
                break
            say(name)
            records[name] = measure(name, sides, processes, effort)
    return records, [name for name in names if name not in records]


def measure(name, sides, processes, effort):
    """What one idiom takes on every side: microseconds of every round, or an error; and whether results agree."""
    records = {side: {} for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        for side in sides:
            (Path(folder) / side).mkdir()
            attempt(records[side], lambda side=side: begin(name, side, processes, records[side], folder))
        for _ in range(effort.rounds):
            for side in running(records):
                attempt(records[side], lambda side=side: turn(side, processes, records[side], effort))
        results = {side: load(Path(folder) / side / f"{name}.npz") for side in running(records)}
    return {"sides": records, **agreement(name, results)}


def begin(name, side, processes, record, folder):
    processes.ask(side, "record", name=name, folder=str(Path(folder) / side))
    record["first_call_seconds"] = processes.ask(side, "begin", name=name)["first_call_seconds"]
    record["microseconds"] = []


def turn(side, processes, record, effort):
    answer = processes.ask(side, "turn", seconds=effort.turn_seconds)
    record["microseconds"].append(1e6 * answer["seconds"])


def agreement(name, results):
    """same_bits: of weft's two modes. difference: the largest from torch, relative to the largest of a result."""
    found = {}
    if {"weft", "weft-eager"} <= results.keys():
        found["same_bits"] = same_bits(results["weft"], results["weft-eager"])
    ours = next((results[side] for side in ("weft-eager", "weft") if side in results), None)
    theirs = results.get("torch")
    if ours and theirs and not IDIOMS[name].draws:
        keys = IDIOMS[name].compared(ours.keys() | theirs.keys())
        found["difference"] = max(relative_difference(ours.get(key), theirs.get(key)) for key in keys)
    return found
