"""The idioms of the benchmark: compiled weft does what eager weft does, bit for bit, and what PyTorch does."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compiled_twin import undecorated
from training_programs import PROGRAMS, Setting

import weft

ROOT = Path(__file__).parent.parent
# At the end, so that nothing in the root can hide an installed package.
sys.path.append(str(ROOT))

from benchmarks.idioms import IDIOMS, measure, report  # noqa: E402
from benchmarks.idioms.command import main, parse  # noqa: E402
from benchmarks.idioms.registry import flat  # noqa: E402
from benchmarks.idioms.scripts import Script  # noqa: E402
from benchmarks.rounds import running  # noqa: E402

OWN = [name for name, idiom in IDIOMS.items() if not isinstance(idiom, Script)]
SAME_IN_TORCH = [name for name in OWN if not IDIOMS[name].draws]


def results(T, name, compile):
    """What six calls of a fresh idiom give: enough for a call to be recorded, compared, replayed and left again."""
    T.manual_seed(7)
    call = IDIOMS[name].build(T, Setting(T, compile, "float32"))
    T.manual_seed(8)
    return [flat(call()) for _ in range(6)]


@functools.cache
def eager_results(name):
    return results(weft, name, undecorated)


@pytest.mark.parametrize("name", OWN)
def test_compiled_idiom_is_the_eager_one(name):
    for k, (eager, compiled) in enumerate(zip(eager_results(name), results(weft, name, weft.compile), strict=True)):
        for a, b in zip(eager, compiled, strict=True):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), f"call {k}"


@pytest.mark.oracle
@pytest.mark.parametrize("name", SAME_IN_TORCH)
def test_idiom_is_pytorchs(name):
    of_torch = results(pytest.importorskip("torch"), name, undecorated)
    for ours, expected in zip(eager_results(name), of_torch, strict=True):
        for a, b in zip(ours, expected, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * max(1, np.abs(b).max(initial=0)))


def test_there_are_a_hundred_idioms_and_all_training_programs():
    assert len(OWN) >= 100
    assert {f"script_{name}" for name in PROGRAMS} == IDIOMS.keys() - OWN


def test_smoke_run_writes_a_record(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "idioms", "--smoke", "--out", str(tmp_path), "--label", "test"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    (path,) = tmp_path.glob("*-test.json")
    measured = json.loads(path.read_text())
    assert list(measured["idioms"]) == ["three_tensors", "step_sgd"]
    for record in measured["idioms"].values():
        assert record["same_bits"]
        assert all(len(side["microseconds"]) == 2 for side in record["sides"].values())
    assert "| step_sgd |" in path.with_suffix(".md").read_text()


def record(name="net", same_bits=True, **microseconds):
    sides = {side.replace("_", "-"): {"microseconds": found} for side, found in microseconds.items()}
    return {name: {"sides": sides, "same_bits": same_bits}}


def record_of(idioms, left_out=()):
    machine = {"date": "2026-01-02T03:04:05+00:00", "cpu": "x", "cores": 2, "system": "y", "python": "z"}
    return {
        "machine": {**machine, "load_before": 0.5},
        "versions": {"weft": "0.1.0"},
        "options": {"threads": 1, "rounds": 3, "tolerance": 1e-3},
        "idioms": idioms,
        "left_out": left_out,
    }


def test_table_has_ratios_of_rounds_and_who_is_behind():
    found = record(weft=[2.0, 4.0, 2.0], torch=[1.0, 2.0, 1.0], weft_eager=[8.0, 16.0, 8.0])
    lines = list(report.lines(record_of(found, ["other"])))
    assert "| net | 2 | 8 (4.00 [4.00, 4.00]) | 1 (0.50 [0.50, 0.50]) | same |" in lines
    assert "| weft-eager | 1 | 0 | 1 | 4.00 |" in lines
    assert "Slower than torch: net (0.50)." in lines
    assert "No time was left for other." in lines


def test_failures_and_differences_fail_the_run():
    idioms = record(same_bits=False, weft=[1.0], weft_eager=[1.0])
    idioms["net"]["difference"] = 0.5
    idioms["net"]["sides"]["torch"] = {"error": "no luck"}
    assert list(report.failures(record_of(idioms))) == [
        "net: torch failed: no luck",
        "net: eager and compiled differ",
        "net: weft and torch differ by 5.0e-01",
    ]


def test_a_side_that_fails_leaves_the_others_and_is_begun_again(tmp_path):
    with measure.Processes(1, str(tmp_path)) as processes:
        effort = measure.Effort(rounds=1, turn_seconds=0.001)
        broken = measure.measure("no such idiom", ["weft-eager"], processes, effort)
        working = measure.measure("three_tensors", ["weft-eager"], processes, effort)
    assert broken["sides"]["weft-eager"]["error"] == "KeyError: 'no such idiom'"
    assert running(working["sides"]) == ["weft-eager"]


def test_idioms_are_chosen_by_parts_of_their_names(capsys):
    assert parse(["--only", "hook_on,kalman"]).names == [
        name for name in IDIOMS if "hook_on" in name or "kalman" in name
    ]
    with pytest.raises(SystemExit):
        parse(["--only", "no such idiom"])
    expected = f"no idiom's name contains no such idiom; the names are {', '.join(IDIOMS)}"
    assert expected in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse(["--sides", "jax"])
    assert "jax: expected some of weft, weft-eager, torch" in capsys.readouterr().err


def test_no_time_leaves_idioms_out(capsys):
    assert main(["--only", "three_tensors", "--minutes", "0", "--sides", "weft", "--out", "-"]) == 0
    assert "No time was left for three_tensors." in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "results").glob("*-idioms*.json")), ids=lambda p: p.stem)
def test_records_can_be_printed_again(path):
    assert "\n".join(report.lines(json.loads(path.read_text()))) + "\n" == path.with_suffix(".md").read_text()


OLDER = """
x.add(2, y); m.add(x, 2, y); x.clone().add_(0.5, y); x.sub(2, y); m.sub(x, 2, y); x.clone().sub_(2, y)
x.addcmul(2, y, y); m.addcmul(x, 2, y, y); x.clone().addcmul_(0.5, y, y); x.addcdiv(2, y, x); m.addcdiv(x, 2, y, x)
x.clone().addcdiv_(-0.1, y, x); m.where(mask, x, y); x.where(mask, y)
m.spmm(square, square); m.dsmm(square, x[:, None])
"""


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", [c.strip() for c in OLDER.replace("\n", ";").split(";") if c.strip()])
def test_older_spellings_with_gradients(call):
    torch = pytest.importorskip("torch")

    def run(m):
        x, y = m.tensor([1.5, 2.0], requires_grad=True), m.tensor([3.0, -4.0], requires_grad=True)
        names = {"m": m, "x": x, "y": y, "mask": m.tensor([1, 0], dtype=m.uint8), "square": x[:, None] * y}
        result = eval(call, names)
        gradients = m.autograd.grad(result.square().sum(), [x, y], allow_unused=True)
        return [result.tolist(), *[None if g is None else g.tolist() for g in gradients]]

    for ours, theirs in zip(run(weft), run(torch)):
        assert ours == pytest.approx(theirs) if ours and not isinstance(ours[0], list) else ours == theirs


@pytest.mark.parametrize("call", ["x.add_(x, 2)", "x.add(2, 3)", "weft.add(x, x, x)", "x.addcmul(x, x, 2)"])
def test_positional_factors_elsewhere_are_errors(call):
    with pytest.raises(TypeError):
        eval(call, {"weft": weft, "x": weft.ones(2)})
