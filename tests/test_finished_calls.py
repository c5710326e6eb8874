"""Replayed calls whose results have a history: what stands for them is made natively, as without the decorator."""

import pytest
from compiled_twin import assert_same, error_of, leaf, twin

import weft
from weft.runtime.replay import native

N_CALLS = 12


def hidden(x, w):
    return (x @ w).tanh()


def calls_of(f, *arguments):
    return [f(*arguments) for _ in range(N_CALLS)]


def test_such_calls_are_ended_natively():
    f, w = weft.compile(hidden), leaf(4, 4)
    calls_of(f, weft.randn(3, 4), w)
    assert f.recordings[0].usual.n_ended == (N_CALLS - 3 if native.layout() is None else 2)


@twin
def test_arguments_with_a_history_go_on_to_it(compile):
    f, w, seen = compile(hidden), leaf(4, 4), []
    for k in range(N_CALLS):
        w.grad = None
        f(w * 2 if k % 3 else w, w).sum().backward()
        seen.append(w.grad.clone())
    return seen


RESULTS = {
    "a dictionary": lambda y, x: {"y": y, "twice": y * 2, "x": x},
    "one twice": lambda y, x: [y, (y, y)],
    "views": lambda y, x: (y.t(), y[1:], y),
    "some without": lambda y, x: (y.detach(), y.sum(), (x * 2).sum()),
    "none kept": lambda y, x: y.sum() and None,
    "an argument": lambda y, x: (x, y),
}


def first_with_history(found):
    for value in found.values() if isinstance(found, dict) else found if isinstance(found, (list, tuple)) else [found]:
        if isinstance(value, (list, tuple)):
            value = first_with_history(value)
        if isinstance(value, weft.Tensor) and value.requires_grad:
            return value
    return None


@pytest.mark.parametrize("made", RESULTS.values(), ids=RESULTS)
def test_results_in_whatever_they_are(made):
    def scenario(compile):
        f, w, seen = compile(lambda x, w: made(hidden(x, w), x)), leaf(4, 4), []
        for k in range(N_CALLS):
            w.grad = None
            found = f(weft.randn(3, 4), w)
            seen.append(found)
            result = first_with_history(found)
            if k % 3 and result is not None:
                result.sum().backward()
            seen.append(w.grad if w.grad is None else w.grad.clone())
        return seen

    assert_same(scenario)


@twin
def test_results_that_are_kept_are_differentiated_later(compile):
    f, w, seen = compile(lambda x, w, scale: hidden(x, w).sum() * scale), leaf(4, 4), []
    for k in range(3):
        losses = [f(weft.randn(3, 4), w, 0.5 + i + k) for i in range(N_CALLS)]
        for loss in losses[::-1]:
            loss.backward()
        seen += [w.grad.clone(), error_of(losses[k].backward)]
    return seen


@twin
def test_what_a_backward_reads_may_not_be_changed(compile):
    f, w, seen = compile(hidden), leaf(4, 4), []
    for k in range(N_CALLS):
        y, x = f(weft.randn(3, 4), w), weft.ones(3, 4)
        if k % 4 == 1:
            y.detach().zero_()
        if k % 4 == 2:
            with weft.no_grad():
                w.mul_(0.5)
        seen.append(error_of(y.backward, x))
    return seen
