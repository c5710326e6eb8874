"""Programs for PyTorch run on weft as they stand: each in tests/programs imports torch, and prints what it computed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py"))


def printed(*command):
    finished = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


def same(ours, theirs):
    if isinstance(ours, float):
        return ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    return ours == theirs


@pytest.mark.parametrize("name", NAMES)
def test_a_program_runs_with_weft_in_torchs_place(name):
    result = printed("-m", "weft", PROGRAMS / f"{name}.py")
    assert result["losses"][-1] < result["losses"][0]


@pytest.mark.oracle
@pytest.mark.parametrize("name", NAMES)
def test_a_program_computes_what_it_does_with_torch(name):
    pytest.importorskip("torch")
    ours = printed("-m", "weft", PROGRAMS / f"{name}.py")
    theirs = printed(PROGRAMS / f"{name}.py")
    assert same(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("name", ["experts", "spiking"])
def test_a_program_with_a_compiled_step_has_the_same_bits(name):
    program = PROGRAMS / f"{name}.py"
    assert printed("-m", "weft", program, "--compile") == printed("-m", "weft", program)


def test_a_program_that_writes_the_import_of_weft(tmp_path):
    text = (PROGRAMS / "transformer.py").read_text()
    text = text.replace("import torch\n", "import weft as torch\n")
    text = text.replace("import torch.nn as nn", "import weft.nn as nn").replace("from torch.", "from weft.")
    (tmp_path / "program.py").write_text(text)
    assert printed(tmp_path / "program.py") == printed("-m", "weft", PROGRAMS / "transformer.py")


def test_arguments_reach_the_program():
    result = printed("-m", "weft", PROGRAMS / "classifier.py", "--epochs", "1", "--device", "cpu")
    assert len(result["losses"]) == 4 and result["device"] == "cpu"


def test_another_device_is_refused_where_it_is_used():
    command = [sys.executable, "-m", "weft", str(PROGRAMS / "classifier.py"), "--device", "cuda"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode and "weft computes on the CPU, got 'cuda'" in finished.stderr


def test_without_a_program_it_says_how():
    finished = subprocess.run([sys.executable, "-m", "weft"], capture_output=True, text=True, check=False)
    assert finished.returncode == 2 and "python -m weft program.py" in finished.stdout
