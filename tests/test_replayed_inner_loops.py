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


def asked(T, ws, x):
    for _ in range(3):
        slopes = T.autograd.grad(loss_of(ws, x), ws)
        with T.no_grad():
            for w, slope in zip(ws, slopes):
                w -= 0.1 * slope


def through_data(T, ws, x):
    for k in range(3):
        slopes = T.autograd.grad(loss_of(ws, x), ws)
        for w, slope in zip(ws, slopes):
            if k == 1:
                w.data = w.data - 0.1 * slope
            else:
                w.data -= 0.1 * slope


def through_data_after_backward(T, ws, x):
    for _ in range(2):
        loss_of(ws, x).backward()
        for w in ws:
            w.data.sub_(w.grad.data, alpha=0.1)
            w.grad.data.zero_()


WAYS = [forgotten, deleted, zeroed, given, put_back, asked, through_data, through_data_after_backward]


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


OLD_AND_NEW = {
    "of the old value": lambda w, before, after: before,
    "of the new value": lambda w, before, after: after,
    "of both": lambda w, before, after: before + after,
    "of what was computed with the old one": lambda w, before, after: (before * after).sum(),
}


@pytest.mark.parametrize("way", ["no_grad", "data"])
@pytest.mark.parametrize("output", OLD_AND_NEW.values(), ids=OLD_AND_NEW)
@pytest.mark.parametrize("is_made", [False, True], ids=["outside", "made"])
def test_gradients_of_a_leaf_as_it_was_before_a_change(is_made, output, way):
    """What was computed from it before leads to the same leaf, in eager mode too."""

    def scenario(compile):
        w, seen = leaf(4), []

        @compile
        def f(v):
            x = v.clone().requires_grad_() if is_made else w
            before = (x * 3).sum()
            if way == "data":
                x.data.mul_(0.9)
            else:
                with weft.no_grad():
                    x.mul_(0.9)
            return weft.autograd.grad(output(x, before, (x * v * x).sum()), x)[0]

        for _ in range(N_CALLS):
            seen.append(f(weft.randn(4)))
        return [*seen, w]

    assert_same(scenario)


@pytest.mark.parametrize("compute", [lambda x: (x * x).sum(), lambda x: (x * 2).exp().sum(), lambda x: (x * 2).sum()])
@pytest.mark.parametrize("is_freed", [False, True])
def test_a_silent_change_of_what_a_backward_reads(is_freed, compute):
    """It goes on with what is in memory then, unless all that it reads was freed."""

    def scenario(compile):
        w, seen = leaf(4), []

        @compile
        def f(v):
            loss = compute(w * v)
            if is_freed:
                loss.backward()
            w.data.mul_(0.5)
            other = (w * w).sum()
            return loss if not is_freed else loss.detach(), other

        for _ in range(N_CALLS):
            w.grad = None
            loss, other = f(weft.randn(4))
            if not is_freed:
                loss.backward()
            other.backward()
            seen += [loss, w.grad.clone()]
        return [*seen, w]

    assert_same(scenario)
