"""Shapes and types of tensors are the same whoever is asked (native_questions.py)."""

import copy
import pickle

import numpy as np
import pytest
from leaks import growth

import weft
from weft import Size
from weft.runtime.replay import native

TIMES = 80  # from some dozens of calls on native code is asked


@pytest.fixture(autouse=True)
def questions_are_native():
    x = weft.ones(2)
    for _ in range(TIMES):
        x + x
    assert (type(vars(weft.Tensor)["shape"]) is not property) == (native.layout() is not None)


def tensors():
    yield from (weft.zeros(()), weft.zeros(3, 0, 2), weft.ones(2, 3).t(), weft.nn.Parameter(weft.ones(4)))
    yield from (weft.zeros(2, 2, dtype=t) for t in (weft.bool, weft.int8, weft.float64, weft.complex64, weft.bfloat16))


def test_values_in_memory():
    for x in tensors():
        array = x.detach()._data
        assert x.shape == array.shape and type(x.shape) is Size and x.ndim == array.ndim == len(x.shape)
        assert x.dtype.numpy == array.dtype and x.shape is not x.shape and {x.shape: 1}[array.shape] == 1
        assert (repr(x.shape), x.shape.numel()) == (repr(array.shape), array.size)


def test_values_of_a_call_in_flight():
    seen = []

    @weft.compile
    def f(x, w):
        y = x @ w
        seen.append((y.shape, y.dtype, y.ndim, y.t().shape, (y > 0).dtype, y.sum().shape, y.shape[-1], y.size(0)))
        assert type(y.shape) is Size
        rows, columns = y.shape
        return y.reshape(columns, rows) * y.ndim

    x, w = weft.ones(2, 3), weft.ones(3, 4)
    for _ in range(6):
        assert f(x, w).shape == (4, 2)
    assert set(seen) == {((2, 4), weft.float32, 2, (4, 2), weft.bool, (), 4, 2)}


def test_items_of_shapes():
    shape = weft.zeros(4, 5, 6).shape
    assert [shape[k] for k in (0, 1, 2, -1, -2, -3)] == [4, 5, 6, 6, 5, 4]
    assert (shape[1:], type(shape[1:]), shape[::-1], shape[:0]) == ((5, 6), Size, (6, 5, 4), ())
    assert shape[True] == 5 and shape[np.int64(2)] == 6 and shape.__getitem__(0) == 4
    for wrong in (3, -4, 2**70, -(2**70)):
        with pytest.raises(IndexError, match="tuple index out of range|cannot fit"):
            shape[wrong]
    with pytest.raises(TypeError):
        shape["a"]
    assert pickle.loads(pickle.dumps(shape)) == copy.copy(shape) == shape == Size([4, 5, 6])


def test_arrays_whose_type_has_another_name():
    assert weft.from_numpy(np.zeros(3, np.longlong)).dtype is weft.int64


def test_they_cannot_be_set():
    x = weft.ones(2)
    for name in ("shape", "dtype", "ndim"):
        with pytest.raises(AttributeError):
            setattr(x, name, None)


def test_subclasses_may_answer_otherwise():
    class Padded(weft.nn.Parameter):
        @property
        def shape(self):
            return (9, *super().shape)

    x = Padded(weft.ones(2))
    for _ in range(3):
        assert x.shape == (9, 2) and x.ndim == 1 and weft.ones(2).shape == (2,)


def test_nothing_is_kept():
    x = weft.ones(3, 4)

    def use():
        for _ in range(5000):
            x.shape, x.dtype, x.ndim, x.shape[0], x.shape[1:]

    use()
    blocks, types = growth(use, weft.float32)
    assert blocks < 500 and abs(types) < 500
