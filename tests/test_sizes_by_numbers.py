"""Sizes that a Python number says, another one in each call: x[:n], arange(n), zeros(n), loops of n steps. Where few
numbers come, calls are replayed for each of them, and nobody decides for eager mode while they are still learned."""

import random

import numpy as np
import pytest

import weft

N_CALLS = 260


def head(lib):
    x = lib.arange(64, dtype=lib.float32).reshape(16, 4) * 0.1
    return lambda n: (x[:n] * 2).tanh()


def between(lib):
    x = lib.arange(40, dtype=lib.float32) * 0.1
    return lambda n: (x[n : n + n] * 2).sin().sum()


def halves(lib):
    x = lib.arange(16, dtype=lib.float32) * 0.1
    return lambda n: x[:n].mean() - x[n:].mean()


def counted(lib):
    return lambda n: (lib.arange(n) * 0.5).sin().sum()


def zeros(lib):
    return lambda n: (lib.zeros(n, 3) + 1).cumsum(0)


def loop(lib):
    x = lib.arange(6, dtype=lib.float32) * 0.1

    def f(n):
        h = x
        for k in range(n):
            h = (h * 1.1 + k).sin()
        return h

    return f


def square_mask(lib):
    x = lib.arange(256, dtype=lib.float32).reshape(16, 16) * 0.01
    return lambda n: lib.tril(lib.ones(n, n)) @ x[:n]


def prefix(lib):
    q, k, v = (lib.arange(128, dtype=lib.float32).reshape(16, 8).add(s).sin() for s in range(3))
    return lambda n: (q[n - 1] @ k[:n].T / 8**0.5).softmax(-1) @ v[:n]


def cache(lib):
    kept, v = lib.zeros(20, 4), lib.arange(4, dtype=lib.float32)

    def f(n):
        kept[n] = v * n
        return kept[: n + 1].mean(0)

    return f


def training(lib):
    x, w = lib.arange(48, dtype=lib.float32).reshape(12, 4) * 0.1, lib.ones(4, requires_grad=True)

    def f(n):
        loss = (x[:n] @ w).pow(2).mean()
        loss.backward()
        with lib.no_grad():
            w.sub_(0.001 * w.grad)
        w.grad = None
        return loss, w.detach().clone()

    return f


FUNCTIONS = [head, between, halves, counted, zeros, loop, square_mask, prefix, cache, training]
OF_ONE_PROGRAM = [head, between, halves, counted, zeros, loop, square_mask, training]


def numbers(n_values):
    rng = random.Random(7)
    return [rng.randint(2, 1 + n_values) for _ in range(N_CALLS)]


def results(lib, make, decorate, n_values):
    f = decorate(make(lib))
    found = []
    for n in numbers(n_values):
        out = f(n)
        found += [x.detach().clone().numpy() for x in (out if isinstance(out, tuple) else (out,))]
    return found, f


@pytest.mark.parametrize("make", FUNCTIONS)
@pytest.mark.parametrize("n_values", [3, 7, 11])
def test_the_bits_are_those_of_eager_mode(make, n_values):
    eager, _ = results(weft, make, lambda f: f, n_values)
    compiled, _ = results(weft, make, weft.compile, n_values)
    assert all(np.array_equal(a, b) for a, b in zip(eager, compiled, strict=True))


@pytest.mark.oracle
@pytest.mark.parametrize("make", FUNCTIONS)
def test_as_in_pytorch(make):
    torch = pytest.importorskip("torch")
    for a, b in zip(results(torch, make, lambda f: f, 7)[0], results(weft, make, weft.compile, 7)[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", OF_ONE_PROGRAM)
def test_each_of_a_few_numbers_has_its_replay(make):
    _, f = results(weft, make, lambda f: weft.compile(f, fullgraph=True), 7)
    (recording,) = f.recordings
    assert not f.breaks and len(recording.replays) == 7
    assert recording.n_followed < N_CALLS // 4


def test_nothing_is_decided_while_ways_are_learned():
    """Of seven ways in any order none has come three times when eight calls have been followed."""
    asked = []
    f = weft.compile(counted(weft))
    f._ask_soon = lambda: asked.append(1)
    for n in (2, 3, 4, 5, 6, 2, 3, 7):
        f(n)
    assert not asked


def test_it_is_asked_soon_where_no_way_comes_again():
    asked = []

    class Asks(type(weft.compile(counted(weft)))):
        def _ask_soon(self):
            asked.append(1)

    f = Asks(counted(weft))
    for n in range(2, 12):
        f(n)
    assert asked == [1]
