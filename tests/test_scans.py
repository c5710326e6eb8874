"""Scans: running sums, products and extremes along every axis, of every type, in eager mode and compiled."""

import numpy as np
import pytest

import weft

SHAPES = [(1,), (5,), (9, 31), (4, 1), (1, 200), (3, 6, 50)]
FLOATS, TYPES = ["float32", "float64"], ["float32", "float64", "int32", "int64", "int8", "bool"]


def numbers(shape, dtype):
    x = np.random.default_rng(sum(shape)).integers(-4, 5, shape) / (2 if "float" in dtype else 1)
    return x.astype(dtype)


def with_specials(x):
    if x.dtype.kind == "f":
        for k, special in enumerate((np.nan, -0.0, np.inf, -np.inf)):
            x.reshape(-1)[k + 2 :: 13] = special
    return x


def both(function):
    """In eager mode, and compiled."""
    return function, weft.compile(function)


def assert_same_bits(found, expected):
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    if found.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_sums_and_products_run_in_order_as_float64(name, dtype):
    for function in both(lambda x, axis: getattr(x, name)(axis)):
        for shape in SHAPES:
            x = numbers(shape, dtype)
            for axis in range(len(shape)):
                wide = x.astype(np.float64 if "float" in dtype else np.int64)
                expected = getattr(np, name)(wide, axis).astype(dtype if "float" in dtype else np.int64)
                assert_same_bits(function(weft.tensor(x), axis).numpy(), expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_extremes_and_their_positions(name, dtype):
    """The last of equal ones; a NaN from there on."""
    for function in both(lambda x, axis: getattr(x, name)(axis)):
        for shape in SHAPES:
            x = with_specials(numbers(shape, dtype))
            for axis in range(len(shape)):
                values, indices = function(weft.tensor(x), axis)
                expected = np.apply_along_axis(positions, axis, x, name == "cummin")
                np.testing.assert_array_equal(indices.numpy(), expected)
                assert_same_bits(values.numpy(), np.take_along_axis(x, expected, axis))


def positions(row, smallest):
    found, best = [], 0
    for k, x in enumerate(row):
        ahead = x <= row[best] if smallest else x >= row[best]
        if ahead or x != x:
            best = k
        found.append(best)
    return np.array(found)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_extremes_that_seldom_change_are_found_wherever_they_are(name, dtype):
    """Vectors that reach no extreme are passed over: here one element does, an equal one follows, and last a NaN."""
    function = weft.compile(lambda x: getattr(x, name)(1))
    for n in (1, 2, 16, 17, 18, 33, 67):
        x = np.full((3 * n, n), 3, dtype)
        x[:, 0] = 5 if name == "cummax" else 1
        for k in range(n):
            x[k, k:] = x[n + k, k : k + 2] = x[k, 0] + (1 if name == "cummax" else -1)
            if dtype.startswith("float"):
                x[2 * n + k, k] = np.nan
        values, indices = function(weft.tensor(x))
        expected = np.apply_along_axis(positions, 1, x, name == "cummin")
        np.testing.assert_array_equal(indices.numpy(), expected)
        assert_same_bits(values.numpy(), np.take_along_axis(x, expected, 1))


def test_views_and_numbers():
    x = weft.tensor(numbers((6, 40), "float32"))
    for function in both(lambda x: (x.t().cumsum(1), x[::2, 3:].cumprod(1), x.expand(2, 6, 40).cummax(2).indices)):
        sums, products, highest = function(x)
        array = x.numpy()
        assert_same_bits(sums.numpy(), np.cumsum(array.T.astype(np.float64), 1).astype(np.float32))
        assert_same_bits(products.numpy(), np.cumprod(array[::2, 3:].astype(np.float64), 1).astype(np.float32))
        np.testing.assert_array_equal(highest[1].numpy(), np.apply_along_axis(positions, 1, array, False))
    assert weft.tensor(3.0).cumsum(0).item() == 3.0 and weft.tensor(3.0).cummax(0).indices.item() == 0
    assert weft.zeros(2, 0).cumsum(1).shape == (2, 0) and weft.zeros(0, 2).cummin(1).indices.shape == (0, 2)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_rows_are_shared_by_threads(n):
    x, before = weft.randn(64, 700), weft.get_num_threads()
    try:
        weft.set_num_threads(n)
        compiled = weft.compile(lambda x: (x * 2).cumsum(1).cummax(1).values)
        for _ in range(3):
            assert (compiled(x) == (x * 2).cumsum(1).cummax(1).values).all()
    finally:
        weft.set_num_threads(before)


@pytest.mark.parametrize("axis", [0, 1])
def test_derivatives_are_compiled_with_the_step(axis):
    def step(x):
        loss = (x.cumsum(axis) * x.cumprod(axis)).square().mean() + x.cummax(axis).values.sum()
        loss.backward()
        return loss.detach()

    compiled = weft.compile(step, fullgraph=True)
    x, y = (weft.tensor(numbers((5, 8), "float64") / 4 + 1).requires_grad_() for _ in range(2))
    for _ in range(4):
        assert step(x).item() == compiled(y).item() and (x.grad == y.grad).all()
