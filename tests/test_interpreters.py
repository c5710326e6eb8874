"""Which interpreters weft runs on: what is refused, what the files say of it, and how the others are found."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FIRST, END = map(
    int, re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text()).groups()
)

# --- what is refused --------------------------------------------------------------------------------------------------
FREE_THREADED = {
    "lock off": "import sys; sys._is_gil_enabled = lambda: False",
    "lock on": """
import sys, sysconfig
sys._is_gil_enabled = lambda: True
known = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else known(name)
""",
}


@pytest.mark.parametrize("how", FREE_THREADED)
def test_a_free_threaded_build_is_refused(how):
    program = FREE_THREADED[how] + "\nimport weft"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("ImportError: ")
    assert "weft does not support free-threaded builds of CPython, and this is one" in done.stderr
    assert "Use a standard build, such as python3.13 instead of python3.13t" in done.stderr


# --- what the files say -----------------------------------------------------------------------------------------------
def test_this_interpreter_is_supported():
    assert FIRST <= sys.version_info.minor < END


def test_the_files_name_the_same_releases():
    for file in ("README.md", "Makefile"):
        assert f"CPython 3.{FIRST} to 3.{END - 1}" in (ROOT / file).read_text(), file


# --- the others on this machine ---------------------------------------------------------------------------------------
@pytest.fixture
def machine(tmp_path):
    """A function that runs .ci/interpreters where PATH and pyenv hold these stand-ins only, name -> exit status."""
    tools = tmp_path / "tools"

    def install(path, status):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nexit {status}\n")
        path.chmod(0o755)

    def found(on_path, in_pyenv):
        for name, status in on_path.items():
            install(tools / name, status)
        for name, status in in_pyenv.items():
            install(tmp_path / "pyenv" / "versions" / name / "bin" / "python", status)
        environment = {"PATH": f"{tools}:/usr/bin:/bin", "PYENV_ROOT": str(tmp_path / "pyenv"), "HOME": str(tmp_path)}
        command = [ROOT / ".ci" / "interpreters", sys.executable]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return [line.replace(str(tmp_path), "") for line in done.stdout.splitlines() if line.startswith(str(tmp_path))]

    return found


OTHERS = [minor for minor in range(FIRST, END) if minor != sys.version_info.minor]


def test_one_interpreter_of_every_other_release_is_found(machine):
    names = {f"3.{minor}.{patch}": 0 for minor in range(FIRST - 1, END + 1) for patch in (1, 2)}
    broken = {f"python3.{minor}": 127 for minor in OTHERS}
    assert machine(broken, names) == [f"/pyenv/versions/3.{minor}.1/bin/python" for minor in OTHERS]


def test_what_is_on_the_path_comes_first_and_what_does_not_run_is_left_out(machine):
    first, second, *rest = OTHERS
    on_path = {f"python3.{minor}": 0 if minor == first else 127 for minor in OTHERS}
    in_pyenv = {f"3.{first}.5": 0, f"3.{second}.5": 1, f"3.{second}.6": 0, **{f"3.{minor}.0": 1 for minor in rest}}
    assert machine(on_path, in_pyenv) == [f"/tools/python3.{first}", f"/pyenv/versions/3.{second}.6/bin/python"]
