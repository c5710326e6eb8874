"""Arguments that become leaves in a compiled call, `x.requires_grad_()` of a new batch: as without, and replayed."""

import random

import pytest
from compiled_twin import assert_same, error_of, leaf

import weft
from weft import nn
from weft.runtime.replay import native
from weft.runtime.replay.frame_usual import UsualFrame


def residual(x, model):
    x.requires_grad_()
    u = model(x)
    (slope,) = weft.autograd.grad(u, x, weft.ones_like(u), create_graph=True)
    (bend,) = weft.autograd.grad(slope.sum(), x, create_graph=True)
    loss = (bend + u * slope).square().mean()
    model.zero_grad()
    loss.backward()
    return loss


def attack(x, model):
    x.requires_grad = True
    loss = model(x).square().mean()
    loss.backward()
    return (x + 0.1 * x.grad.sign()).detach()


def saliency(x, model):
    seen = model(x * 2).detach()
    score = model(x.requires_grad_(True)).amax(1).sum()
    return weft.autograd.grad(score, x)[0].abs(), seen, score


def langevin(x, model):
    (slope,) = weft.autograd.grad(model(x.requires_grad_()).sum(), x)
    with weft.no_grad():
        other = x + 0.1 * slope
    other.requires_grad_()
    (back,) = weft.autograd.grad(model(other).sum(), other)
    return weft.where((slope - back).sum() > 0, other, x).detach()


def two_views_of_it(x, model):
    rows = x[:2]
    x.requires_grad_()
    loss = model(x[1:]).sum() * rows.sum() + model(x).mean()
    loss.backward()
    return loss.detach()


PROGRAMS = [residual, attack, saliency, langevin, two_views_of_it]


@pytest.mark.parametrize("program", PROGRAMS)
def test_arguments_become_leaves(program):
    functions = []

    def scenario(compile):
        model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
        step = compile(lambda x: program(x, model))
        functions.append(step)
        for _ in range(8):
            x = weft.randn(4, 3)
            yield step(x), x, [p.grad for p in model.parameters()]

    assert_same(scenario)
    assert functions[1].breaks == () and "calls are replayed" in functions[1].explain()


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_same_batches_come_again(program):
    """Then they require gradients from the start, and have some."""

    def scenario(compile):
        model, batches = (
            nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)),
            [weft.randn(4, 3), weft.randn(4, 3)],
        )
        step = compile(lambda x: program(x, model))
        for k in range(12):
            x = batches[k // 2] if k < 4 else weft.randn(4, 3) if k % 3 else batches[0]
            yield step(x), x, [p.grad for p in model.parameters()]

    assert_same(scenario)


@pytest.mark.parametrize("seed", range(40))
def test_calls_that_do_other_things_now_and_then(seed):
    """Flags change at other places, not at all or twice; the call goes another way after that, or fails."""

    def scenario(compile):
        rng, w = random.Random(seed), leaf(3)

        @compile
        def step(x, y):
            with weft.set_grad_enabled(plan["grad"]):
                made = (x * w).tanh() if plan["before"] else w.tanh()
                for name in plan["turned"]:
                    {"x": x, "y": y}[name].requires_grad_()
                if plan["off"]:
                    x.requires_grad_(False)
                if plan["fails"] == 1:
                    raise ValueError
                made = made + (x * y if plan["uses"] else x + 1)
                if plan["reads"] and made.sum() > 0:
                    made = made * 2
                if plan["late"]:
                    y.requires_grad_()
                    made = made - y.sin()
                loss = made.square().sum()
                if plan["fails"] == 2:
                    raise ValueError
                if loss.requires_grad and plan["backward"]:
                    loss.backward()
                elif loss.requires_grad and x.requires_grad and plan["uses"]:
                    return weft.autograd.grad(loss, x)[0], x.is_leaf
                return loss if plan["history"] else loss.detach()

        usual = {
            "grad": True, "before": rng.random() < 0.5, "turned": rng.choice([["x"], ["y"], ["x", "y"]]), "off": False,
            "fails": 0, "uses": rng.random() < 0.7, "reads": rng.random() < 0.3, "late": rng.random() < 0.3,
            "backward": rng.random() < 0.6, "history": rng.random() < 0.3,
        }  # fmt: skip
        others = {
            "grad": [False], "before": [True, False], "turned": [[], ["x"], ["y"], ["y", "x"]], "off": [True],
            "fails": [1, 2], "uses": [True, False], "reads": [True, False], "late": [True, False],
            "backward": [True, False], "history": [True, False],
        }  # fmt: skip
        for k in range(24):
            plan = dict(usual)
            if k > 3 and rng.random() < 0.5:
                for name in rng.sample(list(others), rng.randrange(1, 3)):
                    plan[name] = rng.choice(others[name])
            x, y = weft.randn(3), weft.randn(3)
            if rng.random() < 0.1:
                y = x
            if rng.random() < 0.1:
                y = x[:]
            w.grad = None
            yield error_of(step, x, y), x, y, w.grad

    assert_same(scenario)


def test_a_call_that_departs_after_an_argument_became_a_leaf():
    """What the argument was before is what the ops before have read."""

    def scenario(compile):
        flags, w = [], leaf(3)

        @compile
        def step(x):
            before = x * w
            x.requires_grad_()
            after = before * x
            if flags:
                after = after.exp()
            after.sum().backward()
            return before.detach(), x.grad

        for k in range(14):
            flags[:] = [True] * (k in (6, 9, 10, 11, 12))
            yield step(weft.randn(3)), w.grad

    assert_same(scenario)


@pytest.mark.parametrize("change", [lambda x: x.unsqueeze_(0), lambda x: x.requires_grad_().detach_(), weft.t])
def test_something_else_is_done_to_the_argument_at_that_place(change):
    def scenario(compile):
        others, w = [], leaf(3)

        @compile
        def step(x):
            before = x + w
            change(x) if others else x.requires_grad_()
            loss = (before * x).sum()
            loss.backward()
            return loss.detach(), x.shape

        for k in range(14):
            others[:] = [True] * (k in (6, 9, 10, 11, 12))
            w.grad = None
            x = weft.randn(3)
            yield step(x), x, w.grad

    assert_same(scenario)


def test_a_result_that_is_the_new_leaf_or_leads_there():
    def scenario(compile):
        w = leaf(3)

        @compile
        def step(x):
            y = x.requires_grad_() * w
            return y, x

        for _ in range(8):
            y, x = step(weft.randn(3))
            y.sum().backward()
            yield x, y, w.grad

    assert_same(scenario)


def test_the_node_of_a_loss_leads_to_the_argument_of_its_own_call():
    model = nn.Linear(3, 1)
    losses = []

    @weft.compile
    def step(x):
        loss = (model(x.requires_grad_()) * x).sum()
        loss.backward()
        return loss

    batches = [weft.randn(4, 3) for _ in range(7)]
    for x in batches:
        losses.append(step(x))
    for x, loss in zip(batches, losses):
        found, left = [], [loss.grad_fn]
        while left:
            node = left.pop()
            found.append(getattr(node, "variable", None))
            left += [follows for follows, _ in node.next_functions if follows is not None]
        assert any(variable is x for variable in found)
        assert not any(variable is other for other in batches if other is not x for variable in found)


@pytest.mark.parametrize("is_new", [True, False])
def test_native_code_goes_back_to_arguments(monkeypatch, is_new):
    """Their gradients were given in Python, since nothing was ready that takes them back."""
    in_python, take = [], UsualFrame._take_backward
    monkeypatch.setattr(UsualFrame, "_take_backward", lambda *args: in_python.append(1) or take(*args))

    def scenario(compile):
        w = leaf(3)

        @compile
        def step(x, y):
            loss = (x.requires_grad_() * w).tanh().sum() + (x * y).sin().sum()
            loss.backward()
            if fails:
                raise ValueError
            return loss.detach()

        for k in range(12):
            fails, x = k == 9, weft.randn(3) if is_new else leaf(3)
            if k in (7, 8):
                x.grad = weft.ones(3)
            yield error_of(step, x, leaf(3)), x, w

    assert_same(scenario)
    assert native.layout() is None or len(in_python) < 4
