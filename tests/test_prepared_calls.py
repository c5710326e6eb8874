"""Calls on arrays that go to their program at once: as long as nothing that the function reads has changed."""

import functools
import gc
import math
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import optimize

import weft
from weft.nn import functional as F
from weft.runtime.replay.native import native_code_is_used

SCALE = 2.0
TABLE = weft.tensor([1.0, 2.0, 3.0], dtype=weft.float64)
weights = [1.0, 2.0, 3.0]


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def prepared(function, *args, calls=9, **kwargs):
    """The function, after calls that make it go to its program at once."""
    for _ in range(calls):
        function(*args, **kwargs)
    return function


def is_prepared(function):
    """Whether it is said so; without native code no calls are, and that is what is said."""
    said = "go to their program at once" if native_code_is_used() else "native code is not used"
    return said in function.explain()


def by_tensors(function, x, *args):
    x = weft.tensor(x, requires_grad=True)
    value = function(x, *[weft.tensor(a) if isinstance(a, np.ndarray) else a for a in args])
    return value.item(), weft.autograd.grad(value, x)[0].numpy()


def same_as_tensors(both, function, x, *args):
    value, gradient = both(x, *args)
    expected, expected_gradient = by_tensors(function, x, *args)
    return type(value) is float and value == expected and gradient.tobytes() == expected_gradient.tobytes()


def points(n, size=3, seed=3):
    return list(np.random.default_rng(seed).normal(size=(n, size)))


# --- the same bits ----------------------------------------------------------------------------------------------------
def with_softplus(x):
    return F.softplus(x * SCALE).sum() + weft.logsumexp(TABLE * x, 0) + 0.5 * x.numel() * math.log(2 * math.pi)


def helper(x, k=3):
    return x**k


def with_helper(x):
    rows = [helper(x[i], k=i + 1) for i in range(len(x))]
    return sum(rows) + weft.stack(rows).prod()


def with_local_change(x):
    out = weft.zeros(3, dtype=weft.float64)
    out[1] = x[0] * x[2]
    return (out + x).square().sum()


def with_inner(x):
    def scaled(y):
        return y * x.sum()

    return (lambda y: scaled(y).mean())(x.exp())


FUNCTIONS = [rosenbrock, with_softplus, with_helper, with_local_change, with_inner]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_bits_of_an_ordinary_call(function):
    both, product = weft.value_and_grad(function), weft.hvp(function)
    second = weft.hessian(function)
    first = [(both(x), product(x, x[::-1]), second(x)) for x in points(20)]
    assert is_prepared(both) and is_prepared(product) and is_prepared(second)
    for x, ((value, gradient), along, matrix) in zip(points(20), first):
        assert same_as_tensors(both, function, x)
        assert both(x)[0] == value and both(x)[1].tobytes() == gradient.tobytes()
        assert product(x, x[::-1]).tobytes() == along.tobytes() and second(x).tobytes() == matrix.tobytes()


def test_data_as_arguments():
    def loss(x, a, b, penalty, power=2):
        return ((a @ x - b) ** power).sum() + penalty * (x**2).sum()

    rng = np.random.default_rng(0)
    a, b, both = rng.normal(size=(50, 3)), rng.normal(size=50), weft.value_and_grad(loss)
    for x in points(20):
        assert same_as_tensors(both, loss, x, a, b, 0.5)
    assert is_prepared(both)
    a[:], b[3] = a * 2, 7.0
    assert same_as_tensors(both, loss, points(1)[0], a, b, 0.5)
    for penalty in (0.25, 1, True, 0.5, -0.0):
        assert same_as_tensors(both, loss, points(1)[0], a, b, penalty)
    for power in (2, 2.0, 3):
        value, _ = both(points(1)[0], a, b, 0.5, power=power)
        assert value == by_tensors(functools.partial(loss, power=power), points(1)[0], a, b, 0.5)[0]


def test_scipy_and_a_sampler():
    both = prepared(weft.value_and_grad(rosenbrock), np.zeros(4))
    for method in ("BFGS", "L-BFGS-B", "CG"):
        found = optimize.minimize(both, np.full(4, 0.5), jac=True, method=method)
        np.testing.assert_allclose(found.x, np.ones(4), atol=1e-3)
    gradient = weft.grad(lambda chains: -0.5 * (chains**2).sum())
    position, momentum = np.ones((10, 3)), np.zeros((10, 3))
    for _ in range(50):
        momentum += 0.05 * gradient(position)
        position += 0.1 * momentum
        momentum += 0.05 * gradient(position)
    assert is_prepared(gradient)
    np.testing.assert_allclose(0.5 * (position**2 + momentum**2), 0.5, atol=1e-2)


def test_tensors_as_arguments_are_read_where_they_are():
    both = weft.value_and_grad(lambda x, a: (a @ x).square().sum())
    for a in (weft.eye(3, dtype=weft.float64), weft.ones(3, 3, dtype=weft.float64)):
        for x in points(10):
            assert both(x, a)[0] == ((a @ weft.tensor(x)) ** 2).sum().item()
    assert is_prepared(both)
    a.mul_(2)
    assert both(np.ones(3), a)[0] == 108.0
    assert both(np.ones(3), a.T)[0] == 108.0 and both(np.ones(3), a[:, :1].expand(3, 3))[0] == 108.0
    a.requires_grad_()
    assert both(np.ones(3), a)[0] == 108.0


# --- other arguments --------------------------------------------------------------------------------------------------
def of_any_kind():
    wide = np.arange(12.0).reshape(4, 3)
    yield from (
        wide[1],
        wide[:, 1],
        wide[:3, 0],
        wide[1][::-1],
        wide,
        np.float64(3),
        3,
        2.5,
        [1, 2, 3],
        [1.0, 2.0, 3.0],
    )
    yield from ((1.0, 2.0, 3.0), np.array([1, 2, 3]), np.ones(3, np.float32), np.ones(3, ">f8"), np.ones((0,)))
    yield from (np.ones((3, 1)), np.asfortranarray(wide), np.ones(3, bool), np.matrix([1.0, 2.0, 3.0]), np.ones(()))
    frozen = np.array([1.0, 2.0, 3.0])
    frozen.flags.writeable = False
    unaligned = np.frombuffer(b"\0" + frozen.tobytes(), np.float64, offset=1)
    yield from (frozen, unaligned, np.ma.masked_array(frozen))


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_arguments_of_another_kind():
    def f(x):
        return (x**3).sum()

    both = prepared(weft.value_and_grad(f), np.ones(3))
    assert is_prepared(both)
    for _ in range(4):
        for given in of_any_kind():
            array = np.asarray(given)
            array = array if array.dtype == np.float32 else array.astype(np.float64)
            value, gradient = both(given)
            expected, expected_gradient = by_tensors(f, np.array(array))
            assert value == expected and np.array_equal(gradient, expected_gradient)
            assert gradient.dtype == expected_gradient.dtype and gradient.shape == expected_gradient.shape


def test_what_is_refused_stays_refused():
    both = prepared(weft.value_and_grad(rosenbrock), np.ones(3))
    for wrong in (weft.ones(3), ["a"], None, np.ones(3, complex)):
        with pytest.raises(TypeError, match="value_and_grad: expected an array"):
            both(wrong)
    with pytest.raises(TypeError):
        both(np.ones(3), 1)
    with pytest.raises(ValueError, match="argnums is 0, but 0"):
        both()
    assert both(np.ones(3))[0] == 0


# --- results ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [3, 5000])
def test_results_are_the_callers(size):
    both = weft.value_and_grad(lambda x, y: ((x + y) ** 2).sum() + x[0], (0, 1))
    kept = [both(np.full(size, float(k)), np.zeros(size)) for k in range(24)]
    assert is_prepared(both)
    for k, (value, (dx, dy)) in enumerate(kept):
        assert value == size * k * k + k and dx[0] == 2 * k + 1
        assert np.array_equal(dx[1:], np.full(size - 1, 2.0 * k)) and np.array_equal(dy, np.full(size, 2.0 * k))
        dx[:] = dy[:] = np.nan
    value, (dx, dy) = both(np.ones(size), np.zeros(size))
    assert dx.flags.writeable and not np.shares_memory(dx, dy) and dx[0] == 3 and dy[0] == 2


def test_gradients_that_are_the_same_tensor_are_two_arrays():
    both = prepared(weft.value_and_grad(lambda x, y: (x + y).exp().sum(), (0, 1)), np.ones(3), np.ones(3))
    _, (dx, dy) = both(np.zeros(3), np.zeros(3))
    dx[:] = 7
    assert np.array_equal(dy, np.ones(3))


def test_what_is_given_is_not_kept():
    both, x = prepared(weft.value_and_grad(rosenbrock), np.ones(3)), np.zeros(3)
    before = sys.getrefcount(x)
    results = [both(x) for _ in range(5)]
    assert sys.getrefcount(x) == before
    x[:] = 5
    assert all(np.array_equal(gradient, [-2, -2, 0]) for _, gradient in results)


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


def test_a_global_that_changes(monkeypatch):
    both, x = prepared(weft.value_and_grad(with_softplus), np.ones(3)), np.ones(3)
    here = sys.modules[__name__]
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
    monkeypatch.setattr(sys.modules[__name__], "helper", lambda x, k: x * k)
    assert same_as_tensors(both, with_helper, x)
    monkeypatch.undo()
    monkeypatch.setattr(helper, "__code__", (lambda x, k=3: x + k).__code__)
    assert same_as_tensors(both, with_helper, x)
    monkeypatch.undo()
    prepared(both, x, calls=150)
    monkeypatch.setattr(helper, "__defaults__", (5,))
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

    @property
    def first(self):
        return len(seen)


seen, ROW, TALLY = [], Row(1.0, 2.0), Counter(a=1)


def reads_item(x):
    return x.sum() * ROW[1]


def reads_property(x):
    return x.sum() * ROW.first


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
IMPURE = [counts, counts_by_global, reads_list, reads_clock, draws, reads_number, reads_number_of_one, prints]
IMPURE += [reads_item, reads_property, tallies]


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
    array = np.ones(3)
    both = prepared(weft.value_and_grad(lambda x: (x * weft.tensor(array)).sum()), np.ones(3))
    assert "array is a NumPy array, which may change unseen" in both.explain()
    array[:] = 2
    assert both(np.ones(3))[0] == 6.0


# --- around the calls -------------------------------------------------------------------------------------------------
def test_whatever_the_mode():
    both, x = prepared(weft.value_and_grad(with_softplus), np.ones(3)), np.ones(3)
    expected = both(x)
    for mode in (weft.no_grad, weft.inference_mode, weft.enable_grad):
        with mode():
            value, gradient = both(x)
            assert value == expected[0] and np.array_equal(gradient, expected[1])
    with weft.autocast("cpu", dtype=weft.bfloat16):
        both(x)
    before = weft.get_default_dtype()
    try:
        weft.set_default_dtype(weft.float64)
        assert same_as_tensors(both, with_softplus, x)
    finally:
        weft.set_default_dtype(before)


def test_a_function_that_raises():
    def f(x, limit):
        if x.numel() > limit:
            raise OverflowError(f"more than {limit}")
        return x.sum()

    both = prepared(weft.value_and_grad(f), np.ones(3), 5)
    assert is_prepared(both)
    for _ in range(10):
        with pytest.raises(OverflowError, match="more than 5"):
            both(np.ones(6), 5)
        with pytest.raises(OverflowError, match="more than 2"):
            both(np.ones(3), 2)
        assert both(np.ones(3), 5)[0] == 3.0


def test_an_index_that_is_out_of_range():
    both = prepared(weft.value_and_grad(lambda x, at: x[at].sum()), np.ones(3), np.array([0, 1]))
    for _ in range(3):
        with pytest.raises(IndexError):
            both(np.ones(3), np.array([0, 3]))
        assert np.array_equal(both(np.ones(3), np.array([2, 2]))[1], [0, 0, 2])


def test_calls_within_calls_and_compiled_functions():
    inner = prepared(weft.value_and_grad(rosenbrock), np.zeros(2))

    def outer(x):
        value, gradient = inner(np.array([1.0, 2.0]))
        return (x * value).sum() + gradient[0]

    both = weft.value_and_grad(outer)
    for _ in range(12):
        assert both(np.ones(2))[0] == -200.0
    step = weft.compile(lambda x: x * inner(np.array([1.0, 2.0]))[0])
    assert all(step(weft.ones(1)).item() == 100.0 for _ in range(6))


def test_threads():
    both, failures = prepared(weft.value_and_grad(lambda x, k: (k * x * x).sum()), np.ones(3), 1.0), []

    def work(k):
        for _ in range(300):
            value, gradient = both(np.full(3, k), 1.0)
            if value != 3 * k * k or not np.array_equal(gradient, np.full(3, 2 * k)):
                failures.append(k)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(float(k),)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures


def test_a_debugger_sees_the_function_run():
    both, seen = prepared(weft.value_and_grad(rosenbrock), np.ones(3)), []
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: seen.append(frame.f_code))
    try:
        both(np.ones(3))
    finally:
        sys.settrace(before)
    assert rosenbrock.__code__ in seen


def test_memory_stays_flat():
    both = prepared(weft.value_and_grad(with_softplus), np.ones(3))
    gc.collect()
    n, x = len(gc.get_objects()), np.ones(3)
    before = sys.getrefcount(None), sys.getrefcount(np.dtype(float))
    for _ in range(2000):
        both(x)
    gc.collect()
    assert len(gc.get_objects()) - n < 50
    after = sys.getrefcount(None), sys.getrefcount(np.dtype(float))
    assert all(abs(a - b) < 200 for a, b in zip(after, before))
