"""Functions that make large tensors, or change them whole: the same numbers as of small ones."""

import numpy as np
import pytest

import weft


def bits(x):
    return x.numpy().tobytes()


@pytest.mark.oracle
@pytest.mark.parametrize("steps", [1, 2, 3, 4096, 8191, 8192, 8193, 12289])
@pytest.mark.parametrize("ends", [(0, 1), (1, -2), (-3, 7.5), (0.0, 1e-3), (3, 3)])
def test_linspace_in_blocks_is_as_torch_has_it(steps, ends):
    torch = pytest.importorskip("torch")
    for dtype in ("float32", "float64"):
        expected = torch.linspace(*ends, steps, dtype=getattr(torch, dtype)).numpy()
        found = weft.linspace(*ends, steps, dtype=getattr(weft, dtype)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == "float32" else 1e-14, atol=1e-12)
        assert found.dtype == expected.dtype and found.shape == expected.shape


def test_a_large_linspace_has_the_numbers_of_its_formula():
    first, last, steps = np.float32(-0.3), np.float32(2.7), 10001
    step = (last - first) / np.float32(steps - 1)
    k = np.arange(steps)
    rising, falling = first.astype(float) + float(step) * k, last.astype(float) - float(step) * (steps - 1 - k)
    expected = np.where(k < steps // 2, rising, falling).astype(np.float32)
    assert bits(weft.linspace(-0.3, 2.7, steps)) == expected.tobytes()


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
def test_eye(name):
    found = weft.eye(70, 80, dtype=getattr(weft, name))
    assert found.dtype is getattr(weft, name) and (found.double().numpy() == np.eye(70, 80)).all()


@pytest.mark.parametrize("name", ["tril_", "triu_"])
def test_triangles_in_place(name):
    data = np.random.default_rng(0).standard_normal((600, 500)).astype(np.float32)
    for _ in range(3):
        x = weft.tensor(data)
        for _ in range(20):
            assert getattr(x, name)(1) is x
        assert (x.numpy() == getattr(np, name[:-1])(data, 1)).all()


def test_padding_of_large_tensors():
    data = np.random.default_rng(1).standard_normal((200, 300)).astype(np.float32)
    x = weft.tensor(data, requires_grad=True)
    for sides, value in (((1, 2, 3, 4), 0.0), ((0, 5), -0.0), ((2, -3, -1, 1), 1.5), ((0, 0, 7, 0), float("nan"))):
        left, right, top, bottom = (*sides, 0, 0)[:4]
        kept = data[max(-top, 0) : 200 + min(bottom, 0), max(-left, 0) : 300 + min(right, 0)]
        around = ((max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0)))
        expected = np.pad(kept, around, constant_values=np.float32(value))
        pad = lambda t, sides=sides, value=value: weft.nn.functional.pad(t, sides, value=value)  # noqa: E731
        for function in (pad, pad, weft.compile(pad)):
            x.grad = None
            out = function(x)
            out.sum().backward()
            assert bits(out.detach()) == expected.tobytes()
            assert x.grad.sum() == kept.size


def test_large_zeros_are_zeros_of_their_own():
    for make in (weft.zeros, weft.empty, lambda *s, **k: weft.zeros_like(weft.ones(1).expand(*s), **k)):
        for dtype in (weft.float32, weft.int64):
            x = make(9, 1 << 20, dtype=dtype)
            assert x.dtype is dtype and x.shape == (9, 1 << 20) and x.is_contiguous()
            assert x.data_ptr() % 64 == 0 and x[:, :: 1 << 10].abs().sum() == 0
            y = make(9, 1 << 20, dtype=dtype)
            y += 1
            x[3] = 2
            assert y[:, 5].tolist() == [1] * 9 and x[:, 5].tolist() == [0, 0, 0, 2, 0, 0, 0, 0, 0]
    x = weft.zeros(9, 1 << 20, requires_grad=True)
    x[2].sum().backward()
    assert x.grad[:, 7].tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0]


def test_large_zeros_in_compiled_functions():
    f = weft.compile(lambda x: weft.zeros(9, 1 << 20)[:, :3] + x)
    for _ in range(3):
        assert f(weft.ones(3)).tolist() == [[1.0] * 3] * 9
