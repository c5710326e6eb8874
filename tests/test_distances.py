"""cdist: values and gradients against PyTorch, the same bits compiled and in programs of eager mode, close rows."""

import numpy as np
import pytest

import weft

SHAPES = [
    ((4, 3), (5, 3)),
    ((20, 3), (30, 3)),
    ((20, 17), (30, 17)),
    ((2, 1, 6, 9), (3, 9, 9)),
    ((5, 40), (1, 40)),
    ((1, 40), (50, 40)),
    ((300, 40), (200, 40)),
]


def gradients(library, x, y, cotangent, p):
    x, y = (library.tensor(a, requires_grad=True) for a in (x, y))
    made = library.cdist(x, y, p=p)
    return made, *library.autograd.grad(made, (x, y), library.tensor(cotangent))


@pytest.mark.oracle
@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("left, right", SHAPES)
def test_values_and_gradients(left, right, dtype, p):
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(0)
    x, y = rng.standard_normal(left).astype(dtype), rng.standard_normal(right).astype(dtype)
    y[..., 0, :] = x[(0,) * (x.ndim - 2)][0]  # a distance of 0, whose gradient is 0
    shape = (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-2])
    cotangent = rng.standard_normal(shape).astype(dtype)
    found = gradients(weft, x, y, cotangent, p)

    @weft.compile
    def compiled(x, y):
        made = weft.cdist(x, y, p=p)
        return made, *weft.autograd.grad(made, (x, y), weft.tensor(cotangent))

    again = compiled(*(weft.tensor(a, requires_grad=True) for a in (x, y)))
    for a, b in zip(found, again, strict=True):
        assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    differences = torch.tensor(x, requires_grad=True), torch.tensor(y, requires_grad=True)
    wanted = torch.linalg.vector_norm(differences[0].unsqueeze(-2) - differences[1].unsqueeze(-3), p, -1)
    expected = wanted, *torch.autograd.grad(wanted, differences, torch.tensor(cotangent))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), tolerance, 10 * tolerance)


def test_rows_that_are_close_to_each_other():
    """Squares and products of such rows cancel: only their differences tell how far they are apart."""
    rng = np.random.default_rng(1)
    x = (1000 + rng.random((40, 30))).astype("float32")
    y = (x + rng.choice([0.0, 0.125], x.shape)).astype("float32")
    wanted = np.sqrt(((x[:, None].astype("float64") - y[None]) ** 2).sum(-1))
    np.testing.assert_allclose(weft.cdist(weft.tensor(x), weft.tensor(y)).numpy(), wanted, 1e-6)
