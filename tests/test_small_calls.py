"""Calls whose Python was shortened say what they said: PyTorch's values, types and errors, first and later."""

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle
TIMES = 3  # plans are made at the second


def same(ours, theirs):
    assert str(ours.dtype)[5:] == str(theirs.dtype)[6:] and tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())
    if ours.dtype.is_floating_point:
        assert np.signbit(ours.detach().numpy()).tolist() == np.signbit(theirs.detach().numpy()).tolist()


@pytest.mark.parametrize("offset", [0, 2, -3])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_vectors_on_diagonals(offset, dtype):
    for values in ([], [1], [0, 1, 1]):
        same(*(t.diag(t.tensor(values, dtype=getattr(t, dtype)), offset) for t in (weft, torch)))
    same(*(t.diag(t.tensor([-0.0, 2.0]), offset) for t in (weft, torch)))


def test_gradients_of_vectors_on_diagonals():
    x, y = (t.tensor([1.0, 2.0, 3.0], requires_grad=True) for t in (weft, torch))
    for t, v in ((weft, x), (torch, y)):
        (t.diag(v, -1) * t.arange(16.0).reshape(4, 4)).sum().backward()
    same(x.grad, y.grad)


BOUNDS = [
    (3.0,), (0, 1, 0.1), (1, 0, -0.25), (True, 4), (0, 3, np.float32(0.5)), (np.int64(2), 7.0), (2.5, 2.5), (-1, 2.5),
    (5, 0, -2),
]  # fmt: skip


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_ranges(bounds):
    given = [b.item() if isinstance(b, np.generic) else b for b in bounds]
    same(weft.arange(*bounds), torch.arange(*given))
    for name in ("float64", "int32"):
        same(weft.arange(*bounds, dtype=getattr(weft, name)), torch.arange(*given, dtype=getattr(torch, name)))


@pytest.mark.parametrize("bounds", [(0, float("inf")), (float("nan"), 1), (0.0, 1, 0), (0.0, 1, -1), (0.0, -1, 1)])
def test_ranges_that_are_none(bounds):
    for library in (weft, torch):
        with pytest.raises(RuntimeError):
            library.arange(*bounds)


def numbers(library, dtype):
    rng = np.random.default_rng(0)
    real = library.tensor(rng.integers(1, 9, (4, 5)))
    if dtype.startswith("complex"):
        real = library.complex(real.double(), library.tensor(rng.integers(-4, 5, (4, 5))).double())
    return real.to(getattr(library, dtype))


CALLS = {
    "products": lambda t, x: x * x,
    "sums": lambda t, x: x + x.t().reshape(4, 5),
    "numbers": lambda t, x: 2 * x + 1,
    "comparisons": lambda t, x: x == x.flip(0),
    "squares": lambda t, x: (x * x).sum(0),
    "negative": lambda t, x: -x,
    "rounded": lambda t, x: x.to(t.float32 if not x.dtype.is_complex else t.complex64) * 0.5,
}


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "uint8", "int8", "int16"])
@pytest.mark.parametrize("name", CALLS)
def test_types_that_no_kernel_knows(name, dtype):
    x, y = numbers(weft, dtype), numbers(torch, dtype)
    for _ in range(TIMES):
        same(CALLS[name](weft, x), CALLS[name](torch, y))


def test_complex_numbers_are_refused_at_every_call():
    x = weft.complex(weft.ones(2), weft.ones(2))
    for _ in range(TIMES):
        with pytest.raises((NotImplementedError, RuntimeError)):
            weft.maximum(x, x)
        with pytest.raises((NotImplementedError, RuntimeError)):
            weft.nn.functional.layer_norm(x, (2,))


def test_addresses():
    x = weft.arange(12.0).reshape(3, 4)
    assert x.data_ptr() == x.numpy().ctypes.data and x[1:].data_ptr() - x.data_ptr() == 16
    y = weft.zeros(3)
    y.data = x[0, :3]
    assert y.data_ptr() == x.data_ptr() and y.tolist() == [0.0, 1.0, 2.0]


def test_patches_of_one_size_again_and_again():
    for _ in range(TIMES):
        for size in (6, 7):
            x, y = (t.arange(2.0 * size * size).reshape(1, 2, size, size) for t in (weft, torch))
            for kernel in (2, 3):
                same(*(t.nn.functional.unfold(v, kernel, stride=2) for t, v in ((weft, x), (torch, y))))
