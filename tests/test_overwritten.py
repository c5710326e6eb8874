"""What is overwritten keeps its history, with gradients of zero, as in PyTorch: values, node names, compiled calls."""

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

CHANGES = {
    "zero_": lambda m, y, v: y.zero_(),
    "fill_ of a number": lambda m, y, v: y.fill_(3),
    "fill_ of a tensor": lambda m, y, v: y.fill_(v[0]),
    "copy_ of a constant": lambda m, y, v: y.copy_(m.arange(3.0)),
    "copy_ of what requires gradients": lambda m, y, v: y.copy_(v),
    "copy_ that is broadcast and converted": lambda m, y, v: y.copy_(v[1:2].double(), non_blocking=True),
    "a part": lambda m, y, v: y[1:].zero_(),
    "a part with a gradient": lambda m, y, v: y[1:].fill_(v[2]),
    "twice": lambda m, y, v: y.zero_().copy_(v).mul_(2),
}


def gradients(module, change):
    x = module.tensor([1.0, 2.0, 3.0], requires_grad=True)
    v = module.tensor([0.5, -1.0, 2.0], requires_grad=True)
    y = x * 2
    read_before = y * 1
    change(module, y, v)
    (y * module.tensor([1.0, 10.0, 100.0]) + read_before).sum().backward()
    grads = [np.zeros(3) if g is None else g.numpy() for g in (x.grad, v.grad)]
    return [y.detach().numpy(), *grads], y.grad_fn.name().rpartition(":")[2]


@pytest.mark.parametrize("name", CHANGES)
def test_values_and_gradients_are_those_of_pytorch(name):
    (ours, our_node), (theirs, their_node) = (gradients(m, CHANGES[name]) for m in (weft, torch))
    assert our_node == their_node
    for a, b in zip(ours, theirs):
        assert a.tolist() == b.tolist()


@pytest.mark.parametrize("name", CHANGES)
def test_compiled_calls_have_the_same_bits(name):
    x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    v = weft.tensor([0.5, -1.0, 2.0], requires_grad=True)

    def step(x, v):
        y = x * 2
        CHANGES[name](weft, y, v)
        return y, y.requires_grad, weft.autograd.grad((y * y).sum() + (x * v).sum(), (x, v))

    expected, compiled = step(x, v), weft.compile(step)
    for _ in range(4):
        y, requires, grads = compiled(x, v)
        assert requires and y.tolist() == expected[0].tolist()
        assert [g.tolist() for g in grads] == [g.tolist() for g in expected[2]]


@pytest.mark.parametrize("name", ["uniform_", "normal_"])
def test_random_numbers_keep_the_history_too(name):
    for module in (weft, torch):
        x = module.ones(3, requires_grad=True)
        y = getattr(x * 2, name)()
        assert y.grad_fn.name() == f"{name[:-1].capitalize()}Backward0"
        y.sum().backward()
        assert x.grad.tolist() == [0.0] * 3


def test_without_gradients_nothing_is_kept():
    for module in (weft, torch):
        y = module.ones(3, requires_grad=True) * 2
        with module.no_grad():
            y.zero_()
        assert y.grad_fn.name() == "MulBackward0"
        assert not module.ones(3).zero_().requires_grad
        with pytest.raises(RuntimeError, match="0-dimension"):
            module.ones(3).fill_(module.ones(1, 1))
        with pytest.raises(RuntimeError, match="leaf Variable"):
            module.ones(3, requires_grad=True).zero_()
