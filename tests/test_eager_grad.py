"""`autograd.grad` in native code: what Python's engine gives, whichever edges are asked for and whoever looks on."""

import numpy as np
import pytest
from test_eager_backward import chain, leaf
from test_eager_native import IS_NATIVE, TIMES, native_calls, numbers

import weft
from weft import autograd
from weft.runtime.eager import engine, plan


@pytest.fixture(autouse=True)
def native_at_once(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)


class Doubled(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def middle(x, y):
    """The gradient of a value on the way, of a leaf behind it and of one that is not."""
    h = chain(x, y)
    out = (h * x).tanh().sum()
    return autograd.grad(out, (h, x, y))


def only_the_middle(x, y):
    h = chain(x, y)
    return autograd.grad((h.tanh() * y).sum(), h)


def part_of_the_graph(x, y):
    u, v = chain(x, y), chain(y, y)
    return autograd.grad((u * v).sum(), x)


def through_parts(x, y):
    a, b = chain(x, y).chunk(2, 1)
    c, *_ = y.unbind(0)
    return autograd.grad(((a * b).sum(0) * c[:2]).sum(), (x, a, c), allow_unused=True)


def unused(x, y):
    return autograd.grad(chain(x, x).sum(), (x, y), allow_unused=True)


def zeros_for_unused(x, y):
    return autograd.grad(chain(x, x).sum(), (x, y), materialize_grads=True)


def of_several(x, y):
    h = chain(x, y)
    return autograd.grad((h, h.t() * 2.0, h.sum()), (x, y, h), (numbers(4, 4, seed=3), numbers(4, 4, seed=4), None))


def the_same_twice(x, y):
    return autograd.grad((x * y).sum(), (x, x, y))


def twice(x, y):
    h = chain(x, y).sum()
    return *autograd.grad(h, (x, y), retain_graph=True), *autograd.grad(h, y)


def through_a_function(x, y):
    h = Doubled.apply(chain(x, y))
    return autograd.grad((h * Doubled.apply(y)).sum(), (h, x, y))


def through_a_compiled_call(x, y):
    h = COMPILED(x * y, y)
    return autograd.grad((h.tanh() * x).sum(), (h, x, y))


def with_hooks(x, y):
    seen = []
    h = chain(x, y)
    h.register_hook(lambda g: seen.append(g.clone()) or g * 2)
    handle = x.register_hook(lambda g: g + 1)
    h.retain_grad()
    found = autograd.grad((h * y).sum(), (x, y))
    handle.remove()
    return *found, *seen, h.grad


def views_of_the_cotangent(x, y):
    return autograd.grad((x.t().reshape(16)[2:] * y.reshape(-1)[:14]).sum(), (x, y))


def a_cotangent_as_it_is(x, y):
    given = numbers(4, 4, seed=5)
    found = autograd.grad(x + y, (x, y), given)
    assert not any(np.shares_memory(g.numpy(), given.numpy()) for g in found)
    return found


def second(x, y):
    g = autograd.grad(chain(x, y).sum(), x, create_graph=True)[0]
    return autograd.grad((g * g).sum(), (x, y))


COMPILED = weft.compile(lambda x, y: (x * y).exp() + x)
PASSES = [
    middle,
    only_the_middle,
    part_of_the_graph,
    through_parts,
    unused,
    zeros_for_unused,
    of_several,
    the_same_twice,
]
PASSES += [twice, through_a_function, through_a_compiled_call, with_hooks, views_of_the_cotangent, a_cotangent_as_it_is]
PASSES += [second]


def found_by(function):
    x, y = leaf(4, 4), leaf(4, 4, seed=1)
    found = [None if g is None else g.numpy().tobytes() for g in function(x, y)]
    assert x.grad is None and y.grad is None
    return found


@pytest.mark.parametrize("function", PASSES, ids=lambda f: f.__name__)
def test_gradients_have_the_bits_of_python(function, monkeypatch):
    plan.forget()
    natively = [found_by(function) for _ in range(TIMES + 6)]
    assert (native_calls(lambda: found_by(function), "nodes_taken") >= 1) is IS_NATIVE
    monkeypatch.setattr(engine, "_sweep_natively", engine.sweep_in_python)
    expected = found_by(function)
    assert all(one == expected for one in natively)


def test_all_nodes_that_lead_there_are_native_and_no_others_run():
    x, y = leaf(4, 4), leaf(4, 4, seed=1)
    for _ in range(TIMES + 3):
        part_of_the_graph(x, y)
    # A sum, a product and the fifteen ops of one chain: the other chain does not lead to x.
    assert native_calls(lambda: part_of_the_graph(x, y), "nodes_taken") == (17 if IS_NATIVE else 0)


def test_a_graph_that_was_freed_is_refused_and_what_did_not_run_was_not_freed():
    x, y = leaf(4, 4), leaf(4, 4, seed=1)
    for _ in range(TIMES + 3):
        h = y.tanh()
        out = (chain(x, y) * h).sum()
        autograd.grad(out, x)
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            autograd.grad(out, x)
        assert np.array_equal(autograd.grad(h.sum(), y)[0].numpy(), (1 - h.detach() ** 2).numpy())


def test_deep_graphs():
    x = leaf(3)
    y = x
    for _ in range(5000):
        y = y * 1.0001
    (found,) = autograd.grad(y.sum(), x)
    assert found[0] == found[1] == found[2] and 1.6 < found[0].item() < 1.7
