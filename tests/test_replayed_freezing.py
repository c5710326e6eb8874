"""Parameters that a compiled call freezes for a while: they come in as they are then, and calls are replayed."""

import pytest
from compiled_twin import assert_same
from test_replayed_hooks import departures

import weft
from weft import nn

N_CALLS = 14


def frozen_for_the_forward(model, x, k):
    model.zero_grad()
    model[0].requires_grad_(False)
    loss = model(x).square().mean()
    model[0].requires_grad_(True)
    loss.backward()
    return loss.detach()


def frozen_for_the_whole_step(model, x, k):
    model.zero_grad()
    model[0].requires_grad_(False)
    loss = model(x).square().mean()
    loss.backward()
    model[0].requires_grad_(True)
    return loss


def used_again_afterwards(model, x, k):
    model.zero_grad()
    model[0].requires_grad_(False)
    one = model(x).square().mean()
    model[0].requires_grad_(True)
    two = model(x * 0.5).square().mean()
    (one + two).backward()
    return one.detach(), two.detach()


def frozen_in_some_calls(model, x, k):
    model.zero_grad()
    model[0].requires_grad_(k % 3 == 0)
    loss = model(x).square().mean()
    loss.backward()
    model[0].requires_grad_(True)
    return loss.detach()


def thawed_later_in_some_calls(model, x, k):
    model.zero_grad()
    model[0].requires_grad_(False)
    h = model[0](x)
    if k == 9:
        model[0].requires_grad_(True)
        h = h + model[0](x)
    loss = model[1:](h).square().mean()
    loss.backward()
    model[0].requires_grad_(True)
    return loss.detach()


def frozen_after_it_was_used(model, x, k):
    model.zero_grad()
    h = model[0](x)
    model[0].requires_grad_(False)
    loss = model[1:](h + model[0](x)).square().mean()
    model[0].requires_grad_(True)
    loss.backward()
    return loss.detach()


def left_frozen(model, x, k):
    model.zero_grad()
    model[0].requires_grad_(False)
    loss = model(x).square().mean()
    loss.backward()
    return loss


def an_error_while_frozen(model, x, k):
    model.zero_grad()
    model[0].requires_grad_(False)
    try:
        loss = model(x).square().mean()
        if k == 10:
            raise KeyError(k)
    finally:
        model[0].requires_grad_(True)
    loss.backward()
    return loss.detach()


def frozen_after_a_change_in_some_calls(model, x, k):
    weight = model[0].weight
    h = (x @ weight).exp()
    with weft.no_grad():
        weight.mul_(0.9)
    again = (x @ weight).sin()
    weight.requires_grad_(k % 2 == 0)
    loss = h.mean() + again.mean()
    loss.backward()
    weight.requires_grad_(True)
    return loss.detach()


STEPS = [
    frozen_after_a_change_in_some_calls,
    frozen_for_the_forward,
    frozen_for_the_whole_step,
    used_again_afterwards,
    frozen_in_some_calls,
    thawed_later_in_some_calls,
    frozen_after_it_was_used,
    left_frozen,
    an_error_while_frozen,
]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_freezes(step):
    def scenario(compile):
        weft.manual_seed(3)
        model, seen = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), []
        x, f = weft.randn(4, 3), compile(step)
        for k in range(N_CALLS):
            try:
                seen.append(f(model, x, k))
            except KeyError:
                seen.append(None)
            seen += [None if p.grad is None else p.grad.clone() for p in model.parameters()]
            seen.append([p.requires_grad for p in model.parameters()])
            with weft.no_grad():
                for p in model.parameters():
                    p.mul_(0.9)
        return seen

    assert_same(scenario)


@pytest.mark.parametrize("step", [frozen_for_the_forward, frozen_for_the_whole_step, left_frozen])
def test_replays_go_to_their_end(step, monkeypatch):
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), weft.randn(4, 3)
    f = weft.compile(lambda x: step(model, x, 0))
    assert departures(lambda: f(x), monkeypatch) == 0
    assert "calls are replayed" in f.explain()


def test_freezing_what_was_used_is_said():
    model, x = nn.Sequential(nn.Linear(3, 3)), weft.randn(4, 3)
    f = weft.compile(lambda x: frozen_after_a_change_in_some_calls(model, x, 1))
    for _ in range(N_CALLS):
        f(x)
    assert "a leaf that had been used was frozen" in f.explain() and "freeze it before" in f.explain()
