"""What tests of calls with ever new sizes share: a function twice, compiled and eager, on models of its own."""

import copy
import random

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import functional as F
from weft.runtime.replay.native import native_code_is_used

needs_native = pytest.mark.skipif(not native_code_is_used(), reason="calls are not replayed natively here")


def sizes(n, least=2, most=200, seed=0):
    return random.Random(seed).sample(range(least, most), n)


def n_replayed(compiled):
    """How many calls were replayed as those of many sizes."""
    return 0 if compiled._many is None else sum(many.n_calls for many in compiled._many.found)


def same(x, y):
    if isinstance(x, (list, tuple)):
        return type(x) is type(y) and len(x) == len(y) and all(map(same, x, y))
    if isinstance(x, dict):
        return x.keys() == y.keys() and all(same(x[k], y[k]) for k in x)
    if not isinstance(x, weft.Tensor):
        return x == y
    alike = x.shape == y.shape and x.dtype == y.dtype and x.requires_grad == y.requires_grad
    return alike and x.stride() == y.stride() and np.array_equal(x.detach().numpy(), y.detach().numpy(), equal_nan=True)


def values_of(result):
    parts = result.values() if isinstance(result, dict) else [result]
    return [x.detach().tolist() for x in parts]


def perceptron(width=6):
    return nn.Sequential(nn.Linear(width, 12), nn.ReLU(), nn.Linear(12, 3))


class Twins:
    """A function of (model, optimizer, *arguments), compiled and eager, each with a model of its own."""

    def __init__(self, function, model=None, **options):
        self.models = [model or perceptron(), copy.deepcopy(model)] if model else [perceptron(), perceptron()]
        self.models[1].load_state_dict(self.models[0].state_dict())
        options = options or {"lr": 0.05, "momentum": 0.9}
        self.optimizers = [
            weft.optim.SGD(m.parameters(), **options) if [*m.parameters()] else None for m in self.models
        ]
        (first, second), (steps, others) = self.models, self.optimizers
        self.compiled = weft.compile(lambda *args, **kwargs: function(first, steps, *args, **kwargs))
        self.eager = lambda *args, **kwargs: function(second, others, *args, **kwargs)

    def call(self, *args, **kwargs):
        seeded = random.random()
        weft.manual_seed(int(1e6 * seeded))
        mine = self.compiled(*args, **kwargs)
        weft.manual_seed(int(1e6 * seeded))
        its = self.eager(*args, **kwargs)
        assert same(mine, its)
        for x, y in zip(self.models[0].state_dict().values(), self.models[1].state_dict().values()):
            assert same(x.detach(), y.detach())
        return mine

    @property
    def n_replayed(self):
        return n_replayed(self.compiled)


def batch(n, width=6):
    return weft.randn(n, width), weft.randint(0, 3, (n,))


def train(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def infer(model, optimizer, x, y):
    with weft.no_grad():
        return model(x).softmax(-1)
