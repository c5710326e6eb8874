"""Whole trainings in several processes. The checks are in training_checks.py."""

import functools

import pytest
from distributed_parts import Checked, checks_of, needs_mpi

CHECKS = ["check_" + name for name in str.split("""
    trainings_are_those_of_one_process divided_optimizers_have_the_bits_of_whole_ones options_of_divided_optimizers
    a_run_goes_on_with_another_number_of_processes
""")]  # fmt: skip


@functools.cache
def checked(n_processes):
    return Checked("training_checks.py", n_processes)


@pytest.mark.parametrize("n_processes", [2, 4])
@pytest.mark.parametrize("name", CHECKS)
def test_trainings(name, n_processes):
    needs_mpi()
    checked(n_processes).assert_passed(name)


def test_all_checks_are_run():
    import training_checks

    assert [check.__name__ for check in checks_of(vars(training_checks))] == CHECKS
