"""Patches of images (weft.nn.functional.unfold and fold), and windows along one dimension (Tensor.unfold), which are a
view."""

import numpy as np
import pytest

import weft

PATCHES = [
    ((2, 3, 8, 9), {"kernel_size": 3}),
    ((1, 3, 8, 8), {"kernel_size": (2, 3), "stride": 2, "padding": 1}),
    ((3, 7, 9), {"kernel_size": 2, "dilation": (2, 3), "padding": (0, 2)}),
    ((2, 1, 5, 5), {"kernel_size": 1}),
    ((1, 2, 12, 12), {"kernel_size": 9, "stride": 3}),
]


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize(("shape", "how"), PATCHES)
def test_patches_of_images(shape, how, dtype):
    torch, found = pytest.importorskip("torch"), []
    image = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
    for library in (weft, torch):
        functional = library.nn.functional
        for _ in range(40 if library is weft else 1):
            x = library.tensor(image, requires_grad=True)
            patches = functional.unfold(x, **how)
            assert patches.data_ptr() != x.data_ptr()
            folded = functional.fold(patches * 2, shape[-2:], **how)
            (folded * folded.detach().abs()).sum().abs().backward()
            found.append([t.detach().tolist() for t in (patches, folded, x.grad)])
    assert all(one == found[-1] for one in found)


CASES = [
    ((10,), 0, 3, 2),
    ((4, 6), 0, 2, 2),
    ((4, 6), 1, 3, 1),
    ((2, 3, 8), 2, 3, 3),
    ((2, 3, 8), 1, 1, 1),
    ((5,), 0, 5, 1),
    ((4, 33), -1, 2, 3),
]


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "complex64"])
@pytest.mark.parametrize(("shape", "dim", "size", "step"), CASES)
def test_windows_along_a_dimension(shape, dim, size, step, dtype):
    torch, found = pytest.importorskip("torch"), []
    given = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    for library in (weft, torch):
        x = library.tensor(given)
        turned = x.permute(*range(x.ndim)[::-1])
        for _ in range(20):
            made, of_turned = x.unfold(dim, size, step), turned.unfold(turned.ndim - 1 - dim % x.ndim, size, step)
        assert made._base is x
        found.append([made.stride(), of_turned.stride(), made.tolist(), of_turned.tolist()])
    assert found[0] == found[1]


@pytest.mark.oracle
@pytest.mark.parametrize(("shape", "dim", "size", "step"), CASES)
def test_gradients_of_windows(shape, dim, size, step):
    torch, found = pytest.importorskip("torch"), []
    for library in (weft, torch):
        x = library.arange(float(np.prod(shape))).reshape(shape).requires_grad_()
        function = lambda x: (x.unfold(dim, size, step) ** 2).sum()  # noqa: E731
        if library is weft:
            compiled = weft.compile(function)
            again = [weft.autograd.grad(compiled(x), x)[0].tolist() for _ in range(4)]
        found.append(library.autograd.grad(function(x), x)[0].tolist())
    assert found[0] == found[1] and again == [found[0]] * 4
    assert type(x.unfold(dim, size, step).grad_fn).__name__ == "UnfoldBackward0"
    x = weft.tensor(x.detach().numpy(), dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradgradcheck(lambda x: x.unfold(dim, size, step) ** 2, (x,))


@pytest.mark.parametrize("compiles", [False, True])
def test_windows_are_changed_where_each_element_is_in_one(compiles):
    def double(x, step):
        x.unfold(0, 2, step).mul_(2)
        return x

    if compiles:
        double = weft.compile(double)
    for _ in range(4):
        assert double(weft.arange(7.0), 3).tolist() == [0, 2, 2, 6, 8, 5, 6]
        x = weft.arange(7.0)
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            double(x, 1)
        assert x.tolist() == [0, 1, 2, 3, 4, 5, 6]
