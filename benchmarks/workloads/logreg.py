"""Logistic regression, the whole data set in each step: two products of a matrix and a vector."""

import numpy as np

from ..workload import Training

ROWS, FEATURES = 10_000, 100


def arrays():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, FEATURES), dtype=np.float32)
    y = (x @ rng.standard_normal(FEATURES, dtype=np.float32) > 0).astype(np.float32)
    return [np.zeros((1, FEATURES), np.float32), np.zeros(1, np.float32)], [(x, y)]


def model(library):
    return library.nn.Linear(FEATURES, 1)


def loss(library, model, x, y):
    return library.nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)


def jax_loss(jax, parameters, x, y):
    weight, bias = parameters
    logits = (x @ weight + bias).squeeze(1)
    return (jax.nn.softplus(logits) - y * logits).mean()


LOGREG = Training(
    "logreg",
    f"logistic regression {ROWS}x{FEATURES}, full-batch SGD step",
    arrays,
    model,
    loss,
    jax_loss,
    lr=0.1,
    tolerance=1e-4,
)
