"""DistributedDataParallel: models that several processes train. The checks are in parallel_checks.py."""

import copy
import functools

import pytest
from distributed_parts import Checked, checks_of, needs_mpi

import weft
from weft import nn

CHECKS = ["check_" + name for name in str.split("""
    parameters_are_those_of_rank_0 gradients_are_averages_with_equal_bits no_sync_adds_up unused_parameters
    buffers_are_those_of_rank_0 models_that_differ_are_errors compiled_modules_are_wrapped
    whole_steps_compiled_have_the_bits_of_eager_mode
    exchanges_begin_while_the_backward_goes_on losses_are_those_of_one_process
    ranks_may_have_different_numbers_of_batches the_end_of_one_rank_may_be_that_of_all
    communication_hooks hooks_of_ones_own hooks_in_compiled_steps_have_the_bits_of_eager_mode what_hooks_may_not_be
    normalization_over_all_processes normalization_has_the_gradients_of_one_process layers_are_converted
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


def test_where_no_group_has_been_made_it_is_batch_normalization():
    weft.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, momentum=None))
    synchronized = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))
    x = weft.randn(4, 2, 6, 6)
    for _ in range(2):
        assert (synchronized(x) == plain(x)).all()
    assert all((a == b).all() for a, b in zip(synchronized.state_dict().values(), plain.state_dict().values()))
    plain.eval(), synchronized.eval()
    assert (synchronized(x) == plain(x)).all()
    with pytest.raises(RuntimeError, match=r"SyncBatchNorm\(3\): input has shape \(3,\); expected at least 2D input"):
        nn.SyncBatchNorm(3)(weft.ones(3))
    single = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(4, affine=False, track_running_stats=False))
    assert isinstance(single, nn.SyncBatchNorm) and single.weight is None and single.running_mean is None
