"""Averages of weights against PyTorch's."""

import copy

import numpy as np
import pytest

import weft
from weft import nn
from weft.optim import swa_utils


def model_of(library):
    layers = library.nn
    model = layers.Sequential(layers.Linear(3, 4), layers.BatchNorm1d(4), layers.Linear(4, 1))
    with library.no_grad():
        for k, param in enumerate(model.parameters()):
            param.copy_(library.linspace(-1, 1, param.numel()).reshape(param.shape) * (k + 1))
    return model


def change(library, model, k):
    with library.no_grad():
        for param in model.parameters():
            param.mul_(0.5).add_(k)
        model[1].running_mean.add_(k)


OPTIONS = [
    lambda utils: {},
    lambda utils: {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.9)},
    lambda utils: {"avg_fn": utils.get_ema_avg_fn(0.5), "use_buffers": True},
    lambda utils: {"avg_fn": utils.get_swa_avg_fn()},
    lambda utils: {"multi_avg_fn": utils.get_swa_multi_avg_fn()},
    lambda utils: {"avg_fn": lambda average, value, count: average * 0.25 + value * count},
]


@pytest.mark.oracle
@pytest.mark.parametrize("options", OPTIONS)
def test_averages_like_pytorch(options):
    torch = pytest.importorskip("torch")
    results = []
    for library in (weft, torch):
        model, utils = model_of(library), library.optim.swa_utils
        averaged = utils.AveragedModel(model, **options(utils))
        for k in range(4):
            change(library, model, k)
            averaged.update_parameters(model)
        results.append(averaged)
    ours, theirs = (averaged.state_dict() for averaged in results)
    assert list(ours) == list(theirs)
    for name, value in ours.items():
        np.testing.assert_allclose(value.numpy(), theirs[name].numpy(), 1e-6)


@pytest.mark.oracle
def test_statistics_are_computed_anew_like_pytorch():
    torch = pytest.importorskip("torch")
    data = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    found = []
    for library in (weft, torch):
        model = model_of(library).eval()
        # Batches as a generator gives them: with targets, and alone.
        batches = ((library.tensor(data[k : k + 5]), k) for k in range(0, 20, 5))
        library.optim.swa_utils.update_bn(batches, model)
        assert not model.training and model[1].momentum == 0.1
        found.append([model[1].running_mean.numpy(), model[1].running_var.numpy()])
    np.testing.assert_allclose(found[0], found[1], 1e-5)
    swa_utils.update_bn([weft.zeros(2, 3)], nn.Linear(3, 1))


def test_averaging_in_a_compiled_call_has_the_same_bits():
    found = []
    for wrap in (weft.compile, lambda function: function):
        model = model_of(weft)
        averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
        optimizer = weft.optim.RAdam(model.parameters(), lr=1e-4)

        @wrap
        def step(x, model=model, averaged=averaged, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            averaged.update_parameters(model)
            return loss

        losses = [step(weft.linspace(0, 1, 12).reshape(4, 3)).item() for _ in range(7)]
        found.append((losses, [p.tolist() for p in averaged.parameters()], averaged.n_averaged.item()))
    assert found[0] == found[1]


def test_errors_and_copies():
    model = model_of(weft)
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
        swa_utils.AveragedModel(model, avg_fn=max, multi_avg_fn=max)
    for make in (swa_utils.get_ema_avg_fn, swa_utils.get_ema_multi_avg_fn):
        with pytest.raises(ValueError, match="Invalid decay value 1.5"):
            make(decay=1.5)
    averaged = copy.deepcopy(swa_utils.AveragedModel(model))
    averaged.update_parameters(model)
    assert averaged.n_averaged.item() == 1 and averaged(weft.ones(2, 3)).shape == (2, 1)
