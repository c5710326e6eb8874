"""Leaves that `requires_grad_(False)` has frozen between a forward and its backward: they get no gradient.

Their hooks run all the same, and others get theirs. As in PyTorch, which is asked.
"""

import pytest
from compiled_twin import assert_same

import weft

N_CALLS = 10  # enough for every way of replaying


def inside(w, v, loss_of):
    loss = loss_of(w, v)
    v.requires_grad_(False)
    loss.backward()
    v.requires_grad_(True)
    return loss


def with_create_graph(w, v, loss_of):
    loss = loss_of(w, v)
    v.requires_grad_(False)
    loss.backward(create_graph=True)
    v.requires_grad_(True)
    return loss.detach()


def some_of_the_calls(w, v, loss_of, calls=[0]):  # noqa: B006
    loss = loss_of(w, v)
    calls[0] += 1
    if calls[0] % 3 == 1:
        v.requires_grad_(False)
    loss.backward()
    v.requires_grad_(True)
    return loss


def product(w, v):
    return (w * v * v).sum()


def layered(w, v):
    return ((w * v).sin() * w).sum() + (v * v).sum()


def _program(ns, compile, step, loss_of, compiled, hooks):
    """Gradients after each of some calls of a step, of which the whole or the loss is compiled."""
    w, v = ns.ones(3, requires_grad=True), ns.tensor([1.0, 2.0, 3.0], requires_grad=True)
    told, seen = [], []
    if hooks:
        v.register_hook(lambda g: told.append("hook"))
        v.register_post_accumulate_grad_hook(lambda p: told.append("gradient"))
    loss_of = compile(loss_of) if compiled == "loss" else loss_of
    run = compile(lambda w, v: step(w, v, loss_of)) if compiled == "step" else lambda w, v: step(w, v, loss_of)
    if step is some_of_the_calls:
        step.__defaults__[0][0] = 0
    for k in range(N_CALLS):
        run(w, v)
        seen.append([w.grad.tolist(), None if v.grad is None else v.grad.tolist(), len(told)])
        if k % 4 == 3:
            w.grad = v.grad = None
    return [*seen, *told]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("step", [inside, with_create_graph, some_of_the_calls])
@pytest.mark.parametrize("loss_of", [product, layered])
@pytest.mark.parametrize("compiled", ["nothing", "loss", "step"])
@pytest.mark.parametrize("hooks", [False, True])
def test_frozen_leaves_get_no_gradient(step, loss_of, compiled, hooks):
    import torch

    eager = _program(weft, lambda f: f, step, loss_of, compiled, hooks)
    assert _program(weft, weft.compile, step, loss_of, compiled, hooks) == eager
    wanted = _program(torch, lambda f: f, step, loss_of, compiled, hooks)
    assert [x if isinstance(x, str) else (x[1] is None, x[2]) for x in eager] == [
        x if isinstance(x, str) else (x[1] is None, x[2]) for x in wanted
    ]
    if loss_of is product:
        assert eager == wanted


@pytest.mark.parametrize("compiled", ["nothing", "forward", "step"])
def test_a_trunk_frozen_in_the_middle(compiled):
    """What an adversary does: its parameters are frozen before the backward of a loss that went through them."""

    def program(compile):
        weft.manual_seed(3)
        trunk, head = weft.nn.Linear(4, 4), weft.nn.Linear(4, 1)
        optimizer = weft.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.1)

        def forward(x):
            return head(trunk(x).tanh()).square().mean()

        forward = compile(forward) if compiled == "forward" else forward

        def step(x):
            loss = forward(x)
            trunk.requires_grad_(False)
            optimizer.zero_grad()
            loss.backward()
            trunk.requires_grad_(True)
            optimizer.step()
            return loss

        step = compile(step) if compiled == "step" else step
        before = [p.tolist() for p in trunk.parameters()]
        for _ in range(N_CALLS):
            yield step(weft.randn(5, 4)).detach()
            yield [p.grad for p in trunk.parameters()], [p.grad for p in head.parameters()]
        yield [p.tolist() for p in trunk.parameters()] == before, *head.parameters()

    assert_same(program)
    *_, last = program(lambda f: f)
    assert last[0] is True
