"""Scans as kernels: a compiled call has eager mode's results, bit for bit, and nothing runs outside the program."""

import os
import subprocess
import sys

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


# --- vectors of a row at once -----------------------------------------------------------------------------------------
def rows_of(kind, n, dtype):
    """Three rows that rise, fall, rise with equal neighbours, or hold what no number is."""
    x = np.random.default_rng(n).standard_normal((3, n)) * 9
    if kind in ("rising", "equal"):
        x = np.sort(x, -1)
    if kind == "falling":
        x = -np.sort(x, -1)
    if kind == "equal":
        x = np.round(x / 4)
    if kind == "not finite":
        x[0, n // 2 :], x[1, : n // 2], x[2, n // 3] = np.inf, -np.inf, np.nan
    return x.astype(dtype)


KINDS = ["random", "rising", "falling", "equal", "not finite"]
# Around the vectors of every processor.
LENGTHS = [1, 2, 5, 9, 16, 17, 18, 33, 100, 515]


def last_extremes(row, reaches):
    """Positions one by one: the last of equal elements; a NaN is the extreme from there on."""
    best, positions = 0, []
    for k, x in enumerate(row):
        if x != x or reaches(x, row[best]):
            best = k
        positions.append(best)
    return positions


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("kind", KINDS)
def test_positions_of_extremes_are_those_found_one_by_one(kind, dtype):
    if kind == "not finite" and np.dtype(dtype).kind == "i":
        kind = "random"
    for n in LENGTHS:
        x = rows_of(kind, n, dtype)
        for function, reaches in ((weft.cummax, np.greater_equal), (weft.cummin, np.less_equal)):
            values, positions = function(weft.tensor(x), dim=1)
            assert positions.tolist() == [last_extremes(row, reaches) for row in x]
            assert values.numpy().tobytes() == np.take_along_axis(x, positions.numpy(), 1).tobytes()
    same(lambda x: (*weft.cummax(x, 1), *weft.cummin(x, dim=1)), weft.tensor(x))


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-7), (np.float64, 1e-14)])
@pytest.mark.parametrize("kind", KINDS)
def test_logarithms_of_running_sums_are_those_of_long_doubles(kind, dtype, tolerance):
    for n in LENGTHS:
        x = rows_of(kind, n, dtype)
        with np.errstate(invalid="ignore"):
            expected = np.logaddexp.accumulate(x.astype(np.longdouble), 1)
        found = weft.logcumsumexp(weft.tensor(x), dim=1).numpy()
        np.testing.assert_allclose(found, expected.astype(dtype), rtol=tolerance, atol=tolerance)
    same(lambda x: (weft.logcumsumexp(x, 1), weft.logcumsumexp(x.t(), dim=0)), weft.tensor(x))


def test_small_terms_beside_a_large_one_are_not_lost():
    """The logarithm of 1 + 1e-13 is not that of a number rounded near 1."""
    x = np.array([0.0, -30.0, *[-35.0] * 20])
    found = weft.logcumsumexp(weft.tensor(x), dim=0).numpy()
    np.testing.assert_allclose(found, [0.0, *np.log1p(np.exp(x[1:]).cumsum())], rtol=1e-14)


def test_vectors_of_narrower_processors_give_the_same_bits(tmp_path):
    program = """if True:
        import numpy as np, weft
        x = weft.tensor(np.random.default_rng(0).standard_normal((3, 100), dtype=np.float32) * 9)
        parts = *weft.cummax(x, 1), *weft.cummin(x.sort(1).values, 1), weft.logcumsumexp(x, 1)
        print(*(part.numpy().tobytes().hex() for part in (*parts, weft.logcumsumexp(x.double(), 1))))
        """
    printed = []
    for level in (None, "x86-64-v3"):
        environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / str(level))}
        environment.pop("WEFT_CPU", None)
        environment |= {"WEFT_CPU": level} if level else {}
        command = [sys.executable, "-c", program]
        printed.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert printed[0] == printed[1] and len(printed[0].split()) == 6
