"""DistributedDataParallel: models that several processes train. The checks are in parallel_checks.py."""

import functools

import pytest
from distributed_parts import Checked, checks_of, needs_mpi

from weft import nn

CHECKS = ["check_" + name for name in str.split("""
    parameters_are_those_of_rank_0 gradients_are_averages_with_equal_bits no_sync_adds_up unused_parameters
    buffers_are_those_of_rank_0 models_that_differ_are_errors whole_steps_compiled_have_the_bits_of_eager_mode
    exchanges_begin_while_the_backward_goes_on losses_are_those_of_one_process
    ranks_may_have_different_numbers_of_batches the_end_of_one_rank_may_be_that_of_all
""")]  # fmt: skip


@functools.cache
def checked(n_processes):
    return Checked("parallel_checks.py", n_processes)


@pytest.mark.parametrize("n_processes", [2, 4])
@pytest.mark.parametrize("name", CHECKS)
def test_models(name, n_processes):
    needs_mpi()
    checked(n_processes).assert_passed(name)


def test_all_checks_are_run():
    import parallel_checks

    assert [check.__name__ for check in checks_of(vars(parallel_checks))] == CHECKS


def test_without_a_group_it_is_an_error():
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
