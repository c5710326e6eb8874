"""Functions that draw do in native code what they do in Python (native_functions.py, native_draws.py)."""

import threading

import pytest
from native_functions_parts import TIMES, have_native_code, running_in_python

import weft
import weft.nn.functional as F
from weft.runtime.replay import native, noting

functions_are_native = pytest.fixture(autouse=True)(have_native_code)
in_python = pytest.fixture(running_in_python)


def test_functions_that_draw_draw_anew():
    x = weft.ones(3, 3)
    for draw in (lambda: F.gumbel_softmax(x), lambda: weft.rand_like(x), lambda: F.dropout1d(x, 0.5), x.bernoulli):
        weft.manual_seed(5)
        first = [draw().tolist() for _ in range(TIMES)]
        weft.manual_seed(5)
        assert [draw().tolist() for _ in range(TIMES)] == first
        assert len({str(y) for y in first}) > 1 or draw == x.bernoulli


DRAWS = {
    "rand": lambda x: weft.rand(3, 3),
    "rand of a size": lambda x: weft.rand((2, 1), dtype=weft.float64),
    "randn": lambda x: weft.randn(4),
    "randn that requires gradients": lambda x: weft.randn(2, requires_grad=True),
    "randint": lambda x: weft.randint(2, 9, (3,)),
    "randperm": lambda x: weft.randperm(9),
    "normal": lambda x: weft.normal(1.0, 2.0, (2, 2)),
    "rand_like": lambda x: weft.rand_like(x),
    "dropout": lambda x: F.dropout(x + 1, 0.5),
    "bernoulli": lambda x: weft.bernoulli(x * 0.3),
    "uniform_": lambda x: x.uniform_(),
    "uniform_ between": lambda x: x.uniform_(-1, 2.0),
    "normal_": lambda x: x.normal_(0.5, std=2.0),
    "exponential_": lambda x: x.exponential_(1.5),
    "bernoulli_": lambda x: x.bernoulli_(0.25),
    "random_": lambda x: x.random_(3, 9),
    "cauchy_": lambda x: x.cauchy_(),
    "of a part": lambda x: x[1:, 1:].uniform_(),
    "of whole numbers": lambda x: weft.zeros(3, dtype=weft.int64).random_(100),
    "many": lambda x: weft.randn(100, 100).sum(),
}


def drawn(function):
    """What comes of many calls, with draws of another kind between them."""
    weft.manual_seed(5)
    x, found = weft.ones(3, 3), []
    for k in range(TIMES):
        y = function(x)
        found.append((y.dtype, y.shape, y.tolist(), y.requires_grad, x._version))
        if k % 7 == 3:
            weft.randperm(3)
        if k % 11 == 5:
            weft.set_rng_state(weft.get_rng_state())
    return found


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_the_function(name, in_python):
    wanted = in_python(drawn, DRAWS[name])
    assert len({repr(values) for _, _, values, *_ in wanted}) > TIMES // 2
    for _ in range(2):
        assert drawn(DRAWS[name]) == wanted


GENERATOR_DRAWS = {
    "rand": lambda x, g: weft.rand(3, 3, generator=g),
    "randn": lambda x, g: weft.randn((2, 2), dtype=weft.float64, generator=g),
    "randint": lambda x, g: weft.randint(2, 9, (3,), generator=g),
    "bernoulli": lambda x, g: weft.bernoulli(x.abs() * 0.1, generator=g),
    "uniform_": lambda x, g: x.uniform_(-1, 2.0, generator=g),
    "normal_": lambda x, g: x.normal_(generator=g),
    "exponential_": lambda x, g: x.exponential_(1.5, generator=g),
    "random_": lambda x, g: x.random_(3, 9, generator=g),
    "multinomial": lambda x, g: weft.multinomial(x.abs() + 1, 2, generator=g),
}


def drawn_from(function):
    """What comes of calls with one generator and another, and with the default one between them."""
    weft.manual_seed(5)
    generators = [weft.Generator().manual_seed(k) for k in (1, 2)]
    x, found = weft.ones(3, 3), []
    for k in range(3 * TIMES):
        found.append(function(x, (*generators, None)[k % 3 if k % 5 else 0]).tolist())
        if k == TIMES:
            generators[1] = weft.Generator().manual_seed(7)
    return found, [g.get_state().tolist() for g in (*generators, weft.default_generator)]


@pytest.mark.parametrize("name", GENERATOR_DRAWS)
def test_draws_come_from_the_generator_that_is_given(name, in_python):
    wanted = in_python(drawn_from, GENERATOR_DRAWS[name])
    assert len({repr(values) for values in wanted[0]}) > TIMES // 2
    for _ in range(2):
        assert drawn_from(GENERATOR_DRAWS[name]) == wanted


@pytest.mark.skipif(native.layout() is None, reason="nothing is native here")
def test_native_code_answers_calls_with_a_generator(monkeypatch):
    generator = weft.Generator().manual_seed(3)

    def refuse(*_):
        raise AssertionError("the function was called")

    for _ in range(TIMES):
        weft.rand(5, 2, generator=generator)
    wanted = weft.Generator().set_state(generator.get_state())
    wanted = [weft.rand(2, 5, generator=wanted).reshape(5, 2).tolist() for _ in range(3)]
    monkeypatch.setattr(weft.creation.random, "uniform", refuse)
    assert [weft.rand(5, 2, generator=generator).tolist() for _ in range(3)] == wanted


def test_other_threads_draw_while_a_call_is_looked_at():
    weft.manual_seed(7)
    wanted = weft.rand(5).tolist(), weft.rand(5).tolist()
    weft.manual_seed(7)
    noter, found = noting.Noter(), []

    def function():
        thread = threading.Thread(target=lambda: found.append(weft.rand(5).tolist()))
        thread.start()
        thread.join()
        return weft.rand(5)

    made = noting.made_by(noter, function, (), {})
    assert made.shape == (5,) and noter.n_drawn == 1 and len(noter.steps) == 1
    assert (found[0], weft.rand(5).tolist()) == wanted


def test_leaves_and_what_has_a_history_are_drawn_into_by_the_function():
    leaf = weft.ones(2, 2).requires_grad_()
    for _ in range(TIMES):
        weft.ones(2, 2).uniform_()
        with pytest.raises(RuntimeError, match="leaf"):
            leaf.uniform_()
        grown = (leaf * 1).uniform_()
        assert grown.grad_fn.name() == "UniformBackward0" and leaf.detach().eq(1).all()
    with weft.no_grad():
        assert leaf.normal_() is leaf and leaf.is_leaf and not leaf.eq(1).any()
