"""Reductions of operands that do not lie in order, read as they lie: the bits of a copy that does."""

import numpy as np
import pytest

import weft

_VIEWS = {
    "transposed": lambda x: x.transpose(0, 1),
    "reversed": lambda x: x.permute(*reversed(range(x.dim()))),
    "turned": lambda x: x.permute(*range(1, x.dim()), 0),
    "channels first": lambda x: x.transpose(-1, -2),
    "columns": lambda x: x[..., 1:-2],
    "spread": lambda x: x[:, :1].expand(x.shape),
    "every second": lambda x: x.transpose(0, 1)[::2],
}
_SHAPES = [(5, 7), (37, 4), (3, 140, 9), (12, 11, 13), (2, 70, 3, 40), (2300, 19), (19, 2300), (300, 33)]


def _numbers(shape, dtype):
    rng = np.random.default_rng(sum(shape))
    if dtype.startswith("int"):
        return rng.integers(-50, 50, shape).astype(dtype)
    numbers = rng.standard_normal(shape).astype(dtype)
    numbers[rng.random(shape) < 0.05] = -0.0
    return numbers


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_bits_are_those_of_a_copy(shape, dtype):
    x = weft.tensor(_numbers(shape, dtype))
    reductions = {
        "sum": lambda x, d: x.sum(d),
        "amax": lambda x, d: x.amax(d),
        "amin": lambda x, d: x.amin(d),
        "prod": lambda x, d: x.prod(d),
    }
    for view_name, view in _VIEWS.items():
        shown = view(x)
        if 0 in shown.shape:
            continue
        copy = weft.tensor(np.ascontiguousarray(shown.numpy()))
        for name, reduce in reductions.items():
            for d in range(-1, shown.dim() - 1):
                expected = reduce(copy, d).numpy().tobytes()
                for _ in range(12):  # native code takes over
                    assert reduce(shown, d).numpy().tobytes() == expected, (view_name, name, d)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none(special):
    numbers = _numbers((150, 40), "float32")
    numbers[70, 11] = special
    numbers[71, 11] = -special
    x = weft.tensor(numbers).t()
    copy = weft.tensor(np.ascontiguousarray(numbers.T))
    for reduce in (lambda x, d: x.sum(d), lambda x, d: x.amax(d), lambda x, d: x.amin(d)):
        for d in (0, 1):
            expected = reduce(copy, d).numpy()
            for _ in range(12):
                np.testing.assert_array_equal(reduce(x, d).numpy(), expected)


@pytest.mark.oracle
def test_several_dimensions_at_once_with_gradients():
    torch = pytest.importorskip("torch")
    numbers = _numbers((4, 6, 10, 16), "float64")

    def found(library):
        x = library.tensor(numbers, requires_grad=True)
        results = []
        for _ in range(12):
            y = (
                x.permute(0, 3, 1, 2).mean((2, 3)).square().sum()
                + x.permute(3, 1, 2, 0).sum((1, 2), keepdim=True).exp().mean()
            )
            results.append([y.item(), library.autograd.grad(y, x)[0].tolist()])
        return results

    for ours, theirs in zip(found(weft), found(torch)):
        assert ours[0] == pytest.approx(theirs[0], rel=1e-12)
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-10, atol=1e-13)
