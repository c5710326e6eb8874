"""Medians, elements of a rank, distinct elements and draws of large tensors: eager mode finds them without an order."""

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def values(dtype, *shape, ties=False):
    rng = np.random.default_rng(len(shape))
    drawn = rng.integers(-5, 6, shape) if ties else rng.permutation(int(np.prod(shape))).reshape(shape)
    return drawn.astype(dtype)


def both(array):
    return weft.tensor(array), torch.tensor(array)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_ranks_are_those_of_pytorch(dtype, axis):
    x, y = both(values(dtype, 301, 402))
    for k in (1, 40, 150, 301):
        ours, theirs = x.kthvalue(k, axis), y.kthvalue(k, axis)
        assert ours.values.tolist() == theirs.values.tolist() and ours.indices.tolist() == theirs.indices.tolist()
    for name in ("median", "nanmedian"):
        ours, theirs = getattr(x, name)(axis, keepdim=True), getattr(y, name)(axis, keepdim=True)
        assert ours.values.tolist() == theirs.values.tolist() and ours.indices.tolist() == theirs.indices.tolist()
        assert getattr(x, name)().item() == getattr(y, name)().item()


@pytest.mark.parametrize("ties", [False, True])
def test_positions_are_those_of_compiled_calls(ties):
    """Of equal elements the stable order decides, in both modes."""
    x = weft.tensor(values("float32", 200, 300, ties=ties))
    x[3, 4] = -0.0
    functions = (lambda x: x.kthvalue(120, 1), lambda x: x.median(0), lambda x: x.kthvalue(50, 0))
    for f in functions:
        compiled = weft.compile(f)
        for ours, theirs in zip(f(x), compiled(x)):
            assert ours.numpy().tobytes() == theirs.numpy().tobytes()


def test_medians_of_what_has_nans():
    array = values("float32", 200, 300)
    array[5, 7] = array[190, 7] = np.nan
    x, y = both(array)
    assert weft.isnan(x.median()) and x.nanmedian().item() == y.nanmedian().item()
    assert x.median(0).indices.tolist() == y.median(0).indices.tolist()
    assert x.nanmedian(0).values.tolist() == y.nanmedian(0).values.tolist()


def test_gradients_reach_the_median_alone():
    x, y = (library.tensor(values("float32", 151, 160)).requires_grad_() for library in (weft, torch))
    (x.median(0).values.sum() + 2 * x.median()).backward()
    (y.median(0).values.sum() + 2 * y.median()).backward()
    assert x.grad.tolist() == y.grad.tolist()


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool", "float16"])
@pytest.mark.parametrize("shape", [(0,), (1,), (7, 3), (50, 40)])
def test_distinct_elements_are_those_of_pytorch(dtype, shape):
    array = np.random.default_rng(1).integers(0, 9, shape).astype(dtype)
    x, y = both(array)
    for ours, theirs in zip(*(t.unique(return_inverse=True, return_counts=True) for t in (x, y))):
        assert ours.tolist() == theirs.tolist() and ours.shape == theirs.shape
    assert x.unique().tolist() == y.unique().tolist() and str(x.unique().dtype)[5:] == str(y.unique().dtype)[6:]


def test_distinct_zeros_and_nans():
    first = weft.tensor([3.0, -0.0, 0.0, 1.0])
    second = weft.tensor([3.0, 0.0, -0.0, 1.0])
    assert str(first.unique().tolist()) == "[-0.0, 1.0, 3.0]" and str(second.unique().tolist()) == "[0.0, 1.0, 3.0]"
    x, y = both(np.array([np.nan, 1.0, np.nan, 1.0], np.float32))
    for ours, theirs in zip(*(t.unique(return_counts=True) for t in (x, y))):
        assert str(ours.tolist()) == str(theirs.tolist())


def test_many_draws_of_many_weights():
    """A table of all draws and all weights would have 10^10 elements."""
    weights = weft.arange(100_000.0) % 3
    drawn = weft.multinomial(weights, 100_000, replacement=True)
    shares = weft.bincount(drawn % 3, minlength=3) / 100_000
    assert shares[0] == 0 and abs(shares[1] - 1 / 3) < 0.01 and abs(shares[2] - 2 / 3) < 0.01


def test_draws_without_replacement_are_distinct_and_have_weight():
    weights = weft.tensor(np.random.default_rng(0).integers(0, 2, (20, 300)).astype(np.float32))
    for n in (1, 2, 50):
        drawn = weft.multinomial(weights, n)
        assert drawn.shape == (20, n) and drawn.dtype is weft.int64
        assert weights.gather(1, drawn).bool().all()
        assert all(len(set(row)) == n for row in drawn.tolist())
    first = weft.stack([weft.multinomial(weft.tensor([1.0, 3.0]), 1) for _ in range(2000)])
    assert abs(first.float().mean() - 0.75) < 0.05
