"""linalg.ldl_factor and ldl_solve against PyTorch: factors, pivots, what is singular, batches, no derivatives."""

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def indefinite(shape, seed, share=1.0):
    """Symmetric matrices, a share of whose elements is not 0."""
    rng = np.random.default_rng(seed)
    made = np.tril(rng.normal(size=shape) * (rng.random(shape) < share))
    return made + np.tril(made, -1).swapaxes(-1, -2)


@pytest.mark.parametrize("share", [1.0, 0.4])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 20, 70])
def test_factors_and_pivots_are_those_of_pytorch(n, share):
    for seed in range(6):
        array = indefinite((2, n, n), seed, share)
        ours = weft.linalg.ldl_factor_ex(weft.tensor(array))
        theirs = torch.linalg.ldl_factor_ex(torch.tensor(array))
        assert ours.pivots.tolist() == theirs.pivots.tolist() and ours.pivots.dtype is weft.int32
        assert ours.info.tolist() == theirs.info.tolist()
        np.testing.assert_allclose(ours.LD.numpy(), theirs.LD.numpy(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_what_is_solved_solves(n):
    array = indefinite((3, n, n), 7)
    # What is above the diagonal is not read.
    factors, pivots = weft.linalg.ldl_factor(weft.tensor(np.tril(array)))
    b = np.random.default_rng(8).normal(size=(n, 2))
    x = weft.linalg.ldl_solve(factors, pivots, weft.tensor(b))
    np.testing.assert_allclose(array @ x.numpy(), np.broadcast_to(b, (3, n, 2)), atol=1e-8)
    out = weft.empty(3, n, 2, dtype=weft.float64)
    assert weft.linalg.ldl_solve(factors, pivots, weft.tensor(b), out=out) is out and out.equal(x)

    @weft.compile
    def solve(a, b):
        return weft.linalg.ldl_solve(*weft.linalg.ldl_factor(a), b)

    for _ in range(3):
        assert solve(weft.tensor(array), weft.tensor(b)).equal(x)


def test_singular_and_empty_matrices():
    with pytest.raises(weft.linalg.LinAlgError, match="ldl_factor: a matrix is singular"):
        weft.linalg.ldl_factor(weft.zeros(2, 2))
    assert weft.linalg.ldl_factor_ex(weft.zeros(3, 3)).info.item() == 1
    for shape in ((0, 0), (0, 3, 3), (2, 0, 0)):
        factors, pivots = weft.linalg.ldl_factor(weft.zeros(shape))
        assert factors.shape == shape and pivots.shape == shape[:-1]
        assert weft.linalg.ldl_solve(factors, pivots, weft.zeros(*shape[:-1], 4)).shape == (*shape[:-1], 4)


def test_wrong_operands():
    factors, pivots = weft.linalg.ldl_factor(weft.eye(2))
    for run in (
        lambda: weft.linalg.ldl_factor(weft.ones(2, 3)),
        lambda: weft.linalg.ldl_factor(weft.ones(3)),
        lambda: weft.linalg.ldl_solve(factors, pivots, weft.ones(3, 1)),
        lambda: weft.linalg.ldl_solve(factors, pivots[:1], weft.ones(2, 1)),
        lambda: weft.linalg.ldl_solve(factors, pivots.float(), weft.ones(2, 1)),
        lambda: weft.linalg.ldl_solve(factors, pivots, weft.ones(2, 1, dtype=weft.float64)),
    ):
        with pytest.raises(RuntimeError, match="linalg.ldl_"):
            run()


def test_backward_says_that_there_is_no_derivative():
    a = weft.eye(3).requires_grad_()
    for made in (weft.linalg.ldl_factor(a).LD, weft.geqrf(a).a, weft.linalg.qr(a[:, :2], "complete").Q):
        assert made.requires_grad
        with pytest.raises(RuntimeError, match="derivative"):
            made.sum().backward()


@pytest.mark.oracle
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("with_b", [True, False])
def test_lobpcg_like_pytorch(largest, with_b):
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(0)
    half = generator.standard_normal((2, 9, 9))
    a, b = half @ half.swapaxes(-1, -2), np.diag(np.linspace(1.0, 3.0, 9)) + 0.1
    torch.manual_seed(0)
    ours = weft.lobpcg(weft.tensor(a), k=2, B=weft.tensor(b) if with_b else None, largest=largest, niter=50)
    theirs = torch.lobpcg(
        torch.tensor(a), k=2, B=torch.tensor(np.stack([b, b])) if with_b else None, largest=largest, niter=-1, tol=1e-10
    )
    np.testing.assert_allclose(ours[0].numpy(), theirs[0].numpy(), 1e-7)
    np.testing.assert_allclose(abs(ours[1].numpy()), abs(theirs[1].numpy()), 1e-3, 1e-4)
    metric = weft.tensor(b) if with_b else weft.eye(9, dtype=weft.float64)
    assert (ours[1].mT @ metric @ ours[1]).allclose(weft.eye(2, dtype=weft.float64).expand(2, 2, 2), atol=1e-10)


def test_lobpcg_has_symmetric_derivatives_to_second_order():
    weft.manual_seed(0)
    half = weft.rand(7, 7, dtype=weft.float64)
    a = (half @ half.mT).requires_grad_()

    def run(a):
        values, vectors = weft.lobpcg(a, k=2)
        return values, vectors.abs()

    assert weft.autograd.gradcheck(run, [a]) and weft.autograd.gradgradcheck(run, [a], atol=1e-4)
    sum(r.sum() for r in run(a)).backward()
    assert a.grad.allclose(a.grad.mT)
    assert [r.tolist() for r in weft.compile(run)(a)] == [r.tolist() for r in run(a)]


def test_what_lobpcg_refuses():
    a = weft.eye(8)
    assert [r.shape for r in weft.lobpcg(a, X=weft.randn(8, 2))] == [(2,), (8, 2)] and len(weft.lobpcg(a)[0]) == 1
    for k in (0, 3):
        with pytest.raises(ValueError, match="smaller than 3 x the number of requested eigenpairs"):
            weft.lobpcg(a, k)
    with pytest.raises(ValueError, match=r"lobpcg: A must be square, got shape \(3, 4\)"):
        weft.lobpcg(weft.ones(3, 4), 1)
    with pytest.raises(ValueError, match="lobpcg: expected A of a floating point type, got int64"):
        weft.lobpcg(weft.ones(3, 3).long(), 1)
    with pytest.raises(NotImplementedError, match="tracker follows iterations"):
        weft.lobpcg(a, 1, tracker=print)
