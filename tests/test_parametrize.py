"""Parametrizations: values, gradients and state as PyTorch's, copies, compiled calls, errors."""

import copy

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn.utils import parametrizations, parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT


class Exponential(nn.Module):
    def forward(self, x):
        return x.exp()

    def right_inverse(self, x):
        return x.log()


class Parts(nn.Module):
    """A vector as its length and its direction."""

    def forward(self, length, direction):
        return length * direction

    def right_inverse(self, x):
        length = x.norm()
        return length, x / length


def linear(library, n=3, m=4, seed=0):
    layer = library.nn.Linear(n, m).double()
    weight = np.random.default_rng(seed).normal(size=(m, n))
    with library.no_grad():
        layer.weight.copy_(library.tensor(weight))
        layer.bias.zero_()
    return layer


def made_by(library, name, options):
    layer = linear(library)
    where, _, name = name.rpartition(".")
    home = library.nn.utils.parametrizations if where else library.nn.utils
    return getattr(home, name)(layer, **options)


def set_vectors(library, layer):
    """The start vectors of power iterations are drawn: take the same."""
    for name, buffer in layer.named_buffers():
        if name.endswith(("u", "v")):
            values = library.linspace(1, 2, buffer.numel(), dtype=buffer.dtype)
            buffer.copy_(values / values.norm())


CASES = [
    ("parametrizations.weight_norm", {}),
    ("parametrizations.weight_norm", {"dim": 1}),
    ("parametrizations.weight_norm", {"dim": None}),
    ("parametrizations.weight_norm", {"name": "bias"}),
    ("parametrizations.spectral_norm", {}),
    ("parametrizations.spectral_norm", {"n_power_iterations": 3, "dim": 1}),
    ("weight_norm", {}),
    ("weight_norm", {"dim": None}),
    ("spectral_norm", {}),
    ("spectral_norm", {"dim": 1, "n_power_iterations": 2}),
]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("name", "options"), CASES)
def test_normed_weights_like_pytorch(name, options):
    torch = pytest.importorskip("torch")
    found = []
    for library in (weft, torch):
        layer = made_by(library, name, options)
        set_vectors(library, layer)
        x = library.linspace(-1, 1, 6, dtype=library.float64).reshape(2, 3)
        results = []
        for mode in (True, True, False):
            layer.train(mode)
            layer.zero_grad()
            out = layer(x)
            (out * out).sum().backward()
            results.append([out.tolist(), *(p.grad.tolist() for p in layer.parameters())])
        found.append((list(layer.state_dict()), results))
    assert found[0][0] == found[1][0]
    for ours, theirs in zip(found[0][1], found[1][1]):
        for a, b in zip(ours, theirs):
            np.testing.assert_allclose(a, b, 1e-10, 1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize("options", [{"orthogonal_map": "cayley"}, {"orthogonal_map": "householder"}, {}])
@pytest.mark.parametrize("shape", [(3, 5), (4, 2), (3, 3)])
def test_orthogonal_weights_like_pytorch(options, shape):
    torch = pytest.importorskip("torch")
    found = []
    for library in (weft, torch):
        layer = library.nn.utils.parametrizations.orthogonal(linear(library, *shape), **options)
        square = layer.parametrizations.weight
        with library.no_grad():
            # The base is completed by random columns where the weight is not square: take one that both have.
            n = max(shape)
            square[0].base = library.eye(n, dtype=library.float64)[:, range(n - 1, -1, -1)]
            values = library.linspace(-1, 1, square.original.numel(), dtype=library.float64)
            square.original.copy_(values.reshape(square.original.shape))
            if options.get("orthogonal_map", "householder" if shape[0] != shape[1] else "") == "householder":
                square.original.fill_(0.25).fill_diagonal_(-1.0)
        weight = layer.weight
        (weight * library.arange(weight.numel()).reshape(weight.shape)).sum().backward()
        found.append((weight.tolist(), square.original.grad.tolist()))
    np.testing.assert_allclose(found[0][0], found[1][0], 1e-9, 1e-10)
    np.testing.assert_allclose(found[0][1], found[1][1], 1e-8, 1e-9)


@pytest.mark.parametrize("options", [{"orthogonal_map": "cayley"}, {"orthogonal_map": "householder"}, {}])
def test_orthogonal_weights_begin_orthogonal_and_can_be_assigned(options):
    for shape in ((3, 5), (4, 4)):
        layer = parametrizations.orthogonal(nn.Linear(*shape).double(), **options)
        q = nn.init.orthogonal_(weft.zeros(shape[1], shape[0], dtype=weft.float64))
        for _ in range(2):
            weight = layer.weight
            assert (weight.T @ weight).allclose(weft.eye(shape[0], dtype=weft.float64), atol=1e-9)
            layer.weight = q
        assert layer.weight.allclose(q)
    bare = parametrizations.orthogonal(nn.Linear(3, 3), orthogonal_map="cayley", use_trivialization=False)
    with pytest.raises(NotImplementedError, match="use_trivialization=False"):
        bare.weight = weft.eye(3)
    reflected = parametrizations.orthogonal(
        nn.Linear(3, 4).double(), orthogonal_map="householder", use_trivialization=False
    )
    q = nn.init.orthogonal_(weft.zeros(4, 3, dtype=weft.float64))
    reflected.weight = q
    assert reflected.weight.abs().allclose(q.abs())


@pytest.mark.parametrize(
    "make",
    [
        lambda layer: parametrize.register_parametrization(layer, "weight", Symmetric()),
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        nn.utils.spectral_norm,
    ],
)
def test_compiled_steps_have_the_same_bits(make):
    found = []
    for wrap in (weft.compile, lambda function: function):
        weft.manual_seed(0)
        layer = make(nn.Linear(3, 3))
        optimizer = weft.optim.Adam(layer.parameters(), lr=0.1)

        @wrap
        def step(x, layer=layer, optimizer=optimizer):
            optimizer.zero_grad()
            loss = layer(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(weft.linspace(0, 1, 6).reshape(2, 3)).item() for _ in range(6)]
        found.append((losses, {name: value.tolist() for name, value in layer.state_dict().items()}))
    assert found[0] == found[1]


def test_parametrizations_are_added_assigned_and_removed():
    layer = nn.Linear(2, 2)
    start = layer.weight.detach().abs() + 1
    with weft.no_grad():
        layer.weight.copy_(start)
    original = layer.weight
    parametrize.register_parametrization(layer, "weight", Exponential())
    assert layer.weight.allclose(start) and layer.parametrizations.weight.original is original
    assert parametrize.is_parametrized(layer) and not parametrize.is_parametrized(layer, "bias")
    assert isinstance(layer, nn.Linear) and parametrize.type_before_parametrizations(layer) is nn.Linear
    layer.weight = start * 2
    assert layer.weight.allclose(start * 2)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert (layer.weight == layer.weight.T).all()
    with pytest.raises(RuntimeError, match="Symmetric does not implement right_inverse"):
        layer.weight = start
    value = layer.weight.detach()
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and layer.weight is original and layer.weight.equal(value)
    assert list(dict(layer.named_parameters())) == ["bias", "weight"]


def test_several_originals_and_buffers():
    layer = nn.Linear(2, 2)
    start = layer.bias.detach().clone()
    parametrize.register_parametrization(layer, "bias", Parts())
    assert layer.bias.allclose(start) and "parametrizations.bias.original1" in layer.state_dict()
    layer.bias = start * 3
    assert layer.bias.allclose(start * 3)
    with pytest.raises(ValueError, match="sequence of tensors"):
        parametrize.remove_parametrizations(layer, "bias", leave_parametrized=False)
    parametrize.remove_parametrizations(layer, "bias")
    assert isinstance(layer.bias, nn.Parameter) and layer.bias.allclose(start * 3)
    norm = nn.BatchNorm1d(2)
    parametrize.register_parametrization(norm, "running_var", Exponential())
    assert norm.running_var.tolist() == [1, 1] and not norm.running_var.requires_grad


def test_copies_and_states_are_their_own():
    layer = parametrizations.weight_norm(nn.Linear(2, 3))
    twin = copy.deepcopy(layer)
    twin.load_state_dict(layer.state_dict())
    parametrize.remove_parametrizations(layer, "weight")
    assert twin.weight.allclose(layer.weight) and parametrize.is_parametrized(twin)
    other = parametrize.transfer_parametrizations_and_params(twin, nn.Linear(2, 3))
    assert other.weight.equal(twin.weight)
    assert other.parametrizations.weight.original1 is twin.parametrizations.weight.original1


def test_cached_values_are_computed_once():
    calls = []

    class Counted(nn.Module):
        def forward(self, x):
            calls.append(1)
            return x * 2

    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Counted())
    del calls[:]
    with parametrize.cached():
        assert layer.weight is layer.weight
    layer.weight, layer.weight  # noqa: B018
    assert len(calls) == 3


class Widening(nn.Module):
    def forward(self, x):
        return x.double()


def test_errors():
    layer = nn.Linear(2, 3)
    with pytest.raises(
        ValueError, match="does not have a parameter, a buffer, or a parametrized element with name 'w'"
    ):
        parametrize.register_parametrization(layer, "w", Symmetric())
    with pytest.raises(ValueError, match="may not change the dtype"):
        parametrize.register_parametrization(layer, "weight", Widening())
    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(layer, "weight", nn.Flatten(0))
    with pytest.raises(ValueError, match="does not have a parametrization on weight"):
        parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and list(layer.state_dict()) == ["weight", "bias"]
    with pytest.raises(ValueError, match="Expected n_power_iterations to be positive"):
        parametrizations.spectral_norm(layer, n_power_iterations=0)
    with pytest.raises(ValueError, match="has no parameter or buffer with name 'w'"):
        parametrizations.spectral_norm(layer, name="w")
    with pytest.raises(ValueError, match="orthogonal_map has to be one of"):
        parametrizations.orthogonal(layer, orthogonal_map="expm")
    with pytest.raises(ValueError, match="Got a tensor of 1 dimensions"):
        parametrizations.orthogonal(layer, "bias")
    nn.utils.spectral_norm(layer)
    with pytest.raises(RuntimeError, match="Cannot register two spectral_norm hooks on the same parameter weight"):
        nn.utils.spectral_norm(layer)
    assert list(dict(nn.utils.remove_spectral_norm(layer).named_parameters())) == ["bias", "weight"]
    with pytest.raises(ValueError, match="spectral_norm of 'weight' not found"):
        nn.utils.remove_spectral_norm(layer)
