"""Optimizer steps that native code has taken over write what Python's write."""

import pytest
from test_eager_native import IS_NATIVE, numbers

import weft
from weft.compiler.ops import arithmetic as ops
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
    update.forget()
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
    assert (eager_native.install() is not None) is any(rule.native is not None for rule in rules) is IS_NATIVE


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


def drift(p, q, number):
    """A rule of a user's kind, by which what is read lies elsewhere than what is written."""
    return ops.add(ops.mul(p, number), q), None


def test_all_rows_are_one_call(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    update.forget()
    parameters = [weft.nn.Parameter(numbers(k + 1, 3)) for k in range(6)]
    optimizer = weft.optim.Adam(parameters, lr=0.01)
    for p in parameters:
        p.grad = weft.ones_like(p)
    for _ in range(4):
        optimizer.step()
    seen = []
    monkeypatch.setattr(update, "update_eagerly", lambda *args: seen.append(args))
    optimizer.step()
    assert (seen == []) is IS_NATIVE


@pytest.mark.parametrize("n", [1, 2, 15, 17, 1000, 70001])
def test_rows_of_all_sizes(n, monkeypatch):
    found = []
    for calls_before in (0, 1):
        monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", calls_before)
        update.forget()
        parameter = weft.nn.Parameter(numbers(n))
        optimizer = weft.optim.AdamW([parameter], lr=0.01, maximize=True)
        for k in range(4):
            parameter.grad = numbers(n, seed=k)
            optimizer.step()
        found.append(parameter.detach().numpy().tobytes())
    assert found[0] == found[1]


def test_rows_that_overlap_are_read_before_they_are_written(monkeypatch):
    found = []
    for calls_before in (0, 1):
        monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", calls_before)
        update.forget()
        memory = numbers(60)
        with weft.no_grad():
            for start in (0, 1, 20, 0, 1, 0):
                p, q = memory[1 : 1 + 39], memory[start : start + 39]
                update.update(drift, [(p, q)], (0.5,))
        found.append(memory.numpy().tobytes())
    assert found[0] == found[1]


def test_a_parameter_may_change_its_type_or_be_in_two_rows(monkeypatch):
    found = []
    for calls_before in (0, 1):
        monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", calls_before)
        update.forget()
        x, y = numbers(5), numbers(5, seed=1)
        with weft.no_grad():
            for _ in range(5):
                update.update(drift, [(x, y), (x, x), (y, x)], (0.25,))
            x = x.double()
            for _ in range(3):
                update.update(drift, [(x, y), (x, x)], (0.25,))
            with pytest.raises(RuntimeError, match="cast|read-only|result type"):
                update.update(lambda p: (ops.mul(p, 1.5),), [(weft.ones(3, dtype=weft.int64),)])
        found.append((x.tolist(), y.tolist(), x._version, y._version))
    assert found[0] == found[1]
