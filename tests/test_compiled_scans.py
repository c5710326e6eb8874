"""Scans as kernels: a compiled call has eager mode's results, bit for bit, and nothing runs outside the program."""

import numpy as np
import pytest

import weft
from weft.compiler.ops.scan import cumsum

SHAPES = [
    ((7,), 0),
    ((1,), 0),
    ((5, 1), 0),
    ((3, 70), 1),
    ((70, 3), 0),
    ((4, 5, 6), 1),
    ((2, 3, 4, 5), 2),
    ((33, 130), 0),
]


def numbers(shape, dtype):
    rng = np.random.default_rng(0)
    if not dtype.is_floating_point:
        return weft.tensor(rng.integers(-9, 9, shape)).to(dtype)
    x = rng.standard_normal(shape).astype(dtype.numpy)
    x.reshape(-1)[:1] = -0.0
    return weft.tensor(x)


def same(function, *arguments):
    compiled = weft.compile(function)
    for _ in range(3):
        for got, expected in zip(compiled(*arguments), function(*arguments)):
            assert got.numpy().tobytes() == expected.detach().numpy().tobytes()
            assert got.dtype is expected.dtype and got.shape == expected.shape
    assert "by NumPy" not in compiled.explain()
    return compiled


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64, weft.int64, weft.int32], ids=str)
@pytest.mark.parametrize("shape, dim", SHAPES)
def test_running_sums_and_products(shape, dim, dtype):
    x = numbers(shape, dtype)
    same(lambda x: (x.cumsum(dim), x.cumprod(dim), (x * 2).cumsum(dim) + 1), x)


def test_strided_operands_infinities_and_nan():
    x = numbers((6, 40), weft.float32)
    x[2, 3], x[4, 5], x[1, 1] = float("inf"), float("nan"), -float("inf")
    same(lambda x: (x.t().cumsum(0), x[:, ::3].cumsum(1), x.flip(0).cumprod(0), x[1].expand(4, 40).cumsum(0)), x)


def test_sums_of_floats_are_kept_in_float64():
    x = weft.full((100_000,), 0.1)
    (total,) = same(lambda x: (x.cumsum(0),), x)(x)
    assert total[-1].item() == np.float32(np.cumsum(x.numpy().astype(np.float64))[-1])


def test_gradients_are_scans_too():
    def gradients(compile):
        x = numbers((5, 9), weft.float64).requires_grad_()

        @compile
        def step(x):
            x.grad = None
            loss = (x.cumsum(1) * x.cumprod(0)).sum() + x.tanh().cumsum(0).exp().mean()
            loss.backward()
            return loss, x.grad

        return [t.detach().numpy().tobytes() for _ in range(3) for t in step(x)]

    assert gradients(weft.compile) == gradients(lambda f: f)


def test_scans_are_steps_of_the_program():
    compiled = same(lambda x: ((x.exp().cumsum(1) * 2).sum(1),), numbers((8, 64), weft.float32))
    (program,) = compiled.recordings[0].programs
    assert [k["kind"] for k in program.meta["plan"]["kernels"]] == ["loop", "cumsum_rows", "loop"]


def test_bools_are_left_to_numpy():
    x = weft.tensor([True, False, True])
    assert weft.compile(lambda x: cumsum(x, axis=0))(x).tolist() == cumsum(x, axis=0).tolist()


SPECIAL = [[-np.inf, -np.inf, 1.0, np.inf, np.inf, 2.0], [np.nan, 1.0], [1.0, np.nan, 2.0], [-1e3, 1e3, 0.0], [0.5]]


@pytest.mark.parametrize("values", SPECIAL)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithms_of_sums(values, dtype):
    """As NumPy finds them, a NaN and infinities included; in one program with what is around them."""
    x = np.array(values, dtype)
    with np.errstate(all="ignore"):
        expected = np.logaddexp.accumulate(x.astype(np.float64)).astype(dtype)
    np.testing.assert_allclose(weft.logcumsumexp(weft.tensor(x), 0).numpy(), expected, rtol=1e-6)
    compiled = weft.compile(lambda x: weft.logcumsumexp(x * 1, 0), fullgraph=True)
    assert compiled(weft.tensor(x)).numpy().tobytes() == weft.logcumsumexp(weft.tensor(x), 0).numpy().tobytes()


def test_a_partial_likelihood_is_one_program():
    """Cox's, of times of survival."""

    def likelihood(weights, x, seen):
        weights = weights.detach().requires_grad_()
        risk = x @ weights
        return weft.autograd.grad(((risk - weft.logcumsumexp(risk, 0)) * seen).sum(), weights)[0]

    rng = np.random.default_rng(0)
    data = [weft.tensor(rng.normal(size=shape)) for shape in ((4,), (30, 4), (30,))]
    compiled = weft.compile(likelihood, fullgraph=True)
    for _ in range(5):
        assert compiled(*data).tolist() == likelihood(*data).tolist()
