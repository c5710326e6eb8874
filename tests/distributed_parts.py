"""Programs of several processes, started by mpiexec, for the tests of weft.distributed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# A program that hangs is ended by this, not by the tests' patience.
LIMIT_SECONDS = 300


def mpiexec():
    """The program that starts others: that of the environment's own MPI, or the system's."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def needs_mpi():
    """Skip a test where mpi4py is not installed; where it is there must be something that starts processes."""
    pytest.importorskip("mpi4py")
    assert mpiexec() is not None, "mpi4py is installed, and no mpiexec: pip install 'weft[mpi]' brings both"


def run_processes(n_processes, *command, **environment):
    """The ended `mpiexec -n n_processes python command`."""
    return subprocess.run(
        [mpiexec(), "-n", str(n_processes), sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=LIMIT_SECONDS,
        env={**os.environ, "WEFT_NUM_THREADS": "1", **environment},
    )


def run_text(folder, n_processes, text):
    """The same for the text of a program."""
    file = folder / "program.py"
    file.write_text(text)
    return run_processes(n_processes, file)


def run_checks(checks):
    """In a process of a group: call the checks; rank 0 says of each that all ranks have passed it."""
    import weft.distributed as dist

    dist.init_process_group("mpi")
    for check in checks:
        check(dist.get_rank(), dist.get_world_size())
        dist.barrier()
        if dist.get_rank() == 0:
            print(f"passed {check.__name__}", flush=True)
    dist.destroy_process_group()


def checks_of(names):
    return [value for name, value in names.items() if name.startswith("check_")]


class Checked:
    """What a module of checks has said in n_processes processes, started once."""

    def __init__(self, file, n_processes):
        ended = run_processes(n_processes, Path(__file__).parent / file)
        self.printed, self.errors = ended.stdout, ended.stderr

    def assert_passed(self, name):
        assert f"passed {name}\n" in self.printed, self.errors
