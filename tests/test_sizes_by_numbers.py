"""Sizes that a Python number says, another one in each call: x[:n], arange(n), zeros(n), loops of n steps. Where few
numbers come, calls are replayed for each of them, and nobody decides for eager mode while they are still learned."""

import itertools
import random

import numpy as np
import pytest
from compiled_twin import error_of

import weft
from weft.runtime.programs.telling import Telling
from weft.runtime.replay.native import native_code_is_used

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
OF_ONE_PROGRAM = [head, between, halves, counted, zeros, loop, square_mask, prefix, training]


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
@pytest.mark.parametrize("n_values", [3, 7, 11, 14])
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
    assert not f.breaks and len(recording.replays) >= 7
    assert recording.n_followed < N_CALLS // 4


def of_many_rows(lib):
    """Another part of a table of 64 rows in each call, from the start to there."""
    x, w = lib.arange(256, dtype=lib.float32).reshape(64, 4) * 0.01, lib.ones(4, 3) * 0.1
    return lambda n, count=0: ((x[:n] @ w).tanh().mean(0) + x[n - 1, :3], n * count)


def prefix_of_many(lib):
    q, k, v = (lib.arange(512, dtype=lib.float32).reshape(64, 8).add(s).sin() for s in range(3))
    return lambda n, count=0: ((q[n - 1] @ k[:n].T / 8**0.5).softmax(-1) @ v[:n], count)


ORDERS = {
    "round and round": lambda k: k % 40 + 1,
    "in any order": lambda k: (k * k * 7 + k // 5) % 40 + 1,
    "ever more": lambda k: k // 4 + 1,
    "there and back": lambda k: abs(k % 60 - 30) + 2,
    "beyond the end": lambda k: k % 20 * 5 + 1,
    "from the end": lambda k: -(k % 20) - 1,
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("make", [of_many_rows, prefix_of_many])
def test_many_numbers_in_every_order(make, order):
    def found(decorate):
        f = decorate(make(weft))
        return [error_of(f, order(k), k) for k in range(N_CALLS)]

    assert found(lambda f: f) == found(weft.compile)


@pytest.mark.parametrize("make", [of_many_rows, prefix_of_many])
def test_forty_numbers_have_replays_and_few_programs(make):
    f = weft.compile(make(weft), fullgraph=True)
    for k in range(200):
        f(k % 40 + 1)
    (recording,) = f.recordings
    assert f.breaks == () and len(recording.replays) >= 40 and recording.n_followed <= 140
    assert sum(not program.serves_many for program in recording.programs) < 8
    if native_code_is_used():
        assert "fast path: yes" in f.explain()


def test_counts_tell_nothing():
    f = weft.compile(lambda x, count: x * count if count % 2 else x + count)
    x = weft.ones(3)
    for k in range(60):
        f(x, k)
    (recording,) = f.recordings
    assert not recording.telling.tells() and recording.n_branches == 2


@pytest.mark.parametrize("n_ways", [3, 4, 40])
def test_what_tells(n_ways):
    telling, ways = Telling(), [object() for _ in range(n_ways)]
    for n, way in enumerate(ways):
        telling.note({0: n, 2: 7}, way)
    assert telling.tells() == (n_ways > 3) and telling.n_again == (n_ways > 0) * (n_ways - 1)
    for n in range(n_ways):
        telling.note({0: n}, object())
    assert not telling.tells()


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

    steps, n = loop(weft), itertools.count(2)
    f = Asks(lambda: steps(next(n)))
    for _ in range(10):
        f()
    assert asked == [1]
