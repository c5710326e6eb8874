"""Eager ops that read and add at computed places: native code does what Python does, order of sums included."""

import numpy as np
import pytest
from test_eager_native import IS_NATIVE, TIMES, native_calls, numbers

import weft
from weft.nn import functional
from weft.runtime.code import lookups
from weft.runtime.eager import plan


@pytest.fixture(autouse=True)
def native_at_once(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    plan.forget()  # those that others have made wait longer


def places(*shape, below, seed=0):
    return weft.tensor(np.random.default_rng(seed).integers(0, below, shape))


INDEX = places(7, below=4)
CALLS = {
    "embedding": lambda x: functional.embedding(places(2, 6, below=4), x),
    "rows": lambda x: x[INDEX],
    "columns": lambda x: x.index_select(1, INDEX),
    "of a transposed": lambda x: x.t().index_select(0, INDEX),
    "gather": lambda x: x.gather(1, places(4, 9, below=6)),
    "gather from rows": lambda x: x.gather(0, places(5, 3, below=4)),
    "at a transposed index": lambda x: x.gather(1, places(9, 4, below=6).t()),
    "three dimensions": lambda x: x.reshape(2, 3, 4).gather(1, places(2, 8, 4, below=3)),
    "middle": lambda x: x.reshape(2, 3, 4).index_select(1, places(5, below=3)),
    "scatter_add": lambda x: (x * 0.1).scatter_add(1, places(4, 20, below=6), numbers(4, 20, seed=2) * x.sum()),
    "index_add": lambda x: (x * 0.1).index_add(0, INDEX, numbers(7, 6, seed=2) * x.sum()),
    "index_add of columns": lambda x: (x * 0.1).index_add(1, INDEX, numbers(7, 4, seed=2).t() * x.sum()),
    "one_hot": lambda x: functional.one_hot(INDEX, 5) * x.sum(),
    "convolution": lambda x: functional.conv2d(x.reshape(1, 2, 3, 4), numbers(3, 2, 2, 2, seed=3), padding=1),
    "with steps": lambda x: functional.conv1d(x.reshape(2, 2, 6), numbers(3, 2, 2, seed=3), stride=2, dilation=2),
    "pooling": lambda x: functional.max_pool2d(x.reshape(1, 2, 3, 4), 2, stride=1),
    "padded pooling": lambda x: functional.max_pool2d(x.reshape(1, 1, 4, 6), 3, stride=2, padding=1),
    "fold": lambda x: functional.fold(x.reshape(1, 4, 6), (3, 4), 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_native_and_have_the_bits_of_python(name):
    call = CALLS[name]
    plan.forget()
    x = numbers(4, 6)
    first = call(x)
    assert (native_calls(lambda: call(x)) >= 1) is IS_NATIVE
    later = call(x)
    assert (later.dtype, later.shape, later.stride()) == (first.dtype, first.shape, first.stride())
    assert later.numpy().tobytes() == first.numpy().tobytes()


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_native_and_have_the_bits_of_python(name):
    plan.forget()
    cotangent = numbers(*CALLS[name](numbers(4, 6)).shape, seed=5)

    def gradient():
        x = numbers(4, 6).requires_grad_()
        CALLS[name](x).backward(cotangent)
        return x.grad.numpy().tobytes()

    found = [gradient() for _ in range(TIMES + 3)]
    assert all(one == found[0] for one in found)
    assert (native_calls(gradient, "nodes_taken") >= 1) is IS_NATIVE


@pytest.mark.parametrize("sizes_before", [((1, 4), (3, 8), (2, 10), (4, 6), (5, 12)), ()])
def test_nothing_of_a_convolutional_network_is_left_to_python(sizes_before):
    """Its derivatives add at computed places, which took most of the time of a step. Some are for exact sizes only."""
    w = numbers(3, 1, 3, 3, seed=1)

    def step(x):
        leaf, weights = x.clone().requires_grad_(), w.clone().requires_grad_()
        functional.max_pool2d(functional.conv2d(leaf, weights, padding=1).relu(), 2).sum().backward()

    for n, side in (*3 * sizes_before, *[(2, 6)] * 40):
        step(numbers(n, 1, side, side))
    x = numbers(2, 1, 6, 6)
    assert native_calls(lambda: step(x), "nodes_taken") == (4 if IS_NATIVE else 0)


def test_indices_are_checked_in_every_call():
    x, index = numbers(4, 3), weft.tensor([0, 3, 1])
    calls = (
        lambda i: x[i],
        lambda i: functional.embedding(i, x),
        lambda i: x.gather(0, i.reshape(1, 3)),
        lambda i: x.index_add(0, i, weft.ones(3, 3)),
        lambda i: x.scatter_add(0, i.reshape(1, 3), weft.ones(1, 3)),
    )
    for call in calls:
        expected = call(index).tolist()
        for _ in range(TIMES):
            assert call(index).tolist() == expected
        for wrong in (4, 2**40):
            with pytest.raises((IndexError, RuntimeError), match="out of bounds|out of range"):
                call(weft.tensor([0, wrong, 1]))
        assert call(index).tolist() == expected
    assert x[weft.tensor([-1, 0])].tolist() == [x[3].tolist(), x[0].tolist()]


def test_an_index_may_lie_anywhere_in_memory():
    """Words of an array of bytes need not begin where words do."""
    memory = np.zeros(8 * 3 + 1, np.uint8)
    index = weft.from_numpy(memory[1:].view(np.int64))
    x = numbers(4, 3)
    for k in range(TIMES + 3):
        memory[1:].view(np.int64)[:] = [k % 4, 3, 1]
        assert x.index_select(0, index).tolist() == [x[k % 4].tolist(), x[3].tolist(), x[1].tolist()]


def test_repeated_places_are_added_in_order():
    values = weft.tensor([1e8, 1.0, -1e8, 1.0, 3.0], dtype=weft.float32)
    index, expected = weft.tensor([1, 1, 1, 1, 0]), np.float32(0)
    for x in values.tolist()[:4]:
        expected = np.float32(expected + np.float32(x))
    for _ in range(TIMES + 2):
        assert weft.zeros(2).scatter_add(0, index, values).tolist() == [3.0, float(expected)]
        assert weft.zeros(2).index_add(0, index, values).tolist() == [3.0, float(expected)]


def test_rows_at_positions_counted_from_either_end():
    x = weft.tensor(np.arange(12.0, dtype=np.float32).reshape(4, 3))
    for _ in range(4 * TIMES):
        for places in ([0, 3, 1], [-1, 2, -4], [3, 3, 0]):
            assert x[weft.tensor(places)].tolist() == x.numpy()[places].tolist()
        for places in ([0, 4, 1], [0, -5, 1]):
            with pytest.raises(IndexError, match=f"index {places[1]} is out of bounds"):
                x[weft.tensor(places)]


def test_rows_at_positions_are_native():
    x, places = weft.ones(4, 3), weft.tensor([0, 2])
    for _ in range(10 * TIMES):
        x[places]
    # One or two, depending on what else the process has noted as one call.
    assert native_calls(lambda: x[places]) in ((1, 2) if IS_NATIVE else (0,))
    found = x[places]
    assert places.tolist() == [0, 2] and found.add_(1.0).tolist() == [[2.0] * 3] * 2 and x.sum().item() == 12.0


@pytest.mark.parametrize("width", [1, 31, 32, 300])
@pytest.mark.parametrize("n_numbers", [1, 3, 40, 1000], ids=lambda n: f"{n} rows")
@pytest.mark.parametrize("axis", [0, 1])
def test_slices_are_added_in_the_order_of_the_index(axis, n_numbers, width):
    """By NumPy or by a kernel, as many as there are: sums of floats tell orders apart."""
    rng = np.random.default_rng(n_numbers + width)
    index = rng.integers(0, n_numbers, 500)
    shapes = [(n_numbers, width), (500, width)]
    x, part = (rng.standard_normal(s if axis == 0 else s[::-1], dtype=np.float32) for s in shapes)
    expected = x.copy()
    for k, i in enumerate(index):
        if axis == 0:
            expected[i] += part[k]
        else:
            expected[:, i] += part[:, k]
    with weft.no_grad():
        tensors = weft.tensor(x), weft.tensor(index), weft.tensor(part)
        found = tensors[0].index_add(axis, tensors[1], tensors[2])
        compiled = weft.compile(lambda x, index, part: x.index_add(axis, index, part))(*tensors)
    assert found.numpy().tobytes() == expected.tobytes() == compiled.numpy().tobytes()


def test_no_slices_are_added():
    x = weft.ones(3, 40)
    found = x.index_add(0, weft.zeros(0, dtype=weft.int64), weft.zeros(0, 40))
    assert found.tolist() == x.tolist()


@pytest.fixture
def kernels_from_the_first(monkeypatch):
    """As if NumPy had added enough for a kernel to be worth compiling."""
    monkeypatch.setattr(lookups._Account, "left", 0)
    monkeypatch.setattr(lookups._Account, "functions", {})
    monkeypatch.setattr(lookups, "FEWEST", 1)


ADDED = {
    "slices of the first dimension": (0, (7, 4), (90,), (90, 4)),
    "slices in the middle": (1, (3, 7, 4), (50,), (3, 50, 4)),
    "elements of slices in the middle": (1, (3, 7, 4), (3, 50, 4), (3, 50, 4)),
    "elements of the last dimension": (2, (3, 2, 9), (2, 2, 40), (2, 2, 40)),
    "fewer elements than there are": (0, (9, 5, 2, 3), (30, 4, 1, 2), (30, 4, 1, 2)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "complex64", "float16", "bfloat16"])
@pytest.mark.parametrize("is_turned", [False, True], ids=["in order", "turned"])
@pytest.mark.parametrize("case", ADDED)
def test_a_kernel_adds_from_the_first_call_on(case, dtype, is_turned, kernels_from_the_first):
    axis, shape, places, given = ADDED[case]
    rng = np.random.default_rng(len(case))
    is_short = dtype.endswith("16")
    x, part = ((rng.standard_normal(s) * 99).astype("float32" if is_short else dtype) for s in (shape, given))
    if is_short:
        x, part = (weft.tensor(a).to(getattr(weft, dtype)).to(weft.float32).numpy() for a in (x, part))
    index = rng.integers(0, shape[axis], places)
    if is_turned:
        part, index = (np.ascontiguousarray(a.T).T for a in (part, index))
    where = list(np.indices(given, sparse=True))
    where[axis] = index if index.shape == given else index.reshape([-1 if k == axis else 1 for k in range(len(given))])
    expected = x.copy()
    np.add.at(expected, tuple(where), part)
    add = "scatter_add" if index.shape == given else "index_add"
    tensors = [weft.from_numpy(a) for a in (x, index, part)]
    expected = weft.from_numpy(expected)
    if is_short:
        # Sums are float32's, and rounded once.
        tensors[0], tensors[2], expected = (t.to(getattr(weft, dtype)) for t in (tensors[0], tensors[2], expected))

    def call(x, index, part):
        return getattr(x, add)(axis, index, part)

    assert call(*tensors).equal(expected)
    assert weft.compile(call)(*tensors).equal(expected)
    changed = tensors[0].clone()
    getattr(changed, f"{add}_")(axis, *tensors[1:])
    assert changed.equal(expected)
    index[(0,) * index.ndim] = shape[axis]
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        getattr(changed, f"{add}_")(axis, *tensors[1:])
    assert changed.equal(expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int64", "bool", "uint8"])
def test_what_is_put_often_is_put_as_in_the_first_call(dtype, monkeypatch):
    """By native code, whose elements are of as many bytes as the type has, or by Python."""
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 8)
    x = (numbers(6, 5) * 3).to(getattr(weft, dtype))
    part, rows, each = (numbers(4, 5, seed=1) * 3).to(x.dtype), weft.tensor([0, 2, 2, 5]), places(4, 5, below=6)

    def assign(y):
        y[rows] = part

    changes = {
        "assignment": assign,
        "index_put_": lambda y: y.index_put_((rows,), part),
        "index_copy_": lambda y: y.index_copy_(0, weft.tensor([3, 1, 0, 2]), part),
        "scatter_": lambda y: y.scatter_(0, each, part),
    }
    for name, change in changes.items():
        found = []
        for _ in range(4 * TIMES):
            y = x.clone()
            change(y)
            found.append(y.tolist())
        assert found == [found[0]] * len(found), name
        compiled = weft.compile(lambda y, change=change: change(y))
        y = x.clone()
        compiled(y)
        assert y.tolist() == found[0], name
