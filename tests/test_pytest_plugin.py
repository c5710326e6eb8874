"""weft's plugin for pytest, in a run of pytest of its own."""

import os
import subprocess
import sys

import pytest

import weft
from weft import testing
from weft.compiled import compiled_in_block, run_eagerly

PROGRAM = """
import pytest
import weft

@weft.compile
def reading(x):
    return (x * 2).sum().item()

@weft.compile
def whole(x):
    return (x * 2).sum()

def test_draws():
    print("drawn", weft.rand(2).tolist())

def test_draws_too():
    print("drawn", weft.rand(2).tolist())

@pytest.mark.weft_no_breaks
def test_whole():
    for _ in range(4):
        whole(weft.ones(3))

@pytest.mark.weft_no_breaks
def test_reading():
    assert reading(weft.ones(3)) == 6.0

@pytest.mark.weft_no_breaks(functions=[reading])
def test_named():
    pass

@pytest.mark.weft_no_breaks([reading])
def test_by_position():
    pass

@pytest.mark.weft_no_breaks(functions=reading)
def test_alone():
    pass

@pytest.mark.weft_no_breaks(functions=[len])
def test_of_another_function():
    pass

def test_how():
    whole(weft.ones(5))
    print("recordings", len(whole.recordings) > 0)
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "test_program.py").write_text(PROGRAM)

    def run(*options):
        command = [sys.executable, "-m", "pytest", "-p", "weft.pytest_plugin", "-v", "-s", "--strict-markers", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ).stdout

    return run


def drawn(printed):
    return [line.partition("drawn ")[2] for line in printed.splitlines() if "drawn " in line]


def test_a_run(run):
    printed = run()
    assert "5 failed, 4 passed" in printed
    assert "weft_no_breaks: 1 compiled function(s) left the fast path" in printed
    assert "a value was read before the call ended" in printed and "test_program.py:7" in printed
    assert "FAILED test_program.py::test_reading" in printed and "FAILED test_program.py::test_named" in printed
    assert "FAILED test_program.py::test_by_position" in printed and "FAILED test_program.py::test_alone" in printed
    assert "expected functions=[...] of what weft.compile has made, got <built-in function len>" in printed
    first, second = drawn(printed)
    assert first != second
    assert drawn(run("-k", "draws_too")) == [second]
    assert drawn(run("-k", "draws", "--weft-seed", "1")) != [first, second]


def test_a_run_without_compilation(run):
    printed = run("--weft-eager")
    assert "weft: compiled functions run eagerly" in printed and "1 failed, 8 passed" in printed
    assert "recordings False" in printed


def test_functions_run_as_they_are_for_a_while():
    f = weft.compile(lambda x: x * 2)
    run_eagerly(True)
    try:
        assert f(weft.ones(2)).tolist() == [2, 2] and f.recordings == ()
    finally:
        run_eagerly(False)
    with compiled_in_block() as found:
        for n in (2, 3):
            f(weft.ones(n))
    f(weft.ones(4))
    assert found == [f] and len(f.recordings) == 3


def test_gradcheck_is_where_people_look_for_it():
    x = weft.rand(3, dtype=weft.float64, requires_grad=True)
    assert testing.gradcheck(weft.sin, x) and testing.gradgradcheck(weft.sin, x)
    assert testing.GradcheckError is weft.autograd.GradcheckError
