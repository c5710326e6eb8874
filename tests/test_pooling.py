"""Pooling: PyTorch's values, positions, derivatives and errors; compiled calls give eager mode's bits."""

import numpy as np
import pytest
from nn_helpers import numbers

import weft
from weft import nn

F = nn.functional

# (function, shape of the input, arguments, keywords)
MAXIMA = [
    ("max_pool1d", (2, 3, 8), (2,), {}),
    ("max_pool1d", (3, 9), (3, 2), {"padding": 1, "ceil_mode": True}),
    ("max_pool2d", (2, 2, 7, 6), (3,), {"stride": 2, "padding": 1, "dilation": (1, 2)}),
    ("max_pool2d", (1, 2, 7, 8), ((2, 3),), {"stride": (2, 3), "ceil_mode": True}),
    ("max_pool2d", (2, 12, 10), ((11, 9),), {"stride": 1, "padding": (2, 1)}),
    ("max_pool3d", (1, 2, 4, 5, 4), (2,), {"padding": 1}),
    ("adaptive_max_pool1d", (2, 3, 7), (3,), {}),
    ("adaptive_max_pool2d", (2, 3, 6, 8), ((3, 4),), {}),
    ("adaptive_max_pool2d", (2, 7, 5), ((3, None),), {}),
    ("adaptive_max_pool3d", (1, 2, 5, 4, 3), (2,), {}),
]
OTHERS = [
    ("avg_pool1d", (2, 3, 8), (3, 2, 1), {}),
    ("avg_pool2d", (2, 2, 7, 6), (3,), {"stride": 2, "padding": 1}),
    ("avg_pool2d", (2, 2, 7, 6), (3,), {"stride": 2, "padding": 1, "count_include_pad": False, "ceil_mode": True}),
    ("avg_pool2d", (2, 7, 6), ((2, 3),), {"divisor_override": 5, "ceil_mode": True}),
    ("avg_pool2d", (1, 2, 12, 9), ((9, 8),), {"stride": 1, "padding": 2}),
    ("avg_pool3d", (1, 2, 4, 5, 4), (2,), {"padding": 1}),
    ("adaptive_avg_pool1d", (2, 3, 7), (3,), {}),
    ("adaptive_avg_pool2d", (2, 3, 6, 8), (1,), {}),
    ("adaptive_avg_pool2d", (2, 3, 6, 7), ((None, 3),), {}),
    ("adaptive_avg_pool3d", (2, 4, 4, 4, 3), ((2, 2, 3),), {}),
    ("lp_pool1d", (2, 3, 8), (2.0, 3), {"stride": 2}),
    ("lp_pool2d", (2, 3, 7, 6), (3.0, 2), {"ceil_mode": True}),
    ("lp_pool3d", (1, 2, 4, 4, 4), (2.0, 2), {}),
]
CASES = MAXIMA + OTHERS


def spread(shape, seed=0):
    """Distinct positive numbers in a random order."""
    n = int(np.prod(shape))
    return (np.random.default_rng(seed).permutation(n).reshape(shape) + 1.0) / n


def bits_equal(a, b):
    return a.shape == b.shape and np.array_equal(a.detach().numpy(), b.detach().numpy(), equal_nan=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_calls_have_eager_bits_and_cut_nothing(case):
    name, shape, args, how = case

    def run(x):
        out = getattr(F, name)(x, *args, **how)
        return out, *weft.autograd.grad((out * out).sum(), [x])

    compiled, x = weft.compile(run), weft.tensor(spread(shape), dtype=weft.float32, requires_grad=True)
    expected = run(x)
    for _ in range(2):
        assert all(bits_equal(a, b) for a, b in zip(compiled(x), expected))
    assert "nothing ran outside the programs" in compiled.explain()


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_two_derivatives_are_pytorchs(case):
    torch = pytest.importorskip("torch")
    name, shape, args, how = case
    results = []
    for library in (weft, torch):
        x = library.tensor(spread(shape), requires_grad=True)
        out = getattr(library.nn.functional, name)(x, *args, **how)
        (first,) = library.autograd.grad((out * out * out).sum(), x, create_graph=True)
        (second,) = library.autograd.grad((first * first).sum(), x)
        results.append([np.asarray(t.detach()) for t in (out, first, second)])
    for ours, theirs in zip(*results):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize("case", MAXIMA, ids=str)
def test_positions_are_pytorchs(case):
    """Also where elements are equal (the first), where all are -inf, and where some are NaN (the last)."""
    torch = pytest.importorskip("torch")
    name, shape, args, how = case
    n = int(np.prod(shape))
    arrays = [spread(shape), np.zeros(shape), np.full(shape, -np.inf)]
    if name != "max_pool2d" or shape != (2, 12, 10):
        arrays.append(np.where(np.random.default_rng(1).random(n) < 0.2, np.nan, np.arange(n)).reshape(shape))
    for array in arrays:
        found = getattr(F, name)(weft.tensor(array), *args, **how, return_indices=True)
        expected = getattr(torch.nn.functional, name)(torch.tensor(array), *args, **how, return_indices=True)
        for ours, theirs in zip(found, expected):
            assert np.array_equal(ours.numpy(), theirs.numpy(), equal_nan=True)


@pytest.mark.oracle
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_what_pooling_took_is_put_back(rank):
    torch = pytest.importorskip("torch")
    results = []
    for library in (weft, torch):
        x = library.tensor(spread((2, 3, *(6, 5, 4)[:rank])), requires_grad=True)
        pool = getattr(library.nn, f"MaxPool{rank}d")(2, return_indices=True)
        undo = getattr(library.nn, f"MaxUnpool{rank}d")(2)
        values, places = pool(x)
        out = undo(values, places, output_size=x.shape)
        (slope,) = library.autograd.grad((out * out).sum(), x)
        results.append([np.asarray(t.detach()) for t in (values, places, out, slope)])
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(*results))


@pytest.mark.oracle
@pytest.mark.parametrize(("rank", "shape"), [(2, (2, 3, 9, 8)), (2, (3, 9, 8)), (3, (1, 2, 6, 7, 5))])
def test_fractional_pooling_of_given_samples(rank, shape):
    torch = pytest.importorskip("torch")
    lead = shape[:2] if len(shape) == rank + 2 else (1, shape[0])
    samples = np.random.default_rng(0).random((*lead, rank))
    results = []
    for library in (weft, torch):
        function = getattr(library.nn.functional, f"fractional_max_pool{rank}d")
        x = library.tensor(spread(shape), requires_grad=True)
        values, places = function(
            x, 2, output_size=(4, 3, 3)[:rank], return_indices=True, _random_samples=library.tensor(samples)
        )
        (slope,) = library.autograd.grad((values * values).sum(), x)
        results.append([np.asarray(t.detach()) for t in (values, places, slope)])
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(*results))


def test_fractional_pooling_draws_its_own_samples():
    weft.manual_seed(0)
    x = weft.randn(2, 3, 9, 9)
    values, places = nn.FractionalMaxPool2d(2, output_ratio=0.5, return_indices=True)(x)
    assert values.shape == (2, 3, 4, 4)
    assert bits_equal(x.flatten(2).gather(2, places.flatten(2)).reshape(values.shape), values)


LAYERS = [
    ("MaxPool1d", (2,), {}, (2, 3, 8)),
    ("MaxPool2d", (3, 2, 1), {"ceil_mode": True}, (2, 3, 8, 7)),
    ("MaxPool3d", ((1, 2, 2),), {"dilation": 2}, (1, 2, 4, 5, 5)),
    ("AvgPool1d", (3,), {"stride": 2}, (2, 3, 8)),
    ("AvgPool2d", (2,), {"count_include_pad": False, "padding": 1}, (2, 3, 8, 7)),
    ("AvgPool3d", (2, 1), {"divisor_override": 3}, (1, 2, 4, 5, 5)),
    ("LPPool1d", (2, 3), {}, (2, 3, 8)),
    ("LPPool2d", (2, 3), {"stride": 2}, (2, 3, 8, 7)),
    ("LPPool3d", (1, 2), {}, (2, 3, 4, 4, 4)),
    ("AdaptiveAvgPool1d", (3,), {}, (2, 3, 8)),
    ("AdaptiveAvgPool2d", ((2, None),), {}, (2, 3, 8, 7)),
    ("AdaptiveAvgPool3d", (1,), {}, (1, 3, 4, 4, 4)),
    ("AdaptiveMaxPool1d", (3,), {}, (2, 3, 8)),
    ("AdaptiveMaxPool2d", ((2, 3),), {}, (2, 3, 8, 7)),
    ("AdaptiveMaxPool3d", (2,), {}, (1, 3, 4, 4, 5)),
]


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "args", "how", "shape"), LAYERS, ids=str)
def test_layers_are_pytorchs(name, args, how, shape):
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(nn, name)(*args, **how), getattr(torch.nn, name)(*args, **how)
    assert repr(ours) == repr(theirs)
    x = spread(shape).astype("float32")
    np.testing.assert_allclose(ours(weft.tensor(x)).numpy(), theirs(torch.tensor(x)).numpy(), rtol=2e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: F.max_pool2d(weft.ones(2, 2), 2), "Expected 3D or 4D input (got 2D"),
        (lambda: F.max_pool2d(weft.ones(1, 1, 4, 4), (2, 2, 2)), "kernel_size must either be a single int, or a tuple"),
        (lambda: F.max_pool2d(weft.ones(1, 1, 4, 4), 2, padding=2), "pad should be at most half of effective kernel"),
        (lambda: F.max_pool2d(weft.ones(1, 1, 4, 4), 5), "Output size is too small"),
        (lambda: F.avg_pool1d(weft.ones(1, 1, 4), 0), "should be greater than zero"),
        (lambda: F.avg_pool2d(weft.ones(1, 1, 4, 4), 2, divisor_override=0), "divisor must be not zero"),
        (lambda: F.max_pool1d(weft.ones(1, 1, 0), 1), "Expected input's non-batch dimensions to have positive length"),
        (lambda: F.adaptive_avg_pool2d(weft.ones(1, 4, 4), (1, 2, 3)), "output_size must be 2 numbers or None"),
        (lambda: F.adaptive_max_pool1d(weft.ones(1, 4), -1), "must be greater than or equal to 0"),
        (lambda: F.max_unpool1d(weft.ones(1, 4), weft.zeros(1, 3).long(), 2), "Expected shape of indices to be same"),
        (lambda: F.max_unpool1d(weft.ones(1, 2), weft.zeros(1, 2).long(), 2, output_size=[9]), "invalid output_size"),
        (lambda: F.fractional_max_pool2d(weft.ones(1, 4, 4), 2), "either an output_size or an output_ratio"),
        (lambda: F.fractional_max_pool2d(weft.ones(1, 4, 4), 2, 4), "are too large for input"),
        (lambda: nn.FractionalMaxPool2d(2, output_ratio=1.5), "output_ratio must be between 0 and 1"),
    ],
)
def test_errors_say_what_was_given_and_what_is_needed(call, words):
    with pytest.raises((RuntimeError, ValueError)) as error:
        call()
    assert words in str(error.value)


def test_pooling_of_no_samples():
    x = weft.zeros(0, 3, 8, 8, requires_grad=True)
    out = F.max_pool2d(x, 2) + F.avg_pool2d(x, 2)
    out.sum().backward()
    assert out.shape == (0, 3, 4, 4) and x.grad.shape == x.shape


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "shape"),
    [("BatchNorm3d", (2, 3, 2, 3, 2)), ("LazyBatchNorm3d", (2, 3, 2, 3, 2)), ("LazyInstanceNorm2d", (2, 3, 4, 5))],
)
def test_normalisations_of_images(name, shape):
    torch = pytest.importorskip("torch")
    args = (3,) if name == "BatchNorm3d" else ()
    ours, theirs = getattr(nn, name)(*args), getattr(torch.nn, name)(*args)
    x = numbers(shape).astype("float32")
    np.testing.assert_allclose(
        ours(weft.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5
    )
    assert repr(ours).split("(")[0] == repr(theirs).split("(")[0]
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)
