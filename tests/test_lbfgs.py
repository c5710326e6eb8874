"""LBFGS against PyTorch's: the same points are evaluated, in eager mode and inside compiled calls."""

import copy
from importlib import import_module

import numpy as np
import pytest

import weft
from weft import nn

OPTIONS = [
    {"max_iter": 4},
    {"max_iter": 30, "line_search_fn": "strong_wolfe"},
    {"max_iter": 12, "line_search_fn": "strong_wolfe", "history_size": 2, "lr": 0.3},
    {"max_iter": 12, "line_search_fn": "strong_wolfe", "max_eval": 7},
    {"max_iter": 8, "lr": 0.002, "history_size": 3},
]


def rosenbrock(library, options, n_steps=3, wrap=lambda f: f, dtype="float64"):
    """The losses and parameters of some steps, and how often the closure ran."""
    x = library.tensor([-1.2, 1.0, 0.3], dtype=getattr(library, dtype), requires_grad=True)
    scale = library.tensor([[1.5]], dtype=getattr(library, dtype), requires_grad=True)
    unused = library.zeros(2, dtype=getattr(library, dtype), requires_grad=True)
    optimizer = library.optim.LBFGS([x, scale, unused], **options)
    evaluated = []

    def closure():
        optimizer.zero_grad()
        loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum() + (scale - x[0]).pow(2).sum()
        loss.backward()
        evaluated.append(x.tolist())
        return loss

    losses = [wrap(lambda: optimizer.step(closure))().item() for _ in range(n_steps)]
    return losses, [x.tolist(), scale.tolist()], evaluated, optimizer


@pytest.mark.oracle
@pytest.mark.parametrize("options", OPTIONS)
def test_runs_like_pytorch(options):
    torch = pytest.importorskip("torch")
    *ours, mine = rosenbrock(weft, options)
    *theirs, reference = rosenbrock(torch, options)
    assert len(ours[2]) == len(theirs[2])
    np.testing.assert_allclose(ours[0], theirs[0], 1e-7)
    np.testing.assert_allclose(ours[2], theirs[2], 1e-6)
    for name, value in reference.state[reference.param_groups[0]["params"][0]].items():
        if name in ("n_iter", "func_evals"):
            assert mine.state_dict()["state"][0][name] == value


@pytest.mark.parametrize("options", [{"max_iter": 4}, {"max_iter": 4, "line_search_fn": "strong_wolfe"}])
def test_compiled_steps_have_the_same_bits(options):
    assert rosenbrock(weft, options, 2, weft.compile)[:3] == rosenbrock(weft, options, 2)[:3]


def test_the_minimum_is_found():
    losses, (x, scale), _, _ = rosenbrock(weft, {"max_iter": 60, "line_search_fn": "strong_wolfe"})
    np.testing.assert_allclose(x, 1, 1e-5)
    np.testing.assert_allclose(scale, 1, 1e-5)
    assert losses[-1] < 1e-10


def test_a_model_trains_with_a_generator_of_parameters():
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    x = weft.randn(32, 2)
    y = (x[:, :1] * x[:, 1:]).sin()
    optimizer = weft.optim.LBFGS((p for p in model.parameters()), line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    first = optimizer.step(closure)
    for _ in range(5):
        last = optimizer.step(closure)
    assert last.item() < first.item() / 20


def test_state_survives():
    options = {"max_iter": 3, "line_search_fn": "strong_wolfe"}
    expected = rosenbrock(weft, options, 4)[1]
    *_, (x, scale), _, optimizer = rosenbrock(weft, options, 2)
    params = copy.deepcopy(optimizer.param_groups[0]["params"])
    other = weft.optim.LBFGS(params, **options)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    x, scale, _ = params

    def closure():
        other.zero_grad()
        loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum() + (scale - x[0]).pow(2).sum()
        loss.backward()
        return loss

    other.step(closure)
    other.step(closure)
    assert [x.tolist(), scale.tolist()] == expected


def test_a_closure_that_raises_leaves_the_state_as_it_was():
    *_, optimizer = rosenbrock(weft, {"max_iter": 3}, 1)
    before = copy.deepcopy(optimizer.state_dict()["state"])

    def closure():
        raise KeyError("no data")

    with pytest.raises(KeyError):
        optimizer.step(closure)
    assert optimizer.state_dict()["state"][0]["n_iter"] == before[0]["n_iter"]


def test_errors():
    params = [weft.ones(1, requires_grad=True) for _ in range(2)]
    with pytest.raises(ValueError, match="LBFGS doesn't support per-parameter options"):
        weft.optim.LBFGS([{"params": params[:1]}, {"params": params[1:]}])
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        weft.optim.LBFGS(params, line_search_fn="armijo").step(lambda: params[0].sum())
    with pytest.raises(TypeError, match="step"):
        weft.optim.LBFGS(params).step()


@pytest.mark.oracle
@pytest.mark.parametrize("options", [{}, {"c1": 1e-2, "c2": 0.1}, {"max_ls": 3}, {"tolerance_change": 0.5}])
@pytest.mark.parametrize("first", [1e-3, 1.0, 40.0])
def test_a_line_search_by_pytorchs_name(options, first):
    torch = pytest.importorskip("torch")

    def found(T, search):
        x, calls = T.tensor([1.3, -0.7, 2.0], dtype=T.float64), []

        def evaluated(x, t, d):
            calls.append(float(t))
            here = (x + t * d).requires_grad_()
            loss = (here**4).sum() - 3 * (here[0] * here[1]).sin() + here.square().sum()
            return float(loss), T.autograd.grad(loss, here)[0]

        loss, gradient = evaluated(x, 0.0, x)
        d = -gradient
        loss, gradient, t, n = search(evaluated, x, first, d, loss, gradient, gradient.dot(d), **options)
        return [float(loss), *gradient.tolist(), float(t), n], calls

    ours, theirs = [found(T, import_module(f"{T.__name__}.optim.lbfgs")._strong_wolfe) for T in (weft, torch)]
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.oracle
def test_the_least_of_a_cubic_by_pytorchs_name():
    torch = pytest.importorskip("torch")
    functions = [import_module(f"{T.__name__}.optim.lbfgs")._cubic_interpolate for T in (weft, torch)]
    numbers = np.random.default_rng(0).normal(size=(50, 6))
    for row in numbers:
        for bounds in (None, (-0.5, 0.5)):
            given = [T.tensor(row) for T in (weft, torch)]
            ours, theirs = [function(*x, bounds=bounds) for function, x in zip(functions, given)]
            np.testing.assert_allclose(float(ours), float(theirs), rtol=1e-9, atol=1e-12)
            assert functions[0](*row.tolist(), bounds=bounds) == float(ours)
