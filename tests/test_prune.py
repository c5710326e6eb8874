"""Pruning against PyTorch's, in compiled calls, and its errors."""

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn.utils import prune


def network(library):
    layers = library.nn.Sequential(library.nn.Linear(4, 3), library.nn.Tanh(), library.nn.Linear(3, 2)).double()
    with library.no_grad():
        for k, param in enumerate(layers.parameters()):
            values = library.linspace(-1, 1.1, param.numel(), dtype=library.float64).reshape(param.shape)
            param.copy_((values * (k + 2) * 3).sin())
    return layers


WAYS = {
    "l1": lambda p, net, library: p.l1_unstructured(net[0], "weight", amount=0.3),
    "l1 of a count": lambda p, net, library: p.l1_unstructured(net[0], name="bias", amount=2),
    "scores": lambda p, net, library: p.l1_unstructured(
        net[2], "weight", 2, importance_scores=library.arange(6.0).reshape(2, 3)
    ),
    "ln": lambda p, net, library: p.ln_structured(net[0], "weight", amount=1, n=2, dim=1),
    "identity": lambda p, net, library: p.identity(net[0], "weight"),
    "mask": lambda p, net, library: p.custom_from_mask(net[2], "bias", library.tensor([0, 1])),
    "twice": lambda p, net, library: [
        p.ln_structured(net[0], "weight", amount=0.3, n=1, dim=0), p.l1_unstructured(net[0], "weight", amount=0.5)
    ],
    "three times": lambda p, net, library: [
        p.l1_unstructured(net[0], "weight", amount=3), p.ln_structured(net[0], "weight", 1, 2, -1),
        p.l1_unstructured(net[0], "weight", amount=1)
    ],
    "together": lambda p, net, library: p.global_unstructured(
        [(net[0], "weight"), (net[2], "weight")], pruning_method=p.L1Unstructured, amount=0.4
    ),
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("name", WAYS)
def test_pruning_like_pytorch(name):
    torch = pytest.importorskip("torch")
    found = []
    for library in (weft, torch):
        import importlib

        pruning = importlib.import_module(f"{library.__name__}.nn.utils.prune")
        net = network(library)
        WAYS[name](pruning, net, library)
        assert pruning.is_pruned(net)
        net(library.ones(2, 4, dtype=library.float64)).pow(2).sum().backward()
        gradients = {k: p.grad for k, p in net.named_parameters()}
        state = net.state_dict()
        hook = next(h for m in net.modules() for h in m._forward_pre_hooks.values())
        layer = next(m for m in net.modules() if m._forward_pre_hooks)
        pruning.remove(layer, hook._tensor_name)
        found.append([state, gradients, net.state_dict(), type(hook).__name__])
    for ours, theirs in zip(found[0][:3], found[1][:3]):
        assert list(ours) == list(theirs)
        for key, value in ours.items():
            np.testing.assert_allclose(value.numpy(), theirs[key].numpy(), 1e-12)
    assert found[0][3] == found[1][3]


def test_random_pruning():
    weft.manual_seed(0)
    layer = prune.random_unstructured(nn.Linear(4, 5), "weight", amount=0.25)
    assert (layer.weight_mask == 0).sum().item() == 5
    rows = prune.random_structured(nn.Linear(4, 5), "weight", amount=2, dim=0).weight_mask
    assert sorted(rows.sum(1).tolist()) == [0, 0, 4, 4, 4]
    assert not prune.is_pruned(nn.Linear(1, 1))


def test_pruned_networks_train_in_compiled_calls():
    found = []
    for wrap in (weft.compile, lambda function: function):
        net = network(weft).float()
        prune.l1_unstructured(net[0], "weight", amount=0.5)
        optimizer = weft.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        @wrap
        def step(x, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(weft.linspace(-1, 1, 8).reshape(2, 4)).item() for _ in range(5)]
        found.append((losses, net.state_dict()["0.weight_orig"].tolist()))
        zero = net[0].weight_mask == 0
        assert (net[0].weight[zero] == 0).all() and zero.sum().item() == 6
    assert found[0] == found[1]


class Tails(prune.BasePruningMethod):
    """As users write one."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


def test_methods_of_users():
    layer = nn.Linear(2, 2)
    Tails.apply(layer, "bias")
    assert layer.bias_mask.tolist() == [0, 1]
    assert prune.is_pruned(nn.Sequential(layer))
    assert Tails().prune(weft.ones(3)).tolist() == [0, 1, 0]


def test_errors():
    layer = nn.Linear(3, 2)
    for call, error, message in (
        (lambda: prune.l1_unstructured(layer, "weight", "much"), TypeError, "Invalid type for amount: much"),
        (lambda: prune.l1_unstructured(layer, "weight", 1.5), ValueError, "amount=1.5 should either be a float"),
        (lambda: prune.l1_unstructured(layer, "weight", 7), ValueError, "amount=7 should be smaller than"),
        (lambda: prune.ln_structured(layer, "bias", 1, 2, 0), ValueError, "only be applied to multidimensional"),
        (lambda: prune.ln_structured(layer, "weight", 1, 2, 5), IndexError, "Invalid index 5"),
        (lambda: prune.custom_from_mask(layer, "bias", weft.ones(5)), AssertionError, "the mask has shape"),
        (lambda: prune.l1_unstructured(layer, "bias", 1, weft.ones(5)), AssertionError, "should have the same shape"),
        (lambda: prune.remove(layer, "weight"), ValueError, "has to be pruned before pruning can be removed"),
        (
            lambda: prune.global_unstructured([(layer, "weight")], prune.CustomFromMask, mask=1),
            TypeError,
            "unstructured",
        ),
        (lambda: prune.PruningContainer().add_pruning_method(3), TypeError, "is not a BasePruningMethod subclass"),
    ):
        with pytest.raises(error, match=message):
            call()
    assert list(layer.state_dict()) == ["weight", "bias"] and not layer._forward_pre_hooks
