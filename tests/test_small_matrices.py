"""Factorizations and what is solved with them inside programs: Gaussian processes, filters, changes of variables."""

import numpy as np
import pytest

import weft

SIZES = [1, 2, 3, 7, 8, 9, 16, 17, 33]


def matrices(n, seed=0, batch=(), dtype=np.float64):
    x = np.random.default_rng(seed).normal(size=(*batch, n, n))
    return (x @ x.swapaxes(-1, -2) + n * np.eye(n)).astype(dtype)


def gaussian_process(logs, x, y):
    """Minus the log likelihood, but for a constant."""
    distance = (x[:, None] - x[None, :]) / logs[1].exp()
    kernel = logs[0].exp() * weft.exp(-0.5 * distance**2) + logs[2].exp() * weft.eye(len(x), dtype=weft.float64)
    lower = weft.linalg.cholesky(kernel)
    white = weft.linalg.solve_triangular(lower, y[:, None], upper=False)
    return 0.5 * (white * white).sum() + lower.diagonal().log().sum()


def kalman_filter(noise, y):
    state, spread = weft.zeros(2, dtype=weft.float64), weft.eye(2, dtype=weft.float64)
    moves = weft.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=weft.float64)
    seen = weft.tensor([[1.0, 0.0]], dtype=weft.float64)
    total = 0.0
    for value in y:
        state, spread = moves @ state, moves @ spread @ moves.T + noise * weft.eye(2, dtype=weft.float64)
        innovation = seen @ spread @ seen.T + 0.1
        gain = weft.linalg.solve(innovation, seen @ spread).T
        rest = value.reshape(1) - seen @ state
        total = total + weft.logdet(innovation) + rest @ weft.linalg.solve(innovation, rest)
        state, spread = state + gain @ rest, spread - gain @ seen @ spread
    return total


def flow(a, x):
    return (x @ a).square().sum() - weft.linalg.slogdet(a)[1] - weft.linalg.det(a[:2, :2]) + weft.linalg.inv(a).sum()


def with_gradient(function):
    def run(p, *data):
        p = p.detach().requires_grad_()
        value = function(p, *data)
        return value.detach(), weft.autograd.grad(value, p)[0]

    return run


PROGRAMS = {
    "gaussian process": (gaussian_process, lambda: (np.array([0.0, -1, -2]), np.linspace(0, 1, 12), np.arange(12.0))),
    "Kalman filter": (kalman_filter, lambda: (np.array(0.1), np.sin(np.arange(6.0)))),
    "flow": (flow, lambda: (matrices(5), np.ones((3, 5)))),
}


@pytest.mark.parametrize("function,data", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_hold_them(function, data):
    run, arguments = with_gradient(function), [weft.tensor(x) for x in data()]
    compiled, expected = weft.compile(run, fullgraph=True), run(*arguments)
    for _ in range(5):
        found = compiled(*arguments)
        assert [x.numpy().tobytes() for x in found] == [x.numpy().tobytes() for x in expected]
    assert compiled.breaks == ()
    assert weft.autograd.gradcheck(lambda p: function(p, *arguments[1:]), arguments[0].requires_grad_())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", SIZES)
def test_they_are_what_numpy_finds(n, dtype):
    x, y = matrices(n, dtype=dtype, batch=(2,)), np.ones((2, n, 3), dtype)
    a, b, allowed = weft.tensor(x), weft.tensor(y), {"rtol": 2e-5 if dtype is np.float32 else 1e-11}
    np.testing.assert_allclose(weft.linalg.cholesky(a).numpy(), np.linalg.cholesky(x), atol=allowed["rtol"], **allowed)
    np.testing.assert_allclose(weft.linalg.solve(a, b).numpy(), np.linalg.solve(x, y), atol=allowed["rtol"], **allowed)
    np.testing.assert_allclose(weft.linalg.inv(a).numpy(), np.linalg.inv(x), atol=allowed["rtol"], **allowed)
    np.testing.assert_allclose(weft.linalg.det(a).numpy(), np.linalg.det(x), **allowed)
    np.testing.assert_allclose(weft.linalg.slogdet(-a)[1].numpy(), np.linalg.slogdet(-x)[1], **allowed)
    assert weft.linalg.slogdet(-a)[0].tolist() == np.linalg.slogdet(-x)[0].tolist()


@pytest.mark.parametrize("n", SIZES)
def test_cofactors_of_singular_matrices(n):
    """The derivative of det, from the singular values."""
    x = np.random.default_rng(n).normal(size=(n, n))
    x[-1] = x[:-1].sum(0)
    u, s, v = np.linalg.svd(x)
    others = np.array([np.prod(np.delete(s, k)) for k in range(n)])
    expected = np.linalg.det(u) * np.linalg.det(v) * (u * others) @ v
    a = weft.tensor(x, requires_grad=True)
    weft.linalg.det(a).backward()
    np.testing.assert_allclose(a.grad.numpy(), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_ranks_below_have_none():
    a = weft.zeros(4, 4, requires_grad=True)
    weft.linalg.det(a).backward()
    assert a.grad.tolist() == weft.zeros(4, 4).tolist()


FAILING = {
    "cholesky": (weft.linalg.cholesky, [[1.0, 2.0], [2.0, 1.0]], "linalg.cholesky: .* not positive-definite"),
    "solve": (lambda a: weft.linalg.solve(a, a), [[1.0, 2.0], [2.0, 4.0]], "linalg.solve: .* singular"),
    "inv": (weft.linalg.inv, [[0.0, 0.0], [0.0, 0.0]], "linalg.inv: .* singular"),
}


@pytest.mark.parametrize("function,bad,message", FAILING.values(), ids=FAILING)
def test_a_call_fails_as_eager_mode_does_and_changes_nothing(function, bad, message):
    seen = weft.zeros(())

    @weft.compile
    def run(a):
        seen.add_(1)
        return function(a)

    good, bad = weft.eye(2), weft.tensor([weft.eye(2).tolist(), bad])
    for _ in range(5):
        assert run(good).tolist() == function(good).tolist()
    for call in (lambda: function(bad), lambda: function(bad[1]), lambda: run(bad[1]).tolist()):
        with pytest.raises(weft.linalg.LinAlgError, match=message):
            call()
    assert run(good).tolist() == function(good).tolist()


@pytest.mark.parametrize("function,bad,message", FAILING.values(), ids=FAILING)
def test_nan_is_no_singular_matrix(function, bad, message):
    a = weft.full((3, 3), float("nan"))
    if function is weft.linalg.cholesky:
        with pytest.raises(weft.linalg.LinAlgError):
            function(a)
    else:
        assert function(a).isnan().all()


def with_jitter(x):
    """More of it until it works, as Gaussian processes do."""
    jitter = 0.0
    while True:
        try:
            return weft.linalg.cholesky(x + jitter * weft.eye(3)) * 1, jitter
        except weft.linalg.LinAlgError:
            jitter = jitter * 10 or 1e-3


def factor_or_none(x):
    with weft.enable_grad():
        try:
            with weft.enable_grad():
                lower = weft.linalg.inv(x)
        except RuntimeError:
            lower = None
    return lower, 1.0


def in_a_helper(x):
    try:
        return factor_or_none(x)[0] * 1 + with_jitter(x)[0], 2.0
    except TypeError:
        return x * 1, 3.0


@pytest.mark.parametrize("function", [with_jitter, factor_or_none, in_a_helper])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_failure_is_caught_where_eager_mode_catches_it(function, requires_grad):
    run = weft.compile(function)
    bad, good = weft.ones(3, 3), weft.ones(3, 3) - 0.01 * weft.eye(3) + weft.eye(3)
    for x in (good, bad, good, good, good, good, bad, bad, bad, good, bad):
        x = x.detach().requires_grad_(requires_grad)
        (found, label), (expected, wanted) = run(x), function(x)
        assert (found is None, label) == (expected is None, wanted)
        if found is not None:
            assert found.tolist() == expected.tolist()
            if requires_grad and expected.requires_grad:
                gradients = [weft.autograd.grad(y.sum(), x)[0].tolist() for y in (found, expected)]
                assert gradients[0] == gradients[1]


def test_what_the_caller_catches_is_not_asked_for_at_once():
    run = weft.compile(lambda x: weft.linalg.inv(x + 1) * 2)
    for _ in range(5):
        try:
            assert run(weft.eye(2)).shape == (2, 2)
        except weft.linalg.LinAlgError:
            raise AssertionError("nothing is singular here") from None
    assert run.breaks == ()


@pytest.mark.filterwarnings("ignore:weft. run has been compiled")
def test_sizes_share_a_program():
    run = weft.compile(with_gradient(gaussian_process))
    for n in range(4, 24):
        data = [weft.tensor(x) for x in (np.array([0.0, -1, -2]), np.linspace(0, 1, n), np.sin(np.arange(float(n))))]
        found, expected = run(*data), with_gradient(gaussian_process)(*data)
        assert [x.numpy().tobytes() for x in found] == [x.numpy().tobytes() for x in expected]
    assert run.explain(verbose=True).count("serves many sizes") == 19


def test_sizes_that_make_no_tile_share_a_program_with_those_that_do():
    """A kernel of tiles gets its part of them also where there is none at the size that is compiled."""

    def solved(x, y):
        return weft.linalg.solve_triangular((x * 2).T, y, upper=True)

    run, sizes = weft.compile(solved), (*range(5, 13), 66, 70, 130, 9)
    for n in sizes:
        x, y = weft.randn(n, n, dtype=weft.float64) + 5 * weft.eye(n), weft.randn(n, 2, dtype=weft.float64)
        assert run(x, y).numpy().tobytes() == solved(x, y).numpy().tobytes()
    assert run.explain(verbose=True).count("serves many sizes") == len(set(sizes)) - 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_many_matrices_are_shared_among_threads(threads):
    before = weft.get_num_threads()
    x = weft.tensor(matrices(24, batch=(64,)))
    try:
        weft.set_num_threads(threads)
        found = weft.compile(weft.linalg.cholesky)(x)
    finally:
        weft.set_num_threads(before)
    assert found.numpy().tobytes() == weft.linalg.cholesky(x).numpy().tobytes()


@pytest.mark.oracle
def test_pytorch_finds_the_same():
    torch = pytest.importorskip("torch")
    for n in (2, 6):
        x, y = matrices(n, batch=(3,)), np.random.default_rng(1).normal(size=(n, 2))
        results = []
        for library in (weft, torch):
            a, b = (library.tensor(v, requires_grad=True) for v in (x, y))
            lower = library.linalg.cholesky(a)
            out = library.linalg.solve(a, b).sum() + library.linalg.solve_triangular(lower, b, upper=False).sum()
            out = out + library.logdet(a).sum() + library.linalg.det(a).sum() / 1e3 + library.linalg.inv(a).sum()
            results.append([out.item(), *(g.numpy() for g in library.autograd.grad(out, [a, b]))])
        for found, expected in zip(*results):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_large_ones_are_left_to_lapack():
    x = matrices(600)
    assert weft.linalg.cholesky(weft.tensor(x)).numpy().tobytes() == np.linalg.cholesky(x).tobytes()
    f = weft.compile(lambda a: weft.linalg.cholesky(a) * 2)
    assert f(weft.tensor(x)).numpy().tobytes() == (np.linalg.cholesky(x) * 2).tobytes()
    assert ["computed by NumPy" in reason for reason, *_ in f.breaks] == [True]


def test_native_functions_hold_them():
    """Nothing of LAPACK is needed where they run."""
    data = [weft.tensor(x) for x in PROGRAMS["gaussian process"][1]()]
    native = weft.aot(gaussian_process, data, gradients=True)
    value, *gradients = native.value_and_grad(*[x.numpy() for x in data])
    p = data[0].requires_grad_()
    expected = gaussian_process(p, *data[1:])
    assert float(value) == expected.item()
    assert gradients[0].tolist() == weft.autograd.grad(expected, p)[0].tolist()
