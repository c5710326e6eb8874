"""Hooks in replayed calls: on parameters, on values of the call, and gradients kept there. As without the decorator."""

import pytest
from compiled_twin import assert_same, error_of, leaf

import weft


def reason(function, *arguments, n=8):
    """Why calls are not replayed; None if they are."""
    f = weft.compile(function)
    for _ in range(n):
        f(*arguments)
    return None if f.recordings[0].usual is not None else f.recordings[0].not_replayed


def departures(function, monkeypatch):
    """How often calls depart in 10 calls, once they are replayed."""
    from weft.runtime.replay.frame_usual import UsualFrame

    count, depart = [0], UsualFrame.depart

    def counted(frame):
        count[0] += 1
        return depart(frame)

    for _ in range(10):
        function()
    monkeypatch.setattr(UsualFrame, "depart", counted)
    for _ in range(10):
        function()
    return count[0]


def test_hooks_of_parameters_are_called_in_replayed_calls(monkeypatch):
    w, x = leaf(4, 4), weft.randn(6, 4)
    w.register_hook(lambda g: g.clamp(-0.1, 0.1))

    @weft.compile
    def step(x):
        w.grad = None
        loss = (x @ w).square().sum()
        loss.backward()
        return loss.detach()

    assert departures(lambda: step(x), monkeypatch) == 0


HOOKS = {
    "clamps": lambda k, w, seen: lambda g: g.clamp(-0.1, 0.1),
    "keeps": lambda k, w, seen: lambda g: seen.append(g),
    "reads": lambda k, w, seen: lambda g: seen.append(g.abs().max().item()),
    "looks at the leaf": lambda k, w, seen: lambda g: seen.append(w.grad),
    "changes": lambda k, w, seen: lambda g: g * k if k in (6, 9) else None,
    "counts": lambda k, w, seen: lambda g: seen.append(len(seen)),
    "raises": lambda k, w, seen: lambda g: 1 / 0 if k in (6, 9) else None,
    "is no tensor": lambda k, w, seen: lambda g: 3 if k in (6, 9) else None,
}


@pytest.mark.parametrize("make", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_hooks_of_parameters_do_what_they_do(make, when):
    def scenario(compile):
        w, v, x, seen = leaf(4, 4), leaf(4), weft.randn(6, 4), []

        @compile
        def step(x):
            w.grad = v.grad = None
            loss = ((x @ w).tanh() * v).square().sum()
            loss.backward()
            return loss.detach()

        for k in range(11):
            hook = make(k, w, seen)
            post = lambda t, hook=hook: hook(t.grad) and None  # noqa: E731
            handle = w.register_hook(hook) if when == "before" else w.register_post_accumulate_grad_hook(post)
            seen += [error_of(step, x), w.grad, v.grad]
            handle.remove()
        return seen

    assert_same(scenario)


def test_hooks_that_come_and_go_in_a_loop(monkeypatch):
    def scenario(compile):
        w, x, seen = leaf(4, 4), weft.randn(6, 4), []

        @compile
        def step(x):
            w.grad = None
            handle = w.register_hook(lambda g: g * 0.5)
            loss = (x @ w).square().sum()
            loss.backward()
            handle.remove()
            return loss.detach()

        for _ in range(8):
            seen += [step(x), w.grad]
        return seen

    assert_same(scenario)
