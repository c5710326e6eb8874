"""Muon: PyTorch's steps as far as bfloat16 has digits, the same bits compiled, and what it refuses."""

import numpy as np
import pytest

import weft

OPTIONS = [{}, {"nesterov": False, "weight_decay": 0.0, "adjust_lr_fn": "match_rms_adamw"}, {"ns_steps": 3, "lr": 0.2}]


def trained(m, options):
    rng = np.random.default_rng(0)
    params = [m.tensor(rng.normal(size=shape), dtype=m.float32, requires_grad=True) for shape in ((4, 3), (3, 7))]
    optimizer = m.optim.Muon(params, **{"lr": 0.1, **options})
    for _ in range(4):
        for param in params:
            param.grad = m.tensor(rng.normal(size=tuple(param.shape)), dtype=m.float32)
        optimizer.step()
    return [*params, *(values["momentum_buffer"] for values in optimizer.state_dict()["state"].values())]


@pytest.mark.oracle
@pytest.mark.parametrize("options", OPTIONS)
def test_runs_like_pytorch(options):
    torch = pytest.importorskip("torch")
    for mine, theirs in zip(trained(weft, options), trained(torch, options)):
        # Four steps of length 0.1, each of eight bits.
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), 0, 0.03)


def test_steps_are_nearly_orthonormal():
    weight = weft.zeros(20, 10, requires_grad=True)
    weight.grad = weft.randn(20, 10)
    weft.optim.Muon([weight], lr=1.0, momentum=0.0, weight_decay=0.0).step()
    lengths = weft.linalg.svdvals(weight.detach()) / 2.0**0.5
    assert lengths.min().item() > 0.4 and lengths.max().item() < 1.6


def test_compiled_steps_have_the_same_bits():
    x, start = weft.randn(2, 4), weft.randn(4, 3)

    def run(decorate):
        weight = start.clone().requires_grad_()
        optimizer = weft.optim.Muon([weight], lr=0.1)

        @decorate
        def step():
            optimizer.zero_grad()
            (x @ weight).square().sum().backward()
            optimizer.step()

        for _ in range(5):
            step()
        return weight.tolist(), optimizer.state[weight]["momentum_buffer"].tolist()

    assert run(weft.compile) == run(lambda function: function)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "Learning rate should be >= 0 but is: -1.0"),
        ({"momentum": -1.0}, "momentum should be >= 0 but is: -1.0"),
        ({"weight_decay": -1.0}, "weight decay should be >= 0 but is: -1.0"),
        ({"adjust_lr_fn": "other"}, "Adjust learning rate function other is not supported"),
        ({"ns_coefficients": (1, 2)}, "Coefficients must be a tuple of exactly 3 values"),
        ({"ns_steps": 100}, "Number of steps must be less than 100"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        weft.optim.Muon([weft.ones(2, 2, requires_grad=True)], **options)


def test_parameters_are_real_matrices():
    with pytest.raises(ValueError, match=r"only supports 2D parameters .* size: \(3,\); give it to another"):
        weft.optim.Muon([weft.ones(3, requires_grad=True)])
    weight = weft.ones(2, 2, dtype=weft.complex64, requires_grad=True)
    weight.grad = weft.ones_like(weight)
    with pytest.raises(RuntimeError, match="Muon does not support complex parameters"):
        weft.optim.Muon([weight]).step()
