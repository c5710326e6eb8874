"""Compiled functions whose Python need not run (frontend/whole_calls.py): that it does not, that it does again as soon
as anything it reads has changed, and that whatever has effects of its own runs every time."""

import gc
import sys

import numpy as np
import pytest
from whole_parts import N, check, of_a_loop, runs, settled

import weft
from weft import nn
from weft.nn import functional as F
from weft.runtime.replay.native import native_code_is_used

pytestmark = pytest.mark.skipif(not native_code_is_used(), reason="native code is not used")
SCALE = 3.0
WEIGHTS = {"a": weft.arange(4.0), "b": [weft.ones(4), 2]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x):
        return self.last(F.relu(self.first(x)))


class Spring:
    def __init__(self):
        self.stiffness, self.rest = weft.tensor(2.0), 0.5

    @property
    def twice(self):
        return self.stiffness * 2

    def energy(self, x):
        return (self.twice * (x - self.rest) ** 2).sum()


def of_globals(x):
    return x * SCALE + WEIGHTS["a"] * WEIGHTS["b"][1]


def keywords(x, *, scale=2.0, flag=None):
    return x * scale if flag is None else -x


def given_back(x):
    return x, x + 1, None, "text", 1.5


def checked(x):
    if x.ndim != 1:
        raise ValueError(f"expected a vector, got {tuple(x.shape)}")
    if not isinstance(x, weft.Tensor) or x.dtype is not weft.float32:
        return x
    return x.exp()


FUNCTIONS = [of_globals, of_a_loop, keywords, given_back, checked, lambda x: (x.T, x[None], x.view(2, 2))]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions(function):
    f, x = settled(function, weft.randn(4)), weft.randn(4)
    assert not runs(f, x)
    for _ in range(3):
        check(f, weft.randn(4))


def test_methods_and_models():
    spring, model = Spring(), Model()
    for compiled in (weft.compile(spring.energy), weft.compile(model), weft.compile(lambda x: spring.energy(model(x)))):
        for _ in range(N):
            compiled(weft.randn(3, 4))
        assert not runs(compiled, weft.randn(3, 4))
        check(compiled, weft.randn(3, 4))


def test_a_method_that_is_compiled_in_its_class():
    class Filter:
        def __init__(self, gain):
            self.gain = gain

        @weft.compile
        def update(self, x):
            return x * self.gain

    one, other, x = Filter(2.0), Filter(3.0), weft.ones(2)
    for _ in range(N):
        assert one.update(x).tolist() == [2, 2]
    for _ in range(N):
        assert (one.update(x) + other.update(x)).tolist() == [5, 5]
    one.gain = 4.0
    assert one.update(x).tolist() == [4, 4] and other.update(x).tolist() == [3, 3]


def test_compiled_functions_within():
    inner = weft.compile(lambda x: x * SCALE)
    outer = settled(lambda x: inner(x) + inner(x + 1), weft.ones(3))
    assert not runs(outer, weft.ones(3))
    check(outer, weft.randn(3))


def test_explain_says_so():
    f = settled(of_globals, weft.ones(4))
    assert "calls are taken without running its Python" in f.explain()
    g = settled(lambda x: x * len(repr(open)), weft.ones(4))
    assert "its Python runs in every call: it uses repr, which may do anything" in g.explain()


def test_arguments_in_containers():
    def total(state, pair, *rest, scale=1):
        return {"sum": state["x"] + pair[0] * pair[1] * scale, "rest": list(rest)}

    def given(k):
        return {"x": weft.full((3,), float(k)), "name": "run"}, (weft.ones(3), 2), weft.zeros(1)

    f = settled(total, *given(1), scale=3)
    assert not runs(f, *given(2), scale=3)
    for k in range(4):
        check(f, *given(k), scale=3)
        check(f, *given(k), scale=k)
        check(f, *given(k))


def test_whole_calls_on_other_interpreter_states():
    f = settled(of_globals, weft.ones(4))
    with weft.no_grad():
        for _ in range(N):
            check(f, weft.randn(4))
    check(f, weft.randn(4))
    check(f, weft.randn(4).double())
    check(f, weft.randn(2, 4))
    check(f, weft.randn(4, requires_grad=True))


# --- that it runs again when what it reads is another -----------------------------------------------------------------
def test_globals_and_closures_that_are_assigned(monkeypatch):
    offset = 1.0

    def f(x):
        return x * SCALE + offset

    compiled = settled(f, weft.ones(2))
    assert not runs(compiled, weft.ones(2))
    offset = 2.0
    check(compiled, weft.ones(2))
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 5.0)
    check(compiled, weft.ones(2))


def test_containers_and_arrays_that_are_changed_in_place():
    table, names, array = {"scale": 2.0}, ["a"], np.array([1.0, 2.0], np.float32)

    def f(x):
        return x * table["scale"] * len(names) + float(array[0])

    compiled = settled(f, weft.ones(2))
    assert not runs(compiled, weft.ones(2))
    for change in (lambda: table.update(scale=3.0), lambda: names.append("b"), lambda: array.fill(7.0)):
        change()
        check(compiled, weft.ones(2))


def test_weights_that_are_replaced_or_written():
    model = Model()
    compiled, x = settled(model, weft.randn(3, 4)), weft.randn(3, 4)
    assert not runs(compiled, x)
    with weft.no_grad():
        model.first.weight.mul_(2)
    check(compiled, x)
    model.last.bias.data = weft.ones(2)
    check(compiled, x)
    model.first = nn.Linear(4, 5)
    check(compiled, x)
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})
    check(compiled, x)
    for p in model.parameters():
        p.requires_grad_(False)
    check(compiled, x)
    model.double()
    check(compiled, x.double())


def test_models_that_go_from_training_to_evaluation():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
    compiled, x = settled(model, weft.randn(3, 4)), weft.randn(3, 4)
    assert not runs(compiled, x)
    check(compiled, x)
    model.train()
    weft.manual_seed(1)
    given = compiled(x)
    means = model[1].running_mean.clone()
    model.eval()
    check(compiled, x)
    assert given.requires_grad and means.abs().sum() > 0


def test_hooks_of_layers_that_come_later():
    model, seen = Model(), []
    compiled, x = settled(model, weft.randn(3, 4)), weft.randn(3, 4)
    handle = model.first.register_forward_hook(lambda *_: seen.append(1))
    compiled(x)
    assert seen == [1]
    handle.remove()
    compiled(x)
    assert seen == [1]


def test_functions_classes_and_attributes_that_are_patched(monkeypatch):
    spring = Spring()
    compiled, x = settled(spring.energy, weft.ones(3)), weft.ones(3)
    assert not runs(compiled, x)
    spring.rest = 0.25
    check(compiled, x)
    monkeypatch.setattr(Spring, "twice", property(lambda self: self.stiffness * 5))
    check(compiled, x)
    compiled = settled(lambda x: weft.exp(x), weft.ones(2))
    monkeypatch.setattr(weft, "exp", weft.sin)
    check(compiled, weft.ones(2))


def test_the_code_of_a_function_that_is_replaced():
    def f(x):
        return helper(x) + 1

    def helper(x):
        return x * 2

    def other(x):
        return x * 3

    compiled = settled(f, weft.ones(2))
    helper.__code__ = other.__code__
    check(compiled, weft.ones(2))


def test_numbers_and_options_that_are_given():
    f = settled(keywords, weft.ones(2), scale=2)
    assert not runs(f, weft.ones(2), scale=2)
    for scale in (2, 2.0, True, 3, -0.0, 0.0, np.float64(2)):
        check(f, weft.full((2,), -1.0), scale=scale)
    check(f, weft.ones(2), scale=2, flag=False)


# --- histories --------------------------------------------------------------------------------------------------------
def test_gradients_outside():
    w, b = weft.randn(4, 4, requires_grad=True), weft.zeros(4, requires_grad=True)

    def loss(x, y):
        h = weft.tanh(x @ w + b)
        return ((h - y) ** 2).mean(), h

    compiled = settled(loss, weft.randn(3, 4), weft.randn(3, 4))
    assert not runs(compiled, weft.randn(3, 4), weft.randn(3, 4))
    for k in range(6):
        x, y, found = weft.randn(3, 4), weft.randn(3, 4), []
        for f in (compiled, loss):
            w.grad = b.grad = None
            value, h = f(x, y)
            if k == 3:
                h.register_hook(lambda g: g * 2)
            value.backward(retain_graph=k == 4)
            if k == 4:
                (h * 2).sum().backward()
            found.append((value.tolist(), w.grad.tolist(), b.grad.tolist(), value.grad_fn is not None))
        assert found[0] == found[1]
        with weft.no_grad():
            w -= 0.1 * w.grad


def test_second_derivatives_outside():
    w = weft.randn(4, requires_grad=True)
    f = settled(lambda x: ((x * w) ** 3).sum(), weft.randn(4))
    x = weft.randn(4)
    found = []
    for g in (f, f.function):
        (first,) = weft.autograd.grad(g(x), w, create_graph=True)
        found.append(weft.autograd.grad(first.sum(), w)[0].tolist())
    assert found[0] == found[1]


def test_arguments_with_histories():
    w = weft.randn(4, requires_grad=True)
    f = settled(lambda x: (x.exp() * w).sum(), (w * 2))
    found = []
    for g in (f, f.function):
        w.grad = None
        g(w * 2).backward()
        found.append(w.grad.tolist())
    assert found[0] == found[1]


# --- results ----------------------------------------------------------------------------------------------------------
def test_containers_of_results_are_the_users():
    f = settled(of_a_loop, weft.ones(4))
    first = f(weft.ones(4))
    first[1]["last"] = None
    first[1]["parts"].append("more")
    second = check(f, weft.ones(4))
    assert len(second[1]["parts"]) == 2 and second[1] is not first[1]


def test_results_that_are_kept_and_changed():
    f = settled(lambda x: (x * 2, x.sum()), weft.ones(3))
    kept = [f(weft.full((3,), float(k))) for k in range(5)]
    assert [double.tolist() for double, _ in kept] == [[2.0 * k] * 3 for k in range(5)]
    kept[0][0].add_(1)
    assert f(weft.ones(3))[0].tolist() == [2, 2, 2] and kept[1][0].tolist() == [2, 2, 2]


def test_arguments_that_are_results_and_views_of_them():
    f, x = settled(lambda x: (x, x[0], x.T), weft.ones(2, 3)), weft.zeros(2, 3)
    assert not runs(f, x)
    back, row, turned = f(x)
    x[0, 1] = 5
    assert back is x and row.tolist() == [0, 5, 0] and turned[1, 0].item() == 5 and row._base is x


def test_one_result_twice_and_one_list_twice():
    def twice(x):
        y = [x + 1]
        return y, y, x * 2

    f = settled(twice, weft.ones(2))
    first, second, _ = f(weft.ones(2))
    assert first is second
    g = settled(lambda x: [(y := x + 1), y], weft.ones(2))
    assert not runs(g, weft.ones(2))
    first, second = g(weft.ones(2))
    assert first is second


def test_a_list_from_outside_as_a_result():
    shared = [1, 2]
    f = settled(lambda x: (x + 1, shared), weft.ones(2))
    assert f(weft.ones(2))[1] is shared


def test_memory_stays_flat():
    f = settled(of_a_loop, weft.ones(4))
    for _ in range(50):
        f(weft.ones(4))
    gc.collect()
    before = len(gc.get_objects())
    counts = [sys.getrefcount(x) for x in (None, True, 4)]
    for _ in range(500):
        f(weft.ones(4))
    gc.collect()
    assert len(gc.get_objects()) - before < 50
    assert all(abs(sys.getrefcount(x) - n) < 100 for x, n in zip((None, True, 4), counts))


def test_arguments_that_do_not_fit_in_the_call_that_would_be_looked_into():
    """It was asked again and again for what its arguments look like."""

    def f(x, *, y, scale=0.5):
        return (x * y).detach(), y

    compiled = weft.compile(f)
    for k in range(60):
        x, y = compiled(weft.ones(3), y=weft.full((3,), float(k)))
        assert x.tolist() == y.tolist() == [k] * 3
        with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
            compiled(x, y)
