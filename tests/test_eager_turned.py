"""Elementwise ops of eager mode on transposed operands: native code, which turns them, has the bits of NumPy's way."""

import numpy as np
import pytest

import weft

N_CALLS = 45  # by which native code knows the calls
SHAPES = [(64, 64), (33, 7), (7, 33), (100, 17), (1, 9), (9, 1), (4, 4), (16, 5), (256, 250)]
CALLS = {
    "one": lambda w, x, y: x.t() * 2,
    "both": lambda w, x, y: x.t() + x.t(),
    "one of two": lambda w, x, y: x.t() + y,
    "the other": lambda w, x, y: y * x.t(),
    "compared": lambda w, x, y: x.t() < y,
    "both compared": lambda w, x, y: x.t() == x.t(),
    "copy": lambda w, x, y: x.t().contiguous(),
    "with a row": lambda w, x, y: x.t() + x[:, 0],
    "with a column": lambda w, x, y: x.t() + x[0][:, None],
    "parts": lambda w, x, y: x[1:, :-1].t() + y[:-1, 1:],
    "every other": lambda w, x, y: x[:, ::2].t() + y[::2],
    "chosen": lambda w, x, y: w.where(x.t() > 1, x.t(), y),
    "float64": lambda w, x, y: (x + x).t().double() + 1,
    "float32": lambda w, x, y: (x + x).t().float() + 1,
    "extreme": lambda w, x, y: w.where(x.t() == x.t(), x.t(), 0).amax(1),
    "powers": lambda w, x, y: x.t() ** 2,
}


def given(library, shape, dtype):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(shape) * 5, rng.standard_normal(shape[::-1]) * 5
    if np.dtype(dtype).kind == "f":
        x[0, 0], y[-1, -1] = np.nan, -0.0
    return [library.tensor((a > 0) if dtype == "bool" else a.astype(dtype)) for a in (x, y)]


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "bool"])
@pytest.mark.parametrize("name", CALLS)
def test_transposed_operands(name, dtype):
    torch, call = pytest.importorskip("torch"), CALLS[name]
    if dtype == "bool" and name == "powers":
        return
    for shape in SHAPES:
        x, y = given(weft, shape, dtype)
        found = [call(weft, x, y) for _ in range(N_CALLS)]
        wanted = np.ascontiguousarray(call(torch, *given(torch, shape, dtype)).numpy())
        for one in found:
            assert one.is_contiguous() and one.numpy().dtype == wanted.dtype
            assert one.numpy().tobytes() == wanted.tobytes(), shape


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["gelu", "tanh", "softplus"])
def test_functions_of_images_whose_channels_are_last(name):
    torch = pytest.importorskip("torch")
    for shape in [(2, 5, 7, 3), (3, 16, 4, 16), (1, 33, 9, 8), (8, 8, 8, 9)]:
        image = np.random.default_rng(1).standard_normal(shape).astype("float32")
        x = weft.tensor(image).permute(0, 3, 1, 2)
        bias = weft.arange(float(shape[3]))[:, None, None]
        function = getattr(weft.nn.functional, name)
        found = [(function(x), x + bias, (x + x).sum((2, 3))) for _ in range(N_CALLS)]
        whole = x.contiguous()
        wanted = function(whole), whole + bias, (whole + whole).sum((2, 3))
        for one in found:
            assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(one, wanted))
        other = getattr(torch.nn.functional, name)(torch.tensor(image).permute(0, 3, 1, 2))
        np.testing.assert_allclose(found[0][0].numpy(), other.numpy(), rtol=2e-5, atol=1e-6)


def test_gradients_of_transposed_operands():
    x = weft.randn(33, 40, dtype=weft.float64, requires_grad=True)
    y = weft.randn(40, 33, dtype=weft.float64)
    found = []
    for _ in range(N_CALLS):
        x.grad = None
        (x.t() * y).exp().sum().backward()
        found.append(x.grad.numpy())
    assert all(a.tobytes() == found[0].tobytes() for a in found)
    wanted = (y * (x.detach().t().contiguous() * y).exp()).t()
    np.testing.assert_allclose(found[0], wanted.numpy(), rtol=1e-12)


def test_native_code_knows_them():
    from test_eager_native import IS_NATIVE, native_calls

    x, y = weft.randn(40, 30), weft.randn(30, 40)
    for call in (lambda: x.t() + y, lambda: weft.exp(x.t())):
        for _ in range(N_CALLS):
            call()
        assert (native_calls(call) >= 1) is IS_NATIVE
