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


CONTAINERS = {
    "Sequential": lambda block: nn.Sequential(block, nn.Linear(4, 1)),
    "Sequential of names": lambda block: nn.Sequential({"0": block, "1": nn.Linear(4, 1)}),
    "ModuleList": lambda block: InTurn(nn.ModuleList([block, nn.Linear(4, 1)])),
    "ModuleDict": lambda block: InTurn(nn.ModuleDict({"0": block, "1": nn.Linear(4, 1)})),
    "add_module": lambda block: InTurn(added(nn.ModuleList(), block, nn.Linear(4, 1))),
}


class InTurn(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        for layer in self.inner.values() if isinstance(self.inner, nn.ModuleDict) else self.inner:
            x = layer(x)
        return x


def added(container, *modules):
    for k, module in enumerate(modules):
        container.add_module(str(k), module)
    return container


@pytest.mark.parametrize("container", CONTAINERS)
def test_containers_hold_them(container):
    weft.manual_seed(3)
    block = Block()
    compiled = weft.compile(block)
    model, x = CONTAINERS[container](compiled), weft.randn(6, 4)
    plain = CONTAINERS[container](block)
    plain.load_state_dict(model.state_dict())  # by the same names
    model.eval()
    assert not block.training
    for _ in range(3):
        assert weft.equal(model(x), plain(x))
    assert len(compiled.recordings) == 1  # calls went to it
    twin = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert weft.equal(twin(x), plain(x)) and repr(twin) == repr(plain)


def test_items_of_containers_are_what_was_compiled():
    compiled = weft.compile(Block())
    layers = nn.ModuleList([nn.Identity(), compiled])
    assert layers[1] is compiled and list(layers)[1] is compiled and layers[1:][0] is compiled
    layers.insert(0, nn.Identity())
    assert layers[2] is compiled and list(layers.children())[2] is compiled._orig_mod
    layers[2] = nn.Identity()
    assert type(layers[2]) is nn.Identity
    named = nn.ModuleDict({"block": compiled})
    assert named["block"] is compiled and dict(named.items()) == {"block": compiled}
    named._modules["block"] = nn.Identity()  # as programs do
    assert type(named["block"]) is nn.Identity
    with pytest.raises(TypeError, match="function is not a Module subclass"):
        nn.Sequential(lambda x: x)
