"""Quotients and remainders in compiled calls: kernels, but for tensors of integers as divisors, which may hold a 0."""

import numpy as np
import pytest

import weft

OPS = ("floor_divide", "remainder", "fmod")
DIVISORS = ("tensor", 3, -4, 7)


def operands(dtype):
    rng = np.random.default_rng(0)
    x, y = rng.integers(-50, 50, 200).astype(dtype), rng.integers(-7, 8, 200).astype(dtype)
    if dtype.startswith("int"):
        y[y == 0] = 3
        # The smallest integer has no opposite.
        x[:3], y[:3] = np.iinfo(dtype).min, [-1, 1, 2]
    else:
        x += rng.standard_normal(200).astype(dtype)
        x[:6], y[:3], y[20:30] = [0, 1, -1, np.inf, -np.inf, np.nan], 0, np.inf
        x[40:60] = np.copysign(0.0, y[40:60]) * -1
    return weft.from_numpy(x).clone(), weft.from_numpy(y).clone()


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("other", DIVISORS)
@pytest.mark.parametrize("name", OPS)
def test_bits_are_those_of_eager_mode(name, other, dtype):
    op, (x, y) = getattr(weft, name), operands(dtype)
    divisor = y if other == "tensor" else other

    def both(x, divisor):
        return op(x, divisor), op(x + x, divisor) * 2

    compiled, expected = weft.compile(both), both(x, divisor)
    for _ in range(5):
        for a, b in zip(compiled(x, divisor), expected, strict=True):
            assert (a.dtype, a.numpy().tobytes()) == (b.dtype, b.numpy().tobytes())
    assert (compiled.breaks == ()) is (other != "tensor" or dtype.startswith("float"))


@pytest.mark.parametrize("name", OPS)
def test_a_divisor_of_zero_is_an_error_wherever_it_comes(name):
    op, (x, y) = getattr(weft, name), operands("int64")
    compiled = weft.compile(lambda x, y: op(x * 2, y) + 1)
    for k in range(7):
        divisor = y.clone()
        if k in (0, 4, 5):
            divisor[17] = 0
            with pytest.raises(RuntimeError, match="ZeroDivisionError: an element of the integer divisor is 0"):
                compiled(x, divisor)
        else:
            assert compiled(x, divisor).tolist() == (op(x * 2, y) + 1).tolist()
    for number in (2, 3, 0, 5, 0, 2):
        if number:
            assert compiled(x, number).tolist() == (op(x * 2, number) + 1).tolist()
        else:
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                compiled(x, number)


def test_nothing_outlives_a_call_that_divides_by_zero():
    state = weft.zeros(3)

    @weft.compile
    def step(x, i):
        state.add_(x)
        return state[5 // i % 3]

    for _ in range(6):
        step(weft.ones(3), weft.tensor([1, 2, 4]))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        step(weft.ones(3), weft.tensor([1, 0, 4]))
    assert step(weft.zeros(3), weft.tensor([1, 2, 4])).tolist() in ([6.0] * 3, [7.0] * 3)


def test_large_operands_in_eager_mode():
    x = weft.arange(300_000) - 150_000
    divisor = x.remainder(7) + 1
    assert (x // divisor).numpy().tobytes() == np.floor_divide(x.numpy(), divisor.numpy()).tobytes()
    divisor[-1] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        x % divisor


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [70, 300_000])
def test_remainders_of_all_floats_are_exact(dtype, n):
    """Small calls by native steps, large ones by programs: the bits of NumPy's fmod, whatever the quotient."""
    rng = np.random.default_rng(1)
    finfo, whole = np.finfo(dtype), {"float32": np.int32, "float64": np.int64}[dtype]
    limits = np.iinfo(whole)
    x, y = rng.integers(limits.min, limits.max, (2, n), whole, endpoint=True).view(dtype)
    with np.errstate(all="ignore"):
        near = x / np.exp2(rng.uniform(-2, 2 * finfo.nmant + 6, n)).astype(dtype)
        multiples = y * rng.integers(1, 1 << 26, n).astype(dtype)
        below = np.nextafter(multiples, np.zeros(1, dtype))
        tiny = rng.integers(-9, 9, (2, n)).astype(dtype) * finfo.smallest_subnormal
        for a, b in ((x, y), (x, near), (multiples, y), (below, y), tiny):
            expected = np.fmod(a, b)
            for _ in range(12):
                found = weft.fmod(weft.from_numpy(a), weft.from_numpy(b)).numpy()
            same = (found.view(whole) == expected.view(whole)) | np.isnan(expected) & np.isnan(found)
            assert same.all(), (a[~same][:3], b[~same][:3], found[~same][:3], expected[~same][:3])


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPS)
def test_remainders_are_pytorchs(name, dtype):
    import torch

    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.5,
        -2.5,
        np.inf,
        -np.inf,
        np.nan,
        1e30,
        -1e30,
        1e-30,
        7.0,
        -3.0,
        1e-40,
        16777217.0,
    ]
    x, y = np.meshgrid(np.array(special, dtype), np.array(special, dtype))
    for _ in range(12):
        found = getattr(weft, name)(weft.tensor(x), weft.tensor(y)).numpy()
    # One by one: PyTorch's vectors give NaN where the quotient is above all floats.
    expected = [getattr(torch, name)(*map(torch.tensor, pair)).item() for pair in zip(x.ravel(), y.ravel())]
    expected = np.array(expected, dtype).reshape(x.shape)
    assert np.array_equal(found, expected, equal_nan=True)
    numbers = ~np.isnan(expected)
    assert (np.signbit(found) == np.signbit(expected))[numbers].all()


@pytest.mark.parametrize("divisor", [7, -3, 1])
def test_many_integers_by_one_number(divisor):
    for dtype in ("int32", "int64"):
        x = np.random.default_rng(2).integers(-(1 << 31), 1 << 31, 300_000).astype(dtype)
        for n in (2000, 300_000):
            for _ in range(12):
                found = [getattr(weft, name)(weft.from_numpy(x[:n]), divisor) for name in OPS]
            expected = [function(x[:n], divisor) for function in (np.floor_divide, np.remainder, np.fmod)]
            assert all(a.numpy().tobytes() == b.astype(dtype).tobytes() for a, b in zip(found, expected))
