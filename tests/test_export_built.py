"""What docs/from_python_to_c.md says of building, done: C with CMake, C++, Fortran, and Python with NumPy alone."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.nn import functional as F

DOCUMENT = Path(__file__).parent.parent / "docs" / "from_python_to_c.md"


@pytest.fixture
def exported(tmp_path):
    """(the folder with nll.o and nll.h, its value for zeros)."""
    weft.manual_seed(0)
    x, y = weft.randn(200, 10, dtype=weft.float64), (weft.rand(200, dtype=weft.float64) > 0.5).double()

    def nll(beta):
        z = x @ beta
        return (F.softplus(z) - y * z).sum()

    zeros = weft.zeros(10, dtype=weft.float64)
    weft.export(nll, (zeros,), tmp_path / "nll", gradients=True, hvp=True)
    return tmp_path, nll(zeros).item()


def block_of(language, beginning):
    blocks = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    return next(block for block in blocks if block.startswith(beginning))


def run(folder, *command):
    return subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, check=True).stdout


def scratch_bytes(folder):
    return int(re.search(r"NLL_VALUE_AND_GRAD_SCRATCH (\d+)", (folder / "nll.h").read_text())[1])


def test_c_and_cpp(exported):
    folder, value = exported
    assert scratch_bytes(folder) % 64 == 0
    for compiler, ending in (("cc", "c"), ("c++", "cpp")):
        if shutil.which(compiler):
            (folder / f"main.{ending}").write_text(block_of("c", '#include "nll.h"'))
            run(folder, compiler, "-O2", f"main.{ending}", "nll.o", "-lm", "-o", "main")
            assert float(run(folder, "./main").split(",")[0]) == pytest.approx(value, rel=1e-5)


def test_cmake(exported):
    folder, value = exported
    lines = "cmake_minimum_required(VERSION 3.16)\nproject(main C)\n" + block_of("cmake", "add_executable")
    if shutil.which("cmake") and shutil.which("cc"):
        (folder / "CMakeLists.txt").write_text(lines)
        (folder / "main.c").write_text(block_of("c", '#include "nll.h"'))
        run(folder, "cmake", "-S", ".", "-B", "build")
        run(folder, "cmake", "--build", "build")
        assert float(run(folder, "build/main").split(",")[0]) == pytest.approx(value, rel=1e-5)


def test_fortran(exported):
    folder, value = exported
    text = re.sub(r"n_bytes = \d+", f"n_bytes = {scratch_bytes(folder)}", block_of("fortran", "program main"))
    assert text.count("NLL_VALUE_AND_GRAD_SCRATCH") == 1
    if shutil.which("gfortran"):
        (folder / "main.f90").write_text(text)
        run(folder, "gfortran", "-Wall", "-Werror", "main.f90", "nll.o", "-o", "main")
        assert float(run(folder, "./main")) == pytest.approx(value, rel=1e-15)


def test_numpy_alone(exported):
    folder, value = exported
    program = """
import sys
sys.modules.update(dict.fromkeys(["llvmlite", "llvmlite.binding", "networkx"]))  # none can be imported
import numpy as np, weft
native = weft.load_exported("nll")
print(native(np.zeros(10)).hex(), native.value_and_grad(np.zeros(10))[0].hex())
native.hvp(np.zeros(10), np.ones(10))
"""
    assert run(folder, sys.executable, "-c", program).split() == [value.hex()] * 2
    assert weft.load_exported(folder / "nll")(np.zeros(10)) == value
