"""Joins of many tensors in eager mode: native code takes hundreds of operands."""

import numpy as np
import pytest

import weft


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "float16"])
@pytest.mark.parametrize("n", [39, 41, 100, 300])
def test_stack_and_cat(n, dtype):
    rows = [(np.arange(k, k + 6) % 5).reshape(2, 3).astype(dtype) for k in range(n)]
    tensors = [weft.tensor(row) for row in rows]
    for _ in range(100):
        for axis in (0, 1, 2):
            assert weft.stack(tensors, axis).numpy().tobytes() == np.stack(rows, axis).tobytes()
        for axis in (0, 1):
            assert weft.cat(tensors, axis).numpy().tobytes() == np.concatenate(rows, axis).tobytes()


def test_gradients():
    x = weft.arange(300.0).reshape(100, 3).requires_grad_()
    for _ in range(40):
        x.grad = None
        (weft.stack([row * row for row in x.unbind()]) * 2).sum().backward()
        assert x.grad.tolist() == (4 * x.detach()).tolist()


def test_native_code_knows_them():
    from test_eager_native import IS_NATIVE, native_calls

    rows = [weft.ones(3) * k for k in range(100)]
    for _ in range(60):
        weft.stack(rows)
    assert (native_calls(lambda: weft.stack(rows)) >= 1) is IS_NATIVE
