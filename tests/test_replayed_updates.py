"""Replayed calls that change parameters more than once: two steps of an optimizer, a change by hand and a step. As
without the decorator, also where a call in between does something else.
"""

import pytest
from compiled_twin import assert_same, error_of, leaf

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


LOGGED = {
    "the loss": lambda model, loss, prediction: loss.item(),
    "two numbers": lambda model, loss, prediction: (loss.item(), prediction.mean().item()),
    "a gradient's norm": lambda model, loss, prediction: sum(p.grad.norm() ** 2 for p in model.parameters()).item(),
    "a weight": lambda model, loss, prediction: model[0].weight.abs().max().item(),
    "all weights": lambda model, loss, prediction: [p.square().sum().item() for p in model.parameters()],
}


def logging_step(logged, every, make=OPTIMIZERS["SGD"]):
    """(a step that logs something after every so many calls, its log, its model)."""
    weft.manual_seed(0)
    model, log = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), []
    optimizer = make(model.parameters())

    def step(k, x, y):
        optimizer.zero_grad()
        prediction = model(x)
        loss = F.mse_loss(prediction, y)
        loss.backward()
        optimizer.step()
        if k % every == 0:
            log.append((k, LOGGED[logged](model, loss, prediction)))
        return loss.detach()

    return step, log, model


@pytest.mark.parametrize("logged", LOGGED)
@pytest.mark.parametrize("every", [1, 4])
def test_what_is_logged_now_and_then(logged, every):
    def scenario(compile):
        step, log, model = logging_step(logged, every)
        step = compile(step)
        for k in range(24):
            yield step(k, weft.randn(5, 3), weft.randn(5, 2)), log, list(model.parameters())

    assert_same(scenario)


@pytest.mark.parametrize("logged", LOGGED)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_calls_that_log_are_replayed_like_those_that_do_not(logged, make):
    step, _, _ = logging_step(logged, 4, make)
    step = weft.compile(step)
    for k in range(40):
        step(k, weft.randn(5, 3), weft.randn(5, 2))
    (recording,) = step.recordings
    assert recording.not_replayed is None and not recording.refusals
    assert len(recording.replays) == 2


@pytest.mark.parametrize("every", [1, 3])
def test_a_weight_that_is_read_after_its_update_stays_where_it_is(every):
    """A history that nobody goes back through has saved the weight itself, not a copy of it."""
    step, _, model = logging_step("all weights", every)
    places = [p.data_ptr() for p in model.parameters()]
    step = weft.compile(step)
    for k in range(12):
        step(k, weft.randn(5, 3), weft.randn(5, 2))
        assert [p.data_ptr() for p in model.parameters()] == places


def alternating(every=5):
    """A step, and what freezes or thaws the first layer of its model, which is asked before each call."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, lambda k: model[0].requires_grad_(k // every % 2 == 0), model


def test_a_layer_that_is_frozen_and_thawed_in_turn():
    def scenario(compile):
        step, turn, model = alternating()
        step = compile(step)
        for k in range(40):
            turn(k)
            yield (
                step(weft.randn(5, 3), weft.randn(5, 2)),
                list(model.parameters()),
                [p.grad for p in model.parameters()],
            )

    assert_same(scenario)


def test_what_was_learned_of_a_frozen_layer_is_known_when_it_is_frozen_again():
    step, turn, _ = alternating()
    step, n_followed = weft.compile(step), []
    for k in range(60):
        turn(k)
        step(weft.randn(5, 3), weft.randn(5, 2))
        n_followed.append(step.recordings[0].n_followed)
    assert n_followed[-1] == n_followed[20]
    assert len(step.recordings[0].replays) == 2


@pytest.mark.parametrize("own", [False, True])
def test_a_result_of_what_was_freed_and_of_what_was_updated(own):
    """A backward of it is an error of one kind, and its nodes lead to the parameter as it is now."""

    def scenario(compile):
        w = leaf(3, 4)
        model = nn.Linear(4, 4)
        optimizer = weft.optim.RMSprop([w], lr=0.01)

        @compile
        def step(x, v):
            scale = (x * w * v).abs().amax(-1, keepdim=True)
            model(scale * w).square().mean().backward()
            optimizer.step()
            return (scale * w).unbind(0)

        for _ in range(8):
            v = leaf(4) if own else weft.ones(4)
            row = step(weft.randn(3, 4), v)[0]
            yield error_of(lambda row=row: row.sum().backward()), w.grad.clone(), w.detach().clone()
            yield row.grad_fn.name(), [node.name() for node, _ in row.grad_fn.next_functions]

    assert_same(lambda compile: list(scenario(compile)))
