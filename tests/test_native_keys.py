"""Keys do the same in native code and in Python, whatever they are (native_keys.py)."""

import operator
from functools import partial

import numpy as np
import pytest
from leaks import growth

import weft
from weft.indexing import getitem, setitem
from weft.runtime.replay import native, native_keys
from weft.runtime.state import marks

TIMES = 80  # from some dozens of uses on keys are native
KEYS = [
    0, -1, 2, slice(None), slice(1, 3), slice(-2, None), slice(None, None, 2), slice(5, 9), None, ..., (),
    (1, 2), (-1, 0), (slice(None), 1), (slice(1, 3), slice(0, 2)), (..., 1), (..., None), (None, 1),
    (1, None, slice(2)), (slice(1, -1), 0), (0, slice(1, None, 2)), (0, ...),
]  # fmt: skip


@pytest.fixture(autouse=True)
def keys_are_native():
    x = weft.ones(2)
    for _ in range(TIMES):
        x + x
    assert bool(marks.keys_held) == (native.layout() is not None)


def tensors():
    return [
        weft.arange(12.0).reshape(4, 3),
        weft.arange(12).reshape(4, 3),
        weft.arange(12.0).reshape(3, 4).t(),
        weft.nn.Parameter(weft.arange(12.0).reshape(4, 3)),
        weft.arange(24.0, dtype=weft.float64).reshape(4, 3, 2),
    ]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_reading(key):
    for x in tensors():
        wanted = x.detach().numpy()[key]
        compiled = weft.compile(lambda x: x[key] * 2)
        for _ in range(TIMES):
            got = x[key]
        assert got.tolist() == wanted.tolist() == getitem(x, key).tolist() and got.shape == wanted.shape
        assert got._base is x or got._base is x._base
        assert got.requires_grad == x.requires_grad
        for _ in range(TIMES):
            assert compiled(x).tolist() == (wanted * 2).tolist()


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_writing(key):
    for x in tensors():
        x, array = x.detach().clone(), x.detach().numpy().copy()
        part = array[key]
        values = [7, -3.5 if x.dtype.is_floating_point else 4, weft.tensor(part * 3), weft.tensor(part.sum())]
        values += [weft.tensor(part * 2)[None], weft.tensor([5]), weft.tensor([1.5])]

        @weft.compile
        def written(x, value):
            x = x + 1
            x[key] = value
            return x

        for value in values:
            expected, given = array.copy(), value.numpy() if isinstance(value, weft.Tensor) else value
            if isinstance(given, np.ndarray):
                # Leading dimensions of size 1 are dropped.
                given = given.reshape(given.shape[max(0, given.ndim - part.ndim) :])
            expected[key] = given
            for _ in range(TIMES // 2):
                y = x.clone()
                y[key] = value
                assert y.tolist() == expected.tolist()
            z = x.clone()
            setitem(z, key, value)
            assert z.tolist() == expected.tolist()
            shifted = array + 1
            shifted[key] = given
            for _ in range(4):
                assert written(x, value).tolist() == shifted.tolist()


def test_gradients_of_both():
    w = weft.nn.Parameter(weft.arange(6.0).reshape(2, 3))
    for _ in range(TIMES):
        y = w * 2
        y[1, 1:] = w[0, :2] * 3
        y[0, 0] = 5
        (gradient,) = weft.autograd.grad(y.sum(), w)
        assert gradient.tolist() == [[3.0, 5.0, 2.0], [2.0, 0.0, 0.0]]


def test_a_place_that_moves():
    @weft.compile
    def pushed(buffer, k, x):
        buffer[k % 5] = x
        return buffer.mean(0), buffer[k % 5 - 1]

    buffer, other = weft.zeros(5, 2), np.zeros((5, 2), np.float32)
    for k in range(60):
        x = weft.tensor([k + 0.5, -k])
        other[k % 5] = x.numpy()
        mean, row = pushed(buffer, k, x)
        assert buffer.tolist() == other.tolist() and row.tolist() == other[k % 5 - 1].tolist()
        assert mean.tolist() == weft.tensor(other).mean(0).tolist()


@pytest.mark.parametrize("key", [4, -5, (0, 3), (slice(None), -4), (0, 0, 0), 2**70, -(2**70), "a", 1.5])
def test_errors_are_those_of_python(key):
    x = weft.zeros(4, 3)
    for _ in range(3):
        errors = []
        for read in (operator.getitem, getitem):
            with pytest.raises((IndexError, TypeError)) as caught:
                read(x, key)
            errors.append((caught.type, str(caught.value)))
        assert errors[0] == errors[1]
        with pytest.raises((IndexError, TypeError)):
            x[key] = 1.0
    assert x.sum().item() == 0


def test_values_that_do_not_fit():
    x, small = weft.zeros(4, 3), weft.zeros(4, dtype=weft.int8)
    for _ in range(TIMES):
        x[1:3] = 2.0
        small[0] = 100
    for _ in range(3):
        with pytest.raises(RuntimeError, match="without overflow"):
            small[0] = 128
        with pytest.raises(Exception, match="what is replaced"):
            x[1:3] = weft.zeros(5)
        with pytest.raises(AttributeError):
            del x[0]
    x[1:3], x[0, 0] = float("inf"), 2.0**40
    assert x[1:3].isinf().all() and x[0, 0].item() == 2.0**40 and small[0].item() == 100
    x[3] = True
    assert x[3].tolist() == [1.0] * 3


def test_bools_and_numbers_that_equal_them_are_told_apart():
    x = weft.arange(3.0)
    for _ in range(TIMES):
        assert x[1:].tolist() == [1.0, 2.0] and x[(1,)].item() == 1.0 and x[0:1].tolist() == [0.0]
    assert x[True].shape == (1, 3) and x[(False,)].shape == (0, 3)
    assert x[np.int64(1) :].tolist() == [1.0, 2.0] and x[weft.tensor(1) :].tolist() == [1.0, 2.0]
    with pytest.raises((TypeError, IndexError)):
        x[1.0:]


def test_leaves_and_views_are_refused_as_elsewhere():
    w = weft.nn.Parameter(weft.zeros(3))
    for _ in range(TIMES):
        with pytest.raises(RuntimeError, match="leaf Variable"):
            w[0] = 1.0
        with weft.no_grad():
            w[1:] = 2.0
    assert w.tolist() == [0.0, 2.0, 2.0]


def test_versions_are_counted():
    x = weft.zeros(4)
    for k in range(TIMES):
        assert x._version == 2 * k
        x[0] = 1.0
        x[1:3] = weft.ones(2)
    a = weft.ones(3, requires_grad=True)
    b = a * 2
    c = b * b
    b[0] = 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        c.sum().backward()


def test_subclasses_and_replaced_methods(monkeypatch):
    class Named(weft.nn.Parameter):
        def __getitem__(self, key):
            return "mine", super().__getitem__(key).tolist()

    x, named = weft.arange(3.0), Named(weft.arange(3.0))
    for _ in range(TIMES):
        assert named[1] == ("mine", 1.0) and named[1:] == ("mine", [1.0, 2.0]) and x[1:].tolist() == [1.0, 2.0]
    with monkeypatch.context() as context:
        context.setattr(weft.Tensor, "__getitem__", lambda self, key: "replaced")
        assert x[0] == "replaced"
    assert x[0].item() == 0.0 and [y.item() for y in x] == [0.0, 1.0, 2.0]


def test_memory_stays_flat():
    x = weft.zeros(6, 4)

    def use():
        x[1:3, 1]
        x[2], x[0, 1], x[..., None]
        x[1:3], x[4], x[2, 2] = 1.0, x[5], 3

    def use_often(times):
        for _ in range(times):
            use()

    use_often(1500)  # after a thousand calls there are plans of their own
    blocks, *references = growth(partial(use_often, 2000), x, None, weft.float32, 0)
    assert blocks < 500 and all(abs(n) < 500 for n in references)


def test_more_keys_than_the_table_holds():
    if native.layout() is None:
        return
    x = weft.arange(3.0)
    known = native_keys.N_KEYS
    for k in range(known + 64):
        native_keys.note_read((k + 1000,), slice(0, 1), [(weft.compiler.ops.view.slice_, {"spec": ((0, 1, 1),)})])
    assert x[0:1].tolist() == [0.0] and weft.arange(1040.0)[0:1].tolist() == [0.0]
    assert weft.arange(1040.0)[1:2].tolist() == [1.0]


@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
def test_parts_of_the_tensor_itself_are_written(wrap):
    """`x[key] += y` writes what shows x; so does a part that is put elsewhere, one that is expanded, and history."""

    def change(x, v):
        x[2] += v
        x[1, 3] += 1.0
        x[3] = x[0]
        x[0:2] = x[4]
        x[4:5] = x[1]
        x[5] = x[3:4]
        return x * 1.0

    x = weft.randn(6, 4)
    w = x.clone().requires_grad_()
    y, f = x.numpy().copy(), wrap(change)
    for _ in range(60):
        v = weft.randn(4)
        got, with_history = f(x, v), wrap(lambda w, v: change(w * 1.0, v))(w, v)
        (g,) = weft.autograd.grad(with_history.sum(), w)
        y[2] += v.numpy()
        y[1, 3] += 1.0
        y[3] = y[0]
        y[0:2] = y[4]
        y[4:5] = y[1]
        y[5] = y[3:4]
        assert got.tolist() == y.tolist() == x.tolist()
        assert g.sum().item() == 24.0
