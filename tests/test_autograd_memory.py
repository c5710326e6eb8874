"""What autograd keeps in memory, and what it copies."""

import gc
import weakref

import pytest

import weft
from weft.compiler.ops.view import clone
from weft.runtime.eager import owned


def test_a_leaf_keeps_the_gradient_the_engine_made_without_copying_it(monkeypatch):
    """A name for a node's results once kept a reference to each, and every gradient of a leaf was copied."""
    copied = []
    monkeypatch.setattr(owned, "clone", lambda x: copied.append(x) or clone(x))
    x = weft.randn(3, requires_grad=True)
    (x * x).sum().backward()
    x.grad = None
    weft.compile(lambda x: (x * x).exp().sum())(x).backward()
    assert copied == []


def test_a_finished_call_goes_with_its_last_result():
    """A call that kept its own node lived until the garbage collector came, with all that it had saved."""
    calls = []
    compiled = weft.compile(lambda x, w: (x @ w).tanh().sum())
    x, w = weft.randn(4, 4), weft.randn(4, 4, requires_grad=True)
    gc.disable()
    try:
        for k in range(12):
            loss = compiled(x, w)
            calls.append(weakref.ref(loss._frame))
            if k % 2:
                loss.backward()
        assert [call() is not None for call in calls] == [False] * 11 + [True]
        del loss
        assert calls[-1]() is None
    finally:
        gc.enable()


def _n_tensors():
    gc.collect()
    return sum(isinstance(x, weft.Tensor) for x in gc.get_objects())


DETACHING = {
    "whole": lambda state, w: (state * w).detach(),
    "a part": lambda state, w: (state * w)[None][0].detach(),
    "a part of it": lambda state, w: (state * w).detach()[None][0],
    "turned": lambda state, w: (state * w).t().detach().t(),
    "of a function": lambda state, w: _Doubling.apply(state * w).detach(),
    "a leaf again": lambda state, w: (state * w).detach().requires_grad_(),
    "of what a compiled call made": lambda state, w: _product(state, w).detach(),
}


class _Doubling(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


@weft.compile
def _product(state, w):
    return state * w


@pytest.mark.parametrize("detach", DETACHING.values(), ids=DETACHING)
def test_a_loop_that_detaches_its_state_keeps_nothing_of_the_past(detach):
    """What was detached held the tensor it shows, and that the graph behind it, back to the first turn."""
    w, state, counts = weft.randn(3, 4, requires_grad=True), weft.zeros(3, 4), []
    for turn in range(60):
        state = detach(state, w)
        if turn % 20 == 19:
            counts.append(_n_tensors())
    assert counts[2] == counts[1]


@pytest.mark.oracle
def test_a_detached_tensor_is_no_view_as_in_pytorch():
    def answers(library):
        x = library.ones(3, 4, requires_grad=True) * 2
        made = [x.detach(), x[1].detach(), x[1:].t().detach(), library.ones(2).detach(), x.detach()[1]]
        x.detach().mul_(2)
        return [(y._is_view(), y.storage_offset(), y._version, y.requires_grad, y.is_leaf) for y in made]

    assert answers(weft) == answers(pytest.importorskip("torch"))
