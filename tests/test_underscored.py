"""What programs call although its name begins with an underscore, and processes that spawn starts."""

import os
import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.multiprocessing
from weft._utils import _accumulate, _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors


def test_gradients_of_all_parameters_travel_as_one_vector():
    model = weft.nn.Sequential(weft.nn.Linear(3, 2), weft.nn.Linear(2, 1, bias=False))
    model(weft.ones(4, 3)).sum().backward()
    gradients = [p.grad for p in model.parameters()]
    flat = _flatten_dense_tensors(gradients)
    assert flat.shape == (3 * 2 + 2 + 2,)
    for ours, again in zip(gradients, _unflatten_dense_tensors(flat, gradients)):
        assert weft.equal(ours, again)
    buckets = list(_take_tensors((weft.ones(n) for n in (2, 3, 9, 1)), 20))
    assert [[len(x) for x in bucket] for bucket in buckets] == [[2, 3], [9], [1]]
    assert list(_accumulate([1, 2, 3])) == [1, 3, 6]


@pytest.mark.oracle
def test_they_are_pytorchs():
    torch = pytest.importorskip("torch")
    x, g = np.arange(6, dtype=np.float32).reshape(2, 3) - 2, np.array([[2.0], [0.5]], np.float32)

    def all_of(library):
        tensor, norms = library.tensor(x), library.tensor(g)
        counted = library.tensor([3, 1, 3, 2])
        yield library._weight_norm(tensor, norms, 0)
        yield from (library._softmax(tensor, 1, False), library._log_softmax(tensor, 0, False))
        yield from (library._shape_as_tensor(tensor), library._dim_arange(tensor, 1))
        for name, given in (("softmax", tensor.softmax(1)), ("log_softmax", tensor.log_softmax(1))):
            yield getattr(library, f"_{name}_backward_data")(tensor * tensor, given, 1, library.float32)
        yield from library._unique2(counted, return_counts=True)
        yield from library._unique(counted, return_inverse=True)

    for ours, theirs in zip(all_of(weft), all_of(torch), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-5)


def test_gamma_draws_have_derivatives():
    weft.manual_seed(1)
    concentration = weft.full((2000,), 3.0, requires_grad=True)
    drawn = weft._standard_gamma(concentration)
    drawn.sum().backward()
    # The mean of the distribution is its concentration, so the mean of the derivatives is 1.
    assert abs(drawn.mean().item() - 3) < 0.2 and abs(concentration.grad.mean().item() - 1) < 0.1


def write_square(rank, folder, factor):
    (folder / str(rank)).write_text(str((weft.tensor(float(rank)) ** 2 * factor).item()))


def fail_in_one(rank):
    if rank == 1:
        raise ValueError("rank one is out of luck")


def leave(rank):
    os._exit(3)


@pytest.mark.parametrize("start_method", ["spawn", "fork"])
def test_spawn_runs_a_function_in_processes(tmp_path, start_method):
    weft.multiprocessing.spawn(write_square, args=(tmp_path, 2.0), nprocs=2, start_method=start_method)
    assert [(tmp_path / str(k)).read_text() for k in (0, 1)] == ["0.0", "2.0"]


def test_a_process_that_fails_is_an_error_where_it_was_started():
    with pytest.raises(weft.multiprocessing.ProcessRaisedException, match="rank one is out of luck") as error:
        weft.multiprocessing.spawn(fail_in_one, nprocs=2, start_method="fork")
    assert error.value.error_index == 1 and error.value.pid > 0
    with pytest.raises(weft.multiprocessing.ProcessExitedException, match="exit code 3") as error:
        weft.multiprocessing.spawn(leave, start_method="fork")
    assert error.value.exit_code == 3


def test_spawn_need_not_wait(tmp_path):
    started = weft.multiprocessing.spawn(write_square, (tmp_path, 1.0), nprocs=2, join=False, start_method="fork")
    assert len(started.pids()) == 2
    while not started.join():
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}


def test_in_programs_that_import_torch(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "import torch\n"
        "import torch.multiprocessing as mp\n"
        "def work(rank, folder, size):\n"
        "    with open(f'{folder}/{rank}', 'w') as file:\n"
        "        print(torch.ones(size).size(), torch.ones(1).dtype, torch.ones(1).type(), file=file)\n"
        "if __name__ == '__main__':\n"
        "    mp.spawn(work, args=(sys.argv[1], 2), nprocs=2, join=True)\n"
    )
    finished = subprocess.run([sys.executable, "-m", "weft", program, tmp_path], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    for rank in ("0", "1"):
        assert (tmp_path / rank).read_text() == "torch.Size([2]) torch.float32 torch.FloatTensor\n"


def test_no_function_is_being_traced():
    assert weft._C._get_tracing_state() is None


def test_unique_dim_has_three_results():
    x = weft.tensor([[1, 2], [1, 2], [0, 5]])
    values, inverse, counts = weft._VF.unique_dim(x, 0, return_inverse=True, return_counts=True)
    assert values.tolist() == [[0, 5], [1, 2]] and inverse.tolist() == [1, 1, 0] and counts.tolist() == [1, 2]
    values, inverse, counts = weft._VF.unique_dim(x, dim=1)
    assert values.shape == (3, 2) and inverse.numel() == counts.numel() == 0
