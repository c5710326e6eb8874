"""Optimizers of complex parameters: real and imaginary parts are numbers of their own, as in PyTorch."""

import numpy as np
import pytest

import weft
from weft import nn

CASES = {
    "SGD": {},
    "SGD nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "Adam": {"weight_decay": 0.1},
    "Adam amsgrad": {"amsgrad": True},
    "AdamW": {},
    "RMSprop": {"centered": True, "momentum": 0.5},
    "Adagrad": {"initial_accumulator_value": 0.1},
    "Adadelta": {"lr": 1.0},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "Rprop": {},
    "ASGD": {},
    "LBFGS": {"line_search_fn": "strong_wolfe", "max_iter": 3},
}
N_STEPS = 5


def parts(numbers):
    return np.stack([numbers.real, numbers.imag], axis=-1)


def trained(library, name, wrap=lambda step: step):
    """Losses and the parameters after some steps: one complex parameter and a real one beside it."""
    rng = np.random.default_rng(3)
    weights, signal = (rng.normal(size=(2, 3, 2)) @ [1, 1j] for _ in range(2))
    weight = library.nn.Parameter(library.tensor(weights.astype(np.complex64)))
    scale = library.nn.Parameter(library.ones(3))
    signal = library.tensor(signal.astype(np.complex64))
    optimizer = getattr(library.optim, name.split()[0])(params=[weight, scale], **{"lr": 0.05, **CASES[name]})

    def closure():
        optimizer.zero_grad()
        loss = ((weight * signal * scale - 1).abs() ** 2).sum()
        loss.backward()
        return loss

    def step():
        if name == "LBFGS":
            return optimizer.step(closure)
        loss = closure()
        optimizer.step()
        return loss

    step = wrap(step)
    losses = [step().item() for _ in range(N_STEPS)]
    return losses, parts(weight.detach().numpy()), scale.detach().numpy()


@pytest.mark.oracle
@pytest.mark.parametrize("name", CASES)
def test_complex_parameters_are_trained_as_in_pytorch(name):
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(trained(weft, name), trained(torch, name)):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", [name for name in CASES if name != "LBFGS"])
def test_compiled_steps_have_the_bits_of_eager_ones(name):
    for eager, compiled in zip(trained(weft, name), trained(weft, name, weft.compile)):
        assert np.array_equal(eager, compiled)


def test_a_layer_in_the_frequency_domain_learns():
    """What neural operators are made of: weights for the lowest frequencies, and a real layer beside them."""
    weft.manual_seed(0)

    class Spectral(nn.Module):
        def __init__(self, width, modes):
            super().__init__()
            self.modes = modes
            self.weights = nn.Parameter(weft.rand(width, width, modes, dtype=weft.cfloat) / width)
            self.mix = nn.Conv1d(width, width, 1)

        def forward(self, x):
            spectrum = weft.fft.rfft(x)
            out = weft.zeros(*x.shape[:2], spectrum.size(-1), dtype=weft.cfloat)
            out[:, :, : self.modes] = weft.einsum("bix,iox->box", spectrum[:, :, : self.modes], self.weights)
            return self.mix(x) + weft.fft.irfft(out, n=x.size(-1))

    layer = Spectral(2, 3)
    optimizer = weft.optim.Adam(layer.parameters(), lr=0.05, weight_decay=1e-4)
    grid = weft.arange(16) * (2 * weft.pi / 16)
    x = weft.stack([grid.sin(), (2 * grid).cos()]).unsqueeze(0)
    target = weft.stack([grid.cos(), -2 * (2 * grid).sin()]).unsqueeze(0)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = ((layer(x) - target) ** 2).mean()
        loss.backward()
        weft.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.02 * losses[0]
    state = optimizer.state_dict()
    again = weft.optim.Adam(layer.parameters())
    again.load_state_dict(state)
    assert again.state[layer.weights]["exp_avg"].dtype is weft.complex64
