"""Ops that eager mode computes by steps of their own, where nothing shares their pass over memory: the same values."""

import numpy as np
import pytest

import weft
from weft.compiler.ops import TABLE
from weft.compiler.ops.table import Meta
from weft.nn import functional
from weft.runtime.eager import owned, plan
from weft.runtime.programs.array_program import decomposition
from weft.runtime.replay import eager_native, native

EXTREMES = [0.0, -0.0, np.nan, np.inf, -np.inf]


def bits(x):
    """Of a NaN that it is one: its sign is nobody's."""
    x = x.numpy()
    return np.where(np.isnan(x), np.float32(np.nan), x).tobytes()


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignored", [-100, 0])
@pytest.mark.parametrize("shape", [(5, 4), (5, 1), (3, 2), (300, 700), (0, 3)])
def test_losses_of_classes(shape, ignored, reduction):
    rng = np.random.default_rng(0)
    x, classes = rng.standard_normal(shape).astype(np.float32), rng.integers(0, shape[1], shape[0])
    x[: len(EXTREMES), 0] = EXTREMES[: shape[0]]
    classes[1:3] = 0
    classes[:1] = ignored
    x, classes = weft.tensor(x), weft.tensor(classes)

    def loss(x, classes):
        return functional.nll_loss(x, classes, ignore_index=ignored, reduction=reduction)

    expected = bits(weft.compile(loss)(x, classes))
    assert [bits(loss(x, classes)) for _ in range(6)] == [expected] * 6
    compiled = weft.compile(loss)
    for n in range(shape[0], 0, -max(shape[0] // 40, 1)):
        assert bits(loss(x[:n], classes[:n])) == bits(compiled(x[:n], classes[:n]))


def test_a_loss_of_classes_looks_at_no_others():
    """Looking at a million took 80 us, where the losses are those of a thousand rows."""
    x, classes = Meta((1000, 1000), weft.float32), Meta((1000,), weft.int64)
    attributes = {"reduction": "mean", "ignore_index": -100}
    found, _ = decomposition(TABLE["nll_loss"], (x, classes), Meta((), weft.float32), attributes, weft.float32)
    assert max(np.prod(meta.shape) for *_, meta in found.notes.values()) == 1000


def test_copies_in_place_are_taken_over(monkeypatch):
    """Those that Python makes once, without a copy before, are larger than what native code takes."""
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    x, y = weft.zeros(7, 11), weft.ones(7, 11)
    for _ in range(8):
        x.copy_(y)
    before = eager_native.taken("calls_taken")
    x.copy_(y)
    assert eager_native.taken("calls_taken") == before + (native.layout() is not None)
    large = weft.arange(owned._MOST_BYTES // 8 + 1)
    assert weft.zeros_like(large).copy_(large).equal(large)
    assert large[1:].copy_(large[:-1].clone()).equal(weft.arange(len(large) - 1))
    one = weft.arange(owned._MOST_BYTES // 8 + 9)
    one[8:].copy_(one[:-8])
    assert one[8:].equal(weft.arange(len(one) - 8)) and one._version == 1


@pytest.mark.parametrize("shape", [(0, 5000), (100, 100), (5000,), (20, 30, 40), (1, 5000), (5000, 1), (3, 4)])
def test_positions_of_what_is_not_zero(shape):
    """Of many elements they are found by number: NumPy took three times as long in several dimensions."""
    rng = np.random.default_rng(0)
    for share in (0, 0.01, 0.5, 1):
        array = (rng.random(shape) < share).astype(np.float32)
        for one in (array, array.T, array[::-1], array > 0):
            found = weft.tensor(one).nonzero()
            assert found.numpy().tolist() == np.argwhere(one).tolist() and found.shape == (one.sum(), one.ndim)
            by_dimension = weft.tensor(one).nonzero(as_tuple=True)
            assert [k.tolist() for k in by_dimension] == [k.tolist() for k in one.nonzero()]


def test_numbers_written_where_a_mask_holds():
    for dtype in (weft.float32, weft.float64, weft.int64, weft.float16):
        for number in (0.5, -0.0, float("inf"), float("nan"), 3e9):
            if dtype is weft.int64 and number != 0.5 or dtype is weft.float16 and number == 3e9:
                continue
            for _ in range(5):
                x = weft.arange(12).reshape(3, 4).to(dtype)
                expected, mask = x.numpy().copy(), x.numpy() > 5
                x[weft.tensor(mask)] = number
                expected[mask] = expected.dtype.type(number)
                assert x.numpy().tobytes() == expected.tobytes() and x._version == 1
    leaf = weft.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf[leaf > 0] = 0.0
    y = leaf * 2.0
    y[weft.tensor([True, False, True])] = 0.0
    y.sum().backward()
    assert leaf.grad.tolist() == [0.0, 2.0, 0.0]
