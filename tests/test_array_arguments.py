"""NumPy arrays given to compiled functions where a parameter is annotated as a tensor (frontend/array_arguments.py)."""

import pickle

import numpy as np
import pytest

import weft
from weft import Tensor


def energy(x: weft.Tensor, power=2, *, weight: "weft.Tensor" = None, name: str = ""):
    y = (x**power).sum()
    return y if weight is None else (y * weight).sum()


def test_an_array_gives_what_the_tensor_gives():
    f, x, w = weft.compile(energy), np.arange(4.0), np.array([0.5, 2.0])
    for _ in range(4):
        assert f(x).item() == energy(weft.tensor(x)).item()
        assert f(x=x, power=3).item() == energy(weft.tensor(x), 3).item()
        assert f(weft.tensor(x), weight=w).item() == energy(weft.tensor(x), weight=weft.tensor(w)).item()
    assert not f.breaks


def test_every_call_reads_the_array_it_is_given():
    f = weft.compile(energy)
    for k in range(6):
        x = np.full(3, float(k), np.float32)
        assert f(x).item() == 3.0 * k * k and f(x).dtype is weft.float32


def test_what_the_function_writes_is_in_the_array():
    @weft.compile
    def clear(x: Tensor, n):
        x[:n] = 0.0
        return x.sum()

    for _ in range(4):
        x = np.arange(1.0, 4.0)
        assert clear(x, 2).item() == 3.0 and x.tolist() == [0.0, 0.0, 3.0]


def test_methods_and_gradients():
    class Model:
        def __init__(self):
            self.w = weft.tensor([1.0, -2.0], dtype=weft.float64, requires_grad=True)

        @weft.compile
        def step(self, x: weft.Tensor, y: weft.Tensor):
            self.w.grad = None
            loss = ((x @ self.w - y) ** 2).mean()
            loss.backward()
            return loss.detach()

    x, y = np.random.default_rng(0).normal(size=(5, 2)), np.ones(5)
    model, losses = Model(), set()
    for _ in range(4):
        losses.add(model.step(x, y).item())
    expected = (2 * (x @ [1.0, -2.0] - y) @ x) / 5
    np.testing.assert_allclose(model.w.grad.numpy(), expected)
    assert len(losses) == 1


def test_what_is_not_annotated_arrives_as_it_is():
    @weft.compile
    def f(x: weft.Tensor, given, count: int = 1):
        assert isinstance(given, np.ndarray)
        return x * float(given[0]) * count

    assert f(np.ones(2), np.array([3.0])).tolist() == [3.0, 3.0]
    with pytest.raises(TypeError, match=r"annotate the parameter as weft\.Tensor"):
        weft.compile(lambda x: weft.exp(x))(np.ones(2))


def test_the_function_is_still_the_users():
    f = weft.compile(energy)
    assert f.__wrapped__ is energy and f.__doc__ == energy.__doc__
    again = pickle.loads(pickle.dumps(f))
    assert again(np.ones(3)).item() == 3.0
