"""Derivatives of derivatives, hooks and custom functions in and around compiled calls."""

import numpy as np
import pytest
from compiled_twin import leaf, twin

import weft
from weft import nn, optim, randn
from weft.autograd import grad


class Square(weft.autograd.Function):
    """Written with weft's ops."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


class NumpyExp(weft.autograd.Function):
    """Written with NumPy."""

    @staticmethod
    def forward(ctx, x):
        y = weft.from_numpy(np.exp(x.detach().numpy()))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * g


@twin
def test_hvp_inside(compile):
    w = leaf(3)

    def f(v):
        y = (w**3).sum()
        (g,) = grad(y, w, create_graph=True)
        (h,) = grad((g * v).sum(), w)
        return y, g, h

    f = compile(f)
    for _ in range(3):
        yield f(randn(3))


@twin
def test_grad_inside(compile):
    w = leaf(3)
    b = leaf(3)

    def f(x):
        y = (w * x).exp().sum()
        g = grad(y, [w, b], allow_unused=True)
        return y, g[0] * 2, g[1]

    f = compile(f)
    for _ in range(3):
        yield f(randn(3)), w


@twin
def test_penalty(compile):
    m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    o = optim.Adam(m.parameters(), lr=0.1)

    def step(x):
        x = x.detach().requires_grad_(True)
        y = m(x)
        (g,) = grad(y.sum(), x, create_graph=True)
        l = ((g.norm(dim=1) - 1) ** 2).mean() + y.mean()
        o.zero_grad()
        l.backward()
        o.step()
        return l

    step = compile(step)
    for _ in range(4):
        yield step(randn(5, 3)), list(m.parameters())


@twin
def test_double_backward_outside(compile):
    w = leaf(3)
    f = compile(lambda w, x: (w * x).tanh().sum())
    for _ in range(2):
        x = randn(3)
        y = f(w, x)
        (g,) = grad(y, w, create_graph=True)
        yield y
        yield g.detach()
        g.pow(2).sum().backward()
        yield w.grad


@twin
def test_triple_outside(compile):
    w = leaf(3)
    f = compile(lambda w: (w**4).sum())
    y = f(w)
    for _ in range(3):
        (g,) = grad(y, w, create_graph=True)
        yield g.detach()
        y = g.sum()


@twin
def test_compiled_grad_fn(compile):
    f = compile(lambda w, x: (w * x).tanh().sum())

    def g(w, x):
        return grad(f(w, x), w, create_graph=True)[0]

    w = leaf(3)
    g = compile(g)
    for _ in range(3):
        v = g(w, randn(3))
        yield v
        v.sum().backward()
        yield w.grad


@twin
def test_hooks_inside(compile):
    w = leaf(3)
    seen = []

    def f(x):
        y = w * x
        y.register_hook(lambda g: (seen.append(g.clone()), g * 2)[1])
        z = y.exp()
        z.retain_grad()
        z.sum().backward()
        return y, z, z.grad

    f = compile(f)
    for _ in range(3):
        yield f(randn(3)), w.grad, seen


@twin
def test_hooks_inside_outside_backward(compile):
    w = leaf(3)
    seen = []

    def f(x):
        y = w * x
        y.register_hook(lambda g: (seen.append(g.clone()), g * 2)[1])
        return y.exp()

    f = compile(f)
    for _ in range(3):
        z = f(randn(3))
        yield z
        z.sum().backward()
        yield w.grad, seen


@twin
def test_hooks_on_outputs(compile):
    w = leaf(3)
    seen = []
    f = compile(lambda x: ((w * x).exp(), (w + x).sin()))
    for _ in range(3):
        a, b = f(randn(3))
        a.register_hook(lambda g: seen.append(g))
        b.retain_grad()
        a.retain_grad()
        (a * b).sum().backward()
        yield a, b, a.grad, b.grad, w.grad, seen


@twin
def test_hooks_on_leaf(compile):
    w = leaf(3)
    seen = []
    w.register_hook(lambda g: (seen.append(1), g * 3)[1])
    w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))

    def f(x):
        y = (w * x).exp().sum()
        y.backward()
        return y

    f = compile(f)
    g = compile(lambda x: (w * x).sum())
    for _ in range(3):
        yield f(randn(3)), w, seen
        g(randn(3)).backward()
        yield w, seen


def custom_function(compile, function):
    w = leaf(3)

    def f(x):
        y = function.apply(w * x)
        loss = (y * w).sum()
        loss.backward()
        return y, loss

    f = compile(f)
    g = compile(lambda x: (function.apply(w * x) * 2).sum())
    for _ in range(3):
        yield f(randn(3)), w
        y = g(randn(3))
        yield y
        y.backward()
        yield w


@twin
def test_custom_function(compile):
    yield from custom_function(compile, Square)


@twin
def test_custom_function_with_numpy(compile):
    yield from custom_function(compile, NumpyExp)


@pytest.mark.parametrize("is_leaf", [True, False])
def test_a_hook_of_what_a_call_was_given_is_called_once_per_backward(is_leaf):
    """A backward with create_graph runs the call again: what that leads to was told of its gradient twice."""

    def gradients(compile):
        f, found = compile(lambda w: w.view(-1)[2:6] * 3.0), []
        for _ in range(10):
            leaf = weft.ones(3, 4, requires_grad=True)
            w = leaf if is_leaf else leaf * 2.0
            w.register_hook(lambda g: g * 2.0)
            if not is_leaf:
                w.retain_grad()
            f(w).sum().backward(create_graph=True)
            found.append((leaf.grad.tolist(), w.grad.tolist()))
        return found

    assert gradients(weft.compile) == gradients(lambda f: f)
