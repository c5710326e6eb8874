"""The order of reductions, as compiler/ops/reduction.py states it, against a plain model of it in NumPy."""

import numpy as np
import pytest
from graph_interpreter import Program, assert_same

from weft.compiler import dtypes
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE
from weft.runtime.code import kernels

_LENGTHS = (1, 2, 10, 31, 32, 33, 100, 2047, 2048, 2049, 2080, 4096, 5000)
_ROWS = (1, 3, 127, 128, 129, 256, 300)


def _fold(total, error, block):
    """A block's sum taken into a total by two-sum."""
    head = total + block
    other = head - total
    lost = (total - (head - other)) + (block - other)
    return head, error + np.where(np.isnan(lost), 0, lost).astype(head.dtype)


def _row_sum(x):
    """The sum of one row."""
    padded = np.zeros(-(-x.size // 32) * 32, x.dtype)
    padded[: x.size] = x
    total = error = np.zeros(32, x.dtype)
    for start in range(0, padded.size, 2048):
        block = np.zeros(32, x.dtype)
        for lanes in padded[start : start + 2048].reshape(-1, 32):
            block = block + lanes
        total, error = _fold(total, error, block)
    lanes = total + error
    while lanes.size > 1:
        half = lanes.size // 2
        lanes = lanes[:half] + lanes[half:]
    return lanes[0]


def _column_sums(x):
    total = error = np.zeros(x.shape[1], x.dtype)
    for start in range(0, x.shape[0], 128):
        block = np.zeros(x.shape[1], x.dtype)
        for row in x[start : start + 128]:
            block = block + row
        total, error = _fold(total, error, block)
    return total + error


def _compiled(name, x, axis):
    graph = Graph(name)
    v = graph.input(x.shape, dtypes.from_numpy(x.dtype))
    graph.outputs = [TABLE[name](v, axes=(axis,), keepdim=False)]
    return Program(graph)([x])[0]


def _eager(name, x, axis):
    out = np.empty(x.shape[1 - axis], x.dtype)
    dtype = dtypes.from_numpy(x.dtype)
    outer, n, inner = (*x.shape, 1) if axis == 1 else (1, *x.shape)
    kernel, sizes = kernels.reduction(TABLE[name], dtype, outer, n, inner)
    kernel(kernels.address_of(x), kernels.address_of(out), *sizes)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", _LENGTHS)
def test_row_sums(n, dtype):
    x = np.random.default_rng(n).standard_normal((3, n)).astype(dtype)
    want = np.array([_row_sum(row) for row in x])
    assert_same(_compiled("sum", x, 1), want, "compiled")
    assert_same(_eager("sum", x, 1), want, "eager")


@pytest.mark.parametrize("columns", [2, 17, 64, 100, 9000])
@pytest.mark.parametrize("rows", _ROWS)
def test_column_sums(rows, columns):
    x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    want = _column_sums(x)
    assert_same(_compiled("sum", x, 0), want, "compiled")
    assert_same(_eager("sum", x, 0), want, "eager")


@pytest.mark.parametrize("n", [3, 20, 100, 5000])
@pytest.mark.parametrize("name", ["amax", "amin"])
@pytest.mark.parametrize("where", [None, 0, -1])
def test_extremes_keep_nan_wherever_it_stands(name, n, where):
    x = np.random.default_rng(n).standard_normal((4, n)).astype(np.float32)
    if where is not None:
        x[2, where] = np.nan
    for axis in (0, 1):
        with np.errstate(all="ignore"):
            want = (np.max if name == "amax" else np.min)(x, axis=axis)
        assert_same(_compiled(name, x, axis), want, "compiled")
        assert_same(_eager(name, x, axis), want, "eager")


@pytest.mark.parametrize("name", ["amax", "amin"])
@pytest.mark.parametrize("n", [2, 9, 17, 40, 63, 200])
def test_extremes_of_zeros_of_both_signs(name, n):
    """Which zero is taken depends on the order of the steps, which is one order for all."""
    x = np.random.default_rng(n).choice(np.array([0.0, -0.0], np.float32), (50, n))
    for axis in (0, 1):
        assert_same(_compiled(name, x, axis), _eager(name, x, axis), "compiled and eager")


@pytest.mark.parametrize("n", [5, 40, 3000])
def test_special_numbers(n):
    """Infinities stay infinite over several blocks, opposite ones give NaN, and a sum of -0.0 is 0.0."""
    x = np.zeros((4, n), np.float32)
    x[0, n // 2] = np.inf
    x[1, 0], x[1, -1] = np.inf, -np.inf
    x[2] = -0.0
    x[3] = np.finfo(np.float32).max
    want = np.array([np.inf, np.nan, 0.0, np.inf], np.float32)
    assert_same(_compiled("sum", x, 1), want, "compiled")
    assert_same(_eager("sum", x, 1), want, "eager")
    turned = np.ascontiguousarray(x.T)
    assert_same(_compiled("sum", turned, 0), want, "compiled columns")
    assert_same(_eager("sum", turned, 0), want, "eager columns")


def test_sums_are_more_accurate_than_one_running_total():
    x = np.random.default_rng(5).random((1, 1 << 20)).astype(np.float32)
    exact = x.astype(np.float64).sum()
    assert abs(_compiled("sum", x, 1)[0] - exact) <= np.spacing(np.float32(exact))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("n", [1, 5, 32, 33, 100, 1000])
def test_positions_of_extremes(name, n):
    """The first of equal elements, the first NaN before all others."""
    rng = np.random.default_rng(n)
    x = rng.integers(-3, 4, (6, n)).astype(np.float32)
    x[4, n // 2], x[5, n - 1] = np.nan, np.nan
    x[5, n // 3] = np.nan
    for axis in (0, 1):
        graph = Graph(name)
        graph.outputs = [TABLE[name](graph.input(x.shape, dtypes.float32), axis=axis)]
        assert_same(Program(graph)([x])[0], getattr(np, name)(x, axis=axis), f"axis {axis}")
