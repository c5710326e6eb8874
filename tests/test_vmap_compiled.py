"""vmap and Jacobians in compiled calls: the bits of eager mode and of a loop, replayed, one pass for all rows."""

import re

import numpy as np
import pytest
from test_replayed_hooks import departures
from test_vmap import N, looped, numbers, same

import weft
from weft import func, nn


def test_training_with_gradients_clipped_per_sample():
    """Compiled, eager and sample by sample, bit for bit: gradients of each sample, clipped, averaged, applied."""
    x, y = numbers(N, 3, dtype=np.float32), numbers(N, seed=1, dtype=np.float32)

    def run(compiled, at_once):
        weft.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def loss(params, x, y):
            return (func.functional_call(model, params, (x,))[0] - y) ** 2

        def step(x, y):
            params = {k: p.detach() for k, p in model.named_parameters()}
            if at_once:
                grads = weft.vmap(func.grad(loss), (None, 0, 0))(params, x, y)
            else:
                rows = [func.grad(loss)(params, a, b) for a, b in zip(x, y)]
                grads = {k: weft.stack([row[k] for row in rows]) for k in params}
            norms = sum(g.reshape(len(x), -1).pow(2).sum(1) for g in grads.values()).sqrt()
            scale = (1.0 / norms).clamp(max=1.0)
            for name, p in model.named_parameters():
                p.grad = (grads[name] * scale.reshape(-1, *[1] * p.ndim)).mean(0)
            optimizer.step()
            return norms

        step = weft.compile(step) if compiled else step
        for _ in range(12):
            norms = step(x, y)
        return [norms, *[p.detach().clone() for p in model.parameters()]]

    expected = run(False, False)
    assert same(run(False, True), expected) and same(run(True, True), expected)


@pytest.mark.parametrize("name", ["vmap of hessian", "vmap of grad", "vmap of jacrev", "grad of vmap"])
def test_compiled_calls_are_replayed(name, monkeypatch):
    def loss(x):
        return (x.sin() * x.exp()).sum()

    function = {
        "vmap of hessian": weft.vmap(func.hessian(loss)),
        "vmap of grad": weft.vmap(func.grad(loss)),
        "vmap of jacrev": weft.vmap(func.jacrev(lambda x: weft.outer(x, x.tanh()))),
        "grad of vmap": func.grad(lambda x: weft.vmap(loss)(x).prod()),
    }[name]
    x = numbers(N, 5)
    compiled, read = weft.compile(function), []
    assert same(compiled(x), function(x)) and not compiled.breaks

    @weft.compile
    def step(x):
        read.append(len(read))  # so that its Python runs in every call
        return function(x)

    assert departures(lambda: step(x), monkeypatch) == 0
    assert same(step(x), function(x))


def test_compiled_functions_called_with_samples():
    @weft.compile
    def inner(x, w):
        return (x * w).sin().sum()

    x, w = numbers(N, 3), numbers(3, seed=1)
    for _ in range(40):
        inner(x[0], w)
    assert same(weft.vmap(inner, (0, None))(x, w), looped(lambda x: inner(x, w), x))
    assert same(weft.vmap(func.grad(inner), (0, None))(x, w), looped(lambda x: func.grad(inner)(x, w), x))


@pytest.mark.parametrize("transform", [func.jacrev, func.jacfwd, func.hessian])
def test_jacobians_in_compiled_calls_are_one_pass(transform):
    w, n = numbers(N, N).requires_grad_(), N

    def function(x):
        y = (w @ x).tanh() * weft.ones_like(x)
        return y.square().sum() if transform is func.hessian else y * written(x)

    def written(x):
        made = x.new_zeros(n)
        made[1:] = x[:-1]
        return made

    def branching(x):
        return function(x) if x.sum() > 0 else function(2 * x)

    def outer(x):
        return func.grad(lambda x: transform(function)(x).square().sum())(x)

    x = numbers(n, seed=1)
    for made in (transform(function), transform(branching), outer):
        compiled = weft.compile(made)
        for sign in (1, -1, 1):
            found, expected = compiled(sign * x), made(sign * x)
            assert found.requires_grad and found.shape == expected.shape
            assert np.allclose(found.detach(), expected.detach(), rtol=1e-12, atol=1e-12)
            (slope,) = weft.autograd.grad(found.sum(), w)
            (wanted,) = weft.autograd.grad(expected.sum(), w)
            assert np.allclose(slope, wanted, rtol=1e-11, atol=1e-11)
    compiled = weft.compile(transform(function))
    assert same(compiled(x), transform(function)(x))
    kernels = re.search(r"(\d+) kernel\(s\)", compiled.explain())
    assert kernels is None or int(kernels[1]) < N
