"""Calls whose Python need not run, of functions that read memory which NumPy arrays show too."""

import numpy as np
import pytest
from whole_parts import N, check, runs, settled

import weft
from weft.runtime.replay.frame_usual import UsualFrame
from weft.runtime.replay.native import native_code_is_used
from weft.runtime.state import exposure

needs_native = pytest.mark.skipif(not native_code_is_used(), reason="native code is not used")


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def regression(n=40):
    """(a loss of weights, arrays of the data that it reads, which stay alive)."""
    inputs, wanted = numbers(n, 3), numbers(n, seed=1)
    x, y = weft.from_numpy(inputs), weft.from_numpy(wanted)
    return (lambda w: ((x @ w - y) ** 2).sum()), inputs, wanted


def weights(seed=2):
    return weft.tensor(numbers(3, seed=seed), requires_grad=True)


def is_whole(compiled):
    return "without running its Python" in compiled.explain()


def gradient(inputs, wanted, w):
    """What PyTorch's formula gives for arrays as they are now, computed by ops on tensors of their own."""
    w = w.detach().clone().requires_grad_()
    ((weft.tensor(inputs) @ w - weft.tensor(wanted)) ** 2).sum().backward()
    return w.grad


@needs_native
@pytest.mark.parametrize("n", [40, 30000])
def test_data_that_is_captured(n):
    loss, inputs, wanted = regression(n)
    f = settled(loss, weights())
    assert not runs(f, weights())
    for seed in range(4):
        inputs[seed], wanted[seed] = seed, -seed
        w = weights(seed)
        check(f, w).backward()
        assert w.grad.tolist() == gradient(inputs, wanted, w).tolist()
        assert is_whole(f)


@needs_native
def test_what_is_written_after_a_call_is_not_what_its_backward_reads():
    loss, inputs, wanted = regression()
    f, calls = settled(loss, weights()), []
    for seed in range(6):
        inputs[seed // 2], wanted[0] = seed // 2, seed // 2  # two calls each read the same
        w = weights(seed)
        calls.append((f(w), w, gradient(inputs, wanted, w)))
    inputs[:], wanted[:] = 0, 7
    for result, w, known in reversed(calls):
        result.backward(retain_graph=True)
        assert w.grad.tolist() == known.tolist()
        w.grad = None
        w.register_hook(lambda g: g * 2)  # now by nodes
        result.backward()
        assert w.grad.tolist() == (known * 2).tolist()


@needs_native
def test_data_that_is_given():
    given = numbers(5, 3)

    def f(x, w):
        return (x @ w).tanh().sum(), x.mean()

    compiled = settled(f, weft.from_numpy(given), weights())
    for seed in range(4):
        given[:] = numbers(5, 3, seed=seed)
        x, w = weft.from_numpy(given), weights(seed)
        assert is_whole(compiled)
        (result, mean), copy = compiled(x, w), weft.tensor(given)
        assert mean.item() == copy.mean().item()
        given[:] = 0
        result.backward()
        known, w.grad = w.grad.tolist(), None
        f(copy, w)[0].backward()
        assert known == w.grad.tolist()


@needs_native
def test_without_gradients_nothing_is_copied(monkeypatch):
    inputs = numbers(40, 3)
    x = weft.from_numpy(inputs)
    f = settled(lambda w: (x @ w).exp().mean(), weights().detach())
    for name in ("copied", "are_same"):
        monkeypatch.setattr(exposure, name, lambda *_: pytest.fail("looked at"))
    for seed in range(4):
        inputs[:] = numbers(40, 3, seed=seed)
        assert is_whole(f)
        assert f(weights(seed).detach()).item() == (weft.tensor(inputs) @ weights(seed)).exp().mean().item()


@needs_native
def test_a_call_that_changes_tensors_too():
    inputs, total = numbers(6), weft.zeros(6, dtype=weft.float64)
    x = weft.from_numpy(inputs)

    def f(k):
        total.add_(x * k)
        return total * x + (x - k).exp().sin().cos().tan().sinh().cosh().tanh()

    compiled, known = settled(f, weft.tensor(2.0)), total.clone()
    for k in range(5):
        inputs[k] = k
        found = compiled(weft.tensor(float(k)))
        after, copy = total.clone(), weft.tensor(inputs)
        assert after.tolist() == (known + copy * k).tolist()
        total.copy_(known)
        assert found.tolist() == f(weft.tensor(float(k))).tolist()
        known = after


def test_memory_of_two_tensors():
    """One that is captured, and one that is given and shows the same memory."""
    inputs = numbers(6)
    x = weft.from_numpy(inputs)
    f = settled(lambda y: (x * y).sum() + x[0], weft.from_numpy(inputs))
    for k in range(5):
        inputs[k] = k
        check(f, weft.from_numpy(inputs))
        check(f, x)
        check(f, weft.ones(6, dtype=weft.float64))


@needs_native
@pytest.mark.parametrize("n", [10, 30000])
def test_python_that_runs_takes_the_copy_of_the_call_before(n, monkeypatch):
    """Natively, while the memory is the same; of what is not the same a new one."""
    loss, inputs, wanted = regression(n)
    several = [loss]  # a function of a list that may change: what runs is not known

    def f(w):
        several.append(several.pop())
        result = several[-1](w)
        result.backward()
        return result.detach()

    asked, before = [], UsualFrame.apply
    monkeypatch.setattr(UsualFrame, "apply", lambda *args: asked.append(1) or before(*args))
    compiled = weft.compile(f)
    for k in range(N):
        inputs[0] = k // 2
        compiled(weights())
    assert not is_whole(compiled)
    asked.clear()
    for seed in range(6):
        inputs[seed // 2] = seed // 2
        w = weights(seed)
        result = compiled(w)
        assert (result.item(), w.grad.tolist()) == (loss(w).item(), gradient(inputs, wanted, w).tolist())
    assert not asked


@needs_native
def test_parts_of_data_that_is_captured():
    series = numbers(12)
    y, both = weft.from_numpy(series), weft.from_numpy(series.reshape(3, 4))

    def f(w):
        total = both[:, 1] @ w
        for k in range(1, 12):
            total = total + (y[k] - w[0] * y[k - 1]) ** 2
        return total, both[1:2].T * w[1]

    compiled = settled(f, weights())
    for seed in range(4):
        series[:] = numbers(12, seed=seed)
        w = weights(seed)
        total, part = check(compiled, w)
        known = [weft.autograd.grad(x.sum(), w)[0].tolist() for x in f(w)]
        series[:] = 0
        assert [weft.autograd.grad(x.sum(), w)[0].tolist() for x in (total, part)] == known
        assert is_whole(compiled)


def test_parts_of_data_that_is_given():
    given = numbers(12)

    def f(x):
        return x[2] * 2 + x[3:].sum()

    compiled = settled(f, weft.from_numpy(given))
    for k in range(4):
        check(compiled, weft.from_numpy(numbers(12, seed=k)))
        given[2:4] = k
        check(compiled, weft.from_numpy(given))
        check(compiled, weft.from_numpy(given[::-1].copy()))


def test_a_part_that_is_a_result():
    series = numbers(6)
    y = weft.from_numpy(series)
    f = settled(lambda x: (y[1:3], y[0] * x), weft.tensor(2.0))
    part, _ = f(weft.tensor(3.0))
    series[1] = 9
    assert part[0].item() == 9
    check(f, weft.tensor(4.0))


def test_a_part_of_a_list_that_changes():
    """What is compared is not only where the data lies but what the code reads of it."""
    y, places = weft.from_numpy(series := numbers(6)), [1, 2]
    f = settled(lambda x: x * y[places[0]] + y[places[1]], weft.tensor(2.0))
    for k in range(4):
        places[:] = [k, 5 - k]
        series[k] = k
        check(f, weft.tensor(4.0))


def test_what_is_captured_is_given_too():
    """A copy that a call has made does not tell for which of them, and in later calls they differ."""
    data = numbers(4)
    y = weft.from_numpy(data)
    f = settled(lambda z: (y + 1) * z, y)
    for k in range(4):
        check(f, weft.from_numpy(other := numbers(4, seed=k)))
        data[k] = other[k]
        check(f, y)


@pytest.mark.parametrize("runs_python", [True, False])
def test_large_copies_are_not_kept_for_the_next_call(monkeypatch, runs_python):
    """What serves a way that calls go would hold them."""
    monkeypatch.setattr("weft.runtime.replay.frame_usual.MOST_KEPT", 100)
    loss, inputs, wanted = regression()
    counted = []
    f = settled((lambda w: counted.append(1) or loss(w)) if runs_python else loss, weights())
    assert is_whole(f) is not runs_python or not native_code_is_used()
    calls = []
    for seed in range(4):
        inputs[seed] = seed
        w = weights(seed)
        calls.append((check(f, w), w, gradient(inputs, wanted, w)))
    inputs[:] = 0
    for result, w, known in calls:
        result.backward()
        assert w.grad.tolist() == known.tolist()
