"""Layer normalisation with its affine part: two passes over rows, and sums over columns in its backward."""

import numpy as np

from ..workload import Gradient

ROWS, FEATURES = 4096, 768


def arrays():
    draw = np.random.default_rng(0).standard_normal
    shapes = {"x": (ROWS, FEATURES), "weight": FEATURES, "bias": FEATURES, "cotangent": (ROWS, FEATURES)}
    return {name: draw(shape, dtype=np.float32) for name, shape in shapes.items()}


def function(library, x, weight, bias):
    return library.nn.functional.layer_norm(x, (FEATURES,), weight, bias)


def jax_function(jax, x, weight, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * weight + bias


LAYERNORM = Gradient(
    "layernorm",
    f"layer_norm of x {ROWS}x{FEATURES} with weight and bias, forward, and backward from a given cotangent",
    arrays,
    ("x", "weight", "bias"),
    function,
    jax_function,
    # Sums over 4096 rows, in whatever order a library takes them.
    tolerance=1e-4,
)
