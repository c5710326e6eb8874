"""scatter and scatter_ are one op: the same bits eagerly, in programs and in place, and gradients like PyTorch's."""

import numpy as np
import pytest

import weft

CASES = [
    ((5, 6), (3, 6), 0),
    ((5, 6), (5, 9), 1),
    ((4, 5, 6), (4, 2, 6), 1),
    ((7,), (9,), 0),
    ((600, 500), (600, 500), 1),
    ((600, 500), (300, 500), 0),
]


def given(shape, places, axis, dtype):
    rng = np.random.default_rng(3)
    x, part = ((rng.standard_normal(s) * 10).astype(dtype) for s in (shape, places))
    return x, rng.integers(0, shape[axis], places), part


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "bool"])
@pytest.mark.parametrize("shape, places, axis", CASES)
def test_the_last_of_equal_places_stays(shape, places, axis, dtype):
    x, index, part = given(shape, places, axis, dtype)
    wanted = x.copy()
    for at in np.ndindex(*places):
        wanted[(*at[:axis], index[at], *at[axis + 1 :])] = part[at]
    x, index, part = map(weft.tensor, (x, index, part))
    compiled = weft.compile(lambda x, index, part: x.scatter(axis, index, part))
    for _ in range(4):
        assert (x.scatter(axis, index, part).numpy() == wanted).all()
        assert (x.clone().scatter_(axis, index, part).numpy() == wanted).all()
        assert (compiled(x, index, part).numpy() == wanted).all()


@pytest.mark.oracle
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shape, places, axis", CASES)
def test_gradients(shape, places, axis, in_place):
    torch = pytest.importorskip("torch")
    arrays, found = given(shape, places, axis, "float64"), []
    for library in (weft, torch):
        x, index, part = map(library.tensor, arrays)
        x.requires_grad_(), part.requires_grad_()
        made = (x * 1).scatter_(axis, index, part) if in_place else x.scatter(axis, index, part)
        (made * made.detach().cos()).sum().backward()
        found.append((x.grad.numpy(), part.grad.numpy()))
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, 1e-12, 1e-12)


def test_a_node_of_its_own():
    x = weft.zeros(2, 3, requires_grad=True)
    assert x.scatter(1, weft.tensor([[0], [2]]), 1.0).grad_fn.name() == "ScatterBackward0"


def test_what_does_not_fit():
    x = weft.zeros(3)
    for scatter in (x.scatter, x.scatter_):
        with pytest.raises(IndexError, match="index 3 is out of bounds"):
            scatter(0, weft.tensor([0, 3]), weft.ones(2))
        with pytest.raises(RuntimeError, match="Expected self.dtype to be equal to src.dtype"):
            scatter(0, weft.tensor([0]), weft.ones(1).double())
    assert not x.any()
