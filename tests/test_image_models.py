"""Convolutional networks as people write them, step by step against PyTorch; compiled steps give eager mode's bits."""

import copy
import sys
from pathlib import Path

import numpy as np
import pytest

import weft

sys.path.append(str(Path(__file__).parent.parent))

from benchmarks.workloads.images import lenet, resnet18  # noqa: E402


def variational(library):
    """A small convolutional variational autoencoder."""
    nn = library.nn

    class Autoencoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.GELU(), nn.Conv2d(4, 8, 3, 2, 1), nn.GELU(), nn.Flatten()
            )
            self.mean, self.log_variance = nn.Linear(32, 3), nn.Linear(32, 3)
            self.decoder = nn.Sequential(
                nn.Linear(3, 32),
                nn.Unflatten(1, (8, 2, 2)),
                nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1),
                nn.GroupNorm(2, 4),
                nn.GELU(),
                nn.ConvTranspose2d(4, 1, 4, 2, 1),
            )

        def forward(self, x, noise):
            hidden = self.encoder(x)
            mean, log_variance = self.mean(hidden), self.log_variance(hidden)
            return self.decoder(mean + noise * (0.5 * log_variance).exp()), mean, log_variance

    return Autoencoder()


def variational_loss(library, model, x, noise):
    image, mean, log_variance = model(x, noise)
    divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
    return library.nn.functional.mse_loss(image, x, reduction="sum") + divergence


def class_loss(library, model, x, y):
    return library.nn.functional.cross_entropy(model(x), y)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


MODELS = {
    "lenet": (lenet, class_loss, (numbers(4, 1, 28, 28), np.array([1, 5, 0, 9]))),
    "variational": (variational, variational_loss, (numbers(3, 1, 8, 8), numbers(3, 3, seed=1))),
}
RESNET = (lambda library: resnet18(library, 10), class_loss, (numbers(2, 3, 32, 32), np.array([3, 7])))


def training(library, model, loss, decorate=lambda f: f, momentum=0.9):
    """One step of SGD as the tutorials write it; gives the loss. A first step with momentum is a program of its own,
    which large models do without here: it takes as long to compile as the others."""
    optimizer = library.optim.SGD(model.parameters(), lr=0.01, momentum=momentum)

    @decorate
    def step(*batch):
        optimizer.zero_grad()
        value = loss(library, model, *batch)
        value.backward()
        optimizer.step()
        return value

    return step


def twins(make, dtype=None):
    """The same model twice, with the same parameters."""
    weft.manual_seed(0)
    model = make(weft) if dtype is None else make(weft).to(dtype)
    return model, copy.deepcopy(model)


@pytest.mark.parametrize("name", MODELS)
def test_compiled_steps_have_eager_bits_and_are_replayed(name):
    make, loss, batch = MODELS[name]
    eager, compiled = twins(make)
    first, second = training(weft, eager, loss), training(weft, compiled, loss, weft.compile)
    for _ in range(6):
        tensors = [weft.tensor(a) for a in batch]
        assert first(*tensors).item() == second(*tensors).item()
    for a, b in zip(eager.state_dict().values(), compiled.state_dict().values()):
        assert np.array_equal(a.numpy(), b.numpy())
    text = second.explain()
    assert "nothing ran outside the programs" in text and "calls are replayed" in text


@pytest.mark.oracle
@pytest.mark.parametrize("name", MODELS)
def test_training_is_pytorchs(name):
    torch = pytest.importorskip("torch")
    make, loss, batch = MODELS[name]
    ours, theirs = make(weft).double(), make(torch).double()
    ours.load_state_dict({k: weft.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    steps = training(weft, ours, loss, weft.compile), training(torch, theirs, loss)
    batch = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in batch]
    for _ in range(4):
        mine, other = (step(*map(lib.tensor, batch)).item() for step, lib in zip(steps, (weft, torch)))
        assert mine == pytest.approx(other, rel=1e-10)
    for a, b in zip(ours.parameters(), theirs.parameters()):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-8, atol=1e-11)


@pytest.mark.oracle
def test_a_residual_network_trains_to_pytorchs_losses_and_gradients():
    """float64, so that the comparison is of the formulas: 20 layers of float32 differ by their order of sums."""
    torch = pytest.importorskip("torch")
    make, loss, batch = RESNET
    torch.manual_seed(0)
    theirs = make(torch).double()
    ours = make(weft).double()
    ours.load_state_dict({k: weft.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    batch = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in batch]
    steps = training(weft, ours, loss, weft.compile, 0), training(torch, theirs, loss, momentum=0)
    for _ in range(2):
        mine, other = (step(*map(lib.tensor, batch)).item() for step, lib in zip(steps, (weft, torch)))
        assert mine == pytest.approx(other, rel=1e-8)
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters()):
        # Normalising two numbers, as at the end of this small network, magnifies rounding errors.
        mine, expected = a.grad.numpy(), b.grad.numpy()
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max(), err_msg=name)


def test_a_residual_network_has_torchvisions_parameters():
    model = resnet18(weft)
    assert sum(p.numel() for p in model.parameters()) == 11_689_512
    keys = list(model.state_dict())
    assert len(keys) == 122
    for key in ("conv1.weight", "layer1.0.bn2.num_batches_tracked", "layer4.0.downsample.1.running_var", "fc.bias"):
        assert key in keys


def test_frozen_parameters_with_a_new_head():
    """Only the head learns; the rest, statistics of the batches aside, stays, compiled as in eager mode."""
    make, loss, batch = RESNET
    results = []
    for decorate in (lambda f: f, weft.compile):
        weft.manual_seed(0)
        model = make(weft)
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        model.fc = weft.nn.Linear(512, 3)
        before = model.layer4[1].conv2.weight.detach().clone()
        step = training(weft, model, loss, decorate, 0)
        results.append([step(weft.tensor(batch[0]), weft.tensor([0, 2])).item() for _ in range(2)])
        assert np.array_equal(before.numpy(), model.layer4[1].conv2.weight.numpy())
        assert all(p.grad is None for n, p in model.named_parameters() if not n.startswith("fc"))
    assert results[0] == results[1] and results[0][1] < results[0][0]
