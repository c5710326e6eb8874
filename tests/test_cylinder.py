"""Bessel and Airy functions and orthogonal polynomials: exact values, derivatives, compiled bits."""

import mpmath
import numpy as np
import pytest

import weft
from weft.compiler.ops.orthogonal import FAMILIES

EXACT = {
    "airy_ai": mpmath.airyai,
    "bessel_j0": lambda x: mpmath.besselj(0, x),
    "bessel_j1": lambda x: mpmath.besselj(1, x),
    "bessel_y0": lambda x: mpmath.bessely(0, x),
    "bessel_y1": lambda x: mpmath.bessely(1, x),
    "modified_bessel_k0": lambda x: mpmath.besselk(0, x),
    "modified_bessel_k1": lambda x: mpmath.besselk(1, x),
    "scaled_modified_bessel_k0": lambda x: mpmath.exp(x) * mpmath.besselk(0, x),
    "scaled_modified_bessel_k1": lambda x: mpmath.exp(x) * mpmath.besselk(1, x),
}
SIGNED = {"airy_ai", "bessel_j0", "bessel_j1"}
# On both sides of every border between expansions.
POINTS = [1e-9, 0.3, 0.999, 1.001, 1.999, 2.001, 2.9, 3.1, 7.999, 8.001, 17.5, 60.0]


@pytest.mark.parametrize("name", EXACT)
def test_values_are_exact_to_thirteen_digits(name):
    points = POINTS + ([-x for x in POINTS] if name in SIGNED else [])
    found = getattr(weft.special, name)(weft.tensor(points, dtype=weft.float64)).numpy()
    exact = np.array([float(EXACT[name](mpmath.mpf(x))) for x in points])
    # Near its zeros a wave is exact as compared with its amplitude.
    np.testing.assert_allclose(found, exact, rtol=1e-13, atol=1e-14)


def called(name, x):
    degrees = () if name in EXACT else (weft.tensor([3, 5]),)
    return getattr(weft.special, name)(x, *degrees)


@pytest.mark.parametrize("name", [*EXACT, *FAMILIES])
def test_derivatives(name):
    x = weft.tensor([0.4, 9.5], dtype=weft.float64, requires_grad=True)
    slope = weft.autograd.grad(called(name, x).sum(), x)[0]
    h, fixed = 1e-3, x.detach()
    near, far = ((called(name, fixed + k * h) - called(name, fixed - k * h)) / (2 * k * h) for k in (1, 2))
    np.testing.assert_allclose(slope.numpy(), ((4 * near - far) / 3).numpy(), rtol=1e-8, atol=1e-10)


def test_second_derivative_of_a_polynomial():
    x = weft.tensor([0.5], dtype=weft.float64, requires_grad=True)
    first = weft.autograd.grad(weft.special.hermite_polynomial_h(x, 4).sum(), x, create_graph=True)[0]
    assert first.item() == 64 * 0.5**3 - 96 * 0.5
    assert weft.autograd.grad(first.sum(), x)[0].item() == 192 * 0.5**2 - 96


@pytest.mark.parametrize("name", ["modified_bessel_k0", "bessel_y0", "legendre_polynomial_p"])
def test_compiled_bits(name):
    x = weft.tensor([0.4, 9.5], dtype=weft.float64, requires_grad=True)

    def gradient(x):
        value = called(name, x)
        return value.detach(), weft.autograd.grad(value.sum(), x)[0]

    compiled = weft.compile(gradient)
    for _ in range(3):
        assert all((a == b).all() for a, b in zip(compiled(x), gradient(x)))


def test_a_degree_of_too_many_steps_is_refused():
    with pytest.raises(RuntimeError, match="the degree 1000000000 is beyond 16777216.*give smaller degrees"):
        weft.special.legendre_polynomial_p(weft.tensor([0.5]), 10**9)
    assert weft.special.legendre_polynomial_p(weft.tensor([0.5, 0.5]), weft.tensor([-1.0, 1e20])).tolist() == [0, 0]
