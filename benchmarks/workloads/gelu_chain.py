"""Elementwise arithmetic around tanh, and two sums over rows in its backward: fusion and vector math decide."""

import numpy as np

from ..workload import Gradient


def arrays():
    draw = np.random.default_rng(0).standard_normal
    return {name: draw(shape, dtype=np.float32) for name, shape in {"x": (1024, 1024), "w": 1024, "b": 1024}.items()}


def function(library, x, w, b):
    return library.nn.functional.gelu(x * w + b, approximate="tanh").sum()


def jax_function(jax, x, w, b):
    return jax.nn.gelu(x * w + b, approximate=True).sum()


GELU_CHAIN = Gradient(
    "gelu_chain",
    "gelu(x * w + b) summed, tanh form, x 1024x1024, w and b per column, forward and backward for all three",
    arrays,
    ("x", "w", "b"),
    function,
    jax_function,
)
