"""Calls that end with an exception again and again: they are replayed up to there, and leave what eager calls leave."""

import pytest
from compiled_twin import look, twin

import weft

ROUNDS = 30


class Stop(Exception):
    pass


def before_anything(x, w, state, limit):
    if limit < 0:
        raise Stop
    return (x * w).sum()


def after_a_read(x, w, state, limit):
    loss = ((x - w) ** 2).sum()
    if loss.item() > limit:
        raise Stop(loss.item())
    return loss


def with_pending_values(x, w, state, limit):
    hidden = (x * w).tanh()
    if limit < 1:
        raise Stop(hidden, hidden.exp())
    return hidden.detach() * 2


def after_changes(x, w, state, limit):
    state.mul_(0.5).add_(x)
    if limit < 1:
        raise Stop
    state += 1
    return state.sum().item()


def after_a_backward(x, w, state, limit):
    ((x * w).sin().sum()).backward()
    if limit < 2:
        raise Stop(w.grad)
    with weft.no_grad():
        w.sub_(0.1 * w.grad)
    w.grad = None


def caught_inside(x, w, state, limit):
    try:
        y = after_a_read(x, w, state, limit)
    except Stop as stop:
        y = x * stop.args[0]
    return (y * 2).detach()


BODIES = [before_anything, after_a_read, with_pending_values, after_changes, after_a_backward, caught_inside]


@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("limits", [(-1.0,), (1e9,), (-1.0, 1e9), (1e9, 1e9, -1.0, 1.5)], ids=str)
@pytest.mark.parametrize("keeps", [False, True], ids=["dropped", "kept"])
def test_what_calls_leave_that_raise(body, limits, keeps):
    def scenario(compile):
        f, kept = compile(body), []
        w, state = weft.randn(4, requires_grad=True), weft.zeros(4)
        for k in range(ROUNDS):
            try:
                result = f(weft.rand(4), w, state, limits[k % len(limits)])
            except Stop as stop:
                result = [look(x) for x in stop.args]
                if keeps:
                    kept.append(stop)  # and with it all that the function has had
            yield result, state, w, w.grad
            if isinstance(result, weft.Tensor) and result.requires_grad:
                result.sum().backward()
                yield w.grad
            w.grad = None
        yield [list(stop.args) for stop in kept]

    twin(scenario)()


@pytest.mark.parametrize("body", [with_pending_values, after_changes, after_a_backward])
def test_such_calls_are_replayed(body):
    f, w, state = weft.compile(body), weft.randn(4, requires_grad=True), weft.zeros(4)
    for _ in range(ROUNDS):
        with pytest.raises(Stop):
            f(weft.rand(4), w, state, -1.0)
        w.grad = None
    (recording,) = f.recordings
    assert recording.n_raised == ROUNDS
    assert recording.n_followed < ROUNDS // 2
