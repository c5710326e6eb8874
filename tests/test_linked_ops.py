"""Ops that no program has, with derivatives: they run eagerly in a call that is replayed all the same."""

import numpy as np
import pytest

import weft

SYMMETRIC = weft.tensor(np.diag(np.arange(6.0)) + np.random.default_rng(0).uniform(-0.3, 0.3, (6, 6)))
SYMMETRIC = SYMMETRIC + SYMMETRIC.mT
TALL = weft.tensor(np.random.default_rng(1).normal(size=(8, 5)))


def lowest_state(p):
    values, vectors = weft.linalg.eigh(SYMMETRIC * p[0] + weft.diag(weft.arange(6.0).double()) * p[1])
    return (values * p[0]).sum() + (vectors[:, 0] ** 2 * weft.arange(6.0)).sum()


def low_rank(p):
    u, s, _ = weft.linalg.svd(TALL * p[0] + p[1], full_matrices=False)
    return (s * s.exp()).sum() + u[0].square().sum()


def least_squares(p):
    q, r = weft.linalg.qr(TALL * p[0] + p[1])
    return (weft.linalg.solve_triangular(r, q.mT @ TALL[:, :1], upper=True) ** 2).sum()


def spectrum(p):
    return weft.linalg.eigvalsh(SYMMETRIC * p[0] + p[1])[0] + weft.linalg.svdvals(TALL * p[1] + p[0]).sum()


def one_after_the_other(p):
    return (weft.linalg.eigh(SYMMETRIC * p[0])[0] * weft.linalg.svd(TALL * p[1])[1].sum()).sum()


def pseudo_inverse(p):
    return (weft.linalg.pinv(TALL * p[0] + p[1]) ** 2).sum()


FUNCTIONS = [lowest_state, low_rank, least_squares, spectrum, one_after_the_other, pseudo_inverse]


def points(n):
    for k in range(n):
        yield weft.tensor([1.0 + k / 16, 0.5 + k % 3 / 8], dtype=weft.float64)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_calls_with_their_derivatives_are_replayed(function):
    def run(p):
        p = p.detach().requires_grad_()
        value = function(p)
        return value.detach(), weft.autograd.grad(value, p)[0]

    compiled = weft.compile(run)
    for p in points(12):
        assert [x.tolist() for x in compiled(p)] == [x.tolist() for x in run(p)]
    assert compiled.recordings[0].replays
    assert all("computed by NumPy" in reason for reason, *_ in compiled.breaks)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_backward_outside_of_the_call(function):
    compiled = weft.compile(function)
    for p in points(8):
        gradients = []
        for f in (compiled, function):
            q = p.clone().requires_grad_()
            f(q).backward()
            gradients.append(q.grad.tolist())
        assert gradients[0] == gradients[1]


def test_now_with_a_derivative_and_now_without():
    compiled = weft.compile(lambda x: weft.linalg.eigh(x)[0].exp() * 2)
    for k in range(12):
        x = SYMMETRIC.clone().requires_grad_(k % 3 == 1)
        found, expected = compiled(x), weft.linalg.eigh(x)[0].exp() * 2
        assert found.requires_grad is (k % 3 == 1) and found.tolist() == expected.tolist()
        if found.requires_grad:
            first, second = (weft.autograd.grad(y.sum(), x)[0].tolist() for y in (found, expected))
            assert first == second


def test_training_through_one():
    """A layer whose weight has singular values of 1 at most, trained in a compiled step."""

    def trained(wrap):
        weft.manual_seed(0)
        layer = weft.nn.Linear(4, 4)
        optimizer = weft.optim.Adam(layer.parameters(), lr=0.01)

        def step(x):
            u, s, v = weft.linalg.svd(layer.weight)
            loss = (x @ (u * s.clamp(max=1.0)) @ v + layer.bias).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run, batches = wrap(step), weft.randn(10, 16, 4)
        return [run(x).item() for x in batches] + layer.weight.flatten().tolist()

    assert trained(weft.compile) == trained(lambda step: step)


@pytest.mark.oracle
@pytest.mark.parametrize("full", [False, True])
def test_singular_vectors_of_all_columns_have_derivatives(full):
    torch = pytest.importorskip("torch")
    gradients = []
    for library in (weft, torch):
        x = library.tensor(TALL.numpy(), requires_grad=True)
        u, s, v = library.linalg.svd(x, full_matrices=full)
        (u[:, :5].abs().sum(0) @ s + v.square().sum()).backward()
        gradients.append(x.grad.numpy())
    np.testing.assert_allclose(*gradients, rtol=1e-9, atol=1e-12)
