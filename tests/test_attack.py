"""The attack (tests/attack) for a few seconds, the same seeds always; `python -m tests.attack` goes on for longer."""

import subprocess
import sys
from pathlib import Path

import pytest
from attack.again import RandomAgain
from attack.compare import difference_in
from attack.in_python import SOON, difference_in_python, end
from attack.minimise import minimised
from attack.worker import outcome, source_of

DIFFERENT = """
import weft


def program(compile):
    kept, seen = [], []
    a = weft.ones(3)
    b = a * 2.0
    for call in range(3):
        b = b + a
        if compile is weft.compile:
            a = a * 3.0
    kept.append(b)
    yield a
    yield seen
"""


@pytest.mark.parametrize("first", range(0, 16, 8))
def test_programs(first):
    for seed in range(first, first + 8):
        kind, source = source_of(seed)
        difference = outcome(source)
        assert difference is None, f"{kind}, seed {seed}: {difference}\n\n{source}"


KNOWN = """
import weft
from weft.utils.checkpoint import checkpoint
from attack.compare import said


def program(compile):
    w = weft.nn.Parameter(weft.ones(3))
    with weft.inference_mode():
        y = weft.ones(3)

    @compile
    def f(x):
        return {called}

    x = weft.ones(3, requires_grad=True)
    for call in range(3):
        try:
            result = f(x)
            with weft.no_grad():
                w.mul_({factor})
            result.sum().backward()
            yield x.grad
        except RuntimeError as error:
            yield said(error)
"""


@pytest.mark.parametrize(
    "called, factor", [("checkpoint(lambda q: q * w, x, use_reentrant=False)", 2.0), ("x * w[:2].sum() * y", 1.0)]
)
def test_what_compiled_calls_do_otherwise_is_no_difference(called, factor):
    source = KNOWN.format(called=called, factor=factor)
    assert difference_in(source) is None
    assert "observation 0" in difference_in(source.replace("try:", "yield compile is weft.compile\n        try:"))


def test_programs_do_something():
    sources = [source_of(seed)[1] for seed in range(24)]
    for word in ("backward()", "no_grad", "kept.append", "_(", "grad(", "optimizer.step", "item()", "deepcopy", "y="):
        assert sum(word in s for s in sources) >= 2, word


def test_a_difference_is_found_and_made_small():
    assert "observation 0" in difference_in(DIFFERENT)
    small = minimised(DIFFERENT, lambda source: outcome(source) is not None)
    assert "a = a * 3.0" in small and "kept" not in small and "b + a" not in small


def test_from_the_command_line(tmp_path):
    command = [sys.executable, "-m", "tests.attack", "--minutes", "0.02", "--seed", "7", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 7" in done.stdout and "0 not: []" in done.stdout


AGAIN_BESIDE_TORCH = range(6)


@pytest.mark.oracle
def test_programs_beside_torch():
    pytest.importorskip("torch")
    from attack.beside_torch import difference_beside_torch

    again = [("again", RandomAgain(seed).source) for seed in AGAIN_BESIDE_TORCH]
    for seed, (kind, source) in enumerate([*map(source_of, (1, 3, 4)), *again]):
        difference = outcome(source, difference_beside_torch)
        assert difference is None, f"{kind}, seed {seed}: {difference}\n\n{source}"
    wrong = DIFFERENT.replace("compile is weft.compile", "'torch' in str(weft.Tensor)")
    assert "observation 0" in difference_beside_torch(wrong)


@pytest.fixture(scope="module", autouse=True)
def the_process_without_native_code_ends():
    yield
    end()


@pytest.mark.parametrize("first", range(0, 12, 6))
def test_graphs_that_are_used_again(monkeypatch, first):
    """In native code, in Python alone, and in calls that are compiled."""
    for name, n in SOON.items():
        monkeypatch.setattr(name, n)
    for seed in range(first, first + 6):
        source = RandomAgain(seed).source
        for find in (difference_in_python, difference_in) if seed % 3 == 0 else (difference_in_python,):
            difference = outcome(source, find)
            assert difference is None, f"again, seed {seed}, {find.__name__}: {difference}\n\n{source}"


def test_what_python_does_otherwise_is_found():
    wrong = DIFFERENT.replace("compile is weft.compile", "__import__('os').environ.get('WEFT_NATIVE_REPLAY') == '0'")
    assert "observation 0" in difference_in_python(wrong)


SHOWN = """
import weft


def program(compile):
    w = weft.ones(3, requires_grad=True)
    f = compile(lambda x: (x * w).sum())
    for call in range(3):
        x = weft.ones(3)
        held = x.numpy()
        loss = f(x)
        held[...] = 5.0
        loss.backward()
        if call == 2 and compile is weft.compile:
            w.grad = w.grad * DIFFERENCE
        yield w.grad
"""


def test_memory_that_numpy_shows_is_no_difference():
    """What differences.md says of a backward, and nothing else."""
    assert difference_in(SHOWN.replace("DIFFERENCE", "1.0")) is None
    assert "observation 0" in difference_in(SHOWN.replace("DIFFERENCE", "2.0"))
