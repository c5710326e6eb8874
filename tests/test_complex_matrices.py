"""Factors, solvers and convolutions of complex numbers against PyTorch: values, both derivatives, compiled bits."""

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def numbers(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape) + 2 * np.eye(*shape[-2:])


def definite(m, z):
    return z @ z.mH + m.eye(z.shape[-1], dtype=z.dtype)


# (function of the module and of the tensors, their shapes)
CASES = {
    "cholesky": (lambda m, z: m.linalg.cholesky(definite(m, z)), (2, 3, 3)),
    "cholesky, upper": (lambda m, z: m.linalg.cholesky(definite(m, z), upper=True), (3, 3)),
    "cholesky_solve": (lambda m, z, b: m.cholesky_solve(b, m.linalg.cholesky(definite(m, z))), (3, 3), (2, 3, 2)),
    "cholesky_inverse": (lambda m, z: m.cholesky_inverse(m.linalg.cholesky(definite(m, z))), (3, 3)),
    "triangles": (lambda m, z, b: m.linalg.solve_triangular(z, b, upper=True), (3, 3), (3, 2)),
    "triangles on the right": (
        lambda m, z, b: m.linalg.solve_triangular(z, b, upper=False, left=False, unitriangular=True),
        (2, 3, 3),
        (2, 2, 3),
    ),
    "triangular_solve": (lambda m, z, b: m.triangular_solve(b, z, transpose=True)[0], (3, 3), (3, 2)),
    "lu": (lambda m, z: m.linalg.lu(z)[2] * 2 + m.linalg.lu(z)[1], (2, 3, 3)),
    "lu_factor": (lambda m, z: m.linalg.lu_factor(z)[0], (4, 2)),
    "lu_solve": (lambda m, z, b: m.linalg.lu_solve(*m.linalg.lu_factor(z), b), (3, 3), (3, 2)),
    "lu_solve, adjoint": (lambda m, z, b: m.linalg.lu_solve(*m.linalg.lu_factor(z), b, adjoint=True), (3, 3), (3, 2)),
    "lu_solve on the right": (lambda m, z, b: m.linalg.lu_solve(*m.linalg.lu_factor(z), b, left=False), (3, 3), (2, 3)),
    "pinv": (lambda m, z: m.linalg.pinv(z), (2, 3, 2)),
    "lstsq": (lambda m, z, b: m.linalg.lstsq(z, b).solution, (4, 2), (4, 3)),
    "matrix_exp": (lambda m, z: m.linalg.matrix_exp(z), (2, 3, 3)),
    "householder_product": (lambda m, z, b: m.linalg.householder_product(z, b[0]), (4, 3), (1, 3)),
    "vander": (lambda m, z: m.linalg.vander(z[0], N=4), (1, 3)),
    "conv1d": (
        lambda m, z, w, b: m.nn.functional.conv1d(z, w, b[0], stride=2, padding=1),
        (2, 3, 7),
        (4, 3, 3),
        (1, 4),
    ),
    "conv2d": (lambda m, z, w: m.nn.functional.conv2d(z, w, groups=2, dilation=2), (1, 4, 6, 5), (2, 2, 2, 2)),
    "conv_transpose2d": (
        lambda m, z, w: m.nn.functional.conv_transpose2d(z, w, stride=2, output_padding=1),
        (2, 4, 4),
        (2, 3, 2, 2),
    ),
    "float_power": (lambda m, z: z.float_power(2.5), (3, 2)),
    "l1_loss": (lambda m, z, y: m.nn.functional.l1_loss(z, y, reduction="sum"), (3, 2), (3, 2)),
    "pairwise_distance": (lambda m, z, y: m.nn.functional.pairwise_distance(z, y, 3.0), (3, 2), (3, 2)),
}


def size_of(module, made, seed):
    """A real number that depends on all elements."""
    weights = module.tensor(np.random.default_rng(seed).uniform(0.5, 1.5, tuple(made.shape)))
    return (
        (made.real * weights).sum() + (made.imag * weights * weights).sum()
        if made.is_complex()
        else ((made * weights).sum())
    )


def derivatives(module, function, arrays):
    leaves = [module.tensor(a, requires_grad=True) for a in arrays]
    made = function(module, *leaves)
    first = module.autograd.grad(size_of(module, made, 1), leaves, create_graph=True)
    total = sum(size_of(module, g, 2) for g in first)
    second = module.autograd.grad(total, leaves, allow_unused=True) if total.requires_grad else ()
    return [made, *first, *(x * 0 if g is None else g for g, x in zip(second, leaves))]


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name):
    function, *shapes = CASES[name]
    arrays = [numbers(*s, seed=k) for k, s in enumerate(shapes)]
    for ours, theirs in zip(*(derivatives(m, function, arrays) for m in (weft, torch)), strict=True):
        expected = theirs.detach().resolve_conj().numpy()
        np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", str.split("cholesky lu_solve pinv conv1d"))
def test_compiled_calls_have_the_same_bits(name):
    function, *shapes = CASES[name]
    leaves = [weft.tensor(numbers(*s, seed=k), requires_grad=True) for k, s in enumerate(shapes)]

    def run(*leaves):
        made = function(weft, *leaves)
        return made, *weft.autograd.grad(size_of(weft, made, 1), leaves)

    expected, compiled = run(*leaves), weft.compile(run)
    for _ in range(3):
        for ours, eager in zip(compiled(*leaves), expected, strict=True):
            assert ours.detach().numpy().tobytes() == eager.detach().numpy().tobytes()


def test_values_of_hermitian_matrices_without_a_gradient():
    z = numbers(2, 3, 3)
    for function in (lambda m, x: m.linalg.svdvals(x), lambda m, x: m.linalg.eigvalsh(definite(m, x))):
        np.testing.assert_allclose(function(weft, weft.tensor(z)).numpy(), function(torch, torch.tensor(z)).numpy())
    assert weft.linalg.matrix_rank(weft.tensor(z)).tolist() == [3, 3]


def test_what_has_no_meaning_yet_says_so():
    z = weft.tensor(numbers(3, 3), requires_grad=True)
    for run in (weft.linalg.qr, weft.linalg.eigh, weft.linalg.svd, weft.linalg.svdvals):
        with pytest.raises(NotImplementedError, match="complex128"):
            run(z)
    with pytest.raises(RuntimeError, match="one type"):
        weft.nn.functional.conv1d(weft.ones(1, 1, 3), weft.ones(1, 1, 1, dtype=weft.complex64))
