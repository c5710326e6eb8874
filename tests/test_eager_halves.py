"""Ops on floats of 16 bits that are called often: native code gives the bits that NumPy gives in the first calls."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from test_eager_native import IS_NATIVE, native_calls

import weft
from weft import nn
from weft.compiler.dtypes import bfloat16, float16
from weft.compiler.ops import TABLE
from weft.compiler.storage import convert, readable
from weft.runtime.eager import plan
from weft.runtime.eager.eager_halves import as_they_lie
from weft.runtime.programs import fused

OFTEN = 20
HALVES = [float16, bfloat16]


@pytest.fixture(autouse=True)
def no_plans():
    plan.forget()


def bits(x):
    return x.dtype, x.shape, np.ascontiguousarray(x.array).tobytes()


def floats_of_all_kinds():
    rng = np.random.default_rng(0)
    any_bits = rng.integers(0, 1 << 32, 20000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = (rng.standard_normal(20000) * 10.0 ** rng.integers(-9, 6, 20000)).astype(np.float32)
    edges = [0.0, -0.0, 65504, 65519.99, 65520, 1e-8, 2.0**-24, 2.0**-25, 2.0**-14, np.inf, -np.inf, np.nan, 1 + 2**-11]
    return np.concatenate([any_bits, near, np.array(edges, np.float32)])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_rounding_gives_the_bits_of_numpy(dtype):
    given = floats_of_all_kinds()
    x = weft.tensor(given)
    for _ in range(OFTEN):
        found = x.to(dtype)
    assert found.array.view(np.uint16).tolist() == convert(given, dtype).view(np.uint16).tolist()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_number_is_widened_exactly(dtype):
    x = weft.zeros(1 << 16, dtype=dtype)
    x.array.view(np.uint16)[:] = np.arange(1 << 16)
    for _ in range(OFTEN):
        found = x.float()
    expected = np.asarray(readable(x.array)).astype(np.float32)
    assert found.array.view(np.uint32).tolist() == expected.view(np.uint32).tolist()


def test_what_no_instruction_widens_right_may_be_in_any_operand():
    """Whether there is a NaN among the operands of float16 is asked once: signalling ones in one of them, or none."""
    every, one = np.arange(1 << 16).astype(np.uint16), np.full(1 << 16, 0x3C00, np.uint16)
    where = np.array([True, False])
    for bits_of_x, bits_of_y in ((every, one), (one, every), (one, one), (every, every[::-1].copy())):
        x, y = (weft.tensor(bits.view(np.float16)) for bits in (bits_of_x, bits_of_y))
        condition = weft.tensor(np.tile(where, 1 << 15))
        for _ in range(OFTEN):
            total, picked = x + y, weft.where(condition, x, y)
        expected = np.where(condition.array, bits_of_x, bits_of_y)
        assert picked.array.view(np.uint16).tolist() == expected.tolist()
        with np.errstate(all="ignore"):
            expected = (bits_of_x.view(np.float16) + bits_of_y.view(np.float16)).view(np.uint16)
        is_nan = np.isnan(expected.view(np.float16))
        assert (total.array.view(np.uint16) == expected)[~is_nan].all() and np.isnan(total.array[is_nan]).all()


def test_many_operands_of_a_program_are_widened_as_one_is():
    every = np.arange(1 << 16).astype(np.uint16)
    given = [weft.tensor(np.roll(every, 9001 * k).view(np.float16)) for k in range(6)]
    widened = weft.compile(lambda *given: tuple(x.float() for x in given))
    for x, found in zip(given, widened(*given)):
        assert found.numpy().tobytes() == x.float().numpy().tobytes()

    def total(a, b, c, d, e, f):
        return a + b * c + d * e - f

    compiled = weft.compile(total)
    for _ in range(3):
        assert bits(compiled(*given)) == bits(total(*given))


def functions(n):
    f, rng = nn.functional, np.random.default_rng(n)
    places = weft.tensor(rng.integers(0, n, (n, n)))
    single, wide = weft.tensor(0.3), weft.tensor(rng.standard_normal((n, n)).astype(np.float32))
    return {
        "arithmetic": lambda x, y: (x + y) * (x - y) / (y * y + 1),
        "numbers": lambda x, y: x * 0.1 + 0.1 - 1 / (2 - y),
        "tensors of no dimensions": lambda x, y: x * single + single * y,
        "with float32": lambda x, y: (x + wide) * y,
        "with integers": lambda x, y: x * places + y,
        "comparisons": lambda x, y: weft.where(x > 0.1, x, y) * (x >= y),
        "functions": lambda x, y: x.exp() * y.relu() + x.abs(),
        "sums": lambda x, y: x.sum() + y.sum(0) + x.mean(1) + x.amax(0),
        "wider sums": lambda x, y: x.sum(dtype=weft.float32) + wide.sum(dtype=x.dtype),
        "types": lambda x, y: x.double() + y.long() + x.bool(),
        "another half": lambda x, y: x.half() + y.bfloat16(),
        "movements": lambda x, y: weft.cat([x, y])[::2, 1:] + x.clone()[:, 1:],
        "transposed": lambda x, y: x.t() * y + y.t().contiguous(),
        "broadcast": lambda x, y: x.unsqueeze(0) + y.unsqueeze(1),
        "products": lambda x, y: x @ y + x @ y[0],
        "lookups": lambda x, y: x.gather(1, places) + y[places[0]],
        "composites": lambda x, y: x.softmax(-1) + f.gelu(y) + f.layer_norm(x, (n,)),
        "losses": lambda x, y: f.mse_loss(x, y) + x.var() + x.norm(),
        "in place": lambda x, y: x.clone().mul_(0.3).add_(y).add_(0.1),
    }


def operands(n, dtype):
    rng = np.random.default_rng(n + 1)
    return [weft.tensor(rng.standard_normal((n, n)).astype(np.float32)).to(dtype) for _ in range(2)]


@pytest.mark.parametrize("name", functions(3))
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("n", [1, 5, 33])
def test_calls_that_come_often_have_the_bits_of_the_first(n, dtype, name):
    function, (x, y) = functions(n)[name], operands(n, dtype)
    first = bits(function(x, y))
    for _ in range(OFTEN):
        again = function(x, y)
    assert bits(again) == first


DIFFERENTIABLE = [
    "arithmetic", "numbers", "with float32", "comparisons", "functions", "sums", "transposed", "products", "lookups",
    "composites", "losses",
]  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_gradients_too(dtype, name):
    function = functions(7)[name]

    def gradients():
        x, y = (t.requires_grad_() for t in operands(7, dtype))
        function(x, y).sum().backward()
        return bits(x.grad), bits(y.grad)

    first = gradients()
    for _ in range(OFTEN):
        again = gradients()
    assert again == first


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_large_ones(dtype):
    x, y = operands(600, dtype)
    first = bits(x * y + 1), bits(x.sum(1)), bits(x.float()), bits(x.softmax(-1))
    for _ in range(OFTEN):
        again = bits(x * y + 1), bits(x.sum(1)), bits(x.float()), bits(x.softmax(-1))
    assert again == first


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_elementwise_ops_give_the_bits_of_torch(name):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    given = [rng.standard_normal((9, 21)).astype(np.float32) for _ in range(2)]

    def result(library):
        x, y = (library.tensor(a).to(getattr(library, name)) for a in given)
        for _ in range(OFTEN):
            out = ((x + y) * 0.1 - x / y) * (x > 0) + library.maximum(x, y).t().contiguous().t()
        return out.float().numpy()

    assert result(weft).tolist() == result(torch).tolist()


def test_native_code_takes_them():
    x, y = operands(4, bfloat16)
    for call in (lambda: x * y, lambda: x + 1, lambda: x.float(), lambda: x.sum(), lambda: x.softmax(-1), x.clone):
        for _ in range(OFTEN):
            call()
        assert (native_calls(call) >= 1) is IS_NATIVE


@pytest.mark.parametrize("shape", [(70, 96), (64, 65), (33, 40), (5, 64, 48), (2, 3, 50, 20), (3, 2, 2, 40, 32)])
def test_what_lies_turned_is_read_in_blocks(shape):
    """Rows and columns exchanged, of all types that native code holds, alone and beside what is not turned."""
    rng = np.random.default_rng(0)
    for dtype in (*HALVES, weft.float32, weft.float64, weft.int64, weft.bool):
        x = weft.from_numpy(rng.integers(-9, 9, shape)).to(dtype)
        y = weft.from_numpy(rng.integers(-9, 9, (*shape[:-2], shape[-1], shape[-2]))).to(dtype)
        turned = x.transpose(-1, -2)
        expected = [np.ascontiguousarray(turned.float().numpy()), turned.float().numpy() * y.float().numpy()]
        for _ in range(OFTEN):
            found = [turned.contiguous(), turned & y if dtype is weft.bool else turned * y]
            assert all(a.is_contiguous() and (a.float().numpy() == b).all() for a, b in zip(found, expected))


@pytest.mark.parametrize("shape", [(), (1,), (70, 96), (5, 64, 33), (3, 700)])
def test_bools_are_summed_as_they_lie(shape):
    """They are bytes in memory, and numbers of 64 bits in the sum."""
    truth = np.asarray(np.random.default_rng(0).random(shape) < 0.6)
    x = weft.from_numpy(truth)
    for _ in range(OFTEN):
        turned = x.mT if x.ndim > 1 else x
        found = [x.sum(), *[x.sum(axis) for axis in range(x.ndim)], x.count_nonzero(), turned.sum()]
        expected = [truth.sum(), *[truth.sum(axis) for axis in range(truth.ndim)], truth.sum(), truth.sum()]
        assert all(a.dtype is weft.int64 and np.array_equal(a.numpy(), b) for a, b in zip(found, expected))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_programs_of_large_operands_give_the_same_bits(dtype, monkeypatch):
    rng = np.random.default_rng(4)
    x, y = (
        weft.tensor((rng.standard_normal((600, 500)) * 10.0 ** rng.integers(-4, 4, (600, 500))).astype(np.float32))
        for _ in range(2)
    )
    x[0, :5] = weft.tensor([np.nan, np.inf, -np.inf, -0.0, 0.0])
    x, y = x.to(dtype), y.to(dtype)
    functions = {
        "add": lambda: x + y,
        "a number": lambda: x * 0.3,
        "exp": lambda: x.exp(),
        "a column": lambda: y * y[:, :1],
        "transposed": lambda: y.t().contiguous(),
        "another type": lambda: x + y.float(),
        "greater": lambda: x > y,
        "rows": lambda: x.sum(1),
        "columns": lambda: y.sum(0),
        "largest": lambda: x.amax(1),
        "joined": lambda: weft.cat([x, y], 1),
    }
    with monkeypatch.context() as without:
        without.setattr(plan, "_single", lambda *_: None)
        wanted = {name: bits(function()) for name, function in functions.items()}
    plan.forget()
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 0)
    before = weft.get_num_threads()
    try:
        for n in (1, 2, 3):
            weft.set_num_threads(n)
            for name, function in functions.items():
                assert bits(function()) == wanted[name] == bits(function()), (name, n)
    finally:
        weft.set_num_threads(before)


def test_halves_beside_permuted_doubles_are_doubles():
    """Of many shapes: what was made for them all took the halves for float32, and the compiler's assertion fell."""
    wide, half = (weft.float32, weft.float64), (weft.bfloat16, weft.float16)
    pairs = [(a, b) for a in wide for b in wide] + [p for h in half for p in ((h, weft.float64), (weft.float64, h))]
    for _ in range(3):
        for (a, b), shape in product(pairs, [(2, 16, 16), (3, 5), (4, 4, 4), (7, 8, 9), (2, 3, 4, 5), (16, 16), (33,)]):
            axes = tuple(reversed(range(len(shape))))
            y = weft.ones(shape, dtype=b)
            for x in (weft.ones(shape, dtype=a), weft.ones(shape[::-1], dtype=a).permute(axes)):
                for out in (x + y, y + x, x * y + 1):
                    assert out.dtype == weft.promote_types(a, b) and (out.numpy() == 2).all()


def test_what_is_not_computed_as_float32_is_converted():
    def value(dtype):
        return SimpleNamespace(shape=(3,), dtype=dtype, is_number=False)

    builder = SimpleNamespace(converted=lambda x, dtype: value(dtype))
    for needed, lies in ((weft.float64, weft.float64), (weft.float32, weft.bfloat16)):
        assert as_they_lie(builder, TABLE["add"], (needed,), [value(weft.bfloat16)])[1] == [lies]
