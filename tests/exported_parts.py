"""A function that tests export: a small classifier's loss, for batches of any size."""

import numpy as np

import weft
from weft import nn
from weft.nn import functional as F

BATCH = {"x": {0: "n"}, "y": {0: "n"}}  # the axes whose extent the caller tells


def classifier(width):
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 3))
    return lambda x, y: F.cross_entropy(model(x), y)


def batch(n):
    random = np.random.default_rng(n)
    return random.standard_normal((n, 20)).astype(np.float32), random.integers(0, 3, n)


def expected_of(f, x, y):
    """Value and gradient, in eager mode."""
    x = weft.tensor(x).requires_grad_()
    value = f(x, weft.tensor(y))
    return value.item(), weft.autograd.grad(value, [x])[0].numpy()
