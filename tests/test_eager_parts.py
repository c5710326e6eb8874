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


def many_rows(x):
    y, z = x[:30, :80] * 1.0, x[30:60, :80] * 1.0
    return sum((a * b.exp()).sum() for a, b in zip(y.unbind(0), z)) + sum((y[k] * (k - 3.0)).sum() for k in range(30))


def many_columns(x):
    y = x[:30, :80] * 1.0
    return weft.cat([c * (k - 3.0) for k, c in enumerate(y.split(3, 1))], 1).sum() + (y[:, ::2] * y[:, 1::2]).sum()


def many_and_the_whole(x):
    y = x[:30, :80] * 1.0
    return sum((y[k] * y[k - 1]).sum() for k in range(30)) + (y * 3.0).sum() + y[5:9].sum() + y[2, 3]


@pytest.mark.parametrize(
    "function",
    [
        many_rows,
        many_columns,
        many_and_the_whole,
        chunks,
        columns,
        overlapping,
        rows,
        with_all,
        inner,
        others_each_time,
    ],
)
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


@pytest.mark.oracle
@pytest.mark.parametrize("n", [10, 100, 700])
def test_many_parts_as_pytorch_has_them(n):
    torch = pytest.importorskip("torch")
    numbers = np.random.default_rng(1).standard_normal((n, 24))

    def gradients(library):
        w = library.tensor(numbers, requires_grad=True)
        found = []
        for cut in (
            lambda: sum(w[k] * (k + 1.0) for k in range(n)).sum(),
            lambda: sum((r * r).sum() for r in w),
            lambda: sum((r * r).sum() for r in w.unbind(1)),
            lambda: library.cat([r.exp() for r in w.split(3)]).sum(),
            lambda: sum(r * r for r in w.chunk(n)).sum(),
            lambda: sum((w[k : k + 4] * w[k : k + 4].sin()).sum() for k in range(n - 4)),
        ):
            (gradient,) = library.autograd.grad(cut(), w)
            w.grad = None
            cut().backward()
            assert (w.grad.numpy() == gradient.numpy()).all()
            found.append(gradient.numpy())
        return found

    expected = gradients(torch)
    for _ in range(10):
        for ours, theirs in zip(gradients(weft), expected):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_hooks_see_the_sums_of_many_parts():
    for _ in range(12):
        w, seen = weft.ones(300, 20, requires_grad=True), []
        x = w * 2.0
        x.register_hook(lambda g, seen=seen: seen.append(g.clone()))
        x.retain_grad()
        sum(x[k] * float(k) for k in range(300)).sum().backward()
        assert seen[0][:, 3].tolist() == x.grad[:, 0].tolist() == [float(k) for k in range(300)]
        assert w.grad[7].tolist() == [14.0] * 20
