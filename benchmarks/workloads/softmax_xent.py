"""Cross entropy of 256 rows of 1000 classes: reductions over rows, exponentials, one gather and one scatter."""

import numpy as np

from ..workload import Gradient


def arrays():
    rng = np.random.default_rng(0)
    return {"scores": rng.standard_normal((256, 1000), dtype=np.float32), "classes": rng.integers(0, 1000, 256)}


def function(library, scores, classes):
    return library.nn.functional.cross_entropy(scores, classes)


def jax_function(jax, scores, classes):
    log_probabilities = jax.nn.log_softmax(scores)
    return -jax.numpy.take_along_axis(log_probabilities, classes[:, None], axis=1).mean()


SOFTMAX_XENT = Gradient(
    "softmax_xent",
    "cross_entropy of scores 256x1000, forward and backward",
    arrays,
    ("scores",),
    function,
    jax_function,
)
