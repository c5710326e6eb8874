"""Calls on arrays that go to their program at once: the same bits, whatever is given, and results of their own."""

import functools
import gc
import sys
import threading

import numpy as np
import pytest
from prepared_parts import (
    by_tensors,
    is_prepared,
    points,
    prepared,
    rosenbrock,
    same_as_tensors,
    with_helper,
    with_softplus,
)
from scipy import optimize

import weft


# --- the same bits ----------------------------------------------------------------------------------------------------
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


def weighted(x, data, scale=1.0):
    return ((data * x).sin() * scale).sum() + data.square().mean()


@pytest.mark.parametrize("part", [slice(1, 4), slice(None), 2, slice(0, 1)])
def test_parts_of_shown_memory_as_arguments(part):
    """Batches of an array: tensors of memory that NumPy shows too, others in every call."""
    array = np.random.default_rng(0).normal(size=(6, 3))
    data = weft.from_numpy(array)
    both = weft.value_and_grad(weighted)
    for x in points(12):
        both(x, data[part])
    assert is_prepared(both)
    for k, x in enumerate(points(6, seed=5)):
        array[:] += k  # unseen by weft
        assert same_as_tensors(both, weighted, x, data[part])
        assert same_as_tensors(both, weighted, x, data[part].clone())
        assert same_as_tensors(both, weighted, x, array[part])
        assert same_as_tensors(both, weighted, x, data[part], 0.5)
        other = weft.from_numpy(array[::-1].copy())[part]
        assert same_as_tensors(both, weighted, x, other)
    assert both(points(1)[0], data[1:3])[0] == weighted(weft.tensor(points(1)[0]), data[1:3]).item()


def test_one_part_of_shown_memory_in_two_places():
    """What was read in place of one argument is not what another one was read by."""
    array = np.random.default_rng(0).normal(size=(6, 3))
    data = weft.from_numpy(array)
    first = data[1:3]

    def product(x, a, b):
        return (a * x).exp().sum() + (b * 3).sin().sum()

    def with_outside(x, a):
        return (a * x).exp().sum() + (first * 3).sin().sum()

    both, outside = weft.value_and_grad(product), weft.value_and_grad(with_outside)
    for x in points(12):
        both(x, first, first)
        outside(x, first)
    for x in points(4, seed=5):
        assert same_as_tensors(both, product, x, first, first)
        assert same_as_tensors(both, product, x, first, data[2:4])
        assert same_as_tensors(both, product, x, data[2:4], first)
        assert same_as_tensors(outside, with_outside, x, data[2:4])
        assert same_as_tensors(outside, with_outside, x, first)


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


def test_lists_in_place_of_arrays_are_converted_only_where_it_differentiates():
    def f(x, y):
        return (x * 0.5).sum() * (y * 2.0).sum()

    both, x, y = weft.value_and_grad(f), np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.25, 0.0])
    value, gradient = both(x, y)
    for _ in range(12):
        for given in (x, list(x), tuple(x), x.tolist()):
            found = both(given, y)
            assert found[0] == value and found[1].tolist() == gradient.tolist()
        for other in (list(y), tuple(y)):
            with pytest.raises(TypeError, match="can't multiply sequence"):
                both(x, other)
