"""Functions with several results: each result is a tensor of its own, and what gives them is computed once."""

import numpy as np
import pytest

import weft
from weft.compiler.ops import decompositions, lapack, symmetric


def matrices(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape) + np.eye(*shape[-2:]) * np.arange(2.0, 2 + shape[-1])


# name -> (function of the module and a batch of square matrices, results that have a derivative)
FUNCTIONS = {
    "svd": (lambda m, x: m.linalg.svd(x), 3),
    "svd of a high matrix": (lambda m, x: m.linalg.svd(x[..., :2], full_matrices=False), 3),
    "qr": (lambda m, x: m.linalg.qr(x), 2),
    "eigh": (lambda m, x: m.linalg.eigh(x + x.mT), 2),
    "eig": (lambda m, x: m.linalg.eig(x), 2),
    "slogdet": (lambda m, x: m.linalg.slogdet(x), 2),
    "geqrf": (lambda m, x: m.geqrf(x), 2),
    "ldl_factor_ex": (lambda m, x: m.linalg.ldl_factor_ex(x + x.mT), 1),
    "lu_factor": (lambda m, x: m.linalg.lu_factor(x), 1),
    "lu_factor of a high matrix": (lambda m, x: m.linalg.lu_factor(x[..., :2]), 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
def test_results_share_nothing(name, shape):
    function, n_derived = FUNCTIONS[name]
    results = function(weft, weft.tensor(matrices(*shape), requires_grad=True))
    for k, result in enumerate(results):
        others = [r for r in results if r is not result]
        before = [r.detach().clone() for r in others]
        assert result._base is None and result._version == 0 and result.is_contiguous()
        assert (result.grad_fn is not None) == (k < n_derived)
        with weft.no_grad():
            result.zero_()
        assert result._version == 1 and not any(r._version for r in others)
        assert all((r == b).all() for r, b in zip(others, before))
        results = function(weft, weft.tensor(matrices(*shape), requires_grad=True))


@pytest.mark.oracle
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_described_as_in_pytorch(name):
    torch = pytest.importorskip("torch")

    def described(module):
        results = FUNCTIONS[name][0](module, module.tensor(matrices(2, 3, 3), requires_grad=True))
        return [
            (str(r.dtype).split(".")[-1], tuple(r.shape), r._base is None, r.requires_grad, r.is_leaf) for r in results
        ]

    assert described(weft) == described(torch)


def scaled_left(m, x):
    """A loss that needs S after U has been changed."""
    u, s, vh = m.linalg.svd(x)
    loss = s.log().sum() + (vh**2 * m.arange(1.0, 4.0, dtype=x.dtype)).sum()
    u.mul_(2.0)
    return loss + (u**3).sum()


def test_a_change_of_one_result_is_none_of_what_a_backward_needs():
    x = weft.tensor(matrices(3, 3), requires_grad=True)

    def without_change(x):
        u, s, vh = weft.linalg.svd(x)
        return s.log().sum() + (vh**2 * weft.arange(1.0, 4.0, dtype=x.dtype)).sum() + ((u * 2.0) ** 3).sum()

    (expected,) = weft.autograd.grad(without_change(x), [x])
    (found,) = weft.autograd.grad(scaled_left(weft, x), [x])
    assert (found == expected).all()
    compiled = weft.compile(lambda x: weft.autograd.grad(scaled_left(weft, x), [x])[0])
    for _ in range(5):
        assert (compiled(x) == expected).all()


CHOICES = {"all": lambda r: r, "one": lambda r: r[-1], "some, one of them used": lambda r: (r[0] * 2, r[0])}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("chosen", CHOICES.values(), ids=CHOICES)
def test_a_compiled_function_may_return_all_some_or_one_of_them(name, chosen):
    function = FUNCTIONS[name][0]
    compiled = weft.compile(lambda x: chosen(function(weft, x)))
    for seed in range(5):
        x = weft.tensor(matrices(2, 3, 3, seed=seed))
        found, expected = compiled(x), chosen(function(weft, x))
        pairs = zip(found, expected) if isinstance(expected, tuple) else [(found, expected)]
        assert all(f._base is None and (f == e).all() for f, e in pairs)


LU_SHAPES = [(1, 1), (2, 4), (4, 2), (33, 20), (20, 33), (40, 40), (3, 17, 17), (0, 3, 3), (2, 0, 3), (2, 3, 0)]


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", LU_SHAPES)
def test_factors_and_exchanges_are_those_of_pytorch(shape, dtype):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).real.astype(dtype)
    allowed = {"rtol": 1e-3, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-9, "atol": 1e-10}
    (found, pivots), expected = weft.linalg.lu_factor(weft.tensor(x)), torch.linalg.lu_factor(torch.tensor(x))
    assert pivots.dtype is weft.int32 and pivots.tolist() == expected.pivots.tolist()
    np.testing.assert_allclose(found.numpy(), expected.LU.numpy(), **allowed)
    expected = torch.linalg.lu(torch.tensor(x))
    for factors in (weft.linalg.lu(weft.tensor(x)), weft.lu_unpack(found, pivots)):
        for factor, other in zip(factors, expected, strict=True):
            np.testing.assert_allclose(factor.numpy(), other.numpy(), **allowed)


def of_lu(x):
    p, low, up = weft.linalg.lu(x)
    return (p @ low * 2 @ up).sum() + (low**2).sum()


@pytest.mark.parametrize("shape", [(5, 5), (2, 3, 4), (11, 9)])
def test_programs_hold_lu_and_its_derivative(shape):
    x = weft.tensor(matrices(*shape), requires_grad=True)
    run = weft.compile(lambda x: (of_lu(x), *weft.autograd.grad(of_lu(x), [x])), fullgraph=True)
    expected = of_lu(x), *weft.autograd.grad(of_lu(x), [x])
    for _ in range(4):
        assert all((f == e).all() for f, e in zip(run(x), expected, strict=True))
    assert run.breaks == ()
    assert weft.autograd.gradcheck(of_lu, x) and weft.autograd.gradgradcheck(of_lu, x)


def test_a_singular_matrix_has_factors():
    p, low, up = weft.linalg.lu(weft.tensor([[0.0, 0.0], [0.0, 1.0]]))
    assert p.tolist() == low.tolist() == [[1, 0], [0, 1]] and up.tolist() == [[0, 0], [0, 1]]
    assert not weft.linalg.lu_factor(weft.tensor([[weft.nan, 1.0], [2.0, 3.0]]))[0].isfinite().all()


BY_LAPACK = {
    "svd": (lapack.svd, decompositions.svd_shapes, "full", (False, True)),
    "eigh": (lapack.eigh, decompositions.eigh_shapes, "upper", (False, True)),
    "qr": (lapack.qr, decompositions.qr_shapes, "mode", ("reduced", "complete")),
}
MATRIX_SHAPES = [(3, 3), (1, 1), (5, 3), (3, 5), (4, 3, 3), (2, 5, 3), (2, 3, 5), (0, 3, 3), (3, 0), (0, 3), (40, 40)]


@pytest.mark.parametrize("name", BY_LAPACK)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_the_inner_functions_give_numpys_bits(name, dtype, monkeypatch):
    function, shapes_of, option, options = BY_LAPACK[name]
    rng = np.random.default_rng(0)
    for shape in MATRIX_SHAPES:
        if name == "eigh" and shape[-1] != shape[-2]:
            continue
        imaginary = 1j * rng.standard_normal(shape) if "complex" in dtype else 0
        given = (rng.standard_normal(shape) + imaginary).astype(dtype)
        for x in (given, np.asfortranarray(given), given[..., ::-1, :]):
            for choice in options:
                shapes = shapes_of(*shape[-2:], **{option: choice})
                found = function(x, shapes, choice)
                with monkeypatch.context() as without:
                    without.setattr(lapack, f"_{name.upper()}", None)
                    expected = function(x, shapes, choice)
                assert found.dtype == expected.dtype == x.dtype and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["svd", "eigh"])
def test_what_does_not_converge_says_so(name):
    run = lambda x: getattr(weft.linalg, name)(x)[0]  # noqa: E731
    for function in (run, weft.compile(run)):
        with pytest.raises(weft.linalg.LinAlgError, match=f"linalg.{name}: .* did not converge"):
            function(weft.full((3, 3), weft.nan))
        with np.errstate(all="raise"):
            assert function(weft.eye(3) * 1e-40).shape


def counted(monkeypatch, owner, name):
    calls, function = [], getattr(owner, name)

    def counting(*args, **kwargs):
        calls.append(name)
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, counting)
    return calls


@pytest.mark.parametrize("compiled", [False, True])
def test_least_squares_decompose_once(compiled, monkeypatch):
    x, y = weft.tensor(matrices(2, 4, 3), requires_grad=True), weft.ones(2, 4, 2, dtype=weft.float64)

    def run(x):
        found = weft.linalg.lstsq(x, y, driver="gelsd")
        return found.rank, found.singular_values, *weft.autograd.grad(found.solution.square().sum(), [x])

    function, expected = weft.compile(run) if compiled else run, weft.linalg.svdvals(x.detach())
    calls = counted(monkeypatch, np.linalg, "svd")
    for k in range(1, 5):
        rank, values, _ = function(x)
        assert len(calls) == k and rank.tolist() == [3, 3] and values.allclose(expected)


def test_nothing_is_factored_twice(monkeypatch):
    qr, ldl = counted(monkeypatch, np.linalg, "qr"), counted(monkeypatch, symmetric, "_factored")
    weft.geqrf(weft.eye(3)), weft.linalg.ldl_factor(weft.eye(4).expand(2, 4, 4))
    assert (len(qr), len(ldl)) == (1, 2)


def of_rank(rank, m, n, dtype, seed=0):
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((m, rank)), rng.standard_normal((rank, n))
    left = left + 1j * rng.standard_normal((m, rank)) if dtype == "complex128" else left
    return (left @ right if rank < min(m, n) else left[:, :1] @ right[:1] * 0.1 + np.eye(m, n) * 3).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("m, n", [(20, 20), (30, 12), (12, 30), (4, 3)])
def test_least_squares_of_full_and_lower_rank(m, n, dtype):
    least, allowed = min(m, n), {"rtol": 1e-3, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-7, "atol": 1e-9}
    x = np.stack([of_rank(least, m, n, dtype), of_rank(least - 2, m, n, dtype, seed=1)])
    y = np.random.default_rng(2).standard_normal((m, 2)).astype(dtype)
    for given, ranks in ((x, [least, least - 2]), (x[:1], [least]), (x[1], least - 2)):
        target = np.broadcast_to(y, (*given.shape[:-2], m, 2)).copy()
        found = weft.linalg.lstsq(weft.tensor(given), weft.tensor(target), rcond=1e-5)
        assert found.rank.tolist() == ranks and found.rank.dtype is weft.int64
        np.testing.assert_allclose(found.solution.numpy(), np.linalg.pinv(given, rcond=1e-5) @ target, **allowed)


@pytest.mark.parametrize("m, n", [(12, 10), (10, 12)])
def test_least_squares_have_derivatives_to_second_order(m, n):
    x = weft.tensor(of_rank(10, m, n, "float64"), requires_grad=True)
    y = weft.tensor(np.random.default_rng(0).standard_normal((m, 1)), requires_grad=True)

    def run(x, y):
        return weft.linalg.lstsq(x, y).solution.square().sum()

    assert weft.autograd.gradcheck(run, (x, y)) and weft.autograd.gradgradcheck(run, (x, y))
    compiled = weft.compile(lambda x, y: weft.autograd.grad(run(x, y), [x, y]))
    for _ in range(4):
        assert all((f == e).all() for f, e in zip(compiled(x, y), weft.autograd.grad(run(x, y), [x, y])))


def test_least_squares_of_nan_fail():
    for n in (3, 20):
        with pytest.raises(weft.linalg.LinAlgError, match="linalg.lstsq: SVD did not converge"):
            weft.linalg.lstsq(weft.full((n, n), weft.nan), weft.ones(n, 1))
