"""nn.init on the parameters it is made for: what each function fills in, eagerly, compiled and in PyTorch."""

import math

import numpy as np
import pytest

import weft
from weft import nn

EXACT = {
    "zeros_": ((3, 4), {}),
    "ones_": ((3, 4), {}),
    "constant_": ((3, 4), {"val": -2.5}),
    "eye_": ((3, 5), {}),
    "dirac_": ((5, 3, 4), {}),
    "dirac_ in groups": ((6, 2, 3, 5), {"groups": 3}),
    "dirac_ of volumes": ((2, 4, 1, 2, 3), {"groups": 2}),
}
RANDOM = {
    "uniform_": {"a": -1.0, "b": 3.0},
    "normal_": {"mean": 1.0, "std": 0.3},
    "trunc_normal_": {"mean": 0.5, "std": 2.0, "a": -1.0, "b": 3.0},
    "xavier_uniform_": {"gain": 2.0},
    "xavier_normal_": {"gain": 0.5},
    "kaiming_uniform_": {"a": math.sqrt(5)},
    "kaiming_normal_": {"mode": "fan_out", "nonlinearity": "relu"},
    "orthogonal_": {"gain": 3.0},
    "sparse_": {"sparsity": 0.3, "std": 2.0},
}
ALL = {**EXACT, **{name: ((200, 150), options) for name, options in RANDOM.items()}}


def filled(T, name, dtype="float32"):
    """A parameter that the function has filled and returned."""
    shape, options = ALL[name]
    param = T.nn.Parameter(T.ones(*shape, dtype=getattr(T, dtype)))
    assert getattr(T.nn.init, name.split()[0])(param, **options) is param
    return param


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", list(ALL))
def test_parameters_are_filled_and_stay_leaves(name, dtype):
    param = filled(weft, name, dtype)
    assert param.requires_grad and param.is_leaf and param.grad_fn is None and isinstance(param, nn.Parameter)
    assert param.dtype is getattr(weft, dtype) and not (param == 1).all() or name == "ones_"
    (param * 2).sum().backward()
    assert (param.grad == 2).all()


@pytest.mark.parametrize("name", list(ALL))
def test_compiled(name):
    shape, options = ALL[name]
    function = getattr(nn.init, name.split()[0])

    def start_anew(param):
        function(param, **options)
        return (param * 2).sum()

    seen = []
    for call in (start_anew, weft.compile(start_anew)):
        weft.manual_seed(3)
        param = nn.Parameter(weft.ones(*shape))
        seen.append([(call(param).item(), param.detach().numpy().tobytes()) for _ in range(4)])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", list(RANDOM))
def test_generators(name):
    function, options = getattr(nn.init, name), RANDOM[name]
    weft.manual_seed(0)
    before = weft.rand(1).item()
    weft.manual_seed(0)
    one, two, other = (
        function(nn.Parameter(weft.ones(6, 5)), **options, generator=weft.Generator(seed)).tolist()
        for seed in (1, 1, 2)
    )
    assert one == two != other and weft.rand(1).item() == before


@pytest.mark.oracle
@pytest.mark.parametrize("name", list(EXACT))
def test_constants_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    assert filled(weft, name).tolist() == filled(torch, name).tolist()


@pytest.mark.oracle
@pytest.mark.parametrize("name", list(RANDOM))
def test_distributions_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    weft.manual_seed(0)
    ours, theirs = (np.sort(filled(T, name).detach().numpy(), axis=None) for T in (weft, torch))
    spread = theirs.std()
    assert abs(ours.mean() - theirs.mean()) < 0.03 * spread and abs(ours.std() / spread - 1) < 0.03
    # The largest distance between the two distribution functions (Kolmogorov and Smirnov) of 30,000 numbers.
    places = np.searchsorted(ours, theirs, side="right") / ours.size
    if name != "sparse_":
        assert np.abs(places - np.arange(1, theirs.size + 1) / theirs.size).max() < 0.015
    assert (ours == 0).sum() == (theirs == 0).sum()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (1, 3), (4, 2, 3), (1, 1)])
def test_orthogonal_parameters(shape):
    weft.manual_seed(0)
    drawn = [nn.init.orthogonal_(nn.Parameter(weft.empty(*shape)), gain=2.0) for _ in range(30)]
    for param in drawn:
        matrix = param.detach().numpy().reshape(shape[0], -1)
        small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
        np.testing.assert_allclose(small, 4.0 * np.eye(len(small)), atol=1e-5)
    assert len({param.flatten()[0].item() > 0 for param in drawn}) == 2


def test_sparse_columns():
    param = nn.init.sparse_(nn.Parameter(weft.ones(10, 40)), sparsity=0.25)
    assert ((param == 0).sum(0) == 3).all() and len({tuple(column) for column in (param == 0).t().tolist()}) > 10


def test_layers_with_an_initialisation_of_their_own():
    model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 2)))

    def start(module):
        if isinstance(module, nn.Linear):
            nn.init.orthogonal_(module.weight, nn.init.calculate_gain("relu"))
            nn.init.trunc_normal_(module.bias, std=0.02)

    model.apply(start)
    weight = model[0].weight.detach()
    assert (weight @ weight.t()).allclose(weft.eye(3) * 2, atol=1e-5) and model[1][0].bias.abs().max() < 0.2
    assert nn.init._calculate_fan_in_and_fan_out(model[0].weight) == (4, 3)


@pytest.mark.oracle
def test_fans_and_gains_are_pytorchs():
    torch = pytest.importorskip("torch")
    for shape in ((3, 4), (3, 4, 5), (3, 4, 5, 6)):
        expected = torch.nn.init._calculate_fan_in_and_fan_out(torch.ones(*shape))
        assert nn.init._calculate_fan_in_and_fan_out(weft.ones(*shape)) == expected
    for name in ("linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu", "conv3d", "conv_transpose2d"):
        assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)


def test_older_names():
    with pytest.warns(FutureWarning, match="`nn.init.xavier_uniform` is now deprecated in favor of `nn.init.xavier_un"):
        nn.init.xavier_uniform(nn.Parameter(weft.ones(2, 2)))


ERRORS = {
    "dirac_": [((3, 4), {}, "Only tensors with 3, 4, or 5 dimensions"), ((5, 3, 1), {"groups": 2}, "divisible by gr")],
    "sparse_": [((3,), {"sparsity": 0.1}, "Only tensors with 2 dimensions")],
    "orthogonal_": [((3,), {}, "Only tensors with 2 or more dimensions")],
}


@pytest.mark.parametrize("name", list(ERRORS))
def test_errors(name):
    for shape, options, words in ERRORS[name]:
        with pytest.raises(ValueError, match=words):
            getattr(nn.init, name)(nn.Parameter(weft.ones(*shape)), **options)


@pytest.mark.parametrize("name, numbers", [("uniform_", (1.0, 0.0)), ("normal_", (0.0, -1.0))])
def test_ranges_that_are_none(name, numbers):
    with pytest.raises(RuntimeError, match=rf"{name[:-1]}_? expects .*, but found"):
        getattr(nn.init, name)(nn.Parameter(weft.ones(3)), *numbers)


def test_a_mean_far_from_the_bounds_is_told():
    with pytest.warns(UserWarning, match="mean is more than 2 std from"):
        nn.init.trunc_normal_(nn.Parameter(weft.ones(3)), mean=5.0, std=1.0, a=-1.0, b=2.0)
