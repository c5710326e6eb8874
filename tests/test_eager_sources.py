"""What is made from numbers and positions alone (draws, ranges, constants) has one value in NumPy, kernels and native
code, and is a native call once it has been asked for a few times."""

import numpy as np
import pytest

import weft
from weft.compiler.ops.random import call_key, uniform
from weft.compiler.ops.source import arange, full
from weft.runtime.eager import plan
from weft.runtime.programs import fused
from weft.runtime.replay import eager_native, native
from weft.runtime.state.tensor import _apply
from weft.spacing import spaced

IS_NATIVE = native.layout() is not None
TIMES = 4
SHAPES = ((), (1,), (3, 3), (17,), (5, 211), (0, 3))


@pytest.fixture(autouse=True)
def native_at_once(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    plan.forget()


def made(op, numbers, shape, dtype):
    """The bits of several calls in turn, which are the same."""
    found = {_apply(op, numbers, {"shape": shape, "dtype": dtype}).numpy().tobytes() for _ in range(TIMES)}
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize("dtype", (weft.float32, weft.float64), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_draws_have_the_bits_of_numpy(shape, dtype):
    for call in range(5):
        key = call_key(3, call)
        assert made(uniform, (key,), shape, dtype) == uniform.evaluate(key, shape, dtype).tobytes()


RANGES = ((0, 1), (5, -3), (0.5, 0.25), (1, 0.1), (-(2**62), 7), (2**63 - 5, 1), (float("nan"), 1), (-0.0, 0))


@pytest.mark.parametrize("dtype", (weft.float32, weft.float64, weft.int64, weft.int32), ids=str)
@pytest.mark.parametrize("numbers", RANGES, ids=str)
def test_ranges_have_the_bits_of_numpy(numbers, dtype):
    if float in map(type, numbers) and dtype in (weft.int64, weft.int32):
        numbers = (1.75, 0.5)
    for n in (1, 5, 17, 300):
        with np.errstate(over="ignore"):
            expected = arange.evaluate(*numbers, (n,), dtype)
            assert made(arange, numbers, (n,), dtype) == expected.tobytes()


def test_numbers_that_change_are_no_other_plan():
    for k in range(2 * TIMES):
        assert weft.arange(k, k + 3).tolist() == [k, k + 1, k + 2]
        assert weft.full((2,), k).tolist() == [k, k]
    # Larger than any integer of 64 bits.
    with pytest.raises((OverflowError, RuntimeError)):
        weft.full((2,), 1 << 80)
    assert weft.full((2,), 7).tolist() == [7, 7]


def test_sources_are_native():
    weft.manual_seed(0)

    def step():
        weft.zeros(2, 3), weft.ones((2, 3)), weft.full((2,), 2.5), weft.arange(4), weft.rand(2, 3)
        return weft.randn(2, 3), weft.zeros_like(weft.empty(2, 3))

    for _ in range(2 * TIMES):
        step()
    before = eager_native.taken("calls_taken")
    step()
    # Small zeros and ranges, and what is empty, need no op.
    assert eager_native.taken("calls_taken") - before == (4 if IS_NATIVE else 0)
    weft.manual_seed(0)
    again = [step()[0].tolist() for _ in range(3)]
    plan.forget()
    weft.manual_seed(0)
    assert [step()[0].tolist() for _ in range(3)] == again


def test_draws_in_compiled_calls_are_those_of_eager_ones():
    def draw():
        return weft.randn(3, 4), weft.rand(5), weft.nn.functional.dropout(weft.ones(20), 0.4)

    compiled = weft.compile(draw)
    for _ in range(3):
        weft.manual_seed(11)
        expected = [x.tolist() for _ in range(3) for x in draw()]
        weft.manual_seed(11)
        assert [x.tolist() for _ in range(3) for x in compiled()] == expected


def test_results_are_not_shared():
    found = [weft.zeros(3) for _ in range(3 * TIMES)]
    for k, x in enumerate(found):
        x.add_(float(k))
    assert [x.tolist() for x in found] == [[float(k)] * 3 for k in range(len(found))]
    assert weft.zeros(3).tolist() == [0.0] * 3 and full.kind == "source"


@pytest.mark.parametrize("sizes", ((2, 3), ((2, 3),), ([2, 3],), (weft.ones(2, 3).shape,), (np.int64(2), 3)), ids=str)
def test_sizes_are_given_in_every_form(sizes):
    for make in (weft.zeros, weft.ones, weft.empty, weft.rand, weft.randn):
        assert tuple(make(*sizes).shape) == (2, 3)
    assert weft.zeros(size=(2, 3)).shape == (2, 3) and weft.zeros(()).shape == () and weft.zeros().shape == ()
    for wrong in ((-1,), (2, -1), ((2, -1),)):
        with pytest.raises(RuntimeError, match="negative dimension"):
            weft.zeros(*wrong)


@pytest.mark.parametrize("bounds", [(0, 1), (-3.7, 1e9), (5, 5), (3.0, -2.5)])
def test_long_linspaces_have_the_bits_of_short_ones(bounds):
    """A kernel makes those, NumPy these, of which the numbers beside each other are the same."""
    for n in (4097, 10_001):
        expected = spaced.__wrapped__(*bounds, n, weft.float32)
        for _ in range(TIMES):
            found = weft.linspace(*bounds, n)
        assert found.dtype is weft.float32 and found.numpy().tobytes() == expected.tobytes()

    @weft.compile
    def f(x):
        return weft.linspace(*bounds, 4097) * x

    x = weft.ones(4097)
    for _ in range(3):
        assert f(x).numpy().tobytes() == spaced.__wrapped__(*bounds, 4097, weft.float32).tobytes()


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000, 300_001])
def test_truths_of_truths(monkeypatch, n):
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 0)
    a, b = np.random.default_rng(n).random((2, n)) > 0.5
    x, y = weft.tensor(a), weft.tensor(b)
    expected = [a & b, a | b, a ^ b, ~a, a == b, np.where(a, b, a), (a & b) | ~a]
    for _ in range(TIMES):
        found = [x & y, x | y, x ^ y, ~x, x == y, weft.where(x, y, x), (x & y) | ~x]
    turned = weft.compile(lambda x, y: ((x & y) | ~x, (x.view(1, -1) & y.view(-1, 1)[:3]).t() | y.view(-1, 1)))
    whole, parts = turned(x, y)
    for one, wanted in zip([*found, whole], [*expected, expected[-1]]):
        assert one.numpy().view(np.uint8).tolist() == wanted.view(np.uint8).tolist()
    assert parts.numpy().tolist() == ((a[None] & b[:3, None]).T | b[:, None]).tolist()
