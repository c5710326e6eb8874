"""Weak references to values of compiled calls: they end as in eager mode, and calls with them are replayed."""

import gc
import weakref

import pytest
from compiled_twin import leaf, twin
from test_replayed_hooks import departures

import weft

N_CALLS = 12


def watching(kind):
    """A function that notes a value weakly, in some way, and what tells whether it is still there."""
    if kind == "a reference":
        known = []
        return lambda x: known.append(weakref.ref(x)), lambda: [r() is not None for r in known]
    if kind == "a set":
        known = weakref.WeakSet()
        return lambda x: known.add(_Holder(x)), lambda: len(known)
    if kind == "a dictionary":
        known = weakref.WeakValueDictionary()
        return lambda x: known.update(last=x), lambda: sorted(known)
    ended = []
    return lambda x: weakref.finalize(x, ended.append, "gone"), lambda: len(ended)


class _Holder:
    """Something of the user's that lives as long as a value does."""

    def __init__(self, x):
        self.end = weakref.finalize(x, lambda: None)


KINDS = ["a reference", "a set", "a dictionary", "a finalizer"]
RESULTS = {
    "a result": lambda note, x, w: (y := (x @ w).tanh().sum(), note(y))[0],
    "a value that is dropped": lambda note, x, w: (h := (x @ w).tanh(), note(h))[0].exp().sum(),
    "both": lambda note, x, w: (h := (x @ w).tanh(), note(h), y := h.exp().sum(), note(y))[2],
    "a view": lambda note, x, w: (h := (x @ w).tanh(), v := h[1:], note(v))[1].sum(),
    "a view that is returned": lambda note, x, w: (h := (x @ w).tanh(), v := h[1:], note(v), note(h))[1],
    "read before": lambda note, x, w: (h := (x @ w).detach(), note(h), h.sum().item())[0] * 2,
    "the argument": lambda note, x, w: (note(x), (x @ w).sum())[1],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("made", RESULTS.values(), ids=RESULTS)
def test_they_end_when_the_value_does(made, kind):
    def scenario(compile):
        (note, is_there), w, seen = watching(kind), leaf(4, 4), []
        f = compile(lambda x: made(note, x, w))
        for k in range(N_CALLS):
            y = f(weft.randn(3, 4))
            if k % 2 and y.requires_grad:
                y.sum().backward()
                seen.append(w.grad.clone())
            seen.append(y.detach().clone())
            del y
            seen.append(is_there())
        gc.collect()
        return [*seen, is_there()]

    twin(scenario)()


@pytest.mark.parametrize("name", ["a result", "a value that is dropped", "both", "a view"])
def test_such_calls_are_replayed(name, monkeypatch):
    (note, _), w = watching("a reference"), leaf(4, 4)
    f = weft.compile(lambda x: RESULTS[name](note, x, w))
    assert departures(lambda: f(weft.randn(3, 4)), monkeypatch) == 0 and f.recordings[0].replays


@twin
def test_what_a_reference_gives_is_held(compile):
    """A value that was watched by a call is no value of the next one."""
    w, known, kept = leaf(4, 4), [], []

    @compile
    def f(x):
        h = (x @ w).tanh()
        known.append(weakref.ref(h))
        if len(known) % 3 == 0:
            kept.append(known[-1]())
        return h.exp().sum()

    seen = [f(weft.randn(3, 4)) for _ in range(2 * N_CALLS)]
    return [*seen, *kept, [r() is not None for r in known]]


@twin
def test_a_callback_that_calls_the_function_again(compile):
    w, seen, depth = leaf(4, 4), [], []

    def again(_):
        if not depth:
            depth.append(None)
            seen.append(f(weft.ones(3, 4)).item())
            depth.pop()

    @compile
    def f(x):
        h = (x @ w).tanh()
        seen.append(weakref.ref(h, again))
        return h.exp().sum()

    found = [f(weft.full((3, 4), 0.1 * k)) for k in range(N_CALLS)]
    return [*found, *sorted(x for x in seen if isinstance(x, float))]
