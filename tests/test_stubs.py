"""What type checkers and editors see of weft: frontend/__init__.pyi, written by docs/stubs.py."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PROGRAM = """
import weft
from weft import nn

model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = weft.optim.Adam(model.parameters(), lr=0.02)

@weft.compile
def step(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss

loss = step(weft.randn(64, 8), weft.zeros(64, 1, dtype=weft.float64))
with weft.no_grad():
    total: weft.Tensor = (loss * 2 + 1).sum(dim=0)
print(step.explain(verbose=True), step.breaks, total.shape.numel(), weft.distributions.Normal(0.0, 1.0))

@weft.compile(fullgraph=True)
def twice(x: weft.Tensor) -> weft.Tensor:
    return x.exp_() @ x.T + weft.pi

@weft.no_grad
def count(x: weft.Tensor) -> int:
    first, second = x.split(2)
    return first.numel() + len(second)

n: int = count(twice(total))
"""


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stubs_are_up_to_date():
    written = (ROOT / "frontend" / "__init__.pyi").read_text(encoding="utf-8")
    assert written == script("stubs").text(), "run python docs/stubs.py"


MODULES = script("stubs_of_modules")


@pytest.mark.parametrize("path", MODULES.MODULES)
def test_the_stubs_of_modules_are_up_to_date(path):
    written = (ROOT / "frontend" / f"{MODULES.MODULES[path]}.pyi").read_text(encoding="utf-8")
    assert written == MODULES.text(path), "run python docs/stubs.py"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the package as it is installed: checkers know nothing of how a checkout is laid out."""
    folder = tmp_path_factory.mktemp("site")
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "frontend", folder / "weft", ignore=leave_out)
    for part in ("compiler", "runtime"):
        shutil.copytree(ROOT / part, folder / "weft" / part, ignore=leave_out)
    return folder


def complaints(installed, text):
    (installed / "program.py").write_text(text, encoding="utf-8")
    return complaints_of(installed, "program.py")


def complaints_of(installed, *arguments):
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--check-untyped-defs", *arguments]
    finished = subprocess.run(
        command, cwd=installed, env={**os.environ, "MYPYPATH": str(installed)}, capture_output=True, text=True
    )
    return [line for line in finished.stdout.splitlines() if "error:" in line or "Traceback" in line]


def test_checkers_accept_a_program_and_refuse_a_wrong_one(installed):
    assert complaints(installed, PROGRAM) == []
    wrong = complaints(installed, PROGRAM + "\nweft.no_such_name\nm: str = loss.numel()\n")
    assert len(wrong) == 2, wrong
    assert "no_such_name" in wrong[0] and "str" in wrong[1]


def test_checkers_accept_the_examples(installed):
    """SciPy and others say little of their types, or nothing: that is not asked here."""
    examples = sorted((ROOT / "examples").glob("*.py"))
    for example in examples:
        shutil.copy(example, installed)
    names = [example.name for example in examples]
    assert len(names) > 12 and complaints_of(installed, "--ignore-missing-imports", *names) == []
