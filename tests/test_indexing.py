"""x[key] and x[key] = value against NumPy and PyTorch: values, gradients, memory, errors."""

import numpy as np
import pytest

import weft

SHAPE = (4, 3, 5)


def rows(*values):
    """Stands for an index tensor, made for each library."""
    return ("tensor", list(values))


MASK = (np.arange(60).reshape(SHAPE) % 3 == 0).tolist()
ROW_MASK = [True, False, True, True]
BASIC = [
    0,
    -1,
    (1, 2),
    (1, 2, 3),
    (-1, -3, -5),
    slice(None),
    slice(1, 3),
    slice(1, None, 2),
    slice(-3, -1),
    slice(3, 1),
    slice(10),
    ...,
    None,
    (None, 0),
    (0, None),
    (..., 0),
    (..., None),
    (0, ...),
    (slice(None), 1),
    (slice(None), slice(None), slice(0, 5, 2)),
    (slice(1, 3), 0, slice(None, None, 3)),
    (0, ..., 0),
    (..., slice(1, 2), None),
    (None, slice(1), None, 2),
    (),
]
ADVANCED = [
    rows(0, 2),
    rows(-1, -4, 0),
    rows([0, 1], [2, 3]),
    rows(),
    (slice(None), rows(0, 2)),
    (..., rows(4, 0)),
    (rows(0, 1, 2), rows(2, 1, 0)),
    (rows([0], [1]), rows(2, 1, 0)),
    (slice(None), rows(1, 1), rows(0, 4)),
    (rows(0, 1), slice(None), rows(3, 4)),
    (rows(0, 1), 2),
    (2, rows(0, 1)),
    (slice(1, 3), rows(0, 1), None),
    (None, rows(3)),
    (rows(0, 1), 0, rows(3, 4)),
    [1, 3],
    (slice(None), [0, 2]),
    ("mask", MASK),
    ("mask", ROW_MASK),
    (slice(None), ("mask", [True, False, True])),
    (("mask", ROW_MASK), 0),
    (("mask", ROW_MASK), slice(None), rows(1)),
    (slice(2), ("mask", np.ones((3, 5), bool).tolist())),
]


def key_for(module, key):
    """The key with the stand-ins replaced by the module's tensors."""
    if isinstance(key, tuple) and len(key) == 2 and key[0] == "tensor":
        return module.tensor(key[1], dtype=module.int64)
    if isinstance(key, tuple) and len(key) == 2 and key[0] == "mask":
        return module.tensor(key[1])
    return tuple(key_for(module, k) for k in key) if isinstance(key, tuple) else key


def values(module=None):
    array = np.arange(60, dtype="float64").reshape(SHAPE)
    return array if module is None else module.tensor(array)


@pytest.mark.parametrize("key", BASIC, ids=repr)
def test_basic_keys_are_numpy_views(key):
    x = weft.tensor(values())
    part = x[key]
    expected = values()[key]
    assert part.shape == expected.shape and np.array_equal(part.numpy(), expected)
    assert part is not x
    if part.numel():
        part.zero_()
        zeroed = values()
        zeroed[key] = 0
        assert np.array_equal(x.numpy(), zeroed)


def test_negative_steps_are_refused():
    with pytest.raises(ValueError, match="step must be greater than zero"):
        weft.tensor([1, 2])[::-1]


@pytest.mark.oracle
@pytest.mark.parametrize("key", BASIC + ADVANCED, ids=repr)
def test_values_gradients_and_nodes_as_in_torch(key):
    torch = pytest.importorskip("torch")
    x, y = values(weft).requires_grad_(), values(torch).requires_grad_()
    ours, theirs = x[key_for(weft, key)], y[key_for(torch, key)]
    assert ours.shape == tuple(theirs.shape)
    assert np.array_equal(ours.detach().numpy(), theirs.detach().numpy())
    (ours * ours).sum().backward()
    (theirs * theirs).sum().backward()
    assert np.array_equal(x.grad.numpy(), y.grad.numpy())
    if key not in ((), ...) and key != slice(None):
        assert ours.grad_fn.name() == theirs.grad_fn.name().split("::")[-1]


@pytest.mark.oracle
@pytest.mark.parametrize("key", BASIC + ADVANCED, ids=repr)
def test_assignment_as_in_torch(key):
    """A number, a tensor of the place's shape, and one that broadcasts; gradients of the old and the new values."""
    torch = pytest.importorskip("torch")
    shape = values(torch)[key_for(torch, key)].shape
    for value_shape in ((), shape, (1, *shape), shape[-1:]):
        fresh = np.random.default_rng(0).standard_normal(value_shape)
        results = []
        for module in (weft, torch):
            x, v = values(module).requires_grad_(), module.tensor(fresh).requires_grad_()
            y = x * 2
            y[key_for(module, key)] = v
            (y * y).sum().backward()
            results.append([t.detach().numpy() for t in (y, x.grad, v.grad)])
        for ours, theirs in zip(*results):
            np.testing.assert_allclose(ours, theirs, rtol=1e-14)


@pytest.mark.oracle
def test_assignment_of_python_numbers_and_lists():
    torch = pytest.importorskip("torch")
    for module in (weft, torch):
        x = module.zeros(2, 3)
        x[0] = 1
        x[1, 1:] = module.tensor([2, 3])
        x[x > 2.5] = -1
        x[module.tensor([0]), module.tensor([2])] = True
        assert x.tolist() == [[1, 1, 1], [0, 2, -1]]


def test_writing_through_a_view_changes_the_base():
    x = weft.zeros(2, 3)
    x[1][2] = 5
    x[:, 0] += 1
    assert x.tolist() == [[1, 0, 0], [1, 0, 5]]


def test_repeated_positions():
    x = weft.zeros(3)
    x[weft.tensor([1, 1])] = weft.tensor([2.0, 3.0])
    assert x.tolist() == [0, 3, 0]
    y = weft.tensor([1.0, 2.0], requires_grad=True)
    y[weft.tensor([0, 0, 1])].sum().backward()
    assert y.grad.tolist() == [2, 1]


@pytest.mark.parametrize(
    "key, error, message",
    [
        (4, IndexError, "index 4 is out of bounds for dimension 0 with size 4"),
        ((0, -4), IndexError, "index -4 is out of bounds for dimension 1 with size 3"),
        ((0, 0, 0, 0), IndexError, "too many indices for tensor of dimension 3"),
        (rows(4), IndexError, "index 4 is out of bounds for a dimension of size 4"),
        ((slice(None), rows(-4)), IndexError, "indexing dimension 1"),
        (1.0, IndexError, "indexed by ints, slices"),
        ("a", TypeError, "indexed by ints, slices"),
        ([1.0], IndexError, "must be int64, int32 or bool"),
        (("mask", [True]), IndexError, "The shape of the mask"),
        ((rows(0, 1), rows(0, 1, 2)), ValueError, "do not broadcast"),
    ],
    ids=repr,
)
def test_errors(key, error, message):
    x = weft.tensor(values())
    for action in (lambda: x[key_for(weft, key)], lambda: x.__setitem__(key_for(weft, key), 0)):
        with pytest.raises(error, match=message):
            action()


def test_value_that_does_not_fit():
    with pytest.raises(RuntimeError, match=r"shape \(2,\), what is replaced \(3,\)"):
        weft.zeros(2, 3)[0] = weft.zeros(2)


def test_items_of_loops_and_unpacking():
    x = weft.tensor([[1, 2], [3, 4]])
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]]
    (a, b), (c, d) = x
    assert (a.item(), b.item(), c.item(), d.item()) == (1, 2, 3, 4)
    assert len(x) == 2 and 3 in x and 7 not in x


NUMBERS = [True, 0, 3, -7, 2**31 - 1, 2**40, -(2**63), 0.0, -0.0, 2.75, 1e-50, 1e30, float("inf"), float("nan")]


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["float32", "float64", "int32", "int64", "bool", "uint8", "int8"])
def test_numbers_are_written_as_in_pytorch(name):
    torch = pytest.importorskip("torch")

    def written(T, value):
        x, y = T.zeros(4, dtype=getattr(T, name)), T.zeros(2, 2, dtype=getattr(T, name))
        x[1:3] = value
        y[y == 0] = value
        return repr([x.tolist(), y.tolist()])

    def outcome(T, value):
        try:
            return written(T, value)
        except (RuntimeError, OverflowError, TypeError) as error:
            return "overflow" in str(error)

    for value in NUMBERS:
        assert outcome(weft, value) == outcome(torch, value), value


def test_numbers_written_in_a_compiled_call_are_no_tensors_from_outside():
    def f(x, value):
        y = x.clone()
        y[y > 1] = value
        y[0] = 3
        return y

    compiled, x = weft.compile(f), weft.tensor([0.5, 1.5, 2.5])
    for k in range(8):
        assert compiled(x, 0.1 * k).tolist() == f(x, 0.1 * k).tolist()
    assert not compiled.recordings[0].usual.fresh


EQUAL_KEYS = [
    (0, 1),
    (False, True),
    (np.int64(0), 1),
    (0, True),
    (slice(1, None), 0),
    (slice(True, None), 0),
    (slice(1, 3), None, 1),
    (slice(np.int64(1), 3), None, 1),
    (..., 1),
    (0, ..., 1),
    (None, 1),
    (True, 1),
    (1, slice(None)),
    (True, slice(None)),
    (-1, -1),
    (slice(None), slice(None)),
    (),
    (None, ...),
    (slice(-2, None, 2), slice(0, 0)),
]


@pytest.mark.oracle
@pytest.mark.parametrize("order", [1, -1])
def test_keys_that_are_equal_and_mean_something_else_are_told_apart(order):
    import torch

    array = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    for key in EQUAL_KEYS[::order]:
        ours, theirs = weft.tensor(array.copy()), torch.tensor(array.copy())
        assert ours[key].shape == tuple(theirs[key].shape), key
        assert ours[key].tolist() == theirs[key].tolist(), key
        ours[key], theirs[key] = -1, -1
        assert ours.tolist() == theirs.tolist(), key


@pytest.mark.parametrize(
    "key, words",
    [
        ((1, 2, 0), "too many"),
        ((slice(None), 1, None, 0), "too many"),
        ((0, 4), "4 is out of bounds for dimension 1"),
        ((slice(None), None, -5), "-5 is out of bounds for dimension 1"),
        ((slice(None), 7, ...), "dimension 1 with size 4"),
    ],
)
def test_keys_that_do_not_fit_are_refused_every_time(key, words):
    x = weft.zeros(3, 4)
    for _ in range(2):
        with pytest.raises(IndexError, match=words):
            x[key]
        with pytest.raises(IndexError, match=words):
            x[key] = 1


NUMBERS = {"float32": (0, 2.5, True, 1e30, -0.0), "int64": (3, 2.7, False), "bool": (1, True, 0.0)}


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("key", [1, (1, 2), (slice(1, None), None, 0), (..., -1), slice(None), (None, 2), slice(2, 2)])
def test_numbers_written_in_compiled_calls(key, dtype):
    def write(x, number):
        x = x.clone()
        x[key] = number
        return x

    f, x = weft.compile(write), weft.arange(12).reshape(3, 4).to(getattr(weft, dtype))
    for number in NUMBERS[dtype] * 3:
        ours, theirs = f(x, number), write(x, number)
        assert ours.dtype is theirs.dtype and ours.numpy().tobytes() == theirs.numpy().tobytes(), number


def test_gradients_of_what_numbers_are_written_over():
    def step(x):
        y = x * 3
        y[1] = 0
        y[:, 2] = 1.5
        return (y * y).sum()

    f, x = weft.compile(step), weft.arange(12.0).reshape(3, 4).requires_grad_()
    (wanted,) = weft.autograd.grad(step(x), x)
    for _ in range(4):
        (found,) = weft.autograd.grad(f(x), x)
        assert weft.equal(found, wanted)
    assert found[1].tolist() == [0.0] * 4 and found[:, 2].tolist() == [0.0] * 3


def test_integer_tensors_without_dimensions_are_integers():
    """As in loops over labels, eager and compiled, with NumPy's integers too."""
    labels, others = weft.tensor([1, 2, 0, 1]), np.array([2, 2, 1, 0], np.int32)

    def count(x):
        table = weft.zeros(3, 3)
        for t, p in zip(labels, others):
            table[t.long(), p] += x
        return table, x * weft.arange(9.0).reshape(3, 3)[labels[1]], table[labels[0], 1:], table[..., labels[2].int()]

    found = count(weft.tensor(2.0))
    table = np.zeros((3, 3), np.float32)
    for t, p in zip([1, 2, 0, 1], others):
        table[t, p] += 2
    assert found[0].tolist() == table.tolist()
    assert found[1].tolist() == [12.0, 14.0, 16.0]
    assert found[2].tolist() == table[1, 1:].tolist() and found[3].tolist() == table[:, 0].tolist()
    compiled = weft.compile(count)
    for _ in range(3):
        assert [y.tolist() for y in compiled(weft.tensor(2.0))] == [y.tolist() for y in found]
    with pytest.raises(IndexError, match="out of bounds"):
        found[0][weft.tensor(3), 0]
