"""Checks of whole trainings in several processes; test_distributed_training.py starts them."""

import os
import tempfile

import numpy as np
from distributed_checks import equal, raises
from distributed_parts import checks_of, run_checks
from parallel_checks import data_of, same_everywhere

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed.optim import ZeroRedundancyOptimizer
from weft.nn.parallel import DistributedDataParallel
from weft.utils.data import DataLoader, DistributedSampler, TensorDataset


def digits():
    """Images of 8 x 8 that depend on their class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 240)
    images = rng.standard_normal((10, 64))[labels] + rng.standard_normal((240, 64)) * 0.5
    return TensorDataset(weft.tensor(images, dtype=weft.float32), weft.tensor(labels))


def words():
    """Sequences of 12 tokens, each the sum of the two before."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 7, (120, 13))
    for k in range(2, 13):
        tokens[:, k] = (tokens[:, k - 1] + tokens[:, k - 2]) % 7
    return TensorDataset(weft.tensor(tokens[:, :-1]), weft.tensor(tokens[:, 1:]))


class Words(nn.Module):
    """A small transformer that says the next token."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(7, 16), nn.Embedding(12, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.out = nn.Linear(16, 7)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        hidden = self.layer(self.tokens(x) + self.places(weft.arange(x.shape[1])), src_mask=mask)
        return self.out(hidden).transpose(1, 2)


def classifier():
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(make, dataset, wrap, sampler_of, batch_size, n_epochs=2):
    """Losses of each step and the model: one process without wrapping, or all together."""
    weft.manual_seed(3)
    model = wrap(make())
    optimizer = weft.optim.AdamW(model.parameters(), lr=0.01)

    @weft.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses, sampler = [], sampler_of(dataset)
    for epoch in range(n_epochs):
        sampler.set_epoch(epoch)
        losses += [step(x, y) for x, y in DataLoader(dataset, batch_size, sampler=sampler, drop_last=True)]
    return weft.stack(losses), model


class WholeOrder(DistributedSampler):
    """In one process: the batches that `size` processes have together."""

    def __init__(self, dataset, size):
        super().__init__(dataset, 1, 0)


def check_trainings_are_those_of_one_process(rank, size):
    for make, dataset in ((classifier, digits()), (Words, words())):
        losses, model = train(make, dataset, DistributedDataParallel, DistributedSampler, 24 // size)
        again, _ = train(make, dataset, DistributedDataParallel, DistributedSampler, 24 // size)
        assert equal(losses, again)  # same bits from run to run
        assert same_everywhere(model.parameters())
        dist.all_reduce(losses, dist.ReduceOp.AVG)
        alone, _ = train(make, dataset, lambda module: module, lambda data: WholeOrder(data, size), 24)
        assert losses.allclose(alone, atol=1e-4), (losses, alone)
        assert losses[-3:].mean() < 0.97 * losses[:3].mean()


def zero_training(rank, make_optimizer, n_steps=6, model=None, first=0):
    weft.manual_seed(0)
    model = model or DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)))
    optimizer = make_optimizer(model.parameters())

    @weft.compile
    def step(x, y):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    for k in range(first, first + n_steps):
        step(*data_of(rank + dist.get_world_size() * k))
    return model, optimizer


def check_divided_optimizers_have_the_bits_of_whole_ones(rank, size):
    adam = weft.optim.Adam
    whole, plain = zero_training(rank, lambda params: adam(params, lr=0.02))
    parted, optimizer = zero_training(rank, lambda params: ZeroRedundancyOptimizer(params, adam, lr=0.02))
    assert all(map(equal, parted.parameters(), whole.parameters())) and same_everywhere(parted.parameters())
    n_own = [None] * size
    dist.all_gather_object(n_own, len(optimizer.optim.state))
    assert sum(n_own) == 4 and max(n_own) < 4
    raises(RuntimeError, "has not been consolidated on this rank", optimizer.state_dict)
    optimizer.consolidate_state_dict(to=1)
    if rank == 1:
        found, expected = optimizer.state_dict(), plain.state_dict()
        assert found["param_groups"][0]["lr"] == 0.02 and list(found["state"]) == [0, 1, 2, 3]
        for number, state in expected["state"].items():
            assert all(equal(found["state"][number][name], state[name]) for name in ("exp_avg", "exp_avg_sq"))
            assert found["state"][number]["step"] == state["step"]
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.step()
    assert optimizer.optim.param_groups[0]["lr"] == 0.5


def check_options_of_divided_optimizers(rank, size):
    first, second = weft.ones(5, requires_grad=True), weft.ones(3, requires_grad=True)
    optimizer = ZeroRedundancyOptimizer([{"params": [first]}], weft.optim.SGD, lr=0.5)
    optimizer.add_param_group({"params": [second], "lr": 0.25})
    (first.sum() + second.sum()).backward()
    assert optimizer.step(lambda: 7.0) == 7.0
    assert first.tolist() == [0.5] * 5 and second.tolist() == [0.75] * 3
    raises(
        NotImplementedError,
        "overlap_with_ddp=True",
        ZeroRedundancyOptimizer,
        [first],
        weft.optim.SGD,
        overlap_with_ddp=True,
    )


def check_a_run_goes_on_with_another_number_of_processes(rank, size):
    """What all ranks have saved is loaded by rank 0 and 1 alone, and by a plain optimizer of one process."""
    adam = weft.optim.Adam
    model, optimizer = zero_training(rank, lambda params: ZeroRedundancyOptimizer(params, adam, lr=0.02))
    optimizer.consolidate_state_dict()
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, 0)
    file = os.path.join(folder[0], "run.weft")
    if rank == 0:
        weft.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, file)
    dist.barrier()
    saved = weft.load(file)
    alone = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    alone.load_state_dict(saved["model"])
    plain = adam(alone.parameters(), lr=1.0)
    plain.load_state_dict(saved["optimizer"])
    pair = dist.new_group([0, 1])
    if rank < 2:
        fewer = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        fewer.load_state_dict(saved["model"])
        fewer = DistributedDataParallel(fewer, process_group=pair)
        parted = ZeroRedundancyOptimizer(fewer.parameters(), adam, process_group=pair, lr=1.0)
        parted.load_state_dict(saved["optimizer"])
        x, y = data_of(0)
        for each, update in ((alone, plain), (fewer, parted)):
            nn.functional.cross_entropy(each(x), y).backward()
            update.step()
        assert all(map(equal, alone.parameters(), fewer.parameters()))


if __name__ == "__main__":
    run_checks(checks_of(globals()))
