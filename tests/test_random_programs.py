"""Random programs run with and without compile: everything they show must be equal, bit for bit.

WEFT_FUZZ=5000 pytest tests/test_random_programs.py runs that many. A failure prints the program; saved beside this
file it is a script that reproduces the difference. What such runs have found stands in
test_random_found.py.
"""

import os

import numpy as np
import pytest
from compiled_twin import assert_same, look
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_programs import RandomProgram
from random_sharing import RandomSharing
from random_training import RandomTraining

import weft

N_PROGRAMS = int(os.environ.get("WEFT_FUZZ", 300))
N_TRAININGS = N_SHARINGS = N_PROGRAMS // 10
BATCH = 50


def check(seed, n_statements):
    check_source(RandomProgram(seed, n_statements).source, f"seed {seed}, {n_statements} statements")


def check_source(source, title):
    namespace = {}
    exec(source, namespace)
    try:
        with np.errstate(all="ignore"):
            assert_same(namespace["program"])
    except Exception as error:
        raise AssertionError(f"{error}\n{title}:\n\n{source}") from error


@pytest.mark.parametrize("first", range(0, N_PROGRAMS, BATCH))
def test_programs(first):
    for seed in range(first, min(first + BATCH, N_PROGRAMS)):
        check(seed, 6 + seed % 18)


@pytest.mark.parametrize("first", range(0, N_TRAININGS, 10))
def test_trainings(first):
    for seed in range(first, min(first + 10, N_TRAININGS)):
        check_source(RandomTraining(seed).source, f"training, seed {seed}")


def test_sharings():
    for seed in range(N_SHARINGS):
        check_source(RandomSharing(seed).source, f"sharing, seed {seed}")


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.integers(1_000_000, 2_000_000), st.integers(1, 20))
def test_programs_of_any_size(seed, n_statements):
    check(seed, n_statements)


def test_the_generator_writes_what_it_should_test():
    sources = [RandomProgram(seed).source for seed in range(300)]
    for word in ("backward()", "no_grad", ".view(", "@", "if ", "while ", "kept.append", "_(", "weft.rand", "dropout"):
        assert sum(word in s for s in sources) >= 5, word


def test_a_difference_is_seen():
    def scenario(compile):
        yield weft.ones(2) * (1.0 if compile is weft.compile else 2.0)

    with pytest.raises(AssertionError, match="observation 0 of scenario"):
        assert_same(scenario)
    assert look(weft.tensor([0.0])) != look(weft.tensor([-0.0]))
