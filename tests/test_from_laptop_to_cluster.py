"""The programs of docs/from_laptop_to_cluster.md run as it says: several processes train, and go on with fewer."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from distributed_parts import mpiexec, needs_mpi

DOCUMENT = Path(__file__).parent.parent / "docs" / "from_laptop_to_cluster.md"
FILES = ["train.py", "divided.py", "many_models.py", "with_joblib.py", "with_dask.py", "with_ray.py"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Its programs, each in the file that its first line names."""
    folder = tmp_path_factory.mktemp("cluster")
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert [name for name, _ in blocks] == FILES
    for name, text in blocks:
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def printed_by(folder, *command):
    environment = {**os.environ, "WEFT_CACHE_DIR": str(folder / "cache")}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_training_goes_on_with_another_number_of_processes(folder):
    needs_mpi()
    pytest.importorskip("sklearn")
    first = printed_by(folder, mpiexec(), "-n", "2", sys.executable, "train.py").splitlines()
    second = printed_by(folder, sys.executable, "train.py").splitlines()
    losses = [float(line.split()[-1]) for line in first + second]
    assert [line.split(", loss")[0] for line in first] == [f"epoch {k}, 2 process(es)" for k in range(5)]
    assert [line.split(", loss")[0] for line in second] == [f"epoch {k}, 1 process(es)" for k in range(5, 10)]
    assert losses[4] < losses[0] and losses[9] < losses[4] < 0.5


def test_a_divided_optimizer(folder):
    needs_mpi()
    printed = printed_by(folder, mpiexec(), "-n", "2", sys.executable, "divided.py")
    n_own = [int(number) for number in re.findall(r"keeps the moments of (\d+) parameters", printed)]
    assert sum(n_own) == 8 * 64 + 64 + 64 + 1 and (folder / "optimizer.weft").exists()


@pytest.mark.parametrize("library", ["joblib", "dask", "ray"])
def test_many_models(folder, library):
    pytest.importorskip("sklearn")
    pytest.importorskip(library)
    errors = eval(printed_by(folder, sys.executable, f"with_{library}.py"))
    program = "from many_models import *; print([error_of_fold(*job) for job in JOBS[:2]])"
    assert errors[:2] == eval(printed_by(folder, sys.executable, "-c", program)) and len(errors) == 6
