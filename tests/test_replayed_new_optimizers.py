"""Optimizers that are made in replayed calls, of leaves that are made there too or of parameters: as without replay."""

import numpy as np
import pytest
from compiled_twin import assert_same, leaf

import weft

N_CALLS = 12
OPTIMIZERS = {
    "SGD": lambda T, ps: T.optim.SGD(ps, lr=0.1),
    "momentum": lambda T, ps: T.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda T, ps: T.optim.Adam(ps, lr=0.1),
    "AdamW, amsgrad": lambda T, ps: T.optim.AdamW(ps, lr=0.1, amsgrad=True),
    "RMSprop": lambda T, ps: T.optim.RMSprop(ps, lr=0.1, centered=True),
    "Adagrad": lambda T, ps: T.optim.Adagrad(ps, lr=0.1),
}


def of_zeros(T, w, x):
    return [T.zeros(4, requires_grad=True)]


def of_a_copy(T, w, x):
    return [w.detach().clone().requires_grad_(), (x * 2).requires_grad_()]


def of_a_parameter(T, w, x):
    return [w]


def of_both(T, w, x):
    return [w, T.ones(4, requires_grad=True), (w.detach() * 2).requires_grad_()]


def fit(T, make, given, w, n_steps=3):
    def run(x):
        ps = given(T, w, x)
        optimizer = make(T, ps)
        for _ in range(n_steps):
            optimizer.zero_grad()
            loss = sum(((p - x) ** 2 * (k + 1)).sum() + (p**4).sum() for k, p in enumerate(ps))
            loss.backward()
            optimizer.step()
        return [*(p.detach().clone() for p in ps), loss.detach()]

    return run


def results(T, compile, make, given):
    rng = np.random.default_rng(3)
    w = T.tensor(rng.standard_normal(4).astype("float32"), requires_grad=True)
    run, seen = compile(fit(T, make, given, w)), []
    for _ in range(N_CALLS):
        seen += [v.numpy().copy() for v in run(T.tensor(rng.standard_normal(4).astype("float32")))]
        seen.append(w.detach().numpy().copy())
    return seen, run


GIVEN = [of_zeros, of_a_copy, of_a_parameter, of_both]


@pytest.mark.parametrize("given", GIVEN, ids=lambda f: f.__name__)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_calls_are_replayed(make, given):
    (eager, _), (compiled, run) = results(weft, lambda f: f, make, given), results(weft, weft.compile, make, given)
    for a, b in zip(eager, compiled, strict=True):
        assert a.tobytes() == b.tobytes()
    (recording,) = run.recordings
    assert recording.replays and recording.n_followed <= 4, run.explain()
    assert not recording.fallbacks, run.explain()


@pytest.mark.oracle
@pytest.mark.parametrize("given", GIVEN, ids=lambda f: f.__name__)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_numbers_are_pytorchs(make, given):
    torch = pytest.importorskip("torch")
    ours, theirs = results(weft, weft.compile, make, given)[0], results(torch, lambda f: f, make, given)[0]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


ODD = {
    "an exception": lambda p, kept: 1 / 0,
    "a leaf is kept": lambda p, kept: kept.append(p),
    "a name is kept": lambda p, kept: kept.append(p.data),
    "a part is kept": lambda p, kept: kept.append(p.detach()[1:]),
    "read": lambda p, kept: kept.append(p.tolist()),
    "frozen": lambda p, kept: p.requires_grad_(False),
    "another gradient": lambda p, kept: setattr(p, "grad", weft.ones(4)),
    "an array": lambda p, kept: kept.append(p.detach().numpy()),
    "changed": lambda p, kept: p.data.mul_(2),
}


@pytest.mark.parametrize("when", [0, 1, 2])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_the_odd_call(odd, when):
    def scenario(compile):
        kept, w, calls = [], leaf(4), iter(range(N_CALLS))

        @compile
        def f(v):
            k = next(calls)
            p = (v * w.detach()).requires_grad_()
            optimizer = weft.optim.SGD([p], lr=0.1, momentum=0.5)
            for n in range(2):
                if k in (6, 9) and n == when:
                    odd(p, kept)
                optimizer.zero_grad()
                if p.requires_grad:
                    ((p - v) ** 2).sum().backward()
                    optimizer.step()
            if k in (6, 9) and when == 2:
                odd(p, kept)
            return p.detach() * 1, p.sum().detach()

        seen = []
        for _ in range(N_CALLS):
            try:
                seen.append(f(weft.randn(4)))
            except ZeroDivisionError:
                seen.append("raised")
        return [*seen, *[x.clone() if isinstance(x, weft.Tensor) else x for x in kept]]

    assert_same(scenario)


@pytest.mark.parametrize("make", [OPTIMIZERS["SGD"], OPTIMIZERS["Adam"]], ids=["SGD", "Adam"])
@pytest.mark.parametrize("of_a_size", [False, True])
def test_sizes_that_change_from_call_to_call(of_a_size, make):
    """The rows of what is trained, or of what it is trained on, are as many as the argument has."""

    def scenario(compile):
        @compile
        def f(x):
            p = (x * 0.5).requires_grad_() if of_a_size else weft.zeros(4, requires_grad=True)
            optimizer = make(weft, [p])
            for _ in range(2):
                optimizer.zero_grad()
                ((p - x) ** 2).mean().backward()
                optimizer.step()
            return p.detach() * 2

        return [f(weft.randn(n, 4)) for n in (3, 3, 3, 5, 5, 5, 7, 8, 9, 3, 10, 11, 12, 13, 5, 20, 21, 22, 23, 24, 3)]

    assert_same(scenario)
