"""Sorting: rows of every length around where its routine changes its way, of every type, with what floats have beside
numbers; in eager mode, compiled, and in several threads."""

import numpy as np
import pytest

import weft

TYPES = ["float32", "float64", "int32", "int64", "int8", "uint8", "bool", "float16"]
SHAPES = [(1,), (7,), (32,), (49,), (128,), (129,), (160,), (161,), (300,), (2, 1), (5, 33), (3, 1000), (2, 3, 70)]


def numbers(shape, dtype, seed=0):
    """With equal ones, and of floats both zeros, NaN and infinities."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, shape) * 1.5 if "float" in dtype else rng.integers(0, 2 if dtype == "bool" else 100, shape)
    x = x.astype(dtype)
    if "float" in dtype:
        for k, special in enumerate((np.nan, -0.0, np.inf, -np.inf)):
            x.reshape(-1)[k + 1 :: 11] = special
    return x


def by_numpy(x, axis, descending):
    """Equal elements in their order: of the largest first, what NumPy sorts backwards."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("descending", [False, True])
def test_positions_are_those_of_a_stable_sort(dtype, descending):
    compiled = weft.compile(lambda x, axis: x.sort(axis, descending))
    for shape in SHAPES:
        x = numbers(shape, dtype)
        for axis in range(len(shape)):
            expected = by_numpy(x, axis, descending)
            for values, indices in (weft.sort(weft.tensor(x), axis, descending), compiled(weft.tensor(x), axis)):
                np.testing.assert_array_equal(indices.numpy(), expected)
                np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, axis))


def test_keys_order_all_bits():
    """Numbers of every size, of both signs, and next to each other."""
    for dtype, bits in ((np.float32, np.uint32), (np.float64, np.uint64)):
        rng = np.random.default_rng(3)
        x = rng.integers(0, np.iinfo(bits).max, 4000, bits, endpoint=True).view(dtype)
        with np.errstate(invalid="ignore"):
            x = np.concatenate([x, np.nextafter(x, np.inf, dtype=dtype), -x])
        np.testing.assert_array_equal(weft.argsort(weft.tensor(x)).numpy(), by_numpy(x, 0, False))
    for dtype in (np.int32, np.int64):
        x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 4000, dtype, endpoint=True)
        x[:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
        np.testing.assert_array_equal(weft.argsort(weft.tensor(x), descending=True).numpy(), by_numpy(x, 0, True))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize("largest", [False, True])
def test_the_first_are_those_of_the_sorted_row(dtype, largest):
    """Rows of any length, and those where fewer numbers than are asked for are not NaN."""
    rng = np.random.default_rng(7)
    compiled = weft.compile(lambda x, k: weft.topk(x, k, -1, largest))
    short = ((1, 1), (5, 2), (8, 8), (31, 3), (64, 5), (64, 32), (64, 33), (512, 4), (512, 5), (513, 1))
    for n, k in (*short, (84, 10), (85, 1), (131, 10), (400, 3), (1000, 40), (3000, 200), (5000, 7)):
        x = numbers((4, n), dtype, n)
        if "float" in dtype:
            x[1, k // 2 :] = np.nan
            x[2, rng.random(n) < 0.98] = np.nan
        expected = by_numpy(x, 1, largest)[:, :k]
        for values, indices in (weft.topk(weft.tensor(x), k, -1, largest), compiled(weft.tensor(x), k)):
            np.testing.assert_array_equal(indices.numpy(), expected)
            np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, 1))


def test_views_are_sorted_as_they_are():
    x = weft.tensor(numbers((6, 80), "float32"))
    compiled = weft.compile(lambda x: (x.t().sort(1).indices, x[1:, ::2].sort().indices, x.expand(2, 6, 80).argsort()))
    for found in (
        compiled(x),
        (x.t().sort(1).indices, x[1:, ::2].sort().indices, x.expand(2, 6, 80).argsort()),
    ):
        np.testing.assert_array_equal(found[0].numpy(), by_numpy(x.numpy().T, 1, False))
        np.testing.assert_array_equal(found[1].numpy(), by_numpy(x.numpy()[1:, ::2], 1, False))
        np.testing.assert_array_equal(found[2].numpy()[1], by_numpy(x.numpy(), 1, False))


def test_a_compiled_function_that_sorts_stays_in_its_program():
    def trimmed_mean(x):
        return x.sort(-1).values[..., 5:-5].mean() + x.median(-1).values.sum() + x.topk(3, 0).values.sum()

    compiled = weft.compile(trimmed_mean, fullgraph=True)
    x, y = (weft.tensor(numbers((4, 60), "float64", 7)).nan_to_num(0, 1, -1).requires_grad_() for _ in range(2))
    for _ in range(4):
        expected, found = trimmed_mean(x), compiled(y)
        expected.backward()
        found.backward()
        assert expected.item() == found.item() and (x.grad == y.grad).all()
    assert compiled.breaks == ()


def lower_median(row, ignore_nan):
    """Of two in the middle the lower one; NaN if there is one that counts."""
    numbers = np.sort(row[~np.isnan(row)])
    return np.nan if len(numbers) < len(row) and not ignore_nan else numbers[(len(numbers) - 1) // 2]


@pytest.mark.parametrize("ignore_nan", [False, True])
def test_medians(ignore_nan):
    x = numbers((5, 9), "float32")
    expected = [lower_median(row, ignore_nan) for row in x]
    function = weft.nanmedian if ignore_nan else weft.median
    for f in (function, weft.compile(lambda x, dim: function(x, dim))):
        values, indices = f(weft.tensor(x), 1)
        np.testing.assert_array_equal(values.numpy(), expected)
        np.testing.assert_array_equal(values.numpy(), x[np.arange(5), indices.numpy()])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_rows_are_shared_by_threads(n):
    before = weft.get_num_threads()
    x = weft.tensor(numbers((64, 500), "float32"))
    try:
        weft.set_num_threads(n)
        compiled = weft.compile(lambda x: (x * 2).sort(1, descending=True))
        for _ in range(3):
            found = compiled(x)
            np.testing.assert_array_equal(found.indices.numpy(), by_numpy(x.numpy() * 2, 1, True))
    finally:
        weft.set_num_threads(before)
