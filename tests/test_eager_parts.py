"""Cotangents of parts of a large tensor are added where the parts are, whoever runs the nodes before."""

import numpy as np
import pytest

import weft
from weft.runtime.eager import engine

SHAPE = (300, 240)


def chunks(x):
    return weft.cat([c * k for k, c in enumerate(x.chunk(6), 2)])


def columns(x):
    return weft.cat([c * k for k, c in enumerate(x.split(20, 1))], 1)


def overlapping(x):
    return sum((x[k : k + 40, k : k + 90] * (k + 1.0)).sum() for k in range(0, 120, 7))


def rows(x):
    return sum(x[k].exp().sum() * (k - 3.0) for k in range(0, 300, 13))


def with_all(x):
    return (x * 2.0).sum() + x[:100].sum() + (x[50:80] * x[51:81]).sum() + x[-4:].prod()


def inner(x):
    y = x * 3.0
    return weft.cat(y.chunk(5)[::-1]) * weft.cat([y[:100], y[100:]])


def others_each_time(x, k=[0]):  # noqa: B006 - counts calls
    k[0] += 1
    n = 3 + k[0] % 50
    return x[:n].sum() * 2.0 + x[n:].sin().sum() + x[n : n + 9].sum()


@pytest.mark.parametrize("function", [chunks, columns, overlapping, rows, with_all, inner, others_each_time])
@pytest.mark.parametrize("dtype", [weft.float32, weft.float64])
def test_gradients_have_the_bits_of_the_rules(monkeypatch, function, dtype):
    numbers = np.random.default_rng(0).standard_normal(SHAPE)
    numbers[0], numbers[:, 21] = 0.0, -0.0
    x = weft.tensor(numbers).to(dtype).requires_grad_()

    def gradient(function):
        x.grad = None
        out = function(x)
        out.backward(-weft.zeros_like(out) if out.ndim and gradient.of_zeros else weft.ones_like(out))
        return x.grad.numpy().tobytes()

    for gradient.of_zeros in (False, True):
        found, before = [], others_each_time.__defaults__[0][0]
        for _ in range(12):
            found.append(gradient(function))
        others_each_time.__defaults__[0][0] = before
        with monkeypatch.context() as patched:
            patched.setattr(engine, "has_added", lambda *_: False)
            assert found == [gradient(function) for _ in range(12)]
