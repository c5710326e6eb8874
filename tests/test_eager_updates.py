"""Optimizer steps that native code has taken over write what Python's write."""

import pytest
from test_eager_native import IS_NATIVE, numbers

import weft
from weft.runtime.eager import plan, update
from weft.runtime.replay import eager_native

MAKE = {
    "SGD": lambda p: weft.optim.SGD(p, lr=0.1),
    "momentum": lambda p: weft.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: weft.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: weft.optim.AdamW(p, lr=0.01, amsgrad=True),
    "RMSprop": lambda p: weft.optim.RMSprop(p, lr=0.01),
}


def trained(make, calls_before, monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", calls_before)
    update._programs.clear()
    parameters = [weft.nn.Parameter(numbers(4, 5)), weft.nn.Parameter(numbers(3, seed=1))]
    optimizer = make(parameters)
    for k in range(8):
        for p in parameters:
            p.grad = numbers(*p.shape, seed=10 + k)
        optimizer.param_groups[0]["lr"] *= 0.9
        optimizer.step()
    states = [sorted((n, x.tolist()) for n, x in s.items() if n != "step") for s in optimizer.state.values()]
    return [p.tolist() for p in parameters], states, [p._version for p in parameters]


@pytest.mark.parametrize("name", MAKE)
def test_steps_have_the_bits_of_python(name, monkeypatch):
    assert trained(MAKE[name], 1, monkeypatch) == trained(MAKE[name], 0, monkeypatch)


def test_updates_are_native(monkeypatch):
    trained(MAKE["momentum"], 1, monkeypatch)
    rules = [rule for rule in update._programs.values() if isinstance(rule, update._Rule)]
    assert (eager_native.install() is not None) is any(rule.update is not None for rule in rules) is IS_NATIVE


def test_saved_values_and_shared_memory_are_looked_after(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    p = weft.nn.Parameter(weft.ones(3))
    optimizer = weft.optim.SGD([p], lr=0.5)
    for _ in range(5):
        loss, view = (p * p).sum(), p.detach()
        p.grad = weft.ones(3)
        optimizer.step()
        assert view.tolist() == p.tolist()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    array = p.detach().numpy()
    optimizer.step()
    assert array.tolist() == p.tolist() == [-2.0] * 3
    array.flags.writeable = False
