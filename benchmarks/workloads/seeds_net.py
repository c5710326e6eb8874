"""The net of autograd tutorials: so small that only the cost of calling a library counts."""

import numpy as np

from ..workload import Gradient


def arrays():
    draw = np.random.default_rng(0).standard_normal
    shapes = {"w1": (3, 3), "b1": 3, "w2": (3, 3), "b2": 3, "x": (3, 3), "target": (3, 3)}
    return {name: draw(shape, dtype=np.float32) for name, shape in shapes.items()}


def function(library, w1, b1, w2, b2, x, target):
    hidden = library.tanh(x @ w1 + b1)
    return ((hidden @ w2 + b2 - target) ** 2).mean()


def jax_function(jax, w1, b1, w2, b2, x, target):
    hidden = jax.numpy.tanh(x @ w1 + b1)
    return ((hidden @ w2 + b2 - target) ** 2).mean()


SEEDS_NET = Gradient(
    "seeds_net",
    "two layers of 3x3 tensors with tanh, forward and backward",
    arrays,
    ("w1", "b1", "w2", "b2"),
    function,
    jax_function,
)
