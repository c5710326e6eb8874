"""Leaves made in replayed calls that are trained there: inner loops of meta-learning. As without replay."""

import itertools

import numpy as np
import pytest
from compiled_twin import assert_same, leaf

import weft

N_CALLS = 14


def loss_of(ws, x):
    return ((x @ ws[0] + ws[1]).tanh() * ws[2]).square().mean()


def forgotten(T, ws, x):
    for _ in range(2):
        loss_of(ws, x).backward()
        with T.no_grad():
            for w in ws:
                w -= 0.1 * w.grad
                w.grad = None


def deleted(T, ws, x):
    for _ in range(2):
        loss_of(ws, x).backward()
        for w in ws:
            with T.no_grad():
                w.sub_(w.grad, alpha=0.1)
            del w.grad


def zeroed(T, ws, x):
    for _ in range(2):
        loss_of(ws, x).backward()
        with T.no_grad():
            for w in ws:
                w.sub_(w.grad, alpha=0.1)
                w.grad.zero_()


def given(T, ws, x):
    for w, slope in zip(ws, T.autograd.grad(loss_of(ws, x), ws)):
        w.grad = slope * 2
    loss_of(ws, x).backward()
    with T.no_grad():
        for w in ws:
            w -= 0.1 * w.grad


def put_back(T, ws, x):
    loss_of(ws, x).backward()
    kept = [w.grad for w in ws]
    for w in ws:
        w.grad = None
    loss_of(ws, x * 2).backward()
    with T.no_grad():
        for w, slope in zip(ws, kept):
            w -= 0.1 * (w.grad + slope)
            w.grad = slope
    loss_of(ws, x).backward()


WAYS = [forgotten, deleted, zeroed, given, put_back]


def meta(T, way, ws, with_gradients=False):
    """What adapts copies of the weights, and moves the weights by the gradients there."""

    def step(x, y):
        quick = [w.detach().clone().requires_grad_() for w in ws]
        way(T, quick, x)
        slopes = T.autograd.grad(loss_of(quick, y), quick)
        with T.no_grad():
            for w, slope in zip(ws, slopes):
                w -= 0.05 * slope
        return [w.grad for w in quick] if with_gradients else slopes[0]

    return step


def weights(T):
    rng = np.random.default_rng(2)
    return [T.tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((3, 4), (4,), (4,))]


def run(T, compile, way, with_gradients=False):
    ws, rng, seen = weights(T), np.random.default_rng(3), []
    step = compile(meta(T, way, ws, with_gradients))
    for _ in range(N_CALLS):
        out = step(*[T.tensor(rng.standard_normal((5, 3))) for _ in range(2)])
        seen += [*(out if with_gradients else [out]), *ws]
        seen = [None if v is None else v.detach().numpy().copy() if hasattr(v, "detach") else v for v in seen]
    return seen, step


@pytest.mark.parametrize("with_gradients", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
def test_bits_are_those_of_eager_mode_and_calls_are_replayed(way, with_gradients):
    eager, _ = run(weft, lambda f: f, way, with_gradients)
    compiled, step = run(weft, weft.compile, way, with_gradients)
    for a, b in zip(eager, compiled, strict=True):
        assert (a is None) is (b is None) and (a is None or a.tobytes() == b.tobytes())
    (recording,) = step.recordings
    assert recording.replays and recording.n_followed <= 4 and not recording.fallbacks, step.explain()


@pytest.mark.oracle
@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
def test_numbers_are_pytorchs(way):
    torch = pytest.importorskip("torch")
    for a, b in zip(run(weft, weft.compile, way)[0], run(torch, lambda f: f, way)[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


ODD = {
    "the leaf is kept": lambda x, kept: kept.append(x),
    "the gradient is kept": lambda x, kept: kept.append(x.grad),
    "an exception": lambda x, kept: 1 / 0,
    "one of a value": lambda x, kept: setattr(x * 2, "grad", weft.ones(4)),
    "another gradient": lambda x, kept: setattr(x, "grad", weft.ones(4)),
    "read": lambda x, kept: kept.append(x.grad.tolist()),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_the_odd_call(odd):
    def scenario(compile):
        kept, w, count = [], leaf(4), itertools.count()

        @compile
        def f(v):
            k = next(count)
            x = v.clone().requires_grad_()
            (x * x * w.detach()).sum().backward()
            if k in (6, 9):
                odd(x, kept)
            x.grad = None
            (x**3).sum().backward()
            return x.grad * 2

        seen = []
        for _ in range(N_CALLS):
            try:
                seen.append(f(weft.randn(4)))
            except ZeroDivisionError:
                seen.append("raised")
        return [*seen, *kept]

    assert_same(scenario)
