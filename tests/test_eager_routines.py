"""Ops that call a routine (sorting, scans, attention, small matrices) are native calls with the bits of Python's."""

import numpy as np
import pytest
from test_eager_native import IS_NATIVE, TIMES, native_calls, numbers

import weft
from weft.nn import functional
from weft.runtime.eager import plan


@pytest.fixture(autouse=True)
def native_at_once(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    plan.forget()


MASK = weft.tensor(np.tri(5, 5, 0) > 0)
CALLS = {
    "sort": lambda x: x.sort(1).values,
    "sorted columns": lambda x: x.sort(0, descending=True).values,
    "argsort": lambda x: x.argsort(1) * x.sum(),
    "topk": lambda x: x.topk(2).values,
    "topk of long rows": lambda x: x.reshape(1, -1).repeat(1, 20).topk(2).values,
    "cumsum": lambda x: x.cumsum(1),
    "cumsum of columns": lambda x: x.cumsum(0),
    "cumsum of a transposed": lambda x: x.t().cumsum(1),
    "cumsum of the middle": lambda x: x.reshape(5, 3, 2).cumsum(1),
    "cumsum of whole numbers": lambda x: (x * 9).long().cumsum(0) * x.sum(),
    "cumprod of columns": lambda x: x.cumprod(0),
    "cumprod": lambda x: x.cumprod(1),
    "cummax": lambda x: x.cummax(1).values,
    "logcumsumexp": lambda x: weft.logcumsumexp(x, 1),
    "median": lambda x: x.median(1).values,
    "searchsorted": lambda x: weft.searchsorted(x.detach().sort(1).values, x.detach()) * x.sum(),
    "attention": lambda x: functional.scaled_dot_product_attention(*[x.reshape(1, 5, 6)] * 3),
    "causal attention": lambda x: functional.scaled_dot_product_attention(*[x.reshape(1, 5, 6)] * 3, is_causal=True),
    "masked attention": lambda x: functional.scaled_dot_product_attention(*[x.reshape(1, 5, 6)] * 3, attn_mask=MASK),
    "cholesky": lambda x: weft.linalg.cholesky(x @ x.t() + 5.0 * weft.eye(5)),
    "inverse": lambda x: weft.linalg.inv(x @ x.t() + 5.0 * weft.eye(5)),
    "solution": lambda x: weft.linalg.solve(x @ x.t() + 5.0 * weft.eye(5), x),
    "determinant": lambda x: weft.logdet(x @ x.t() + 5.0 * weft.eye(5)),
    "solve": lambda x: weft.linalg.solve_triangular((x @ x.t() + 5.0 * weft.eye(5)).tril(), x, upper=False),
}


def gradient(function, array):
    x = weft.tensor(array, requires_grad=True)
    out = function(x)
    (out * weft.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).reshape(out.shape)).sum().backward()
    return out.detach().numpy().tobytes(), x.grad.numpy().tobytes()


@pytest.mark.parametrize("dtype", (np.float32, np.float64), ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", CALLS)
def test_routines_have_the_bits_of_python(name, dtype):
    array = np.asarray(numbers(5, 6)).astype(dtype)
    found = [gradient(CALLS[name], array) for _ in range(3 * TIMES)]
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("name", ("sort", "topk", "cumsum", "cumsum of columns", "cumprod", "cummax"))
def test_routines_are_native(name):
    x = weft.tensor(np.asarray(numbers(5, 6)))
    for _ in range(4 * TIMES):
        CALLS[name](x)
    assert (native_calls(lambda: CALLS[name](x)) >= 1) is IS_NATIVE


def test_operands_are_not_changed_and_results_not_shared():
    x = weft.tensor([[3.0, 1.0, 2.0]])
    kept = []
    for k in range(4 * TIMES):
        x[0, 0] = float(k)
        kept.append((x.cumsum(1), x.sort(1).values))
        assert x.tolist() == [[float(k), 1.0, 2.0]]
    for k, (total, ordered) in enumerate(kept):
        assert total.tolist() == [[k, k + 1.0, k + 3.0]]
        assert ordered.tolist() == [sorted([float(k), 1.0, 2.0])]


ON_MATRICES = {
    "cholesky": weft.linalg.cholesky,
    "inv": weft.linalg.inv,
    "solve": lambda a: weft.linalg.solve(a, a[:, :2]),
    "batches": lambda a: weft.linalg.inv(weft.stack([a + weft.eye(3), a])),
}


@pytest.mark.parametrize("name", ON_MATRICES)
def test_a_matrix_without_a_solution_is_an_error_in_native_code_too(name):
    good, bad = weft.tensor([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 2.0]]), weft.zeros(3, 3)
    function = ON_MATRICES[name]
    first = function(good).tolist()
    for _ in range(3 * TIMES):
        assert function(good).tolist() == first
        with pytest.raises(weft.linalg.LinAlgError, match=r"singular|not positive-definite"):
            function(bad)
    assert function(good).tolist() == first


@pytest.mark.parametrize("name", ("cholesky", "inv"))
def test_factorizations_are_native(name):
    a = weft.eye(4) * 2.0
    assert (native_calls(lambda: ON_MATRICES[name](a)) >= 1) is IS_NATIVE
