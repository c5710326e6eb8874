"""Replayed calls that change parameters more than once: two steps of an optimizer, a change by hand and a step. As
without the decorator, also where a call in between does something else.
"""

import pytest
from compiled_twin import assert_same, error_of

import weft
from weft import nn
from weft.nn import functional as F

N_CALLS, ODD_CALLS = 13, (7, 10)

OPTIMIZERS = {
    "SGD": lambda p: weft.optim.SGD(p, lr=0.1),
    "momentum": lambda p: weft.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: weft.optim.Adam(p, lr=0.05),
}


def decay(model):
    with weft.no_grad():
        for p in model.parameters():
            p.mul_(0.9)


def away(model):
    for p in model.parameters():
        p.data.add_(p.grad * 0.1)


def inner_step(model):
    for p in model.parameters():
        p.data -= 0.1 * p.grad


def nothing(model):
    pass


BETWEEN = {"nothing": nothing, "decay": decay, "away": away, "by hand": inner_step}


def steps_of(model, optimizer, between, odd):
    def step(x, y, k):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if between is nothing:
            optimizer.step()
        between(model)
        if k in ODD_CALLS:
            odd(model, optimizer)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        if k in ODD_CALLS:
            odd(model, optimizer)
        return loss

    return step


def keep(results, function, *arguments):
    results.append(function(*arguments))


def scenario_of(make, between, odd):
    def scenario(compile):
        weft.manual_seed(3)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        optimizer, seen, losses = make(model.parameters()), [], []
        step = compile(steps_of(model, optimizer, between, odd))
        for k in range(N_CALLS):
            x, y = weft.randn(5, 3), weft.randn(5, 2)
            seen.append(error_of(keep, losses, step, x, y, k))
            seen += [(p.detach().clone(), p._version, p.grad) for p in model.parameters()]
        return losses, seen

    return scenario


KEPT = []


def fail(model, optimizer):
    raise ValueError("in the middle")


ODD = {
    "fails": fail,
    "another step": lambda model, optimizer: optimizer.step(),
    "a parameter is read": lambda model, optimizer: model[0].weight.sum().item(),
    "a parameter is kept": lambda model, optimizer: KEPT.append(model[0].weight.detach()),
    "a view is kept": lambda model, optimizer: KEPT.append(model[0].weight.data[0]),
    "another rate": lambda model, optimizer: optimizer.param_groups[0].update(lr=0.02),
    "a new state": lambda model, optimizer: optimizer.state.clear(),
    "a state loaded": lambda model, optimizer: optimizer.load_state_dict(optimizer.state_dict()),
    "a frozen parameter": lambda model, optimizer: model[0].bias.requires_grad_(not model[0].bias.requires_grad),
    "other memory": lambda model, optimizer: setattr(model[2].weight, "data", model[2].weight.data * 2),
    "decay": lambda model, optimizer: decay(model),
}


@pytest.mark.parametrize("name", BETWEEN)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_parameters_that_change_twice(optimizer, name):
    assert_same(scenario_of(OPTIMIZERS[optimizer], BETWEEN[name], nothing_odd))


def nothing_odd(model, optimizer):
    pass


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("name", BETWEEN)
def test_what_else_happens_between(name, odd):
    KEPT.clear()
    assert_same(scenario_of(OPTIMIZERS["momentum"], BETWEEN[name], odd))


@pytest.mark.parametrize("name", BETWEEN)
def test_such_calls_are_replayed(name):
    model = nn.Linear(3, 2)
    step = weft.compile(
        steps_of(model, weft.optim.SGD(model.parameters(), 0.1, momentum=0.9), BETWEEN[name], nothing_odd)
    )
    x, y = weft.randn(5, 3), weft.randn(5, 2)
    for _ in range(9):
        step(x, y, 0)
    assert step.recordings[0].not_replayed is None and step.recordings[0].usual is not None
