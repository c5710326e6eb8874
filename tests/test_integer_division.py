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
