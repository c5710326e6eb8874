"""In-place changes of diagonals, `k.diagonal().add_(0.1)` and its kin, in compiled calls: as without, and replayed."""

import random

import numpy as np
import pytest
from compiled_twin import assert_same, leaf

import weft

OUTSIDE = {"row-major": lambda: weft.randn(2, 4, 5), "turned": lambda: weft.randn(5, 4, 2).permute(2, 1, 0)}


def view_of(x, steps, rng):
    """A view of x by slices, selects and at most one diagonal, and how it is written."""
    text = "x"
    for _ in range(steps):
        if x.ndim >= 2 and rng.random() < 0.5:
            axes = rng.sample(range(x.ndim), 2)
            shift = rng.randrange(-2, 3)
            x, text = x.diagonal(shift, *axes), f"{text}.diagonal({shift}, {axes[0]}, {axes[1]})"
        elif x.ndim and rng.random() < 0.5 and x.shape[0] > 1:
            k = rng.randrange(x.shape[0])
            x, text = x[k], f"{text}[{k}]"
        elif x.ndim:
            start, step = rng.randrange(2), rng.randrange(1, 3)
            x, text = x[..., start::step], f"{text}[..., {start}::{step}]"
    return x, text


@pytest.mark.parametrize("seed", range(30))
def test_any_view_by_a_diagonal_is_changed(seed):
    def scenario(compile):
        rng = random.Random(seed)
        kind, outside = rng.choice(["made", *OUTSIDE]), rng.random() < 0.5
        base, w, steps, rule = OUTSIDE.get(kind, OUTSIDE["row-major"])(), leaf(4, 5), rng.randrange(1, 4), rng.random()

        @compile
        def step(x):
            rng = random.Random(seed)
            with weft.set_grad_enabled(kind == "made" and rule < 0.7):
                y = base * x * (w if rule < 0.5 else 1.0) if kind == "made" else base
                held = y[0]
                view, text = view_of(y, steps, rng)
                view.mul_(x[0, 0, 0]) if rule < 0.6 else view.add_(1.0)
                view, other = view_of(y, 2, rng)
                view.fill_(0.5) if outside else view.sub_(w[0, 0] * 0.1 if rule < 0.3 else x[1, 0, 0])
                result = (y * y).sum() + held.sum()
            if result.requires_grad:
                w.grad = None
                result.backward()
            return result.detach(), y.detach().clone(), (text, other)

        for _ in range(7):
            yield step(weft.randn(2, 4, 5)), base, w.grad

    assert_same(scenario)


def kernel(x, w):
    k = 1.5 * (x[:, None] - x[None]).mul(w).square().sum(-1).neg().exp()
    k.diagonal().add_(w.exp().sum())
    return k


def covariance(x, w):
    c = x.t() @ x / len(x) * w
    c.diagonal().add_(1e-3)
    return c


def similarity(x, w):
    s = x @ x.t() * w.sum()
    s.fill_diagonal_(-1e9)
    return weft.softmax(s, 1)


def batch_of_precisions(x, w):
    p = x[:, :, None] * x[:, None, :] * w
    d = p.diagonal(dim1=-2, dim2=-1)
    d.clamp_(min=0.1)
    d[0] += 1
    return p + d.sum()


def next_to_the_diagonal(x, w):
    k = weft.zeros(5, 5)
    k.diagonal(1).copy_(x[0, 0] * w.sum() * weft.ones(4))
    k.diagonal(-1)[1:] = x[0, 1]
    return k @ k


PROGRAMS = [kernel, covariance, similarity, batch_of_precisions, next_to_the_diagonal]


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("program", PROGRAMS)
def test_changes_of_diagonals_are_replayed(program, trained):
    functions = []

    def scenario(compile):
        w = leaf(3) if trained else weft.rand(3)

        @compile
        def step(x):
            w.grad = None
            k = program(x, w)
            if trained:
                (k * k).sum().backward()
            return k.detach()

        functions.append(step)
        for _ in range(7):
            yield step(weft.randn(4, 3)), w.grad

    assert_same(scenario)
    assert functions[1].breaks == () and "replayed" in functions[1].explain()


@pytest.mark.oracle
@pytest.mark.parametrize("program", PROGRAMS)
def test_changes_of_diagonals_agree_with_pytorch(program, monkeypatch):
    import torch

    x, w = np.random.default_rng(0).random((4, 3)), np.random.default_rng(1).random(3)
    found, ours = [], weft
    for library in (weft, torch):
        monkeypatch.setitem(program.__globals__, "weft", library)
        parameter = library.tensor(w, requires_grad=True)
        function = library.compile(program) if library is ours else program
        for _ in range(4 if library is ours else 1):
            parameter.grad = None
            k = function(library.tensor(x), parameter)
            (k * k).sum().backward()
        found.append([k.detach().numpy(), parameter.grad.numpy()])
    for mine, theirs in zip(*found):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
