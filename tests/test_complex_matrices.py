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


def without_phase(values, vectors):
    """A function of a Hermitian matrix, and the absolute values of its vectors."""
    return (vectors * values[..., None, :].exp()) @ vectors.mH + vectors.abs()


def outer_products(u, s, vh):
    """What depends on how U and V turn against each other, and on no phase."""
    return u @ (s.sqrt()[..., :, None] * vh) + u.abs().sum()


# (function of the module and of the tensors, their shapes)
CASES = {
    "qr": (lambda m, z: m.cat(m.linalg.qr(z), -2), (2, 3, 3)),
    "qr of a high matrix": (lambda m, z: m.linalg.qr(z).Q @ m.linalg.qr(z).R[..., :1] + m.linalg.qr(z)[0], (4, 2)),
    "qr of a wide matrix": (lambda m, z: m.cat(m.linalg.qr(z), -1), (2, 2, 3)),
    "qr, R alone": (lambda m, z: m.linalg.qr(z).R, (4, 3)),
    "eigh": (lambda m, z: without_phase(*m.linalg.eigh(definite(m, z))), (2, 3, 3)),
    "eigh of the upper triangle": (lambda m, z: m.linalg.eigh(definite(m, z), UPLO="U")[1].abs(), (3, 3)),
    "eigvalsh": (lambda m, z: m.linalg.eigvalsh(definite(m, z)) ** 2, (2, 3, 3)),
    "svd": (lambda m, z: outer_products(*m.linalg.svd(z)), (2, 3, 3)),
    "svd of a high matrix": (lambda m, z: outer_products(*m.linalg.svd(z, full_matrices=False)), (4, 2)),
    "svd of a wide matrix": (lambda m, z: outer_products(*m.linalg.svd(z, full_matrices=False)), (2, 2, 4)),
    "svd, V": (lambda m, z: m.svd(z)[2].abs() + m.svd(z).U.abs(), (3, 3)),
    "svdvals": (lambda m, z: m.linalg.svdvals(z).log(), (3, 2)),
    "pinv of Hermitian matrices": (lambda m, z: m.linalg.pinv(definite(m, z), hermitian=True), (3, 3)),
    "nuclear norm": (lambda m, z: m.linalg.matrix_norm(z, "nuc"), (2, 3, 2)),
    "spectral norm": (lambda m, z: m.linalg.norm(z, 2), (3, 2)),
    "logsumexp": (lambda m, z: z.logsumexp((0, -1)), (2, 3, 2)),
    "logsumexp of large numbers": (lambda m, z: m.logsumexp(1000 * z[:, 0] + z[:, 1], 1, keepdim=True), (2, 3, 2)),
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


@pytest.mark.parametrize("name", str.split("cholesky lu_solve pinv conv1d qr eigh svd svdvals logsumexp"))
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


def test_ranks():
    assert weft.linalg.matrix_rank(weft.tensor(numbers(2, 3, 3))).tolist() == [3, 3]


@pytest.mark.parametrize("function", [
    lambda m, z: m.linalg.eigh(z + z.mH).eigenvectors.real.sum(),
    lambda m, z: m.linalg.eig(z).eigenvectors.real.sum(),
    lambda m, z: m.linalg.svd(z).U.real.sum(), lambda m, z: m.linalg.svd(z)[2].imag.sum(),
], ids=range(4))  # fmt: skip
def test_what_depends_on_the_phase_of_vectors_has_no_derivative(function):
    for m in (weft, torch):
        z = m.tensor(numbers(3, 3), requires_grad=True)
        runs = [function, weft.compile(function)] if m is weft else [function]
        for run in (*runs, *runs):
            with pytest.raises(RuntimeError, match=r"specified up to multiplication by e\^\{i phi\}"):
                run(m, z).backward()


@pytest.mark.parametrize("n", [0, 1])
def test_small_and_single_precision(n):
    for dtype in ("complex64", "complex128"):
        z = weft.tensor(numbers(2, n, n), dtype=getattr(weft, dtype), requires_grad=True)
        for made in (*weft.linalg.qr(z), *weft.linalg.eigh(z), *weft.linalg.svd(z)):
            assert made.dtype in (z.dtype, z.real.dtype) and made.shape[0] == 2
        assert weft.linalg.svdvals(z).dtype is z.real.dtype
        weft.linalg.svd(z).S.sum().backward()
        assert z.grad.dtype is z.dtype and z.grad.shape == z.shape


def test_types_that_do_not_go_together():
    with pytest.raises(RuntimeError, match="one type"):
        weft.nn.functional.conv1d(weft.ones(1, 1, 3), weft.ones(1, 1, 1, dtype=weft.complex64))
