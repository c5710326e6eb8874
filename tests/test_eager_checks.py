"""Ops that check what they are given, called often: native code computes them, and errors are those of Python."""

import numpy as np
import pytest
from test_eager_native import IS_NATIVE, native_calls

import weft
from weft.nn import functional
from weft.runtime.eager import plan

OFTEN = 32  # a function of several ops is one op after twenty calls, and that is native after eight more


@pytest.fixture(autouse=True)
def no_plans():
    plan.forget()


def integers(n, seed=0):
    signs = np.random.default_rng(seed).choice([-1, 1], (n, n))
    return weft.tensor(np.random.default_rng(seed + 1).integers(1, 60, (n, n)) * signs)


def shares(n):
    return weft.tensor(np.random.default_rng(3).random((n, n)).astype(np.float32))


CALLS = {
    "quotient": (lambda x, y: x // y, integers),
    "remainder": (lambda x, y: x % y, integers),
    "fmod": (weft.fmod, integers),
    "quotient of int32": (lambda x, y: x.int() // y.int(), integers),
    "by a number": (lambda x, y: x // 3 + x % -7, integers),
    "transposed": (lambda x, y: x.t() % y[:, ::2].repeat(1, 2)[:, : len(x)], integers),
    "by a column": (lambda x, y: x // y[:, :1], integers),
    "probabilities": (functional.binary_cross_entropy, shares),
    "inverse": (lambda x, y: weft.linalg.inv(x + 3 * weft.eye(len(x))), shares),
    "root": (lambda x, y: weft.linalg.cholesky(x @ x.t() + weft.eye(len(x))), shares),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("n", [1, 2, 3, 16, 37])
def test_calls_that_come_often_have_the_bits_of_the_first(name, n):
    function, make = CALLS[name]
    x, y = make(n), make(n) if make is shares else make(n, 5)
    first = function(x, y).numpy().tobytes()
    for _ in range(OFTEN):
        function(x, y)
    assert (native_calls(lambda: function(x, y)) >= 1) is IS_NATIVE
    assert function(x, y).numpy().tobytes() == first


@pytest.mark.parametrize("call", [lambda x, y: x // y, lambda x, y: x % y, weft.fmod], ids=["//", "%", "fmod"])
@pytest.mark.parametrize("place", [0, 7, 35])
def test_a_divisor_of_0_is_found_wherever_it_is(call, place):
    x, y = integers(6), integers(6, 5)
    for _ in range(OFTEN):
        call(x, y)
    bad = y.clone()
    bad.view(-1)[place] = 0
    for _ in range(OFTEN):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            call(x, bad)
    assert call(x, y).numpy().tolist() == call(x.clone(), y.clone()).numpy().tolist()
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        call(x, 0)


def test_a_change_that_fails_changes_nothing():
    x, y = integers(6), integers(6, 5)
    for _ in range(OFTEN):
        x.clone().remainder_(y)
    before = x.tolist()
    y[5, 5] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        x.remainder_(y)
    assert x.tolist() == before


@pytest.mark.parametrize("bad", [1.5, -0.1, float("nan")])
def test_what_is_no_probability_is_found(bad):
    p = shares(5)
    for _ in range(OFTEN):
        weft.bernoulli(p)
    p[4, 4] = bad
    for _ in range(OFTEN):
        with pytest.raises(RuntimeError, match=r"\[0, 1\]"):
            weft.bernoulli(p)


def test_a_matrix_without_an_inverse_is_found():
    for _ in range(OFTEN):
        weft.linalg.inv(weft.eye(4))
    with pytest.raises(weft.linalg.LinAlgError, match="singular"):
        weft.linalg.inv(weft.zeros(4, 4))
