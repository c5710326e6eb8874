"""Compiled modules as attributes of modules: theirs are the parameters, compiled are the calls."""

import copy
import pickle

import pytest

import weft
from weft import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return weft.tanh(self.norm(self.linear(x)))


class Net(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.first, self.second = wrap(Block()), wrap(Block())
        self.last = nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.second(self.first(x)))


def as_it_is(x):
    return x


def trained(wrap, wrap_step):
    weft.manual_seed(0)
    model, x = Net(wrap), weft.randn(8, 4)
    optimizer = weft.optim.Adam(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap_step(step)
    losses = [step(x).item() for _ in range(10)]
    return model, losses


@pytest.mark.parametrize("wrap_step", [as_it_is, weft.compile])
def test_they_are_trained_with_the_bits_of_eager_mode(wrap_step):
    plain, losses = trained(as_it_is, as_it_is)
    model, found = trained(weft.compile, wrap_step)
    assert found == losses and losses[-1] < losses[0]
    expected, state = plain.state_dict(), model.state_dict()
    assert list(state) == list(expected) and "first.linear.weight" in state
    assert all((state[key] == expected[key]).all() for key in state)


def test_modes_types_and_copies_are_those_of_the_module():
    model, _ = trained(weft.compile, as_it_is)
    x = weft.randn(3, 4)
    model.eval()
    assert not model.first.training
    expected = model(x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other.first) is type(model.first)
        assert (other(x) == expected).all()
        with weft.no_grad():
            dict(other.named_parameters())["first.linear.weight"].zero_()
        assert (other(x) != expected).any() and (model(x) == expected).all()
    zeros = {name: p * 0 for name, p in model.named_parameters()}
    assert weft.func.functional_call(model, zeros, (x,)).tolist() == [[0.0]] * 3
    assert model.double()(x.double()).dtype is weft.float64


def test_they_are_assigned_and_deleted_as_modules_are():
    model = Net(weft.compile)
    model.first = block = Block()
    assert model.first is block and dict(model.named_children())["first"] is block
    model.first = weft.compile(block)
    assert model.first is not block and dict(model.named_children())["first"] is block
    del model.first
    assert not hasattr(model, "first") and [name for name, _ in model.named_children()] == ["second", "last"]
    model.second = None
    assert model.second is None and len(list(model.parameters())) == 2
    model.activation = weft.compile(weft.relu)
    assert [name for name, _ in model.named_children()] == ["last"]
