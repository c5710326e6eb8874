"""Calls on arrays that go to their program at once: only as long as nothing that the function reads has changed."""

import functools
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import prepared_parts
import pytest
from prepared_parts import is_prepared, prepared, same_as_tensors, with_helper, with_softplus

import weft
from weft.nn import functional as F
from weft.runtime.replay.native import native_code_is_used

SCALE = 2.0
TABLE = weft.tensor([1.0, 2.0, 3.0], dtype=weft.float64)
weights = [1.0, 2.0, 3.0]


# --- what the function reads ------------------------------------------------------------------------------------------
def test_globals_closures_and_tensors_that_change():
    factor, data = 3.0, weft.tensor([1.0, 2.0, 4.0], dtype=weft.float64)

    def f(x):
        return (factor * data * x).sum() * SCALE + TABLE.sum()

    both, x = weft.value_and_grad(f), np.ones(3)
    for _ in range(3):
        prepared(both, x, calls=150)
        assert is_prepared(both) and same_as_tensors(both, f, x)
        data.mul_(2)
        assert same_as_tensors(both, f, x)
        factor += 1
        assert same_as_tensors(both, f, x)
        prepared(both, x, calls=150)
        data = weft.tensor([0.0, 1.0, 5.0], dtype=weft.float64)
        assert same_as_tensors(both, f, x)
        data.requires_grad_()
        assert same_as_tensors(both, f, x)
        data = data.detach()


def test_memory_that_numpy_shows_too():
    array = np.array([1.0, 2.0, 4.0])
    data = weft.from_numpy(array)
    both = weft.value_and_grad(lambda x: (data * x).sum())
    for k in range(20):
        array[0] = k
        assert both(np.ones(3))[0] == k + 6.0


@pytest.mark.parametrize("show", [weft.from_numpy, weft.as_tensor])
def test_arrays_of_numpys_are_read_where_they_are(show):
    """Also when they are written between two calls; with gaps, or in parts, the Python runs."""
    draw = np.random.default_rng(0)
    a, b = draw.standard_normal((30, 4)), draw.standard_normal(30)
    design, target = show(a), show(b)

    def residuals(x):
        r = target - design @ x
        return (r @ r) / 2 + (x * x).sum()

    both, x = weft.value_and_grad(residuals), draw.standard_normal(4)
    prepared(both, x)
    assert is_prepared(both) and same_as_tensors(both, residuals, x)
    for k in range(20):
        a[k] = b[k] = k
        assert same_as_tensors(both, residuals, x)
    assert is_prepared(both)
    columns = np.asfortranarray(a)
    design = weft.from_numpy(columns)
    prepared(both, x, calls=60)
    said = "it reads an array of NumPy's with gaps" if native_code_is_used() else "native code is not used"
    assert same_as_tensors(both, residuals, x) and said in both.explain()
    columns *= 2
    assert same_as_tensors(both, residuals, x)


def test_parts_of_arrays_of_numpys():
    array, x = np.arange(6.0), np.ones(3)
    data = weft.from_numpy(array)

    def f(x):
        return (data[1:4] * x).sum() * data[5]

    both = prepared(weft.value_and_grad(f), x)
    for k in range(30):
        array[2] = k
        assert same_as_tensors(both, f, x)


def test_a_global_that_changes(monkeypatch):
    both, x = prepared(weft.value_and_grad(with_softplus), np.ones(3)), np.ones(3)
    here = prepared_parts
    for name, value in (("SCALE", 3.0), ("SCALE", 2), ("TABLE", weft.ones(3, dtype=weft.float64)), ("math", np)):
        monkeypatch.setattr(here, name, value)
        prepared(both, x, calls=12)
        assert same_as_tensors(both, with_softplus, x)
        if name == "math":
            break
        monkeypatch.undo()
        assert same_as_tensors(both, with_softplus, x)


def test_functions_that_are_replaced(monkeypatch):
    both, x = prepared(weft.value_and_grad(with_helper), np.ones(3)), np.full(3, 2.0)
    monkeypatch.setattr(prepared_parts, "helper", lambda x, k: x * k)
    assert same_as_tensors(both, with_helper, x)
    monkeypatch.undo()
    monkeypatch.setattr(prepared_parts.helper, "__code__", (lambda x, k=3: x + k).__code__)
    assert same_as_tensors(both, with_helper, x)
    monkeypatch.undo()
    prepared(both, x, calls=150)
    monkeypatch.setattr(prepared_parts.helper, "__defaults__", (5,))
    assert same_as_tensors(both, with_helper, x)
    softplus = prepared(weft.value_and_grad(with_softplus), np.ones(3))
    monkeypatch.setattr(F, "softplus", lambda x: x * 7)
    assert same_as_tensors(softplus, with_softplus, x)


def test_a_method_of_tensors_that_is_replaced(monkeypatch):
    def f(x):
        return x.square().sum()

    both = prepared(weft.value_and_grad(f), np.ones(3))
    monkeypatch.setattr(weft.Tensor, "square", lambda self: self * 3)
    assert both(np.ones(3))[0] == 9.0


@dataclass
class Model:
    data: object
    scale: float = 2.0

    def log_density(self, x):
        return -self.scale * (self.residual(x) ** 2).sum()

    def residual(self, x):
        return x - self.data


def test_methods_of_objects(monkeypatch):
    model = Model(weft.tensor([1.0, 2.0, 3.0], dtype=weft.float64))
    both, x = prepared(weft.value_and_grad(model.log_density), np.ones(3)), np.zeros(3)
    assert is_prepared(both) and both(x)[0] == -28.0
    model.scale = 1.0
    assert both(x)[0] == -14.0
    model.data = model.data * 2
    assert both(x)[0] == -56.0
    model.residual = lambda x: x
    assert both(x)[0] == 0.0
    del model.residual
    prepared(both, x, calls=150)
    monkeypatch.setattr(Model, "residual", lambda self, x: x + self.data)
    assert both(np.ones(3))[0] == -(9.0 + 25.0 + 49.0)
    partly = functools.partial(lambda k, x: (k * x).sum(), 2.0)
    assert prepared(weft.value_and_grad(partly), x)(np.ones(3))[0] == 6.0


class Scaled:
    def __init__(self, scale):
        self.scale, self.calls = scale, 0

    def __call__(self, x):
        return (x * self.scale).sum()


class Counting(Scaled):
    def __call__(self, x):
        self.calls += 1
        return (x * self.calls).sum()


class Row:
    def __init__(self, *numbers):
        self.numbers = numbers

    def __getitem__(self, k):
        seen.append(k)
        return self.numbers[k]


seen, ROW, TALLY = [], Row(1.0, 2.0), Counter(a=1)


def reads_item(x):
    return x.sum() * ROW[1]


def tallies(x):
    TALLY["a"] += 1
    return x.sum() * TALLY["a"]


def test_objects_that_can_be_called():
    scaled, counting = weft.value_and_grad(Scaled(2.0)), weft.value_and_grad(Counting(2.0))
    prepared(scaled, np.ones(3))
    assert is_prepared(scaled) and scaled(np.full(3, 2.0))[0] == 12.0
    scaled._function.scale = 3
    assert scaled(np.ones(3))[0] == 9.0
    assert [counting(np.ones(3))[0] for _ in range(15)] == [3.0 * k for k in range(1, 16)]


# --- functions that do more than ops ----------------------------------------------------------------------------------
calls = []


def counts(x):
    calls.append(1)
    return x.sum()


def counts_by_global(x):
    global SCALE
    SCALE = SCALE + 1.0
    return x.sum() * SCALE


def reads_list(x):
    return sum(w * x[i] for i, w in enumerate(weights))


def reads_clock(x):
    return x.sum() + time.perf_counter()


def draws(x):
    return (x + weft.rand(3, dtype=weft.float64)).sum()


def reads_number(x):
    return (x * TABLE[0].item()).sum()


def reads_number_of_one(x):
    return (x * float(ONE)).sum()


def reads_argument(x):
    return (x * x[0].item()).sum()


def branches_on_data(x):
    return x.sum() if x[0] > 0 else -x.sum()


def prints(x):
    print("called")
    return x.sum()


ONE = weft.tensor(2.0, dtype=weft.float64)
IMPURE = [counts, counts_by_global, reads_clock, draws, reads_number, reads_number_of_one, prints]
IMPURE += [reads_item, tallies]


@pytest.mark.parametrize("function", [*IMPURE, reads_argument, branches_on_data])
def test_functions_that_have_to_run_every_time(function):
    both = prepared(weft.value_and_grad(function), np.ones(3), calls=20)
    text = both.explain()
    assert "its Python runs in every call:" in text and "at once" not in text


def test_they_do_run(capsys):
    count, clock, draw = map(weft.value_and_grad, (counts, reads_clock, draws))
    listed, number, one = map(weft.value_and_grad, (reads_list, reads_number, reads_number_of_one))
    x, n = np.ones(3), len(calls)
    for k in range(20):
        count(x)
        assert len(calls) == n + k + 1
    assert len({clock(x)[0] for _ in range(12)}) == len({draw(x)[0] for _ in range(12)}) == 12
    for k in range(12):
        weights[0] = float(k)
        TABLE[0] = k
        ONE.fill_(k)
        assert listed(x)[0] == k + 5.0 and number(x)[0] == 3.0 * k and one(x)[0] == 3.0 * k
    weights[0] = TABLE[0] = 1.0
    ONE.fill_(2.0)


def test_why_is_said_with_the_line():
    both = prepared(weft.value_and_grad(prints), np.ones(3))
    line = prints.__code__.co_firstlineno + 1
    if not native_code_is_used():
        assert is_prepared(both)
        return
    assert f"its Python runs in every call: it uses print, which may do anything [{__file__}:{line}]" in both.explain()
    both = prepared(weft.value_and_grad(tallies), np.ones(3))
    assert "TALLY is a Counter, which may change unseen" in both.explain()
    both = prepared(weft.value_and_grad(counts), np.ones(3))
    assert "it changes a list, a dict or an array that is not its own" in both.explain()
