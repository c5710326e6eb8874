"""interpolate and grid_sample: values, gradients and nodes against PyTorch, eager and compiled bits, far positions."""

from itertools import product

import numpy as np
import pytest

import weft

F = weft.nn.functional
RESIZED = [
    (shape, mode, align, sizes)
    for (shape, mode), align, sizes in product(
        (((2, 3, 7), "linear"), ((2, 3, 5, 6), "bilinear"), ((2, 3, 5, 6), "bicubic"), ((1, 2, 3, 4, 5), "trilinear")),
        (False, True),
        ({"scale_factor": 2.0}, {"scale_factor": 0.6}, {"size": 4}),
    )
]
SAMPLED = [
    *product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True), (2,)),
    *product(("bilinear", "nearest"), ("zeros", "border", "reflection"), (False, True), (3,)),
]
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}


def same(function, *arrays, torch):
    """function(library, *tensors): eager and compiled bits are equal, values, gradients and nodes PyTorch's."""
    ours = [weft.tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    result, wanted = function(weft, *ours), function(torch, *theirs)
    assert result.grad_fn.name() == wanted.grad_fn.name()
    cotangent = np.random.default_rng(9).standard_normal(tuple(wanted.shape)).astype(arrays[0].dtype)
    grads = weft.autograd.grad(result, ours, weft.tensor(cotangent))

    @weft.compile
    def both(*tensors):
        made = function(weft, *tensors)
        return made, *weft.autograd.grad(made, tensors, weft.tensor(cotangent))

    for a, b in zip((result, *grads), both(*ours), strict=True):
        assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
    tolerance = TOLERANCE[arrays[0].dtype.name]
    expected = torch.autograd.grad(wanted, theirs, torch.tensor(cotangent))
    for a, b in zip((result, *grads), (wanted, *expected), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), tolerance, tolerance)


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, mode, align, sizes", RESIZED)
def test_another_size(shape, mode, align, sizes, dtype):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    same(lambda m, x: m.nn.functional.interpolate(x, mode=mode, align_corners=align, **sizes), x, torch=torch)


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode, padding_mode, align, rank", SAMPLED)
def test_a_grid(mode, padding_mode, align, rank, dtype):
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(1)
    x = rng.standard_normal((2, 3, 5, 6, 4)[: rank + 2]).astype(dtype)
    grid = rng.uniform(-1.4, 1.4, (2, 4, 3, 2)[: rank + 1] + (rank,)).astype(dtype)
    how = {"mode": mode, "padding_mode": padding_mode, "align_corners": align}
    same(lambda m, x, grid: m.nn.functional.grid_sample(x, grid, **how), x, grid, torch=torch)


@pytest.mark.oracle
@pytest.mark.parametrize("rows, columns", [(40, 300), (300, 40)])
def test_large_images_by_a_program(rows, columns):
    """Eager mode runs large ones by a program; one axis becomes shorter and the other longer."""
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(2)
    x = rng.standard_normal((4, 16, 100, 120)).astype("float32")
    grid = rng.uniform(-1.1, 1.1, (4, rows, columns, 2)).astype("float32")
    calls = (
        lambda m, x, grid: m.nn.functional.interpolate(x, (rows, columns), mode="bilinear"),
        lambda m, x, grid: m.nn.functional.grid_sample(x, grid, align_corners=False),
    )
    for function in calls:
        ours, theirs = (function(m, m.tensor(x), m.tensor(grid)).numpy() for m in (weft, torch))
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-4)
        for _ in range(3):
            assert (function(weft, weft.tensor(x), weft.tensor(grid)).numpy() == ours).all()


@pytest.mark.oracle
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_positions_that_are_nowhere(mode):
    """NaN and infinite positions are outside of the image, and never an index."""
    torch = pytest.importorskip("torch")
    x = np.ones((1, 1, 3, 3), "float32")
    grid = np.array([[[[np.nan, 0.0], [np.inf, 0.0], [-np.inf, 0.5], [1e30, -1e30], [0.0, 0.0]]]], "float32")
    made = F.grid_sample(weft.tensor(x), weft.tensor(grid), mode, align_corners=True).numpy()
    wanted = torch.nn.functional.grid_sample(torch.tensor(x), torch.tensor(grid), mode, align_corners=True).numpy()
    assert made[0, 0, 0, -1] == wanted[0, 0, 0, -1] == 1.0
    assert not np.nan_to_num(made[0, 0, 0, :-1]).any()


def test_floats_of_16_bits_are_rounded_once():
    x = weft.rand(1, 2, 9, 9).half()
    grid = (weft.rand(1, 5, 5, 2) * 2 - 1).half()
    made = F.grid_sample(x, grid, align_corners=False)
    assert made.equal(F.grid_sample(x.float(), grid.float(), align_corners=False).half())
