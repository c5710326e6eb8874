"""What autograd keeps in memory, and what it copies."""

import gc
import weakref

import weft
from weft.compiler.ops.view import clone
from weft.runtime.eager import engine


def test_a_leaf_keeps_the_gradient_the_engine_made_without_copying_it(monkeypatch):
    """A name for a node's results once kept a reference to each, and every gradient of a leaf was copied."""
    copied = []
    monkeypatch.setattr(engine, "clone", lambda x: copied.append(x) or clone(x))
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
