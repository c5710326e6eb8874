"""The Hessian of a classifier's loss times a vector: the derivative of the gradient's product with the vector.

B. A. Pearlmutter, Fast Exact Multiplication by the Hessian, Neural Computation 6 (1994).
"""

import numpy as np

from ..workload import Gradient

WIDTHS, BATCH = (64, 128, 128, 10), 128
SHAPES = [shape for n_in, n_out in zip(WIDTHS, WIDTHS[1:]) for shape in ((n_in, n_out), (n_out,))]
NAMES = ("w1", "b1", "w2", "b2", "w3", "b3")


def arrays():
    rng = np.random.default_rng(0)
    found = {name: (rng.standard_normal(s) / np.sqrt(s[0])).astype(np.float32) for name, s in zip(NAMES, SHAPES)}
    found |= {f"v_{name}": rng.standard_normal(s).astype(np.float32) for name, s in zip(NAMES, SHAPES)}
    found["x"] = rng.random((BATCH, WIDTHS[0]), dtype=np.float32)
    found["targets"] = np.eye(WIDTHS[-1], dtype=np.float32)[rng.integers(0, WIDTHS[-1], BATCH)]
    return found


def gradient_along(library, *given):
    parameters, direction, (x, targets) = given[:6], given[6:12], given[12:]

    def loss(w1, b1, w2, b2, w3, b3):
        logits = library.tanh(library.tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3
        return -(library.log_softmax(logits, 1) * targets).sum() / BATCH

    gradients = library.func.grad(loss, argnums=tuple(range(6)))(*parameters)
    return sum((g * v).sum() for g, v in zip(gradients, direction))


def jax_gradient_along(jax, *given):
    parameters, direction, (x, targets) = given[:6], given[6:12], given[12:]

    def loss(w1, b1, w2, b2, w3, b3):
        logits = jax.numpy.tanh(jax.numpy.tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3
        return -(jax.nn.log_softmax(logits, 1) * targets).sum() / BATCH

    gradients = jax.grad(loss, argnums=tuple(range(6)))(*parameters)
    return sum((g * v).sum() for g, v in zip(gradients, direction))


HESSIAN_VECTOR = Gradient(
    "hessian_vector",
    f"Hessian of a {'-'.join(map(str, WIDTHS))} classifier with tanh, batch {BATCH}, times a vector",
    arrays,
    NAMES,
    gradient_along,
    jax_gradient_along,
    tolerance=1e-4,
)
