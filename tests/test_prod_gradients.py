"""Derivatives of prod where elements are zero: none, one, two or more of a row, up to the fourth order."""

import numpy as np
import pytest

import weft


def derivatives(library, x, axis, order):
    x = library.tensor(x, requires_grad=True)
    weights = library.arange(x.numel(), dtype=x.dtype).reshape(x.shape).cos()
    value, found = (x.prod() if axis is None else x.prod(axis).sin().sum()), []
    for k in range(order):
        (slope,) = library.autograd.grad(value, x, create_graph=True)
        found.append(slope)
        value = (slope * weights ** (k + 1)).sum()
    return [f.detach().numpy() for f in found]


@pytest.mark.oracle
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize(
    "zeros", [(), ((0, 1, 1),), ((0, 1, 1), (1, 1, 1)), ((0, 1, 1), (0, 0, 1), (0, 1, 0), (1, 0, 1))]
)
def test_derivatives_of_any_order(axis, zeros):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).uniform(0.5, 1.5, (2, 3, 2))
    for place in zeros:
        x[place] = 0.0
    theirs, ours = derivatives(torch, x, axis, 4), derivatives(weft, x, axis, 4)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, 1e-10, 1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, axis", [((60, 70), 1), ((60, 70), 0), ((3000,), 0), ((700, 800), 1)])
def test_compiled_gradients_have_the_same_bits(shape, axis, dtype):
    x = np.random.default_rng(1).uniform(0.9, 1.1, shape).astype(dtype)
    x[0] = 0.0
    cotangent = weft.ones(*(d for k, d in enumerate(shape) if k != axis), dtype=getattr(weft, dtype))

    def gradient(x):
        return weft.autograd.grad(x.prod(axis), x, cotangent)[0]

    compiled, x = weft.compile(gradient), weft.tensor(x, requires_grad=True)
    wanted = gradient(x).numpy()
    for _ in range(3):
        assert gradient(x).numpy().tobytes() == compiled(x).numpy().tobytes() == wanted.tobytes()
