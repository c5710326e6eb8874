"""Time per step of every side, in rounds that alternate: A B C, A B C, ...

A machine's speed changes from second to second, so sides are compared within a round and the ratios are summarised
over rounds. No round is thrown away: medians and quartiles bear disturbed ones, and the record has them all.
"""

import contextlib
import statistics
import tempfile
import time
from dataclasses import dataclass

from .agreement import compare
from .process import SideFailed, SideProcess

# Threads of a library may spin for a while after its turn; the next side should not pay for that.
PAUSE_SECONDS = 0.005
MAX_STEPS = 2000


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: turns of about `turn_seconds`, `rounds` of them, `choose_seconds` per form to choose one,
    and how often first calls are repeated."""

    rounds: int = 21
    turn_seconds: float = 0.04
    choose_seconds: float = 0.3
    first_calls: int = 3


def measure(workload, sides, threads, effort, cache):
    """The record of one workload: per side form, milliseconds of every round, or its error; and the agreement."""
    records = {side: {} for side in sides}
    with contextlib.ExitStack() as stack:
        folders = {side: stack.enter_context(tempfile.TemporaryDirectory()) for side in sides}
        processes = {side: stack.enter_context(SideProcess(workload.name, side, threads, cache)) for side in sides}
        for side in sides:
            attempt(records[side], lambda side=side: choose(processes[side], records[side], folders[side], effort))
        for _ in range(effort.rounds):
            for side in running(records):
                attempt(records[side], lambda side=side: turn(processes[side], records[side], effort))
        alive = running(records)
        agreement = compare(workload, {s: folders[s] for s in alive}, {s: records[s]["form"] for s in alive})
    return {"sides": records, "agreement": agreement}


def running(records):
    return [side for side, record in records.items() if "error" not in record]


def attempt(record, work):
    """A side that fails is reported with its error; the others go on."""
    try:
        work()
    except SideFailed as error:
        record["error"] = str(error)


def choose(process, record, folder, effort):
    answer = process.ask("choose", seconds=effort.choose_seconds, folder=folder)
    record["form"] = answer["chosen"]
    record["forms_milliseconds"] = answer["milliseconds"]
    record["forms_failed"] = answer["errors"]
    record["versions"] = answer["versions"]
    milliseconds = answer["milliseconds"][answer["chosen"]]
    record["steps"] = min(MAX_STEPS, max(1, round(1e3 * effort.turn_seconds / milliseconds)))
    record["milliseconds"] = []
    record["checksums"] = []


def turn(process, record, effort):
    time.sleep(PAUSE_SECONDS)
    answer = process.ask("run", steps=record["steps"])
    record["milliseconds"].append(1e3 * answer["seconds"] / record["steps"])
    record["checksums"].append(answer["checksum"])


def ratios(record, reference):
    """Per round: how many times as long a side took as the reference."""
    return [a / b for a, b in zip(record["milliseconds"], reference["milliseconds"])]


def quartiles(samples):
    """(lower quartile, median, upper quartile)."""
    if len(samples) == 1:
        return (samples[0],) * 3
    return tuple(statistics.quantiles(samples, n=4, method="inclusive"))
