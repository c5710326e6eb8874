"""Gradients of gradients inside replayed calls, whose first backward goes through nodes. As without the decorator."""

import pytest
from compiled_twin import assert_same, error_of, leaf, twin

import weft
from weft import nn
from weft.autograd import grad
from weft.utils.checkpoint import checkpoint

N_CALLS, ODD_CALLS = 11, (6, 9)


def is_replayed(function, *arguments, n=8):
    f = weft.compile(function)
    for _ in range(n):
        f(*arguments)
    return f.recordings[0].usual is not None, f.recordings[0].not_replayed


def hvp(x, v):
    y = (weft.sin(x) * x * x).sum()
    (g,) = grad(y, x, create_graph=True)
    (h,) = grad((g * v).sum(), x)
    return h


def test_hessian_vector_products_are_replayed():
    assert is_replayed(hvp, leaf(4), weft.randn(4)) == (True, None)


ODD = {
    "nothing": lambda x, y, g: None,
    "a hook": lambda x, y, g: g.register_hook(lambda c: c * 2) and None,
    "a hook of the leaf": lambda x, y, g: x.register_hook(lambda c: c * 2) and None,
    "retained": lambda x, y, g: g.retain_grad(),
    "read": lambda x, y, g: g.tolist(),
    "the node": lambda x, y, g: g.grad_fn.name(),
    "kept": lambda x, y, g: KEPT.append(g),
    "differentiated twice": lambda x, y, g: error_of(lambda: (grad(g.sum(), x), grad(g.sum(), x))[1]),
    "the first again": lambda x, y, g: error_of(grad, y, x),
    "changed in place": lambda x, y, g: error_of(lambda: g.mul_(2)),
}
KEPT = []


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_the_odd_call(odd):
    def scenario(compile):
        KEPT.clear()
        x = leaf(4)

        def f(v, k):
            y = (weft.sin(x) * x * v).sum()
            (g,) = grad(y, x, create_graph=True)
            extra = odd(x, y, g) if k in ODD_CALLS else None
            (h,) = grad((g * v).sum(), x)
            return h, extra

        f, seen = compile(f), []
        for k in range(N_CALLS):
            seen += [error_of(f, weft.randn(4), k)]
        return [*seen, *[k.detach() for k in KEPT], x.grad]

    assert_same(scenario)


@twin
def test_gradient_penalty(compile):
    critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = weft.optim.Adam(critic.parameters(), lr=0.01)

    def step(x, weight):
        optimizer.zero_grad()
        x = x.detach().requires_grad_()
        score = critic(x).sum()
        (slope,) = grad(score, x, create_graph=True)
        penalty = ((slope.norm(dim=1) - 1) ** 2).mean() * weight
        (score + penalty).backward()
        optimizer.step()
        return score.detach(), penalty.detach()

    step, seen = compile(step), []
    for k in range(N_CALLS):
        seen += step(weft.randn(5, 3), 10.0 if k < 8 else 5.0)
    return [*seen, *critic.parameters()]


@twin
def test_a_differential_equation(compile):
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = weft.optim.SGD(net.parameters(), lr=0.01)
    t = weft.linspace(0, 1, 6).reshape(6, 1).requires_grad_()

    def step():
        optimizer.zero_grad()
        u = net(t)
        (du,) = grad(u.sum(), t, create_graph=True)
        (ddu,) = grad(du.sum(), t, create_graph=True)
        loss = (ddu + u).square().mean() + (u[0] - 1).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step, seen = compile(step), []
    for _ in range(N_CALLS):
        seen.append(step())
    return [*seen, *net.parameters()]


@twin
def test_results_with_a_history(compile):
    x = leaf(3)

    def f(v):
        (g,) = grad((x**3 * v).sum(), x, create_graph=True)
        return g

    f, seen = compile(f), []
    for k in range(N_CALLS):
        g = f(weft.randn(3))
        if k % 3:
            seen.append(grad(g.sum(), x)[0])
        seen.append(g.detach())
    return seen


@twin
def test_numbers_that_change(compile):
    x = leaf(3)

    def f(scale, power):
        y = ((x * scale) ** power).sum()
        (g,) = grad(y, x, create_graph=True)
        return grad(g.sum(), x)[0]

    f, seen = compile(f), []
    for k in range(14):
        seen.append(f(1.0 + (k // 5), 3.0 if k != 12 else 4.0))
    return seen


@twin
def test_gradients_are_there_already(compile):
    x = leaf(3)

    def f(v):
        (g,) = grad((x * x * v).sum(), x, create_graph=True)
        (g * v).sum().backward()

    f, seen = compile(f), []
    for k in range(N_CALLS):
        if k not in ODD_CALLS:
            x.grad = None
        f(weft.randn(3))
        seen.append(x.grad.clone())
    return seen


OUTSIDE = {
    "hessian vector": lambda f, x, v: grad((grad(f(x, v), x, create_graph=True)[0] * v).sum(), x)[0],
    "third": lambda f, x, v: grad(grad(grad(f(x, v), x, create_graph=True)[0].sum(), x, create_graph=True)[0].sum(), x)[
        0
    ],
    "backward of it": lambda f, x, v: grad(f(x, v), x, create_graph=True)[0].square().sum().backward(),
    "both inputs": lambda f, x, v: grad(f(x, v) * 2, [x, v], create_graph=True, allow_unused=True)[0].detach(),
    "the gradient is kept": lambda f, x, v: KEPT.append(grad(f(x, v), x, create_graph=True)[0]),
}


@pytest.mark.parametrize("use", OUTSIDE.values(), ids=OUTSIDE)
def test_second_derivatives_outside(use):
    def scenario(compile):
        KEPT.clear()
        f, x, seen = compile(lambda x, v: (weft.sin(x) * x * v * 2.5).sum()), leaf(4), []
        for k in range(16):
            v = weft.randn(4)
            if use is OUTSIDE["both inputs"]:
                v.requires_grad_()
            seen += [use(f, x, v), x.grad]
            if k % 4 == 3:
                x.grad = None
        return [*seen, *[grad(g.sum(), x)[0] for g in KEPT]]

    assert_same(scenario)


def test_second_derivatives_outside_are_compiled():
    f, x = weft.compile(lambda x: (weft.sin(x) * x).sum()), leaf(4)
    for _ in range(16):
        grad(grad(f(x), x, create_graph=True)[0].sum(), x)
    (again,) = f.recordings[0].usual.entries[-2].step.known.again.values()
    assert again.function.recordings[0].usual is not None


def changed_after_a_second_order(change):
    """A call whose nodes have saved views of weights that change afterwards: in branches that no backward frees."""

    def scenario(compile):
        model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

        def step(q, p):
            q, p = q * 1, (p * 1).requires_grad_()
            q.requires_grad_()
            for _ in range(2):
                along, across = weft.autograd.grad(
                    model(weft.cat([q, p], 1)).sum(), iter((q, p)), create_graph=True
                )  # one of the two gradients is dropped
                p = p - 0.1 * along
            loss = p.square().mean()
            kept = [across] if change is keep_a_gradient else None
            optimizer.zero_grad()
            loss.backward(retain_graph=change is twice)
            change(optimizer, model, loss)
            results.extend(kept or ())
            return loss.detach(), kept

        f, seen, results = compile(step), [], []
        for _ in range(9):
            seen.append(error_of(f, weft.randn(3, 1), weft.randn(3, 1)))
            seen += [p.detach().clone() for p in model.parameters()]
            seen += [error_of(grad, result.sum(), list(model.parameters())) for result in results]
            results.clear()
        return seen

    return scenario


def by_the_optimizer(optimizer, model, loss):
    optimizer.step()


def by_hand(optimizer, model, loss):
    with weft.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad


def through_data(optimizer, model, loss):
    for p in model.parameters():
        p.data.sub_(p.grad, alpha=0.1)


def keep_a_gradient(optimizer, model, loss):
    """A result whose backward would read a weight that has changed."""
    optimizer.step()


def twice(optimizer, model, loss):
    optimizer.step()
    loss.backward()  # what it saved has changed


@pytest.mark.parametrize("change", [by_the_optimizer, by_hand, through_data, keep_a_gradient, twice])
def test_what_only_nodes_have_saved_does_not_keep_a_weight_from_changing(change):
    assert_same(changed_after_a_second_order(change))


def test_such_calls_are_replayed():
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    @weft.compile
    def step(x):
        x = (x * 1).requires_grad_()
        (slope,) = weft.autograd.grad(model(x).sum(), x, create_graph=True)
        (other,) = weft.autograd.grad(model(x * 2).square().sum(), x, create_graph=True)
        loss = slope.square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(8):
        step(weft.randn(5, 2))
    assert step.breaks == () and step.recordings[0].not_replayed is None


class Scaled(weft.autograd.Function):
    """One whose backward is the user's Python, which no program has."""

    @staticmethod
    def forward(ctx, x, by):
        ctx.save_for_backward(x)
        ctx.by = by
        return x.tanh() * by

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        seen = x.sum().item()
        return g * (1 - x.tanh().square()) * ctx.by * (1.0 if seen < 1e9 else 0.0), None


def noisy(net, optimizer, x, rate):
    optimizer.zero_grad()
    loss = Scaled.apply(net(x + weft.randn_like(x)), 2.0).square().mean() * rate
    loss.backward()
    optimizer.step()
    return loss.detach()


def dropped(net, optimizer, x, rate):
    optimizer.zero_grad()
    h = nn.functional.dropout(net(x), 0.3)
    h.register_hook(lambda g: g * 0.5)
    loss = (Scaled.apply(h, 0.5) * rate).sum()
    loss.backward()
    optimizer.step()
    return loss.detach()


def penalised(net, optimizer, x, rate):
    """A step of an optimizer before the second backward, as in a GAN."""
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    x = (x + 0.1 * weft.rand(x.shape)).requires_grad_()
    (slope,) = grad(net(x).sum(), x, create_graph=True)
    loss = (slope.norm(dim=1) - 1.0).square().mean() * rate
    loss.backward()
    optimizer.step()
    return loss.detach()


def recomputed(net, optimizer, x, rate):
    """Draws in the pass itself."""
    optimizer.zero_grad()
    h = checkpoint(lambda x: nn.functional.dropout(net(x), 0.3) * rate, x.requires_grad_(), use_reentrant=False)
    loss = Scaled.apply(h, 0.5).square().sum()
    loss.backward()
    optimizer.step()
    return loss.detach()


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("step", [noisy, dropped, penalised, recomputed])
def test_backward_through_python_after_draws_and_updates(step, kind):
    """Numbers that differ in every call came before such a pass: it was followed step by step for ever."""
    followed = []

    def scenario(compile):
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        optimizer, x = getattr(weft.optim, kind)(net.parameters(), lr=0.05), weft.randn(5, 3)
        f = compile(step)
        for k in range(16):
            # The rate is a number that derivatives use again: it changes twice.
            yield f(net, optimizer, x.clone(), 0.5 if k < 9 else 0.25 if k < 12 else 0.5)
            if k == 12:
                optimizer.param_groups[0]["lr"] = 0.02
        yield list(net.parameters())
        if hasattr(f, "recordings"):
            followed.append(sum(r.n_followed for r in f.recordings))

    assert_same(scenario)
    assert len(followed) == 1 and followed[0] <= 12
