"""Products of matrices of integers in eager mode: native code has NumPy's bits, which wrap around."""

from itertools import product

import numpy as np
import pytest

import weft

N_CALLS = 20  # by which native code knows the calls


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize(("m", "k"), list(product((1, 2, 4, 5, 33), (1, 2, 7, 33))))
def test_products(m, k, dtype):
    rng, most = np.random.default_rng(m + k), np.iinfo(dtype).max
    for n in (1, 2, 7, 8, 16, 17, 33, 64):
        a, b = (rng.integers(-most, most, shape).astype(dtype) for shape in ((m, k), (k, n)))
        wanted = (a @ b).tobytes()
        x, y = weft.tensor(a), weft.tensor(b)
        of_columns = weft.tensor(a.T.copy()).t(), weft.tensor(b.T.copy()).t()
        for left, right in ((x, y), (of_columns[0], y), (x, of_columns[1]), (x[:, ::2], y[::2]), (x, y.flip(1))):
            expected = wanted if left.shape == x.shape and right.tolist() == y.tolist() else None
            expected = expected or (left.numpy() @ right.numpy()).tobytes()
            assert all((left @ right).numpy().tobytes() == expected for _ in range(N_CALLS))


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_batches(dtype):
    rng = np.random.default_rng(5)
    a, b = rng.integers(-99, 99, (3, 4, 5)).astype(dtype), rng.integers(-99, 99, (3, 5, 6)).astype(dtype)
    for x, y in ((a, b), (a, b[0]), (a[0], b[0, :, 0]), (a[0, 0], b[0]), (a[:, :0], b), (a[..., :0], b[:, :0])):
        for _ in range(N_CALLS):
            found = weft.tensor(x) @ weft.tensor(y)
            assert found.numpy().tobytes() == (x @ y).tobytes() and found.shape == (x @ y).shape


def test_native_code_knows_them():
    from test_eager_native import IS_NATIVE, native_calls

    x = weft.arange(48).reshape(6, 8)
    assert (native_calls(lambda: x @ x.t()) >= 1) is IS_NATIVE
