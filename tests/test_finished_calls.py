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


def test_such_calls_are_ended_natively(python_runs):
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
    "data": lambda y, x: (y, y.data),
    "data of a view": lambda y, x: (y, y[1:].data),
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


def test_the_backward_of_such_calls_is_native():
    f, w, x = weft.compile(hidden), leaf(4, 4), weft.randn(3, 4)
    for _ in range(N_CALLS):
        f(x, w).sum().backward()
        f(x, w).backward(weft.ones(3, 4))
        weft.autograd.grad(f(x, w), w, weft.ones(3, 4))
    assert (f.recordings[0].usual.outside.native is None) == (native.layout() is None)
    assert f.recordings[0].usual.outside.n_done <= (2 if native.layout() else 3 * N_CALLS)


BACKWARDS = {
    "added up": lambda y, w, k: y.sum().backward(),
    "of two kinds": lambda y, w, k: y.backward(weft.full((3, 4), 0.5)) if k % 2 else y.backward(weft.ones(3, 4)),
    "a cotangent in columns": lambda y, w, k: y.backward(weft.ones(4, 3).t() if k % 2 else weft.ones(3, 4)),
    "a cotangent with gradients": lambda y, w, k: y.backward(leaf(3, 4) if k % 3 == 2 else weft.ones(3, 4)),
    "kept and freed": lambda y, w, k: [
        y.backward(weft.ones(3, 4), retain_graph=True),
        y.backward(weft.ones(3, 4)),
        error_of(y.backward, weft.ones(3, 4)),
    ][-1],
    "asked for": lambda y, w, k: [weft.autograd.grad(y, w, weft.ones(3, 4)), error_of(y.backward, weft.ones(3, 4))],
    "asked for and kept": lambda y, w, k: [
        weft.autograd.grad(y, [w], weft.ones(3, 4), retain_graph=True),
        y.backward(weft.ones(3, 4)),
    ],
    "a gradient that is a view": lambda y, w, k: [
        setattr(w, "grad", weft.ones(2, 4, 4)[1] if k % 2 else w.grad),
        y.backward(weft.ones(3, 4)),
    ][1],
    "a gradient that is shared": lambda y, w, k: [
        seen := w.grad if w.grad is None else w.grad.view(16),
        y.backward(weft.ones(3, 4)),
        seen if seen is None else seen.clone(),
    ][2],
    "a gradient with a history": lambda y, w, k: [
        setattr(w, "grad", w.detach().requires_grad_() * 2 if k % 3 == 1 else None),
        y.backward(weft.ones(3, 4)),
    ][1],
    "a hook of the leaf": lambda y, w, k: [
        seen := [],
        hook := w.register_hook(lambda g: seen.append(g.sum()) or g * 2) if k % 4 == 3 else None,
        y.backward(weft.ones(3, 4)),
        hook and hook.remove(),
        seen,
    ][-1],
    "a hook after accumulation": lambda y, w, k: [
        seen := [],
        hook := w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum())) if k % 4 == 3 else None,
        y.backward(weft.ones(3, 4)),
        hook and hook.remove(),
        seen,
    ][-1],
    "a wrong shape": lambda y, w, k: error_of(y.backward, weft.ones(3)) if k % 2 else y.backward(weft.ones(3, 4)),
}


@pytest.mark.parametrize("do", BACKWARDS.values(), ids=BACKWARDS)
def test_a_backward_in_whatever_way(do):
    def scenario(compile):
        f, w, seen = compile(hidden), leaf(4, 4), []
        for k in range(N_CALLS):
            if k % 5 == 4:
                w.grad = None
            seen.append(do(f(weft.randn(3, 4), w), w, k))
            seen += [None if w.grad is None else w.grad.clone(), w.grad is not None and w.grad._version]
        return seen

    assert_same(scenario)


@twin
def test_numbers_and_large_gradients(compile):
    f, w, seen = compile(lambda x, w, scale: ((x * w) * scale).exp().sum()), leaf(80, 80), []
    for k in range(N_CALLS):
        w.grad = None
        f(weft.randn(80, 80), w, 0.1 * k).backward()
        seen.append(w.grad)
    return seen


@twin
def test_one_leaf_twice_and_leaves_that_are_arguments(compile):
    f, seen = compile(lambda a, b, c: (a * b).sin().sum() + (b * c).sum()), []
    for k in range(N_CALLS):
        a, b = leaf(3), leaf(3)
        f(a, b, a if k % 3 == 2 else b).backward()
        seen += [a.grad, b.grad]
    return seen


@twin
def test_some_of_several_results(compile):
    f, w, seen = compile(lambda x, w: (hidden(x, w).sum(), (x * w).sum())), leaf(4, 4), []
    for k in range(N_CALLS):
        first, second = f(weft.randn(4, 4), w)
        if k % 3 == 0:
            weft.autograd.backward([first, second])
        elif k % 3 == 1:
            weft.autograd.backward((second, first), (weft.tensor(2.0), None))
        else:
            first.backward(retain_graph=True)
            seen += [error_of(second.backward), error_of(first.backward)]
        seen.append(w.grad.clone())
    return seen
