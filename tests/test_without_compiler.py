"""Without llvmlite: what NumPy computes goes on for ever, all else says what is missing, and never a bare name."""

import os
import subprocess
import sys

import pytest

_BLOCKED = "import sys\nsys.modules.update({'llvmlite': None, 'llvmlite.binding': None})\n"
# More often than what goes over to native code after a while, with and without nodes, in place, views, large and small.
_EAGER = """
import weft
x, big = weft.tensor([[1.0, 2.0], [3.0, 4.0]]), weft.ones(600, 600)
w = weft.ones(2, 2, requires_grad=True)
optimizer = weft.optim.SGD([w], lr=0.5)
for _ in range(80):
    y = (w * x + 1.0)[0]
    optimizer.zero_grad()
    y.backward(weft.zeros(2) + 1.0)
    optimizer.step()
    x.add_(1.0)
    big = big + big * 0.5 - big
print(x.tolist(), w.tolist(), w.grad.tolist(), y.tolist(), big[0, 0].item())
"""


def _run(code, tmp_path):
    environment = dict(os.environ, WEFT_CACHE_DIR=str(tmp_path))
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600)


def test_what_numpy_computes_needs_no_compiler(tmp_path):
    without, complete = (_run(before + _EAGER, tmp_path / "cache") for before in (_BLOCKED, ""))
    assert (without.returncode, without.stderr) == (0, "")
    assert without.stdout == complete.stdout != ""


def test_a_compiled_function_runs_eagerly_and_says_what_to_install(tmp_path):
    call = "print(weft.compile(lambda x: x + 1)(x).tolist())"
    found = _run(f"{_BLOCKED}import weft\nx = weft.ones(2)\n{call}", tmp_path)
    assert (found.returncode, found.stdout) == (0, "[2.0, 2.0]\n")
    assert "pip install llvmlite" in found.stderr


@pytest.mark.parametrize("call", ["weft.exp(x)", "x.sum()", "x @ x", "weft.compile(lambda x: x.exp() + 1)(x)"])
def test_what_is_compiled_says_what_to_install(call, tmp_path):
    found = _run(f"{_BLOCKED}import weft\nx = weft.ones(3, 3)\n{call}", tmp_path)
    assert found.returncode == 1
    assert any("pip install llvmlite" in line for line in found.stderr.splitlines()[-2:])
