"""Compiled functions called in compiled calls: part of the call around them, not counted, not timed, no detour."""

import sys
import threading

import pytest
from compiled_twin import assert_same, leaf

import weft
from weft import contest
from weft.runtime.replay.native import native_code_is_used


def functions_called(call):
    """The files of the Python functions that run in a call."""
    seen = []
    sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def settled(compiled, *args, n=8):
    for _ in range(n):
        compiled(*args)


@pytest.mark.parametrize("alone", [False, True], ids=["only inside", "alone before"])
def test_what_is_called_inside_is_neither_counted_nor_timed(alone):
    inner = weft.compile(lambda a, b: a.tanh() * b)
    outer = weft.compile(lambda a, b: inner(a, b) + inner(b, a))
    a, b = weft.randn(3, 3), weft.randn(3, 3)
    if alone:
        settled(inner, a, b)
    left, calls = inner._n_left.value, [one.calls for one in inner.recordings]
    for _ in range(30):
        assert outer(a, b).tolist() == (a.tanh() * b + b.tanh() * a).tolist()
    assert inner._n_left.value == left and [one.calls for one in inner.recordings] == calls
    assert inner(a, b).tolist() == (a.tanh() * b).tolist() and inner._n_left.value == left - 1


@pytest.mark.parametrize("n_left", [0, 1, 100])
def test_it_goes_from_the_call_around_it_to_its_own_function(n_left):
    inner = weft.compile(lambda x: x * 3 if print else x)  # print may do anything: its Python runs
    outer = weft.compile(lambda x: inner(x) + inner(x))
    x = weft.randn(4)
    settled(inner, x)
    settled(outer, x)
    inner._n_left.value = n_left
    files = functions_called(lambda: outer(x))
    assert files.count(__file__) >= 3
    assert not native_code_is_used() or not any(file.endswith("frontend/compiled.py") for file in files)


def test_models_losses_and_recursion():
    def scenario(compile):
        weft.manual_seed(1)
        model = compile(weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.Tanh(), weft.nn.Linear(4, 1)))
        loss_of = compile(lambda found, y: ((found - y) ** 2).mean())
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

        @compile
        def power(x, n):
            return x if n == 0 else x * power(x, n - 1)

        @compile
        def step(x, y):
            optimizer.zero_grad()
            loss = loss_of(model(x), y) + power(y, 2).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        for k in range(12):
            x, y = weft.randn(5, 3), weft.randn(5, 1)
            yield step(x, y)
            if k % 4 == 3:
                yield [model(x), loss_of(model(x), y), power(x, 3)]
        yield list(model.parameters())

    assert_same(scenario)


def test_one_that_fails_and_one_that_reads_a_value():
    def scenario(compile):
        @compile
        def inner(x, limit):
            if x.sum() > limit:
                raise ValueError("too much")
            return x * 2

        @compile
        def outer(x, limit):
            try:
                return inner(x, limit) + 1
            except ValueError:
                return inner(-x, limit)

        x = weft.ones(3)
        for k in range(20):
            yield outer(x, 10.0 if k % 3 else 1.0)

    assert_same(scenario)


def test_gradients_of_what_is_called_inside():
    def scenario(compile):
        w = leaf(3)
        inner = compile(lambda x: (x * w).tanh())
        outer = compile(lambda x: inner(inner(x)).sum())
        for _ in range(8):
            w.grad = None
            outer(weft.randn(3)).backward()
            yield w

    assert_same(scenario)


def test_in_another_thread_it_is_a_call_of_its_own():
    inner = weft.compile(lambda x: x * 3 + 1)
    seen = []

    def in_thread(x):
        thread = threading.Thread(target=lambda: seen.append(inner(x).tolist()))
        thread.start()
        thread.join()

    given = weft.ones(2)

    @weft.compile
    def outer(x):
        y = inner(x)
        in_thread(given)
        return y + inner(y)

    settled(inner, given)
    calls = inner.recordings[0].calls
    for _ in range(8):
        assert outer(weft.ones(2)).tolist() == [17.0, 17.0]
    assert seen == [[4.0, 4.0]] * 8
    assert inner.recordings[0].calls == calls + 8


def test_a_trial_that_is_due_waits_for_a_call_of_its_own(monkeypatch):
    outer = weft.compile(lambda x: inner(x) + 1)
    monkeypatch.setattr(contest, "AFTER", 20)
    inner, x = weft.compile(lambda x: x * 3), weft.ones(2)
    for _ in range(60):
        outer(x)
    assert inner._contest._n_tried == 0 and inner._n_left.value + inner._n_besides == 20
    for _ in range(60):
        assert inner(x).tolist() == [3.0, 3.0]
    assert inner._contest.seconds
