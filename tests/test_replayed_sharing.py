"""Tensors that shared the memory of parameters between calls: once they are gone, the next update is as ever."""

import sys

import pytest
from compiled_twin import assert_same, leaf

import weft
from weft import nn
from weft.nn import functional as F

BETWEEN = {
    "detached": lambda model: [p.detach() for p in model.parameters()],
    "state": lambda model: model.state_dict(),
    "data": lambda model: [p.data for p in model.parameters()],
    "views": lambda model: [p.detach().view(-1)[:1] for p in model.parameters()],
    "twice": lambda model: (model.state_dict(), [p.detach() for p in model.parameters()]),
}


def trained(compile, between, optimizer, kept=None):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = optimizer(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = compile(step)
    for k in range(24):
        yield step(weft.randn(5, 3), weft.randn(5, 1))
        seen = between(model)
        if kept is not None and 10 <= k < 16:
            kept.append(seen)
        del seen
    yield from model.parameters()


def python_of_optimizers(between, optimizer):
    """How many functions of optimizers run in Python in the last calls."""
    found = []

    def look(frame, event, _):
        if event == "call" and frame.f_globals.get("__name__", "").startswith("weft.optim"):
            found.append(frame.f_code.co_name)

    for k, _ in enumerate(trained(weft.compile, between, optimizer)):
        if k == 14:
            sys.setprofile(look)
    sys.setprofile(None)
    return found


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("optimizer", [weft.optim.SGD, weft.optim.Adam])
def test_the_next_update_is_replayed_as_ever(between, optimizer):
    assert_same(lambda compile: trained(compile, BETWEEN[between], optimizer))
    assert python_of_optimizers(BETWEEN[between], optimizer) == python_of_optimizers(lambda model: None, optimizer)


@pytest.mark.parametrize("between", BETWEEN)
def test_what_is_kept_shows_every_update(between):
    def scenario(compile):
        kept = []
        yield from trained(compile, BETWEEN[between], weft.optim.SGD, kept)
        yield from (kept[0].values() if isinstance(kept[0], dict) else weft.utils._pytree.tree_leaves(kept))

    assert_same(lambda compile: [v.detach().clone() for v in scenario(compile)])


def test_state_changed_in_place_after_it_was_shown():
    def scenario(compile):
        total, w, seen = weft.zeros(3), leaf(3), []

        @compile
        def add(x):
            total.add_(x)
            (total * w).sum().backward()
            return total * 2

        for k in range(20):
            seen += [add(weft.randn(3)), total.clone(), w.grad.clone()]
            shown = total.detach()[1:]
            if k == 12:
                kept = shown
            del shown
        return [*seen, kept]

    assert_same(scenario)


def from_stacked(models):
    stacked, _ = weft.func.stack_module_state(models)
    return {name: p.detach().requires_grad_() for name, p in stacked.items()}, list(stacked.values())


def from_one(models):
    given = [p.detach().clone() for p in models[0].parameters()]
    return {str(k): p.detach() for k, p in enumerate(given)}, given


def by_hand(ws, slopes):
    for w, slope in zip(ws, slopes):
        w.sub_(slope, alpha=0.1)


def by_optimizer(ws, slopes, made=None):
    for w, slope in zip(ws, slopes):
        w.grad = slope
    OPTIMIZERS.setdefault(id(ws[0]), weft.optim.Adam(ws, lr=0.1)).step()


OPTIMIZERS = {}


@pytest.mark.parametrize("change", [by_hand, by_optimizer])
@pytest.mark.parametrize("given", [from_stacked, from_one])
@pytest.mark.parametrize("holds", [False, True])
def test_what_is_detached_from_another_tensor_is_nobodys_array(holds, given, change):
    """A tensor made by detach() is changed in a call, while the other one lives: as it is, or read between calls."""
    functions = []

    def scenario(compile):
        OPTIMIZERS.clear()
        models = [nn.Linear(3, 2) for _ in range(3)]
        for k, p in enumerate(p for m in models for p in m.parameters()):
            p.data.copy_(weft.arange(p.numel()).reshape(p.shape) * 0.1 - k)
        named, others = given(models)
        ws, held = list(named.values()), others if holds else None
        others = None

        @compile
        def step(x):
            slopes = [(w.detach() * x.mean()).tanh() for w in ws]
            with weft.no_grad():
                change(ws, slopes)
            return sum(w.detach().sum() for w in ws)

        functions.append(step)
        for _ in range(10):
            yield step(weft.randn(5))
            yield from [] if held is None else [v.clone() for v in held]
        yield from ws

    assert_same(scenario)
    (recording,) = functions[-1].recordings
    assert recording.replays and not recording.fallbacks, functions[-1].explain()


def test_memory_that_an_array_shows_is_changed_eagerly_still():
    array = weft.ones(3).numpy()
    w = weft.from_numpy(array).detach()

    def step(x):
        w.add_(x)
        return w * 2

    f = weft.compile(step)
    for k in range(8):
        assert f(weft.ones(3)).tolist() == [2.0 * (k + 2)] * 3 and array.tolist() == [k + 2.0] * 3
    assert any("NumPy array" in reason for reason, _ in f.recordings[0].fallbacks)
