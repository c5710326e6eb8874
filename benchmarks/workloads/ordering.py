"""Sorting, the first ten, and running sums, along rows: routines of their own, which nothing is fused into."""

import numpy as np

from ..workload import Gradient

SHAPE, FIRST = (4096, 1024), 10


def arrays():
    draw = np.random.default_rng(0).standard_normal
    return {"x": draw(SHAPE, dtype=np.float32), "w": draw(SHAPE[1], dtype=np.float32)}


def sort_rows(library, x, w):
    # Equal elements keep their order everywhere, so that all gradients are the same.
    return (library.sort(x, dim=-1, stable=True).values * w).sum()


def jax_sort_rows(jax, x, w):
    return (jax.numpy.sort(x, -1) * w).sum()


def top_rows(library, x, w):
    return (library.topk(x, FIRST, -1).values * w[:FIRST]).sum()


def jax_top_rows(jax, x, w):
    return (jax.lax.top_k(x, FIRST)[0] * w[:FIRST]).sum()


def cumsum_rows(library, x, w):
    return (library.cumsum(x, -1) * w).sum()


def jax_cumsum_rows(jax, x, w):
    return (jax.numpy.cumsum(x, -1) * w).sum()


_WHAT = f"x {SHAPE[0]}x{SHAPE[1]}, weighted and summed, forward and backward for x"
SORT_ROWS = Gradient("sort_rows", f"every row sorted: {_WHAT}", arrays, ("x",), sort_rows, jax_sort_rows, 1e-3)
TOP_ROWS = Gradient(
    "top_rows", f"the first {FIRST} of every row: {_WHAT}", arrays, ("x",), top_rows, jax_top_rows, 1e-3
)
CUMSUM_ROWS = Gradient("cumsum_rows", f"running sums: {_WHAT}", arrays, ("x",), cumsum_rows, jax_cumsum_rows, 1e-3)
