"""Derivatives for code that thinks in NumPy arrays: what optimizers and samplers call."""

import doctest
import importlib
import math
import multiprocessing
import pickle
import subprocess
import sys
import threading
from typing import NamedTuple

import numpy as np
import pytest
from prepared_parts import is_prepared
from scipy import integrate, optimize

import weft
from weft import nn


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def by_tensors(function, array):
    x = weft.tensor(array, requires_grad=True)
    value = function(x)
    value.backward()
    return value.item(), x.grad.numpy()


def points(n, size=6):
    return np.random.default_rng(3).normal(size=(n, size))


def test_the_examples():
    failed, tried = doctest.testmod(importlib.import_module("weft.on_arrays"), extraglobs={"weft": weft})
    assert tried >= 6 and not failed


def test_values_and_gradients_are_those_of_tensors():
    both, gradient = weft.value_and_grad(rosenbrock), weft.grad(rosenbrock)
    for x in points(8):
        value, found = both(x)
        expected, expected_gradient = by_tensors(rosenbrock, x)
        assert type(value) is float and value == expected
        assert found.tobytes() == gradient(x).tobytes() == expected_gradient.tobytes()


def test_second_derivatives_are_scipys():
    hessian, product = weft.hessian(rosenbrock), weft.hvp(rosenbrock)
    for x in points(5):
        np.testing.assert_allclose(hessian(x), optimize.rosen_hess(x), rtol=1e-12)
        np.testing.assert_allclose(product(x, x[::-1]), optimize.rosen_hess_prod(x, x[::-1]), rtol=1e-10)


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "Newton-CG", "trust-ncg", "trust-exact"])
def test_scipy_minimizes(method):
    second = {"Newton-CG": "hessp", "trust-ncg": "hessp", "trust-exact": "hess"}.get(method)
    makes = {"hess": weft.hessian, "hessp": weft.hvp}
    options = {second: makes[second](rosenbrock)} if second else {}
    found = optimize.minimize(weft.value_and_grad(rosenbrock), np.full(5, 0.5), jac=True, method=method, **options)
    np.testing.assert_allclose(found.x, np.ones(5), atol=1e-3)


def test_a_fit_with_data_as_arguments():
    rng = np.random.default_rng(0)
    a, true = rng.normal(size=(50, 3)), np.array([1.0, -2.0, 0.5])
    b = a @ true

    def loss(x, a, b, penalty):
        return ((a @ x - b) ** 2).sum() + penalty * (x**2).sum()

    both = weft.value_and_grad(loss)
    found = optimize.minimize(both, np.zeros(3), args=(a, b, 0.0), jac=True)
    np.testing.assert_allclose(found.x, true, atol=1e-5)
    ridge = optimize.minimize(both, np.zeros(3), args=(a, b, 7.0), jac=True)
    np.testing.assert_allclose(ridge.x, np.linalg.solve(a.T @ a + 7 * np.eye(3), a.T @ b), atol=1e-4)


def test_results_belong_to_the_caller_and_arguments_stay_his():
    both = weft.value_and_grad(lambda x, w: (w * x**2).sum())
    x, w = np.ones(4), np.arange(4.0)
    results = []
    for k in range(8):
        x[:], w[0] = k, k
        results.append(both(x, w))
    assert np.array_equal(x, np.full(4, 7.0)) and w[0] == 7
    for k, (value, gradient) in enumerate(results):
        assert value == k * k * (k + 6.0)
        assert np.array_equal(gradient, 2.0 * k * np.array([k, 1.0, 2.0, 3.0]))
        gradient[:] = -1


def test_large_gradients_belong_to_the_caller_too():
    gradient = weft.grad(lambda x: (x * x).sum())
    kept = [gradient(np.full(20_000, float(k))) for k in range(6)]
    assert all(np.array_equal(found, np.full(20_000, 2.0 * k)) for k, found in enumerate(kept))


def test_several_arguments():
    def f(x, y, z):
        return (x * y.sum()).sum() + z

    for _ in range(5):
        value, (dz, dx) = weft.value_and_grad(f, argnums=(-1, 0))([1.0, 2.0], np.array([3.0, 4.0]), 5)
        assert value == 26.0 and dz == 1.0 and np.array_equal(dx, [7.0, 7.0])
    assert np.array_equal(weft.grad(f, 1)(1.0, np.ones(3), 0.0), np.ones(3))


def test_arrays_by_keyword():
    both = weft.value_and_grad(lambda x, *, scale: (scale * x).sum())
    for k in range(5):
        value, gradient = both(np.ones(2), scale=np.array([k, 2.0]))
        assert value == k + 2 and np.array_equal(gradient, [k, 2.0])


@pytest.mark.parametrize(
    "given",
    [
        [1, 2, 3],
        (1.0, 2.0, 3.0),
        np.array([1, 2, 3]),
        np.array([1, 2, 3], np.float32),
        np.arange(1.0, 7.0)[::2] * 1,
        np.array([[1.0, 9.0], [2.0, 9.0], [3.0, 9.0]])[:, 0],
        np.array([1.0, 2.0, 3.0], ">f8"),
        np.array([1.0, 2.0, 3.0])[::-1][::-1],
    ],
)
def test_what_can_be_differentiated_for(given):
    gradient = weft.grad(lambda x: (x**3).sum())
    for _ in range(4):
        found = gradient(given)
        assert found.dtype == (np.float32 if getattr(given, "dtype", None) == np.float32 else np.float64)
        np.testing.assert_array_equal(found, 3 * np.asarray(given, float) ** 2)


def test_shapes_in_turn_and_no_elements():
    gradient = weft.grad(lambda x: (x * x).sum())
    for shape in [(3,), (2, 2), (), (3,), (0,), (2, 2), (1,)] * 3:
        x = np.random.default_rng(1).normal(size=shape)
        found = gradient(x)
        assert found.shape == shape and np.array_equal(found, 2 * x)
    assert weft.hessian(lambda x: (x * x).sum())(np.ones((0,))).shape == (0, 0)


def test_what_the_value_does_not_depend_on():
    for _ in range(4):
        value, (dx, dy) = weft.value_and_grad(lambda x, y: (x * x).sum(), (0, 1))(np.ones(2), np.ones(3))
        assert value == 2 and np.array_equal(dx, [2, 2]) and np.array_equal(dy, np.zeros(3))
    assert np.array_equal(weft.grad(lambda x: weft.tensor(3.0))(np.ones(2)), np.zeros(2))
    assert np.array_equal(weft.hessian(lambda x: x.sum())(np.ones(2)), np.zeros((2, 2)))
    assert np.array_equal(weft.hvp(lambda x: x.sum())(np.ones(2), np.ones(2)), np.zeros(2))


def test_whatever_the_mode():
    both, x = weft.value_and_grad(rosenbrock), points(1)[0]
    expected = both(x)[1]
    for mode in (weft.no_grad, weft.inference_mode):
        with mode():
            assert np.array_equal(both(x)[1], expected)
            assert np.array_equal(weft.grad(rosenbrock)(x), expected)
            assert not weft.is_grad_enabled()


def test_calls_in_several_threads_and_within_each_other():
    inner = weft.value_and_grad(lambda x, k: (k * x * x).sum())
    failures = []

    def work(k):
        for _ in range(60):
            value, gradient = inner(np.full(3, float(k)), float(k))
            if value != 3.0 * k**3 or not np.array_equal(gradient, np.full(3, 2.0 * k * k)):
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures

    def outer(x):
        value, _ = inner(np.array([2.0]), 1.0)
        other, _ = inner(np.array([3.0]), 1.0)
        return (x * value + other).sum()

    for _ in range(5):
        assert weft.value_and_grad(outer)(np.array([1.0]))[0] == 13.0


def test_functions_that_branch_on_data():
    def f(x):
        return (x * x).sum() if x.sum() > 0 else -x.sum()

    gradient = weft.grad(f)
    for sign in [1, -1, 1, 1, -1, 1, -1, -1]:
        assert np.array_equal(gradient(np.full(2, float(sign))), [2.0, 2.0] if sign > 0 else [-1.0, -1.0])


def test_a_call_after_one_that_failed():
    def f(x, fails):
        if fails:
            raise OverflowError("too far")
        return (x * x).sum()

    both = weft.value_and_grad(f)
    for k in range(12):
        if k % 3 == 2:
            with pytest.raises(OverflowError, match="too far"):
                both(np.ones(2), True)
        assert both(np.full(2, float(k)), False)[0] == 2.0 * k * k


def test_what_is_refused():
    x = np.ones(2)
    with pytest.raises(TypeError, match="value_and_grad: expected a function of tensors, got int"):
        weft.value_and_grad(3)
    with pytest.raises(TypeError, match="hvp: expected a function"):
        weft.hvp(None)
    with pytest.raises(RuntimeError, match=r"one element, got a tensor of shape \(2,\); sum it"):
        weft.grad(lambda x: x)(x)
    with pytest.raises(TypeError, match="must return a tensor of one element, got float"):
        weft.hessian(lambda x: 3.0)(x)
    with pytest.raises(TypeError, match="got a tensor; for tensors there is weft.func"):
        weft.grad(rosenbrock)(weft.ones(2))
    with pytest.raises(TypeError, match="real numbers to differentiate for, got one of <U1"):
        weft.grad(rosenbrock)(["a"])
    with pytest.raises(ValueError, match=r"argnums is 1, but 1 arguments"):
        weft.grad(rosenbrock, 1)(x)
    with pytest.raises(ValueError, match=r"vector has shape \(3,\), but x has shape \(2,\)"):
        weft.hvp(rosenbrock)(x, np.ones(3))
    with pytest.raises(TypeError, match="argnums must be one position"):
        weft.hessian(rosenbrock, (0, 1))
    with pytest.raises(TypeError, match="jacobian: the function must return a tensor, got list"):
        weft.jacobian(lambda x: [x])(x)


def test_calls_that_are_alike_are_replayed():
    both = weft.value_and_grad(rosenbrock)
    for x in points(8):
        both(x)
    assert "calls are replayed" in both.explain()
    assert repr(both) == "<weft.value_and_grad of rosenbrock>"


def test_explain_of_functions_of_arrays():
    """With `verbose` as of compiled functions; and what is said of for_numpy does not contradict itself."""
    x = np.ones(3)
    gradient, soft = weft.grad(lambda x: (x**3).sum()), weft.for_numpy(lambda x: (1 + x.exp()).log())
    for _ in range(12):
        gradient(x), soft(x)
    assert len(gradient.explain(verbose=True)) > len(gradient.explain())
    assert gradient.explain(x).count("signature (") == 1
    assert "calls are replayed" in soft.explain() and "not replayed" not in soft.explain()


# --- Jacobians --------------------------------------------------------------------------------------------------------
def decay(p, t):
    return p[0] * (-p[1] * t).exp() + p[2]


@pytest.mark.parametrize("n", [0, 1, 3, 4, 40])
def test_jacobians_are_those_of_tensors(n):
    """By rows and by columns, whichever are fewer."""
    t, p = np.linspace(0, 4, n), np.array([2.5, 1.3, 0.5])
    for _ in range(10):
        found = weft.jacobian(decay)(p, t)
    e = np.exp(-p[1] * t)
    np.testing.assert_allclose(found, np.stack([e, -p[0] * t * e, np.ones(n)], 1), rtol=1e-14)


def test_jacobians_of_any_shape():
    matrix = weft.jacobian(lambda a, b: a @ b)(np.ones((2, 3)), np.arange(12.0).reshape(3, 4))
    assert matrix.shape == (2, 4, 2, 3)
    assert np.array_equal(matrix[1, 2, 1], [2.0, 6.0, 10.0]) and not matrix[1, 2, 0].any()
    outer = weft.jacobian(lambda x: x[:, None] * x)(np.array([1.0, 2.0]))
    assert np.array_equal(outer[:, :, 0], [[2.0, 2.0], [2.0, 0.0]])
    first, second = weft.jacobian(lambda x, y: weft.stack([x * y, x, y]), argnums=(0, 1))(2, 3.0)
    assert np.array_equal(first, [3, 1, 0]) and np.array_equal(second, [2, 0, 1])
    assert weft.jacobian(lambda x: x.sum())(np.ones(3)).tolist() == [1, 1, 1]
    assert weft.jacobian(lambda x: x**2)(3.0) == 6.0
    assert np.array_equal(weft.jacobian(lambda x: weft.ones(4))(np.ones(2)), np.zeros((4, 2)))
    assert weft.jacobian(lambda x: x * 2)(np.ones(2, np.float32)).dtype == np.float32


def test_scipy_solves_with_jacobians():
    t = np.linspace(0, 4, 50)
    y = 2.5 * np.exp(-1.3 * t) + 0.5

    def residuals(p, t, y):
        return decay(p, t) - y

    fit = optimize.least_squares(weft.for_numpy(residuals), [1, 1, 1], jac=weft.jacobian(residuals), args=(t, y))
    np.testing.assert_allclose(fit.x, [2.5, 1.3, 0.5], rtol=1e-6)

    def model(t, a, b, c):
        return decay((a, b, c), t)

    columns = weft.jacobian(model, argnums=(1, 2, 3))
    found, _ = optimize.curve_fit(weft.for_numpy(model), t, y, jac=lambda *args: np.stack(columns(*args), 1))
    np.testing.assert_allclose(found, [2.5, 1.3, 0.5], rtol=1e-6)

    def system(x):
        return weft.stack([x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1, 0.5 * (x[1] - x[0]) ** 3 + x[1]])

    root = optimize.root(weft.for_numpy(system), [0, 0], jac=weft.jacobian(system))  # which begins with integers
    np.testing.assert_allclose(root.x, [0.8411639, 0.1588361], rtol=1e-6)

    def van_der_pol(t, y):
        return weft.stack([y[1], 10 * (1 - y[0] ** 2) * y[1] - y[0]])

    right, matrix = weft.for_numpy(van_der_pol), weft.jacobian(van_der_pol, argnums=1)
    ends = [integrate.solve_ivp(right, (0, 5), [2.0, 0.0], "BDF", jac=j, rtol=1e-8).y[:, -1] for j in (matrix, None)]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-4)


# --- what libraries give ----------------------------------------------------------------------------------------------
def test_floats_that_a_library_varies_are_tensors():
    assert optimize.brentq(weft.for_numpy(lambda x: x.cos() - x), 0, 1) == pytest.approx(0.7390851332151607)
    area, _ = integrate.quad(weft.for_numpy(lambda x: (-x * x).exp()), -np.inf, np.inf)
    assert area == pytest.approx(math.sqrt(math.pi))
    kinds = weft.for_numpy(lambda *args, **options: [type(x).__name__ for x in (*args, *options.values())])
    given = kinds(1.5, np.float32(2), np.float64(3), 4, True, np.int64(5), None, scale=0.5)
    assert given == ["Tensor", "Tensor", "Tensor", "int", "bool", "int64", "NoneType", "float"]
    for x in (1.5, np.float32(1.5), np.array(1.5)):
        found = weft.for_numpy(lambda x: x * weft.ones(2))(x)
        assert found.dtype == np.float32 and found.tolist() == [1.5, 1.5]


class Fit(NamedTuple):
    mean: object
    rest: list


GAINS = nn.Linear(3, 2).double()
RESULTS = {
    "one tensor": lambda x: (1 + x.exp()).log(),
    "what requires gradients": GAINS,
    "the argument, and parts of it": lambda x: (x, x[1:], x.view(-1)),
    "the same tensor twice": lambda x: [x.sin()] * 2,
    "nested": lambda x: {"fit": Fit(x.mean(), [x.sum(), "text", None, len(x)]), "none": ()},
    "gradients": lambda x: weft.func.grad(lambda x: x.cos().sum())(x),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_for_numpy_of_calls_that_go_to_their_program_at_once(name):
    """Ran the function's Python in every call: results may have any form."""
    function = RESULTS[name]
    f, kept, xs = weft.for_numpy(function), [], points(20, 3)
    for x in xs:
        given = x.copy()
        kept.append(f(given))
        given[:] = 7
    assert is_prepared(f)
    for x, found in zip(xs, kept):
        expected = function(weft.tensor(x))
        assert bits_of(found) == bits_of(expected)


def bits_of(value):
    if isinstance(value, (weft.Tensor, np.ndarray)):
        array = np.asarray(value.detach()) if isinstance(value, weft.Tensor) else value
        return array.dtype, array.shape, array.tobytes()
    if isinstance(value, dict):
        return {key: bits_of(x) for key, x in value.items()}
    if isinstance(value, Fit):
        return Fit(*map(bits_of, value))
    return type(value)(map(bits_of, value)) if isinstance(value, (list, tuple)) else value


def test_what_is_new_in_every_result_runs_python():
    f = weft.for_numpy(lambda x: (x.sin(), object()))
    made = [f(np.ones(3))[1] for _ in range(12)]
    assert len({*map(id, made)}) == 12 and "at once" not in f.explain()


def test_iminuit_varies_floats():
    iminuit = pytest.importorskip("iminuit")

    def distance(a, b):
        return (a.exp() - 2) ** 2 + (b - 1) ** 2

    fit = iminuit.Minuit(weft.for_numpy(distance), a=0.0, b=0.0, grad=weft.grad(distance, argnums=(0, 1)))
    fit.migrad()
    assert fit.valid and list(fit.values) == pytest.approx([math.log(2), 1], abs=1e-3)

    @weft.compile
    def parabola(a, b):
        return (a - 1) ** 2 + (b - 2) ** 2 + 0.1 * a * b

    fit = iminuit.Minuit(parabola, a=0.0, b=0.0)  # which finds the names of the arguments
    fit.migrad()
    assert fit.valid and fit.parameters == ("a", "b")


def test_columns_of_pandas_are_arrays():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"x": [1.0, 2.0, 3.0], "n": [4, 5, 6], "word": ["a", "b", "c"]}, index=[7, 8, 9])
    both = weft.value_and_grad(lambda x, n: (x.exp() * n).sum())
    expected = both(table["x"].to_numpy(), table["n"].to_numpy())
    for _ in range(12):
        value, gradient = both(table["x"], table["n"])
        assert value == expected[0] and np.array_equal(gradient, expected[1])
    table.loc[8, "n"] = 50
    assert both(table["x"], table["n"])[0] == both(table["x"].to_numpy(), table["n"].to_numpy())[0] != expected[0]
    assert weft.for_numpy(lambda x: x.exp().sum(0))(table[["x", "n"]]).shape == (2,)
    assert weft.for_numpy(lambda words: len(words))(table["word"]) == 3  # no numbers: it arrives as it is


# --- other processes --------------------------------------------------------------------------------------------------
def square(x):
    return (x * x).sum()


@weft.for_numpy
def log_density(x):
    return -0.5 * (x * x).sum()


MADE = {name: getattr(weft, name)(square) for name in ("value_and_grad", "grad", "jacobian", "hessian", "for_numpy")}


@pytest.mark.parametrize("name", MADE)
def test_functions_of_arrays_are_pickled(name):
    function = MADE[name]
    again = pickle.loads(pickle.dumps(function))
    assert again is not function and repr(again) == repr(function)
    assert repr(again(np.ones(3))) == repr(function(np.ones(3)))
    product = pickle.loads(pickle.dumps(weft.hvp(square)))
    assert product(np.ones(2), np.array([1.0, 3.0])).tolist() == [2.0, 6.0]
    several = pickle.loads(pickle.dumps(weft.grad(math.prod, argnums=(0, -1))))
    assert several._argnums == (0, -1)


def test_a_decorated_function_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(log_density)) is log_density


PROGRAM = """
import sys, multiprocessing
import numpy as np
import weft

def square(x):
    return (x * x).sum()

@weft.for_numpy
def log_density(x):
    return -0.5 * square(x)

gradient = weft.grad(square)

if __name__ == "__main__":
    points = [np.full(2, float(k)) for k in range(3)]
    for way in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(way).Pool(1) as pool:
            print(*map(float, pool.map(log_density, points)), *(g[0] for g in pool.map(gradient, points)))
    try:
        import joblib
    except ImportError:
        sys.exit()
    for f in (log_density, gradient):
        print(*(np.ravel(x)[0] for x in joblib.Parallel(2)(joblib.delayed(f)(x) for x in points)))
"""


def test_pools_of_processes_call_them(tmp_path):
    """As emcee does with pool=, and scipy.optimize with workers=."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ways = len(multiprocessing.get_all_start_methods())
    lines = done.stdout.splitlines()
    assert lines[:ways] == ["-0.0 -1.0 -4.0 0.0 2.0 4.0"] * ways
    assert lines[ways:] in ([], ["-0.0 -1.0 -4.0", "0.0 2.0 4.0"])
