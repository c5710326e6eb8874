"""Conversions between types, choices and arrays for NumPy: native code of eager mode has the bits of Python's way."""

import gc
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft.compiler import dtypes
from weft.compiler.storage import chosen
from weft.runtime.eager import plan

TYPES = (weft.float32, weft.float64, weft.int64, weft.int32, weft.bool)
FLOATS = [0.0, -0.0, 1.5, -2.5, 0.999, -0.999, 1e-40, 5e-324, 3e38, 1e39, 16777217.0, 1e10, -1e10, 1e19, -1e19]
FLOATS += [2.0**31, -(2.0**31), 2.0**63, -(2.0**63), float("nan"), float("inf"), -float("inf")]
INTEGERS = [0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**40 + 3, 2**63 - 1, -(2**63)]


@pytest.fixture(autouse=True)
def native_at_once(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    plan.forget()


def elements(dtype, count):
    values = INTEGERS if dtype.numpy.kind == "i" else FLOATS
    with np.errstate(all="ignore"):
        found = np.array(values * 3, np.int64 if values is INTEGERS else np.float64).astype(dtype.numpy)
    return found[:count]


@pytest.mark.parametrize("count", (1, 3, 8, 17, 27))
@pytest.mark.parametrize("to", TYPES, ids=str)
@pytest.mark.parametrize("of", TYPES, ids=str)
def test_conversions_have_the_bits_of_numpy(of, to, count):
    x = weft.tensor(elements(of, count))
    found = [x.to(to, copy=True).numpy().tobytes() for _ in range(6)]
    compiled = weft.compile(lambda x: x.to(to, copy=True))
    found += [compiled(x).numpy().tobytes() for _ in range(3)]
    with np.errstate(all="ignore"):
        expected = elements(of, count).astype(to.numpy).tobytes()
    assert found == [expected] * 9


@pytest.mark.parametrize("dtype", ("f4", "f8", "i8", "c8", "f2", "?"))
@pytest.mark.parametrize("size", (5, 20000))
def test_choices_are_those_of_numpy(dtype, size):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((size, 2)).astype(dtype) for _ in range(2))
    x.reshape(-1)[:4] = np.array([0.0, -0.0, np.nan, np.inf]).astype(dtype) if dtype[0] in "fc" else x[0, 0]
    for condition in (rng.random((size, 2)) > 0.5, rng.random((size, 1)) > 0.5, np.ones((size, 2), bool)):
        for a, b in ((x, y), (x[::-1], y), (x, y[0]), (x.dtype.type(3), y)):
            expected, found = np.where(condition, a, b), chosen(condition, a, b)
            assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


def test_arrays_of_a_tensor_show_its_memory():
    x = weft.arange(12.0).reshape(3, 4).clone()
    for _ in range(12):
        for shown in (x, x.t(), x[1], x[:, ::2], x[1, 2], x.detach()):
            array = shown.numpy()
            assert array.shape == shown.shape and array.tolist() == shown.tolist()
            array[...] = array + 1.0
            assert array.tolist() == shown.tolist()
            x += 1.0
            assert array.tolist() == shown.tolist()


def test_arrays_outlive_their_tensors():
    for _ in range(12):
        x = weft.arange(4.0)
        array = x.numpy()
        del x
        gc.collect()
        assert array.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_errors_of_numpy_are_those_of_python():
    for _ in range(12):
        weft.ones(2).numpy()
        with pytest.raises(RuntimeError, match="requires grad"):
            weft.ones(2, requires_grad=True).numpy()
        with pytest.raises(TypeError, match="BFloat16"):
            weft.ones(2, dtype=weft.bfloat16).numpy()
        assert weft.ones(2, requires_grad=True).detach().numpy().tolist() == [1.0, 1.0]


def test_a_compiled_call_sees_what_is_written_into_an_array():
    x = weft.ones(3)
    f = weft.compile(lambda x: x * 2.0)
    for k in range(12):
        array = x.numpy()
        array[0] = k
        assert f(x).tolist() == [2.0 * k, 2.0, 2.0]
        array[1:] = 1.0
        del array


def as_python_does(array):
    """What from_numpy gives where native code does not take the array."""
    tensor = weft.Tensor.showing(array)
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.tolist(), tensor._data.flags.writeable


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d is not weft.bfloat16], ids=str)
def test_tensors_of_arrays_show_their_memory(dtype):
    base = np.arange(24).reshape(4, 6).astype(dtype.numpy)
    reading = base[:2]
    reading.flags.writeable = False
    arrays = [base, base[::-1], base.T, base[1:3, ::2], base[:0], base[2, 3:4], base[0, 0, ...], base[:, None], reading]
    for array in arrays:
        for _ in range(12):
            weft.ones(2).numpy()
            x = weft.from_numpy(array)
            found = x.dtype, x.shape, x.stride(), x.tolist(), x._data.flags.writeable
            assert found == as_python_does(array) and is_same_memory(x, array) and x.is_leaf
            assert type(x) is weft.Tensor and not x.requires_grad and is_same_memory(weft.as_tensor(array), array)


def is_same_memory(x, array):
    return x._data is not array and x._data.__array_interface__["data"] == array.__array_interface__["data"]


def test_shown_memory_outlives_its_array_and_leaves_nothing_behind():
    array, other = np.ones(3, np.float32), np.ones((2, 2), np.float32)
    for _ in range(12):
        weft.ones(2).numpy()
        weft.from_numpy(array)
    gc.collect()
    before = [sys.getrefcount(x) for x in (array, array.dtype, weft.Tensor)]
    kept = [weft.from_numpy(array) for _ in range(100)]
    x = weft.from_numpy(other)
    other.shape = (4,)
    other[0] = 5.0
    del other
    gc.collect()
    assert x.tolist() == [[5.0, 1.0], [1.0, 1.0]]
    array[1] = 7.0
    assert all(x.tolist() == [1.0, 7.0, 1.0] for x in kept)
    del kept, x
    gc.collect()
    after = [sys.getrefcount(x) for x in (array, array.dtype, weft.Tensor)]
    # Of types others may be there by now, but not one for each tensor.
    assert after[0] == before[0] and all(now < then + 50 for now, then in zip(after[1:], before[1:]))


def test_what_is_no_array_of_tensors_is_refused():
    for _ in range(12):
        weft.ones(2).numpy()
        with pytest.raises(TypeError, match="expected np.ndarray"):
            weft.from_numpy([1.0])
        with pytest.raises(TypeError, match="is not supported"):
            weft.from_numpy(np.ones(2, np.uint16))
        with pytest.raises(TypeError, match="is not supported"):
            weft.from_numpy(np.ones(2, ">f4"))
        fields = np.zeros(3, [("a", np.int8), ("b", np.float32)])
        with pytest.raises(ValueError, match="not a multiple of the element byte size"):
            weft.from_numpy(fields["b"])
        assert weft.from_numpy(np.ma.masked_array([1.0, 2.0])).tolist() == [1.0, 2.0]


COMPILED_ALONE = """
import numpy as np, weft
from weft.runtime.replay import eager_native, native_making, object_layout

native_making.PAYS_AFTER = 0
f, array, seen = weft.compile(lambda x: x * 2.0), np.ones(3, np.float32), []
for k in range(400):
    array[0] = k
    x = {made}
    y = f(x)
    seen.append({read} == [2.0 * k, 2.0, 2.0])
assert all(seen)
print(bool(eager_native._installed), object_layout.layout_of_objects() is not None)
"""


@pytest.mark.parametrize(
    ("made", "read"), [("weft.from_numpy(array)", "y.tolist()"), ("weft.tensor(array)", "y.numpy().tolist()")]
)
def test_conversions_are_native_where_every_op_is_in_compiled_calls(made, read):
    command = [sys.executable, "-c", COMPILED_ALONE.format(made=made, read=read)]
    installed, can_be = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert installed == can_be


def test_conversions_in_a_compiled_call_ask_for_native_code_after_it(monkeypatch):
    asked = []
    monkeypatch.setattr(plan, "_told", lambda name, busy: asked.append(name))
    conversions = plan.Conversions()

    @weft.compile
    def f(x):
        for _ in range(3 * plan.CONVERSIONS_BEFORE_NATIVE):
            assert conversions(None) is None
        return x + 1.0

    f(weft.ones(2))
    assert asked == []
    for _ in range(3 * plan.CONVERSIONS_BEFORE_NATIVE):
        assert conversions(None) is None
    assert asked == ["install"]


def test_inference_mode_makes_inference_tensors_of_arrays():
    array = np.ones(2, np.float32)
    for _ in range(12):
        weft.ones(2).numpy()
        with weft.inference_mode():
            assert weft.from_numpy(array).is_inference()
        assert not weft.from_numpy(array).is_inference()


def test_an_array_converted_in_a_compiled_call_is_read_where_the_op_stands():
    array = np.zeros(2, np.float32)

    @weft.compile
    def f(k):
        first = weft.from_numpy(array) * 2.0
        array[0] = k
        return first, weft.as_tensor(array) * 2.0

    for k in range(12):
        array[0] = -1.0
        weft.from_numpy(array)
        assert [x.tolist() for x in f(k)] == [[-2.0, 0.0], [2.0 * k, 0.0]]


@pytest.mark.parametrize("shape", [(0,), (), (3,), (2, 0), (1200,)])
def test_equal_gives_a_python_bool(shape):
    x = weft.rand(*shape)
    assert weft.equal(x, x.clone()) is True
    assert weft.equal(x, x + 1) is (x.numel() == 0)
    assert weft.equal(x, weft.zeros(7, 7)) is False
    nan = weft.full((2,), float("nan"))
    assert weft.equal(nan, nan) is False


def test_arrays_of_data_are_known_to_the_tensor_and_to_all_other_data():
    for _ in range(5):
        x = weft.tensor(np.arange(4.0, dtype=np.float32), requires_grad=True)
        others = x.data, x.data
        array = x.data.numpy()
        array[0] = 7.0
        assert x[0].item() == 7.0
        assert all(one._storage.exposed for one in (x, *others))

    @weft.compile
    def step(x):
        x.add_(1.0)
        seen = array.copy()
        return x * 2.0, seen

    for _ in range(4):
        before = array.copy()
        doubled, seen = step(others[0])
        assert seen.tolist() == (before + 1.0).tolist() == array.tolist()
        assert doubled.tolist() == (2.0 * array).tolist()
