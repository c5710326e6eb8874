"""Hooks of optimizers, as PyTorch calls them."""

import copy

import pytest

import weft


def run(library, wrap=lambda function: function):
    seen = []
    weight = library.ones(2, requires_grad=True)
    optimizer = library.optim.Adam([weight], lr=0.5)
    optimizer.register_step_pre_hook(
        lambda o, args, kwargs: seen.append(("before", len(args), dict(kwargs), weight.tolist()))
    )
    removed = optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("never"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(("after", len(args), len(kwargs))))
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("state"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "note": 3})
    optimizer.register_load_state_dict_pre_hook(lambda o, state: {k: v for k, v in state.items() if k != "note"})
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    removed.remove()

    def step():
        optimizer.zero_grad()
        loss = (weight * weight).sum()
        loss.backward()
        optimizer.step()
        return loss

    step = wrap(step)
    losses = [step().item() for _ in range(3)]
    losses.append(optimizer.step(closure=lambda: 7.0))
    seen[-2] = seen[-2][0]
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    return seen, losses, state["note"]


@pytest.mark.oracle
def test_hooks_like_pytorch():
    torch = pytest.importorskip("torch")
    ours, theirs = run(weft), run(torch)
    assert ours[0][1::2] == theirs[0][1::2] and [x[0] for x in ours[0]] == [x[0] for x in theirs[0]]
    assert ours[2] == theirs[2]


def test_hooks_in_compiled_calls():
    assert run(weft, weft.compile) == run(weft)


def test_arguments_can_be_changed_and_copies_have_their_own():
    weight = weft.ones(1, requires_grad=True)
    optimizer = weft.optim.SGD([weight], lr=1.0)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: 5.0), {}))
    assert optimizer.step() == 5.0
    twin = copy.deepcopy(optimizer)
    assert twin.step() == 5.0 and twin.step.optimizer is twin
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="must return None or a tuple of"):
        optimizer.step()
    assert twin.step() == 5.0


def test_optimizers_of_users_have_hooks_too():
    class Mine(weft.optim.Optimizer):
        def step(self, closure=None):
            return "mine"

    seen = []
    optimizer = Mine([weft.ones(1)], {})
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(o))
    assert optimizer.step() == "mine" and seen == [optimizer]
