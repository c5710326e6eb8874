"""Leaves made inside replayed calls, `x = x.detach().requires_grad_()`, and gradients of them: as without replay."""

import pytest
from compiled_twin import assert_same, error_of, leaf, twin

import weft
from weft import nn
from weft.autograd import grad

N_CALLS, ODD_CALLS = 11, (6, 9)
KEPT = []


def shifted(x):
    x = (x + 1).requires_grad_()
    (x**3).sum().backward()
    return x.grad * 2


def detached(x):
    x = x.detach().requires_grad_(True)
    return grad((x**3).sum(), x)[0]


def by_assignment(x):
    x = x * 2
    x.requires_grad = True
    return grad((x**3).sum(), x)[0]


def split(x):
    first, second = (x * 1).split(2)
    first.requires_grad_()
    second.requires_grad_()
    return grad((first * second).sum(), (first, second))


def curvature(x):
    x = x.clone().requires_grad_()
    (slope,) = grad((x**4).sum(), x, create_graph=True)
    return (x - grad(slope.sum(), x)[0]).detach()


def rows(x):
    x = x.detach().requires_grad_()
    return weft.stack([grad(part, x, retain_graph=True)[0] for part in weft.tanh(x * 2)])


def accumulated(x):
    x = x.detach().requires_grad_()
    for k in range(3):
        (x**2 * k).sum().backward()
    return x.grad


def returned(x):
    x = x.detach().requires_grad_()
    (x**2).sum().backward()
    return x


def second_leaf(x):
    for _ in range(2):
        x = x.detach().requires_grad_()
        x = x - 0.1 * grad((x**2).sum(), x)[0]
    return x.detach()


FUNCTIONS = (shifted, detached, by_assignment, split, curvature, rows, accumulated, returned, second_leaf)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_calls_are_replayed_and_nothing_runs_outside(function):
    f = weft.compile(function)
    for _ in range(6):
        x = weft.randn(4)
        assert weft.equal(weft.stack(list(f(x))), weft.stack(list(function(x))))
    text = f.explain()
    assert "calls are replayed" in text and "nothing ran outside the programs" in text


ODD = {
    "nothing": lambda x, y: None,
    "no leaf any more": lambda x, y: error_of(lambda: x.requires_grad_(False)),
    "read": lambda x, y: x.tolist(),
    "kept": lambda x, y: KEPT.append(x),
    "kept with history": lambda x, y: KEPT.append(y),
    "a gradient": lambda x, y: setattr(x, "grad", weft.ones(4)),
    "a hook": lambda x, y: x.register_hook(lambda g: g * 2) and None,
    "a hook after": lambda x, y: x.register_post_accumulate_grad_hook(lambda t: KEPT.append(t.grad)) and None,
    "retained": lambda x, y: x.retain_grad(),
    "changed": lambda x, y: error_of(lambda: x.add_(1)),
    "changed without gradients": lambda x, y: changed_quietly(x),
    "a copy": lambda x, y: x.clone().sum().item(),
    "differentiated before": lambda x, y: grad(y.sum(), x, retain_graph=True)[0],
    "the node": lambda x, y: (x.grad_fn, x.is_leaf, y.grad_fn.name()),
    "an exception": lambda x, y: 1 / 0,
}


def changed_quietly(x):
    with weft.no_grad():
        x.mul_(2)


@pytest.mark.parametrize("way", [lambda v: v.detach(), lambda v: v * 1], ids=["a view", "a value"])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_the_odd_call(odd, way):
    def scenario(compile):
        KEPT.clear()
        w = leaf(4)

        def f(v, k):
            x = way(v).requires_grad_()
            y = x * x * w
            extra = odd(x, y) if k in ODD_CALLS else None
            y.sum().backward()
            return x.detach() - x.grad, extra

        f, seen = compile(f), []
        for k in range(N_CALLS):
            seen.append(error_of(f, weft.randn(4), k))
        return [*seen, *[k.detach() for k in KEPT], *[k.grad for k in KEPT if k.is_leaf], w.grad]

    assert_same(scenario)


@twin
def test_the_odd_way_before_it_is_a_leaf(compile):
    def f(v, k):
        x = v * 2
        if k == 5:
            x.requires_grad_(False)
        y = x * 3
        view = x[1:] if k in (6, 9) else None
        if k == 7:
            x.tolist()
        x.requires_grad_()
        z = (x * y).sum() if k != 8 else y.sum()
        return (z.requires_grad, view, grad(z, x)[0]) if k != 8 else (z.requires_grad, view)

    f, seen = compile(f), []
    for k in range(N_CALLS):
        seen.append(f(weft.randn(4), k))
    return seen


@twin
def test_what_was_computed_before_knows_nothing_of_the_leaf(compile):
    """A value with another history keeps it, and gradients go past the leaf."""
    w = leaf(4)

    def f(v):
        x = v * 2
        before = x * w
        x.requires_grad_()
        after = (before * x).sum()
        return grad(after, (x, w))

    f, seen = compile(f), []
    for _ in range(N_CALLS):
        seen.append(f(weft.randn(4)))
    return seen


@twin
def test_backward_after_the_call(compile):
    """The leaf is a result, or only what it led to is; and it may have been used up."""

    def f(v, k):
        x = (v + 1).requires_grad_()
        y = (x**2).sum()
        if k in (5, 9):
            y.backward(retain_graph=k == 9)
        return (x, y) if k != 7 else (y, y * 2)

    f, seen = compile(f), []
    for k in range(N_CALLS):
        x, y = f(weft.randn(4), k)
        seen += [error_of(y.backward), error_of(y.backward), x.grad if x.is_leaf else None, x.is_leaf]
    return seen


@twin
def test_the_memory_of_a_detached_leaf_is_that_of_the_argument(compile):
    def f(v, k):
        x = v.detach().requires_grad_()
        y = (x * x).sum()
        if k in (6, 9):
            with weft.no_grad():
                v.mul_(3)
        failed = error_of(y.backward)
        return failed, x * 1

    f, seen = compile(f), []
    for k in range(N_CALLS):
        v = weft.randn(4)
        failed, out = f(v, k)
        seen += [failed, out.detach(), v]
    return seen


@twin
def test_a_result_that_was_detached_is_free(compile):
    """What it was detached from nobody can differentiate."""

    def f(v):
        x = v.detach().requires_grad_()
        return (x * 2).detach()

    f, seen = compile(f), []
    for _ in range(N_CALLS):
        out = f(weft.randn(4))
        out.add_(1)
        again = out.requires_grad_() * 2
        again.sum().backward()
        seen += [again.detach(), out.grad, out.detach()]
    return seen


@twin
def test_in_turn_with_calls_without(compile):
    """Two ways of one function, which go apart after the leaf was made."""

    def f(v, k):
        x = v.detach().requires_grad_()
        y = x * 2
        z = y.exp() if k % 2 else y.sin()
        return grad(z.sum(), x)[0]

    f, seen = compile(f), []
    for k in range(2 * N_CALLS):
        seen.append(f(weft.randn(4), k))
    return seen


@twin
def test_a_critic_with_a_penalty(compile):
    critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = weft.optim.Adam(critic.parameters(), lr=0.01)
    between = []

    def step(real, fake, k):
        x = (0.5 * real + 0.5 * fake).requires_grad_()
        (slope,) = grad(critic(x).sum(), x, create_graph=True)
        loss = critic(fake).mean() + ((slope.norm(dim=1) - 1) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if k == 8:
            between.append(x)
        return loss

    step, seen = compile(step), []
    for k in range(N_CALLS):
        seen.append(step(weft.randn(5, 3), weft.randn(5, 3), k).detach())
    return [*seen, *critic.parameters(), *between]


@pytest.mark.oracle
@pytest.mark.parametrize("function", [shifted, detached, split, accumulated, second_leaf], ids=lambda f: f.__name__)
def test_as_in_pytorch(function):
    torch = pytest.importorskip("torch")
    given = weft.randn(4)
    compiled = weft.compile(function)
    ours = [compiled(given) for _ in range(5)][-1]
    oracle = dict(function.__globals__, grad=torch.autograd.grad)
    theirs = type(function)(function.__code__, oracle)(torch.tensor(given.tolist()))
    for a, b in zip(ours, theirs):
        assert weft.allclose(a, weft.tensor(b.tolist()))
