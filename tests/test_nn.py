"""Modules, functions of neural networks, initialisation: structure by closed forms, numbers against PyTorch."""

import doctest
import math
from functools import partial

import numpy as np
import pytest
from nn_helpers import numbers

import weft
import weft.nn.functional as F
from weft import nn


# --- layers ---------------------------------------------------------------------------------------------------------
def test_linear_says_what_it_needs():
    layer = nn.Linear(in_features=3, out_features=4)
    with pytest.raises(ValueError) as error:
        layer(weft.zeros(2, 5))
    assert str(error.value) == (
        "Linear(in_features=3, out_features=4): input has shape (2, 5); its last dimension must be 3"
    )
    with pytest.raises(ValueError, match="convert one with .to"):
        layer(weft.zeros(2, 3, dtype=weft.float64))


def test_linear_starts_within_its_bound():
    weft.manual_seed(3)
    layer = nn.Linear(64, 50)
    for param in layer.parameters():
        values = param.detach().numpy()
        assert np.abs(values).max() <= 1 / 8 and np.abs(values).max() > 0.1
    weft.manual_seed(3)
    assert nn.Linear(64, 50).weight.tolist() == layer.weight.tolist()


def test_embedding_padding_row():
    layer = nn.Embedding(4, 3, padding_idx=1)
    assert layer.weight[1].tolist() == [0.0, 0.0, 0.0]
    layer(weft.tensor([[0, 1], [1, 2]])).sum().backward()
    assert layer.weight.grad[:, 0].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert not nn.Embedding.from_pretrained(weft.ones(2, 2)).weight.requires_grad
    with pytest.raises(AssertionError, match="padding_idx 4 must be within num_embeddings 4"):
        nn.Embedding(4, 3, padding_idx=4)
    with pytest.raises(IndexError):
        layer(weft.tensor([4]))


def test_dropout_scales_what_it_keeps():
    weft.manual_seed(0)
    layer = nn.Dropout(0.25)
    x = weft.ones(200, 50, requires_grad=True)
    y = layer(x)
    values = y.detach().numpy()
    assert set(np.unique(values)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((values == 0).mean() - 0.25) < 0.02
    y.sum().backward()
    assert (x.grad.numpy() == values).all()
    assert layer.eval()(x) is x
    with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1, but got 1.5"):
        nn.Dropout(1.5)


def test_layer_norm_says_what_it_needs():
    with pytest.raises(RuntimeError) as error:
        nn.LayerNorm((4, 3))(weft.zeros(2, 5))
    assert "Given normalized_shape=[4, 3], expected input with shape [*, 4, 3], but got input of size [2, 5]" in str(
        error.value
    )


@pytest.mark.oracle
def test_batch_norm_tracks_like_pytorch():
    torch = pytest.importorskip("torch")
    ours, theirs = nn.BatchNorm2d(3, momentum=0.3).double(), torch.nn.BatchNorm2d(3, momentum=0.3).double()
    assert repr(ours) == repr(theirs) and list(ours.state_dict()) == list(theirs.state_dict())
    for seed in (1, 2):
        x = numbers((2, 3, 4, 5), seed)
        ours(weft.tensor(x)), theirs(torch.tensor(x))
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), 1e-13)
    against_torch(ours.eval(), theirs.eval(), [x])


def test_batch_norm_says_what_it_needs():
    with pytest.raises(ValueError, match=r"BatchNorm1d\(3\): input has shape \(2, 4\); expected 2D or 3D input with 3"):
        nn.BatchNorm1d(3)(weft.zeros(2, 4))
    with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
        nn.BatchNorm1d(3)(weft.zeros(1, 3))


def test_flatten_and_unflatten():
    x = weft.arange(24.0).reshape(2, 3, 4)
    assert nn.Flatten()(x).shape == (2, 12)
    assert nn.Unflatten(1, (3, 4))(nn.Flatten()(x)).tolist() == x.tolist()


# --- numbers against PyTorch ----------------------------------------------------------------------------------------
def against_torch(ours, theirs, arrays, tolerance=1e-12):
    """Values and gradients of f(*tensors) in float64, projected on random cotangents."""
    torch = pytest.importorskip("torch")
    x = [weft.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    y = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    a, b = ours(*x), theirs(*y)
    assert a.shape == tuple(b.shape)
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), tolerance, tolerance)
    cotangent = numbers(a.shape, 99)
    (a * weft.tensor(cotangent)).sum().backward()
    (b * torch.tensor(cotangent)).sum().backward()
    for p, q in zip(x, y):
        if q.grad is not None:
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), tolerance, tolerance)


ACTIVATIONS = {
    "relu": {},
    "relu6": {},
    "hardtanh": {"min_val": -0.5, "max_val": 1.5},
    "leaky_relu": {"negative_slope": 0.2},
    "elu": {"alpha": 1.5},
    "celu": {"alpha": 1.5},
    "selu": {},
    "gelu": {"approximate": "tanh"},
    "silu": {},
    "mish": {},
    "softplus": {"beta": 2.0, "threshold": 3.0},
    "softsign": {},
    "logsigmoid": {},
    "hardsigmoid": {},
    "hardswish": {},
    "glu": {"dim": 1},
    "softmax": {"dim": 1},
    "softmin": {"dim": 0},
    "log_softmax": {"dim": -1},
    "sigmoid": {},
    "tanh": {},
    "normalize": {"dim": 1},
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    torch = pytest.importorskip("torch")
    options = ACTIVATIONS[name]
    theirs = getattr(torch.nn.functional, name)
    against_torch(
        lambda x: getattr(F, name)(x, **options),
        lambda x: theirs(x, **options),
        [numbers((3, 4), low=-9, high=9)],
        # PyTorch's derivative of hardsigmoid is the float32 nearest to 1/6, also in float64.
        1e-7 if name == "hardsigmoid" else 1e-10,
    )


def test_activations_stay_finite_far_out():
    x = weft.tensor([-1000.0, 1000.0], requires_grad=True)
    for name in ("elu", "celu", "selu", "mish", "softplus", "logsigmoid", "silu"):
        x.grad = None
        y = getattr(F, name)(x)
        y.sum().backward()
        assert np.isfinite(y.detach().numpy()).all() and np.isfinite(x.grad.numpy()).all(), name


def test_softmax_warns_without_dim():
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax has been deprecated"):
        assert F.softmax(weft.zeros(1, 2)).tolist() == [[0.5, 0.5]]


def test_unknown_approximation():
    with pytest.raises(RuntimeError, match="approximate argument must be either none or tanh"):
        F.gelu(weft.zeros(1), approximate="erf")


REDUCTIONS = ("none", "sum", "mean")
PAIR_LOSSES = {
    "mse_loss": {},
    "l1_loss": {},
    "smooth_l1_loss": {"beta": 0.7},
    "huber_loss": {"delta": 0.7},
    "binary_cross_entropy": {},
    "binary_cross_entropy_with_logits": {},
}


@pytest.mark.oracle
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_losses_of_pairs(name, reduction):
    torch = pytest.importorskip("torch")
    options = {**PAIR_LOSSES[name], "reduction": reduction}
    theirs = getattr(torch.nn.functional, name)
    arrays = [numbers((3, 4), 1, 0.05, 0.95), numbers((3, 4), 2, 0.05, 0.95)]
    against_torch(lambda x, y: getattr(F, name)(x, y, **options), lambda x, y: theirs(x, y, **options), arrays, 1e-10)


@pytest.mark.oracle
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("binary_cross_entropy", ["weight"]),
        ("binary_cross_entropy_with_logits", ["weight"]),
        ("binary_cross_entropy_with_logits", ["weight", "pos_weight"]),
    ],
)
def test_weighted_binary_losses(name, names, reduction):
    torch = pytest.importorskip("torch")
    weights = {key: numbers((4,), seed, 0.5, 2.0) for seed, key in enumerate(names)}

    def with_weights(library, function):
        return lambda x, y: function(x, y, reduction=reduction, **{k: library.tensor(w) for k, w in weights.items()})

    against_torch(
        with_weights(weft, getattr(F, name)),
        with_weights(torch, getattr(torch.nn.functional, name)),
        [numbers((3, 4), 1, 0.05, 0.95), numbers((3, 4), 2, 0.0, 1.0)],
        1e-10,
    )


def test_binary_cross_entropy_at_the_ends():
    x = weft.tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True)
    losses = F.binary_cross_entropy(x, weft.tensor([0.0, 1.0, 1.0, 0.0]), reduction="none")
    assert losses.tolist() == [0.0, 0.0, 100.0, 100.0]
    losses.sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


CLASS_CASES = {
    "rows": ((5, 4), (5,), {}),
    "one row": ((4,), (), {}),
    "images": ((2, 4, 3, 2), (2, 3, 2), {}),
    "weights": ((5, 4), (5,), {"weight": numbers((4,), 7, 0.5, 2.0)}),
    "ignored": ((5, 4), (5,), {"ignore_index": 2}),
    "ignored, weights": ((2, 4, 3), (2, 3), {"ignore_index": 1, "weight": numbers((4,), 7, 0.5, 2.0)}),
    "smooth": ((5, 4), (5,), {"label_smoothing": 0.1}),
    "smooth, ignored, weights": (
        (2, 4, 3),
        (2, 3),
        {"label_smoothing": 0.1, "ignore_index": 1, "weight": numbers((4,), 7, 0.5, 2.0)},
    ),
}


@pytest.mark.oracle
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", CLASS_CASES)
def test_class_losses(case, reduction):
    torch = pytest.importorskip("torch")
    shape, target_shape, options = CLASS_CASES[case]
    classes = np.random.default_rng(5).integers(0, 4, target_shape)

    def with_options(make):
        return {k: make(v) if k == "weight" else v for k, v in options.items()}

    def ours(function):
        return lambda x: function(x, weft.tensor(classes), reduction=reduction, **with_options(weft.tensor))

    def theirs(function):
        return lambda x: function(x, torch.tensor(classes), reduction=reduction, **with_options(torch.tensor))

    against_torch(ours(F.cross_entropy), theirs(torch.nn.functional.cross_entropy), [numbers(shape)])
    if "label_smoothing" not in options:
        against_torch(ours(F.nll_loss), theirs(torch.nn.functional.nll_loss), [numbers(shape)])


@pytest.mark.oracle
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.2}, {"weight": numbers((4,), 7, 0.5, 2.0)}])
@pytest.mark.parametrize("shape", [(5, 4), (4,), (2, 4, 3)])
def test_cross_entropy_with_probabilities(shape, options, reduction):
    torch = pytest.importorskip("torch")
    arrays = [numbers(shape), numbers(shape, 1, 0.0, 1.0)]

    def with_options(make):
        return {k: make(v) if k == "weight" else v for k, v in options.items()}

    against_torch(
        lambda x, y: F.cross_entropy(x, y, reduction=reduction, **with_options(weft.tensor)),
        lambda x, y: torch.nn.functional.cross_entropy(x, y, reduction=reduction, **with_options(torch.tensor)),
        arrays,
    )


def test_loss_errors():
    x = weft.zeros(2, 3)
    with pytest.raises(ValueError, match="both is not a valid value for reduction; it must be one of none, mean, sum"):
        F.mse_loss(x, x, reduction="both")
    with pytest.warns(UserWarning, match=r"Using a target size \(\(2, 1\)\) that is different to the input size"):
        F.mse_loss(x, weft.zeros(2, 1))
    with pytest.raises(ValueError, match="must be the same as input size"):
        F.binary_cross_entropy(x, weft.zeros(2))
    with pytest.raises(IndexError, match="Target 3 is out of bounds"):
        F.cross_entropy(x, weft.tensor([0, 3]))
    with pytest.raises(ValueError, match=r"Expected target size \[2, 5\], got \[2, 4\]"):
        F.cross_entropy(weft.zeros(2, 3, 5), weft.zeros(2, 4, dtype=weft.int64))
    with pytest.raises(RuntimeError, match="for class indices convert with .long"):
        F.cross_entropy(x, weft.zeros(2))
    with pytest.raises(RuntimeError, match="label_smoothing must be between 0.0 and 1.0. Got: 2"):
        F.cross_entropy(x, weft.tensor([0, 1]), label_smoothing=2)


def layer_cases(library):
    make = library.nn
    return {
        "linear": make.Linear(3, 4),
        "linear without bias": make.Linear(3, 4, bias=False),
        "layer norm": make.LayerNorm(3),
        "layer norm of two": make.LayerNorm((2, 3)),
        "layer norm without bias": make.LayerNorm((2, 3), bias=False),
        "bare layer norm": make.LayerNorm(3, elementwise_affine=False),
        "rms norm": make.RMSNorm((2, 3)),
        "prelu": make.PReLU(2),
        "batch norm": make.BatchNorm1d(2),
        "bare batch norm": make.BatchNorm1d(2, affine=False, track_running_stats=False),
        "batch norm without bias": make.BatchNorm1d(2, bias=False),
    }


@pytest.mark.oracle
@pytest.mark.parametrize("name", layer_cases(weft))
def test_layers(name):
    torch = pytest.importorskip("torch")
    ours, theirs = layer_cases(weft)[name].double(), layer_cases(torch)[name].double()
    ours.load_state_dict({k: weft.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    against_torch(ours, theirs, [numbers((5, 2, 3))])
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), 1e-11, 1e-11)


@pytest.mark.oracle
def test_other_functions():
    torch = pytest.importorskip("torch")
    G = torch.nn.functional
    pair = [numbers((3, 4), 1), numbers((3, 4), 2)]
    against_torch(F.cosine_similarity, G.cosine_similarity, pair)
    against_torch(F.pairwise_distance, G.pairwise_distance, pair)
    against_torch(lambda x: F.normalize(x, p=1), lambda x: G.normalize(x, p=1), pair[:1])
    against_torch(lambda x: F.normalize(x, p=math.inf), lambda x: G.normalize(x, p=math.inf), pair[:1])
    for options in ({"reduction": "batchmean"}, {"reduction": "sum", "log_target": True}, {"reduction": "none"}):
        chances = [pair[0], numbers((3, 4), 2, 0.1, 0.9)]
        against_torch(partial(F.kl_div, **options), partial(G.kl_div, **options), chances)
    attention = [numbers((2, 3, 4), 1), numbers((2, 5, 4), 2), numbers((2, 5, 6), 3)]
    for options in ({}, {"is_causal": True}, {"scale": 0.3}):
        ours, theirs = (partial(f.scaled_dot_product_attention, **options) for f in (F, G))
        against_torch(ours, theirs, attention)
    masks = [numbers((3, 5), 4) < 1, numbers((3, 5), 5)]
    for mask in masks:
        against_torch(
            partial(F.scaled_dot_product_attention, attn_mask=weft.tensor(mask)),
            partial(G.scaled_dot_product_attention, attn_mask=torch.tensor(mask)),
            attention,
        )
    index = np.array([[0, 2], [2, 1]])
    against_torch(
        lambda w: F.embedding(weft.tensor(index), w, padding_idx=2),
        lambda w: G.embedding(torch.tensor(index), w, padding_idx=2),
        [numbers((3, 4))],
    )


def test_one_hot():
    assert F.one_hot(weft.tensor([0, 2])).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert F.one_hot(weft.tensor([[1]]), 2).tolist() == [[[0, 1]]]
    with pytest.raises(RuntimeError, match="Class values must be smaller than num_classes 2, got 2"):
        F.one_hot(weft.tensor([2]), 2)
    with pytest.raises(RuntimeError, match="Class values must be non-negative, got -1"):
        F.one_hot(weft.tensor([-1]))


# --- nn.init --------------------------------------------------------------------------------------------------------
def test_constants():
    w = weft.empty(2, 3, requires_grad=True)
    assert nn.init.zeros_(w) is w and w.tolist() == [[0.0] * 3] * 2 and w.is_leaf
    assert nn.init.ones_(w).tolist() == [[1.0] * 3] * 2
    assert nn.init.constant_(w, 2.5).tolist() == [[2.5] * 3] * 2
    assert nn.init.eye_(w).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    ("name", "options", "deviation"),
    [
        ("uniform_", {"a": -1.0, "b": 3.0}, 4 / math.sqrt(12)),
        ("normal_", {"std": 0.3}, 0.3),
        ("xavier_uniform_", {}, math.sqrt(2 / 300)),
        ("xavier_normal_", {"gain": 2.0}, 2 * math.sqrt(2 / 300)),
        ("kaiming_uniform_", {"a": math.sqrt(5)}, 1 / math.sqrt(3 * 100)),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"}, math.sqrt(2 / 200)),
    ],
)
def test_deviations(name, options, deviation):
    weft.manual_seed(1)
    w = getattr(nn.init, name)(weft.empty(200, 100), **options)
    assert abs(w.numpy().std() / deviation - 1) < 0.03


def test_truncated_normal_has_its_moments():
    weft.manual_seed(1)
    w = nn.init.trunc_normal_(weft.empty(300, 300), std=2.0, a=-1.0, b=3.0).numpy()
    stats = pytest.importorskip("scipy.stats").truncnorm(-0.5, 1.5, scale=2.0)
    assert w.min() >= -1.0 and w.max() <= 3.0
    assert abs(w.mean() - stats.mean()) < 0.02 and abs(w.std() / stats.std() - 1) < 0.02


def test_inverse_error_function_bound():
    erfinv = pytest.importorskip("scipy.special").erfinv
    x = np.concatenate([np.linspace(-1, 1, 20001)[1:-1], 1 - 2.0 ** -np.arange(1.0, 25)])
    x = x[x != 0]
    assert np.abs(nn.init._erfinv(x) / erfinv(x) - 1).max() < 1e-6


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3)])
def test_orthogonal(shape):
    w = nn.init.orthogonal_(weft.empty(*shape, dtype=weft.float64), gain=2.0).numpy().reshape(shape[0], -1)
    small = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(small, 4.0 * np.eye(len(small)), atol=1e-12)


@pytest.mark.oracle
def test_gains():
    torch = pytest.importorskip("torch")
    for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert nn.init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)


def test_initialisation_errors():
    with pytest.raises(ValueError, match="Unsupported nonlinearity gelu"):
        nn.init.calculate_gain("gelu")
    with pytest.raises(ValueError, match="fewer than 2 dimensions, got shape"):
        nn.init.xavier_uniform_(weft.empty(3))
    with pytest.raises(ValueError, match="Mode fan not supported"):
        nn.init.kaiming_normal_(weft.empty(3, 3), mode="fan")
    with pytest.raises(ValueError, match="Only tensors with 2 dimensions"):
        nn.init.eye_(weft.empty(3))
    with pytest.raises(ValueError, match="Only tensors with 2 or more dimensions"):
        nn.init.orthogonal_(weft.empty(3))
    with pytest.warns(UserWarning, match="no-op"):
        nn.init.kaiming_uniform_(weft.empty(0, 3))


# --- documentation --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("module", [nn, weft.optim, weft.utils.data, weft.serialization], ids=lambda m: m.__name__)
def test_examples_in_the_documentation(module):
    failed, tried = doctest.testmod(module, extraglobs={"weft": weft})
    assert tried > 0 and failed == 0


# --- nn.utils -------------------------------------------------------------------------------------------------------
def with_gradients(*gradients):
    params = [nn.Parameter(weft.zeros(len(g))) for g in gradients]
    for param, grad in zip(params, gradients):
        param.grad = weft.tensor(grad)
    return params


def test_norm_clipping():
    params = with_gradients([3.0, 0.0], [4.0])
    assert nn.utils.clip_grad_norm_(params, 1.0).item() == 5.0
    np.testing.assert_allclose(params[0].grad.numpy(), [0.6, 0.0], rtol=1e-5)
    params = with_gradients([3.0, 0.0], [4.0])
    assert nn.utils.clip_grad_norm_(params, 10.0).item() == 5.0
    assert params[1].grad.tolist() == [4.0]
    assert nn.utils.clip_grad_norm_(params, 10.0, norm_type=math.inf).item() == 4.0
    assert nn.utils.clip_grad_norm_(params, 10.0, norm_type=1).item() == 7.0
    assert nn.utils.clip_grad_norm_([nn.Parameter(weft.zeros(1))], 1.0).item() == 0.0
    with pytest.raises(RuntimeError, match="gradients from `parameters` is non-finite"):
        nn.utils.clip_grad_norm_(with_gradients([math.nan]), 1.0, error_if_nonfinite=True)


def test_value_clipping():
    params = with_gradients([3.0, -0.5, -3.0])
    nn.utils.clip_grad_value_(params, 1.0)
    assert params[0].grad.tolist() == [1.0, -0.5, -1.0]


def test_parameters_as_a_vector():
    net = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(net.parameters())
    assert vector.shape == (9,) and vector.requires_grad
    nn.utils.vector_to_parameters(weft.arange(9.0), net.parameters())
    assert net.weight.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]] and net.bias.tolist() == [6.0, 7.0, 8.0]
    with pytest.raises(ValueError, match=r"vec has shape \(8,\), the parameters need \(9,\)"):
        nn.utils.vector_to_parameters(weft.arange(8.0), net.parameters())
