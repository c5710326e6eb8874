"""The benchmarks run, tell a side that fails from one that works, and notice results that differ."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
# At the end, so that nothing in the root can hide an installed package.
sys.path.append(str(ROOT))

from benchmarks import agreement, growth, many_processes, report, rounds  # noqa: E402
from benchmarks.__main__ import parse  # noqa: E402
from benchmarks.process import SideFailed, SideProcess  # noqa: E402
from benchmarks.workloads import WORKLOADS  # noqa: E402

SEEDS_NET, DIGITS_MLP, RESNET18_1 = (WORKLOADS[name] for name in ("seeds_net", "digits_mlp", "resnet18_1"))


def record(milliseconds, **fields):
    forms = {"step": milliseconds[0]}
    return {"form": "step", "milliseconds": milliseconds, "forms_milliseconds": forms, "forms_failed": {}, **fields}


def results(sides, verdicts=None, first_call=None):
    machine = {"date": "2026-01-02T03:04:05+00:00", "cpu": "x", "cores": 2, "system": "y", "python": "z"}
    return {
        "machine": {**machine, "load_before": 0.5},
        "versions": {"weft": "0.1.0"},
        "options": {"threads": 1, "rounds": 3},
        "workloads": {
            "seeds_net": {
                "what": "a net",
                "sides": sides,
                "agreement": verdicts or {},
                "first_call": first_call or {},
            }
        },
    }


def test_smoke_run_writes_record(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--smoke", "--threads", "2", "--out", str(tmp_path)]
    process = subprocess.run(
        [*command, "--sides", "weft,weft-eager", "--label", "test"], cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout + process.stderr
    (path,) = tmp_path.glob("*-test.json")
    measured = json.loads(path.read_text())
    assert list(measured["workloads"]) == ["seeds_net", "digits_mlp"]
    for workload in measured["workloads"].values():
        assert workload["agreement"]["weft-eager"]["same_bits"]
        for side in ("weft", "weft-eager"):
            assert len(workload["sides"][side]["milliseconds"]) == 3
            for first in workload["first_call"][side].values():
                assert first["added_bytes"] > 0
                assert first["peak_bytes"] == first["imported_bytes"] + first["added_bytes"]
    assert "| digits_mlp |" in path.with_suffix(".md").read_text()


def test_side_that_fails_is_reported_and_others_go_on(tmp_path):
    with SideProcess("seeds_net", "weft-eager", 1, str(tmp_path)) as process:
        broken, working = {}, {}
        rounds.attempt(broken, lambda: process.ask("first", form="no such form"))
        rounds.attempt(working, lambda: working.update(done=True))
    assert broken["error"] == "KeyError: 'no such form'"
    assert rounds.running({"broken": broken, "working": working}) == ["working"]


def test_process_that_dies_gives_its_last_words(tmp_path):
    with SideProcess("no such workload", "weft", 1, str(tmp_path)) as process:
        with pytest.raises(SideFailed, match="KeyError: 'no such workload'"):
            process.ask("run", steps=1)
        with pytest.raises(SideFailed, match="process ended with status 0: KeyError"):
            process.ask("run", steps=1)


def write_results(folder, side, arrays):
    (folder / side).mkdir()
    named = {f"step 0, result {k}": np.float32(array) for k, array in enumerate(arrays)}
    np.savez(folder / side / "step.npz", **named)


def verdict(tmp_path, workload, other_side, reference, other):
    write_results(tmp_path, "weft", reference)
    write_results(tmp_path, other_side, other)
    folders = {side: tmp_path / side for side in ("weft", other_side)}
    return agreement.compare(workload, folders, dict.fromkeys(folders, "step"))[other_side]


def test_peers_agree_within_the_tolerance(tmp_path):
    found = verdict(tmp_path, SEEDS_NET, "torch", [1, [2, 4]], [1, [2, 4.00001]])
    assert found["agrees"]
    assert found["difference"] == pytest.approx(2.5e-6, rel=0.1)
    assert found["where"] == "step 0, gradient of w1"


def test_peers_that_differ_are_found(tmp_path):
    found = verdict(tmp_path, DIGITS_MLP, "torch", [1, [2, 4]], [1, [2, 4.001]])
    assert not found["agrees"]
    assert found["where"] == "step 0, parameter 0"


def test_only_the_first_steps_are_compared_where_rounding_errors_grow(tmp_path):
    def compared(workload, step):
        for side, loss in (("weft", 1), ("torch", 2)):
            (tmp_path / side).mkdir(exist_ok=True)
            np.savez(tmp_path / side / "step.npz", **{f"step {step}, result 0": np.float32(loss)})
        folders = {side: tmp_path / side for side in ("weft", "torch")}
        return agreement.compare(workload, folders, dict.fromkeys(folders, "step"))["torch"]["agrees"]

    assert not compared(RESNET18_1, 0)
    assert compared(RESNET18_1, 1)
    assert not compared(DIGITS_MLP, 1)


@pytest.mark.parametrize("other", [[1, [2, np.nan]], [1, [2]], [1]])
def test_results_that_cannot_be_compared_do_not_agree(tmp_path, other):
    assert not verdict(tmp_path, DIGITS_MLP, "torch", [1, [2, 4]], other)["agrees"]


def test_modes_of_weft_must_have_the_same_bits(tmp_path):
    found = verdict(tmp_path, SEEDS_NET, "weft-eager", [0.0], [-0.0])
    assert found["difference"] == 0
    assert not found["agrees"]


def test_ratios_are_taken_within_rounds():
    slow_round = rounds.ratios(record([2.0, 20.0, 2.0]), record([1.0, 10.0, 1.0]))
    assert slow_round == [2, 2, 2]


def test_quartiles_of_one_and_of_many_rounds():
    assert rounds.quartiles([3.0]) == (3, 3, 3)
    assert rounds.quartiles([5.0, 1.0, 4.0, 2.0, 3.0]) == (2, 3, 4)


def test_table_has_time_ratio_and_failures():
    sides = {"weft": record([1.0, 1.0, 1.0]), "torch": record([2.0, 3.0, 4.0]), "jax": {"error": "no luck"}}
    lines = list(report.lines(results(sides)))
    assert "| workload | weft | torch | jax |" in lines
    assert "| seeds_net | 1 | 3 (3.00 [2.50, 3.50]) | failed |" in lines
    assert "| seeds_net | torch | 3.00 [2.50, 3.50] |" in lines
    assert "  - jax failed: no luck" in lines


MIB = 2**20
SECONDS = {"first_call_seconds": 0.25, "three_calls_seconds": 0.3, "setup_seconds": 0.01}


def first_call(imported, added, **fields):
    return {**SECONDS, "imported_bytes": imported * MIB, "added_bytes": added * MIB, **fields}


def test_first_call_table_has_memory_added_and_peak_memory():
    measured = {"cold": first_call(100, 95, peak_bytes=195 * MIB), "warm": first_call(100, 8, peak_bytes=108 * MIB)}
    lines = list(report.lines(results({"weft": record([1.0])}, first_call={"weft": measured, "jax": {"error": "no"}})))
    (header,) = [line for line in lines if line.startswith("| workload | side |")]
    assert header.endswith(" | memory added cold, MiB | warm | peak memory cold, MiB | warm |")
    assert "| seeds_net | weft | 250 | 250 | 300 | 300 | 10 | 10 | 95.0 | 8.0 | 195.0 | 108.0 |" in lines
    (failed,) = [line for line in lines if line.startswith("| seeds_net | jax |")]
    assert failed.count("|") == header.count("|")


def test_records_without_a_peak_still_give_one():
    assert report.first_call_cells({"cold": first_call(100, 95), "warm": first_call(100, 8)})[-2:] == ["195.0", "108.0"]


OTHER_RECORDS = ("-idioms", "-growth", "-eager")  # not of workloads
RECORDS = [
    path
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    if not any(kind in path.stem for kind in OTHER_RECORDS)
]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_records_can_be_printed_again(path):
    recorded = json.loads(path.read_text())
    printed = list(report.lines(recorded))
    for name, workload in recorded["workloads"].items():
        assert any(f"- {name}: {workload['what']}." in line for line in printed)
    first_calls = any(workload["first_call"] for workload in recorded["workloads"].values())
    assert any("peak memory" in line for line in printed) == first_calls


def test_failures_and_differences_fail_the_run():
    sides = {"weft": record([1.0]), "weft-eager": record([1.0]), "jax": {"error": "no luck"}}
    verdicts = {"weft-eager": {"reference": "weft", "same_bits": False, "agrees": False}}
    problems = list(report.failures(results(sides, verdicts, {"weft": {"error": "no cache"}})))
    assert problems == [
        "seeds_net: jax failed: no luck",
        "seeds_net: weft-eager; NOT THE SAME BITS AS weft",
        "seeds_net: weft failed in its first call: no cache",
    ]
    assert not list(report.failures(results({"weft": record([1.0])})))


def test_options_are_checked(capsys):
    assert parse(["--workload", "logreg,digits_mlp"]).workload == ["logreg", "digits_mlp"]
    with pytest.raises(SystemExit):
        parse(["--sides", "weft,numpy"])
    assert "numpy: expected some of weft, weft-eager, torch" in capsys.readouterr().err


@pytest.mark.parametrize("name", WORKLOADS)
def test_numbers_of_a_workload_are_the_same_in_every_process(name):
    def flat(arrays):
        parts = arrays.values() if isinstance(arrays, dict) else arrays[0] + [a for pair in arrays[1] for a in pair]
        return [a.tobytes() for a in parts]

    assert flat(WORKLOADS[name].arrays()) == flat(WORKLOADS[name].arrays())


def test_documented_rows_are_in_a_record():
    records = (ROOT / "benchmarks" / "results").glob("*.md")
    recorded = {line for record in records for line in record.read_text().splitlines()}
    page = (ROOT / "docs" / "benchmarks.md").read_text().splitlines()
    rows = [line for line in page if line.startswith(tuple(f"| {name} |" for name in WORKLOADS))]
    assert len(rows) >= len(WORKLOADS)
    assert set(rows) <= recorded


def test_growth_is_measured_and_recorded(tmp_path):
    growth.main(["--steps", "3,5", "--sides", "weft", "--out", str(tmp_path)])
    (path,) = tmp_path.glob("*-growth.json")
    chains = json.loads(path.read_text())["chains"]
    assert {kind: list(sides["weft"]) for kind, sides in chains.items()} == dict.fromkeys(growth.WORK, ["3", "5"])
    assert all(record["first_call_seconds"] > 0 for sides in chains.values() for record in sides["weft"].values())
    (path,) = tmp_path.glob("*-growth.md")
    assert "## recurrence" in path.read_text()


def test_many_processes_are_measured_and_hidden_exchanges_counted():
    options = argparse.Namespace(delay_ms=0.2, megabytes_per_second=500.0)
    seconds = {"alone": 0.02, "together": 0.03, "network": 0.03 + many_processes.N_BYTES / 500e6 / 4}
    assert many_processes.hidden(2, seconds, options) == "12.6 | 75%"
    where = {"date": "today", "cpu": "a CPU", "cores": 2, "load_before": 0.0, "load_after": 9.0, "python": "3"}
    many_processes.fastest(seconds, {"alone": 0.01, "together": 0.04})
    text = many_processes.table([(2, "weft", seconds)], options, where)
    assert "| 2 | weft | 10.0 | 30.0 | 33.2 | 12.6 | 75% |" in text and "a CPU, 2 cores" in text and "9.0 after" in text
