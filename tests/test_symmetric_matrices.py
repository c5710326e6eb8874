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
