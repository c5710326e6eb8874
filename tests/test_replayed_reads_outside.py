"""Values that are read in the middle of replayed calls whose results require gradients: backward passes after them."""

import gc
import weakref

import pytest
from compiled_twin import error_of, leaf, look, twin

import weft
from weft.autograd import grad

ROUNDS = 16


def loss_is_logged(x, w):
    loss = ((x * w).sin() ** 2).sum()
    logged.append(loss.item())
    return loss


def loss_and_hidden(x, w):
    hidden = (x * w).tanh()
    loss = hidden.square().sum()
    return (loss, hidden) if loss.item() > 0 else (hidden, loss)


def used_further(x, w):
    hidden = x * w
    scale = float(hidden.exp().sum())
    return (hidden * scale).sum() + hidden.prod()


def dropped_what_was_read(x, w):
    norm = (x * w).norm()
    if norm > 1:
        return (x * w / norm).sum()
    return (x * w).sum()


def part_of_what_was_read(x, w):
    hidden = (x * w).reshape(2, -1)
    first = hidden[0]
    logged.append(first.sum().item())
    return first.sum() * hidden[1].sum(), first


def read_twice(x, w):
    one = (x * w).sum()
    logged.append(one.item())
    two = one.exp() * w.sum()
    logged.append(two.item())
    return one * two


def read_last(x, w):
    out = (x * w).cumsum(0)
    logged.append(out.tolist())
    return out.sum()


def without_a_kernel(x, w):
    q, r = weft.linalg.qr((x * w).reshape(2, 2))
    return (r.diagonal().abs().log().sum() + q.sum()) * w.sum()


def backward_of_another(x, w):
    a, b = (x * w).sin().sum(), (x * x * w).sum()
    a.backward()
    logged.append(a.item())
    return b.square()


FUNCTIONS = [
    loss_is_logged, loss_and_hidden, used_further, dropped_what_was_read, part_of_what_was_read, read_twice, read_last,
    without_a_kernel, backward_of_another,
]  # fmt: skip
logged = []


def summed(result):
    results = result if isinstance(result, tuple) else (result,)
    return sum(r.sum() for r in results)


def backward(k, result, x, w):
    summed(result).backward()


def backward_of_one(k, result, x, w):
    one = result[0] if isinstance(result, tuple) else result
    one.sum().backward()


def twice(k, result, x, w):
    summed(result).backward(retain_graph=True)
    summed(result).backward()
    return error_of(lambda: summed(result).backward())


def second_derivative(k, result, x, w):
    (g,) = grad(summed(result), w, create_graph=True)
    return error_of(lambda: g.square().sum().backward())


def changed_before(k, result, x, w):
    with weft.no_grad():
        one = result[0] if isinstance(result, tuple) else result
        if k % 3:
            one.mul_(2)
        else:
            w.mul_(1.5)
    return error_of(lambda: summed(result).backward())


def changed_silently(k, result, x, w):
    if k % 4 == 3:
        one = result[0] if isinstance(result, tuple) else result
        one.data.mul_(2)
    return error_of(lambda: summed(result).backward())


def kept_for_a_while(k, result, x, w):
    kept.append(result)
    if len(kept) == 3:
        sum(map(summed, kept)).backward()
        kept.clear()


def nothing(k, result, x, w):
    return [str((result[0] if isinstance(result, tuple) else result).grad_fn is None)]


USES = [
    backward, backward_of_one, twice, second_derivative, changed_before, changed_silently, kept_for_a_while, nothing,
]  # fmt: skip
kept = []


@pytest.mark.parametrize("use", USES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("history", [False, True], ids=["leaf", "history"])
def test_a_backward_after_the_call(function, use, history):
    def scenario(compile):
        f, w = compile(function), leaf(4)
        logged.clear(), kept.clear()
        weft.manual_seed(3)
        for k in range(ROUNDS):
            x = weft.rand(4)
            if history:
                x = (x.requires_grad_() + w.detach()).square()
            result = f(x, w)
            yield look(result)
            yield error_of(use, k, result, x, w)
            yield None if w.grad is None else w.grad.clone()
            w.grad = None
        yield list(map(str, logged))

    twin(scenario)()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_such_calls_are_replayed(function):
    f, w = weft.compile(function), leaf(4)
    weft.manual_seed(3)
    for k in range(ROUNDS):
        summed(f(weft.rand(4), w)).backward()
        if k < ROUNDS // 2:
            w.grad = None
    assert f.recordings[0].not_replayed is None
    assert f.recordings[0].usual is not None


def test_who_holds_other_values_than_usual_is_found():
    def scenario(compile):
        held = []

        def function(x, w, hold):
            hidden = x * w
            logged.append(hidden.sum().item())
            held.extend([hidden] if hold else [])
            return hidden.exp().sum()

        f, w, flags = compile(function), leaf(4), iter([False] * 6 + [True, False] * 4)
        for flag in flags:
            loss = f(weft.ones(4), w, [flag][0])
            loss.backward(retain_graph=True)
            if held:
                held.pop().square().sum().backward()
            yield w.grad.clone()
            w.grad = None

    twin(scenario)()


def test_a_result_keeps_no_memory_but_its_own():
    f, w = weft.compile(loss_and_hidden), leaf(4)
    for _ in range(ROUNDS):
        loss, hidden = f(weft.rand(4), w)
        gone = weakref.ref(hidden)
        loss.backward()
        del loss, hidden
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            assert gone() is None
        finally:
            gc.enable() if was_enabled else None
