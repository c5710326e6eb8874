"""What compiled functions whose Python need not run (frontend/whole_calls.py) must not leave out: effects of their own,
values that Python sees, and modes around a call."""

import gc
import types
from dataclasses import dataclass

import numpy as np
import pytest
from whole_parts import N, check, of_a_loop, runs, same, settled

import weft
from weft import nn
from weft.nn import functional as F
from weft.runtime.replay.native import native_code_is_used

pytestmark = pytest.mark.skipif(not native_code_is_used(), reason="native code is not used")


# --- what has effects of its own runs every time ----------------------------------------------------------------------
@dataclass
class Counter:
    n: int = 0


def effects():
    seen, counter, total, calls = [], Counter(), weft.zeros(2), iter(range(10**6))

    def appends(x):
        seen.append(1)
        return x + 1

    def assigns(x):
        counter.n += 1
        return x + counter.n

    def changes(x):
        total.add_(x)
        return total * 1

    def draws(x):
        return x + weft.rand(2)

    def reads(x):
        return x * 2 if x.sum() > 0 else x

    def takes_the_next(x):
        return x + next(calls)

    def changes_what_it_is_given(x, log=seen):
        log.append(len(log))
        return x * len(log)

    return [appends, assigns, changes, draws, reads, takes_the_next, changes_what_it_is_given]


@pytest.mark.parametrize("k", range(7))
def test_effects(k):
    found = []
    for compiles in (True, False):
        weft.manual_seed(3)
        function = effects()[k]
        function = weft.compile(function) if compiles else function
        found.append([function(weft.full((2,), float(n % 3 - 1))).tolist() for n in range(40)])
    assert found[0] == found[1]


def test_printing_and_warning_every_time(capsys):
    def f(x):
        print("called")
        return x + 1

    settled(f, weft.ones(2))
    assert capsys.readouterr().out == "called\n" * N
    compiled = weft.compile(lambda x, y: F.mse_loss(x, y))
    for _ in range(N):
        with pytest.warns(UserWarning, match="different to the input size"):
            compiled(weft.ones(4, 2), weft.ones(1, 2))


def test_containers_given_that_the_function_changes():
    def f(state, log):
        state["h"] = state["h"] + 1
        log.append(state["h"])
        return state["h"] * 2

    compiled = weft.compile(f)
    state, log = {"h": weft.zeros(2)}, []
    for k in range(20):
        assert compiled(state, log).tolist() == [2.0 * k + 2] * 2
        assert len(log) == 1
        log.clear()
    assert state["h"].tolist() == [20, 20]


def test_which_object_an_argument_is():
    w = weft.ones(2)

    def f(x, y):
        return x + 1 if x is y else x * 5

    compiled = settled(f, weft.ones(2), weft.ones(2))
    for x, y in ((w, w), (w, weft.ones(2)), (weft.ones(2), w)):
        check(compiled, x, y)
    g = settled(lambda x: x + 1 if x is w else x * 5, weft.ones(2))
    check(g, w)
    check(g, weft.ones(2))


def test_finalizers_and_callbacks_of_the_garbage_collector():
    x = weft.ones(4)
    f = settled(of_a_loop, x)
    seen = []

    def looks(phase, info):
        seen.append(float((weft.ones(2) + 1).sum()))

    gc.callbacks.append(looks)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(50):
            check(f, weft.randn(4))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(looks)
    assert seen and set(seen) == {4.0}


def test_objects_whose_classes_do_more():
    class Lazy:
        def __getattr__(self, name):
            return weft.rand(1)

    lazy = Lazy()
    weft.manual_seed(0)
    f = weft.compile(lambda x: x + lazy.weight)
    assert len({f(weft.zeros(1)).item() for _ in range(N)}) == N
    space = types.SimpleNamespace(scale=2.0)
    g = weft.compile(lambda x: x * space.scale)
    for k in range(20):
        space.scale = float(k // 5)
        assert g(weft.ones(1)).item() == k // 5


# --- values that Python sees ------------------------------------------------------------------------------------------
READS = {
    "float": lambda x: x * float(x[0]),
    "item": lambda x: x * x[1].item(),
    "a condition": lambda x: x * 2 if x[0] > 1 else x,
    "a condition of an argument": lambda x: x * 2 if x.sum() else x,
    "numpy": lambda x: x + float(x.numpy()[0]),
    "an array": lambda x: x + float(np.asarray(x).sum()),
    "tolist": lambda x: x + sum(x.tolist()),
    "a number of turns": lambda x: sum([x] * int(x[0])),
    "a shape": lambda x: weft.ones(int(x[0]) + 1) * x[1],
    "an index": lambda x: x[int(x[0])],
    "an index that is a tensor": lambda x: x[x[0].long()],
    "iterated": lambda x: sum(2.0 * float(v) for v in x) + x,
    "contained": lambda x: x * (1 if 2.0 in x else 3),
    "equal": lambda x: x * (2 if weft.equal(x, weft.ones(3)) else 3),
    "allclose": lambda x: x * (2 if weft.allclose(x, weft.ones(3)) else 3),
    "nonzero": lambda x: weft.nonzero(x - 1).float(),
    "a mask": lambda x: x[x > 1],
    "repeat": lambda x: x.repeat_interleave(x.long()),
    "format": lambda x: x * len(f"{x[0]:.0f}"),
    "text": lambda x: x * len(str(x)),
    "version": lambda x: x * (x._version + 1),
    "offset": lambda x: x * (x.storage_offset() + 1),
    "rounded": lambda x: x * round(float(x[0])),
    "sorted": lambda x: sorted([x[0], x[1]], key=float)[0] + x,
    "the largest": lambda x: max(x[0], x[1]) + x,
    "a slice": lambda x: x[: int(x[0])],
    "all": lambda x: x * (2 if all(x > 0) else 3),
}


@pytest.mark.parametrize("name", READS)
def test_values_that_are_read(name):
    function = READS[name]
    compiled, data = weft.compile(function), weft.tensor([[1.0, 1, 1], [2, 1, 0], [1, 2, 2], [2, 2, 1], [0, 1, 2]])
    for k in range(40):
        x = data[k % 3] if k < 25 else data[k % 5]
        same(compiled(x), function(x))
        same(compiled(x.clone()), function(x.clone()))


def test_modes_around_a_call():
    f, x = settled(lambda x: (x @ x).sin(), weft.ones(2, 2)), weft.ones(2, 2)
    assert not runs(f, x)
    same(f(nn.Parameter(x)), f.function(nn.Parameter(x)))
    with weft.autocast("cpu", dtype=weft.bfloat16):
        check(f, x)
    with weft.inference_mode():
        check(f, x)
    with weft.autograd.detect_anomaly(check_nan=False):
        check(f, x.clone().requires_grad_())
    kept = []
    with weft.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        f(x.clone().requires_grad_()).sum().backward()
    assert kept
    assert weft.func.vmap(f)(weft.ones(3, 2, 2)).shape == (3, 2, 2)
    value, tangent = weft.func.jvp(f, (x,), (x,))
    same((value, tangent), weft.func.jvp(f.function, (x,), (x,)))
    same(weft.func.grad(lambda x: f(x).sum())(x), weft.func.grad(lambda x: f.function(x).sum())(x))
