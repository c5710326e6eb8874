"""Calls on arrays that go to their program at once: of functions that call modules."""

import numpy as np
import pytest
from prepared_parts import is_prepared, prepared, same_as_tensors

import weft
from weft import nn
from weft.nn import functional as F

draw = np.random.default_rng(0)
X, Y = weft.tensor(draw.standard_normal((20, 3))), weft.tensor(draw.standard_normal(20))
POINT = np.array([0.5, -1.0, 2.0])


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.scale = nn.Linear(3, 4), 2.0
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.register_buffer("shift", weft.ones(4))

    def features(self, x):
        x = weft.tanh(self.first(x)) * self.scale
        for block in self.blocks:
            x = x + F.relu(block(x))
        return x - self.shift

    def forward(self, x):
        return self.features(x).sum(-1)


def models():
    weft.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 1), nn.Flatten(0))
    return layers.double(), Features().double()


@pytest.mark.parametrize("which", [0, 1])
def test_modules_and_all_that_may_change_in_them(which):
    model = models()[which]

    def f(x):
        return ((model(X * x) - Y) ** 2).mean()

    both = prepared(weft.value_and_grad(f), POINT)
    assert is_prepared(both) and same_as_tensors(both, f, POINT), both.explain()
    first = model[0] if which == 0 else model.first
    changes = [
        lambda: first.weight.data.mul_(2),
        lambda: setattr(first, "bias", nn.Parameter(weft.zeros(4, dtype=weft.float64))),
        lambda: model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}),
        lambda: first.register_forward_hook(lambda module, args, out: out * 2),
    ]
    if which == 1:
        changes += [
            lambda: setattr(model, "scale", 3.0),
            lambda: model.blocks.append(nn.Linear(4, 4).double()),
            lambda: setattr(model, "forward", lambda x: x.sum(-1)),
        ]
    for change in changes:
        change()
        assert same_as_tensors(both, f, POINT)
        prepared(both, POINT, calls=40)
        assert same_as_tensors(both, f, POINT)


def test_a_forward_that_is_replaced(monkeypatch):
    model = models()[1]

    def f(x):
        return model(X * x).mean() + model.features(X).sum()

    both = prepared(weft.value_and_grad(f), POINT)
    assert is_prepared(both)
    monkeypatch.setattr(Features, "features", lambda self, x: x * 3)
    assert same_as_tensors(both, f, POINT)
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x)
    assert same_as_tensors(both, f, POINT)


def test_parameters_given_as_one_vector():
    model = nn.Linear(2, 1).double()
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}

    def parted(x):
        named, at = {}, 0
        for name, shape in shapes.items():
            named[name] = x[at : at + shape.numel()].reshape(shape)
            at += shape.numel()
        return named

    def f(x):
        return (weft.func.functional_call(model, parted(x), (X[:, :2],))[:, 0] - Y).square().sum()

    both = prepared(weft.value_and_grad(f), POINT)
    assert is_prepared(both) and same_as_tensors(both, f, POINT) and same_as_tensors(both, f, POINT * 2)


def test_modules_that_draw_or_count():
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5)).double()
    both = prepared(weft.value_and_grad(lambda x: model(X * x).sum()), POINT, calls=20)
    assert len({both(POINT)[0] for _ in range(8)}) == 8
    norm = nn.BatchNorm1d(3).double()
    both = prepared(weft.value_and_grad(lambda x: norm(X * x).square().mean()), POINT, calls=20)
    assert norm.num_batches_tracked == 20

    class Counting(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    counting = Counting()
    both = prepared(weft.value_and_grad(lambda x: counting(x).sum()), POINT, calls=20)
    assert both(POINT)[0] == POINT.sum() * 21


def test_a_mode_that_changes():
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5)).double().eval()

    def f(x):
        return model(X * x).sum()

    both = prepared(weft.value_and_grad(f), POINT)
    assert is_prepared(both) and same_as_tensors(both, f, POINT)
    model.train()
    assert len({both(POINT)[0] for _ in range(8)}) == 8
