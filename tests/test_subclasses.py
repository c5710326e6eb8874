"""Classes of the user's that inherit from Tensor."""

import pytest

import weft

ASKS = True


class Tagged(weft.Tensor):
    unit = "m"

    def twice(self):
        return self * 2


class Counted(weft.Tensor):
    def __init__(self, data, calls=3):
        self.calls = calls


def test_calling_the_class_gives_an_instance_of_it():
    x = Tagged([1.0, 2.0])
    assert type(x) is Tagged and isinstance(x, weft.Tensor) and x.unit == "m"
    assert x.twice().tolist() == [2, 4] and x.dtype is weft.float32
    assert Tagged(2, 3).shape == (2, 3) and type(Tagged()) is Tagged
    y = Counted([1.0])
    assert type(y) is Counted and y.calls == 3 and (y + 1).tolist() == [2]


def test_it_shows_the_memory_of_the_tensor_that_it_is_made_of():
    memory = weft.ones(2)
    shown = Tagged(memory)
    shown.add_(1)
    assert memory.tolist() == [2, 2] and memory._version == shown._version == 1
    assert type(memory.as_subclass(Tagged)) is Tagged and type(memory) is weft.Tensor


@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
def test_it_is_a_leaf_like_any_other(wrap):
    x = Tagged([1.0, 2.0]).requires_grad_()

    @wrap
    def step(scale):
        loss = (x.twice() ** 2 * scale).sum()
        loss.backward()
        return loss

    for k in range(1, 4):
        assert step(weft.ones(2)).item() == 20 and x.grad.tolist() == [8 * k, 16 * k]


def test_one_of_a_result_has_its_history():
    x = weft.ones(2, requires_grad=True)
    y = Tagged(x * 2)
    y.twice().sum().backward()
    assert type(y) is type(y.twice()) is Tagged and not y.is_leaf and x.grad.tolist() == [4, 4]


def test_what_is_no_class_of_tensors_is_refused():
    with pytest.raises(TypeError, match="does not inherit from Tensor"):
        weft.ones(2).as_subclass(dict)
