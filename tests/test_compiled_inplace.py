"""In-place changes and shared memory inside compiled calls."""

import numpy as np
import pytest
from compiled_twin import error_of, leaf, twin

import weft
from weft import randn


@twin
def test_inplace_temps(compile):
    w = leaf(3)

    def f(x):
        y = x * 2
        y.add_(1.0)
        y[0] = 5.0
        z = y.view(-1)
        z.mul_(2.0)
        y += w.detach()
        v = y.clone()
        v.sub_(1)
        return y, z, v

    f = compile(f)
    for _ in range(3):
        yield f(randn(3))


@twin
def test_inplace_grad_temps(compile):
    w = leaf(3)

    def f(x):
        y = w * x
        y.add_(1.0)
        z = y.exp()
        z = z * 2
        z.mul_(x)
        return z.sum(), y, z

    f = compile(f)
    for _ in range(3):
        l, y, z = f(randn(3))
        yield l, y, z
        l.backward()
        yield w.grad

    def g(x):
        y = w * x
        y.add_(1.0)
        z = y.sin()
        l = z.sum()
        l.backward()
        return l, y, z

    g = compile(g)
    for _ in range(3):
        yield g(randn(3)), w

    def h(x):
        y = w * x
        z = y.sin()
        y.add_(1.0)
        z.sum().backward()
        return z

    h = compile(h)
    for _ in range(3):
        yield error_of(h, randn(3)), w
    k = compile(lambda x: (lambda y: (y.sin(), y.add_(1.0)))(w * x))
    for _ in range(3):
        z, y = k(randn(3))
        yield z, y
        yield error_of(z.sum().backward)
        yield w.grad


@twin
def test_inplace_args(compile):
    def f(x, y):
        x.add_(1.0)
        z = x * y
        y.copy_(z)
        x.mul_(y)
        return z

    f = compile(f)
    x, y = randn(3), randn(3)
    for _ in range(3):
        yield f(x, y), x, y, x._version, y._version


@twin
def test_inplace_arg_history(compile):
    w = leaf(3)

    def f(x):
        x.mul_(w)
        return x.exp()

    f = compile(f)
    for _ in range(3):
        x = randn(3)
        y = f(x)
        yield x, y
        y.sum().backward()
        yield w.grad
        x = randn(3)
        y = f(x)
        yield x, y
        yield error_of(x.sum().backward)
        yield w.grad
        x = w * 2
        y = f(x)
        yield x, y
        (y.sum() + x.sum()).backward()
        yield w.grad
        x = randn(3)
        x.add_(w)
        y = f(x)
        f(x)
        yield error_of((x.sum()).backward)
        yield w.grad


@twin
def test_inplace_arg_twice(compile):
    w = leaf(3)

    def f(x):
        x.add_(w)
        s = x.sum()
        v = s.item()
        x.add_(w * v)
        return s

    f = compile(f)
    for _ in range(3):
        x = randn(3)
        s = f(x)
        yield x, s
        (x.sum() + s).backward()
        yield w.grad


@twin
def test_same_twice(compile):
    def f(x, y):
        x.add_(1.0)
        return x * y, y

    f = compile(f)
    x = randn(3)
    for _ in range(3):
        yield f(x, x), x
        yield f(x, randn(3))
        yield f(x.view(3), x), x


@twin
def test_alias_arg_capture(compile):
    w = randn(4)
    v = w[1:3]

    def f(x):
        a = v * 2
        x.add_(1.0)
        b = v * 3
        w.mul_(2.0)
        return a, b, v + x.sum(), w + 0

    f = compile(f)
    for _ in range(3):
        yield f(w), w, v
        yield f(w[:2]), w, v


@twin
def test_overlapping(compile):
    w = randn(6)

    def f():
        a, b = w[:4], w[2:]
        a.add_(1.0)
        c = b * 2
        b.mul_(c)
        return a, b, c, w * 1

    f = compile(f)
    for _ in range(3):
        yield f(), w


@twin
def test_numpy_memory(compile):
    a = np.ones(3, np.float32)
    t = weft.from_numpy(a)
    f = compile(lambda x: x * t)
    for k in range(3):
        a[:] = k
        yield f(randn(3))
    g = compile(lambda x: (x * 2).numpy())
    yield g(randn(3)), g(randn(3))
    h = compile(lambda x: weft.tensor(np.arange(3.0) * a[0]) + weft.from_numpy(a) + x)
    for k in range(3):
        a[:] = k
        yield h(randn(3))

    def u(x):
        t.add_(1.0)
        b = a.copy()
        return x + t, b

    u = compile(u)
    for _ in range(3):
        yield u(randn(3)), a

    def v(x):
        n = t.numpy()
        t.add_(1.0)
        return n.copy(), x + t

    v = compile(v)
    for _ in range(3):
        yield v(randn(3)), a


@twin
def test_numpy_view_of_pending(compile):
    def f(x):
        y = x * 2
        n = y.numpy()
        y.add_(1.0)
        return n.copy(), y, n

    f = compile(f)
    for _ in range(3):
        yield f(randn(3))


def test_borrowed_memory_is_said_in_explain():
    array = np.ones(3, np.float32)
    w = weft.from_numpy(array)

    @weft.compile
    def change():
        w.add_(1.0)
        return array.sum()

    assert change() == 6.0
    assert "in-place change of the memory of a NumPy array" in change.explain()


def test_memory_nobody_else_holds_is_changed_in_the_program():
    w = weft.from_numpy(np.ones(3, np.float32))
    w.numpy().sum()

    @weft.compile
    def change():
        w.add_(1.0)

    change()
    assert w.tolist() == [2.0, 2.0, 2.0]
    assert "nothing ran outside the programs" in change.explain()


@twin
def test_views_of_what_is_changed_must_not_keep_their_history(compile):
    # Views made in the call were not seen by the check: the gradient was that of the values before the change.
    w = leaf(4)

    def stale():
        y = w * 1
        view = y[:2]
        y.mul_(3)
        view.sum().backward()

    def saved():
        y = w * 1
        product = y[:2] * w[:2]
        y.mul_(3)
        product.sum().backward()

    def itself():
        y = w * 1
        y[0] = y[1]
        y.sum().backward()

    def forgotten():
        y = w * 1
        z = y[:2].exp()
        y.mul_(3)
        (z.sum() + y.sum()).backward()

    for function in (stale, saved, itself, forgotten):
        yield error_of(compile(function)), w


@twin
def test_a_change_that_ran_eagerly_before_a_backward_that_is_recorded(compile):
    # The change is no step, so the backward was found among the recorded ones, and what it reads was not checked.
    p, s = leaf(4), randn(4)

    def f(changes):
        view = s[1:]
        y = (p * s).sum()
        if changes:
            s.add_(1)
        y.backward()
        return view

    f = compile(f)
    for k in range(9):
        yield error_of(f, k in (4, 7)), p


DETACHED = {
    "after use": lambda h, w: ((h * 1.5).sum(), h.detach_() * w),
    "and used again": lambda h, w: ((h * 1.5).sum() * (h.detach_() * h).sum(),),
    "a view before": lambda h, w: (h[1:].exp().sum(), h.detach_()[1:] * w[0]),
    "changed then": lambda h, w: (h.exp().sum(), h.detach_().mul_(2.0)),
    "a leaf then": lambda h, w: ((h * 1.5).sum() + (h.detach_().requires_grad_() * 3.0).sum(), h),
    "its memory changed before": lambda h, w: (h.data.mul_(2.0).sum() + (h * 1.5).sum(), h.detach_()),
}


@pytest.mark.parametrize("where", ["argument", "inside"])
@pytest.mark.parametrize("use", DETACHED.values(), ids=DETACHED)
@pytest.mark.parametrize("backward", ["inside", "outside"])
def test_detach_in_place_of_what_was_used(use, where, backward):
    """Gradients of a tensor from outside went to the history that it had at the end of the call: to none."""

    def scenario(compile):
        w = leaf(4)

        @compile
        def step(x, h=None):
            h = (x * w).sin() if h is None else h
            results = use(h, w)
            if backward == "inside":
                results[0].backward()
            return results, h

        for _ in range(6):
            x = weft.randn(4)
            (result, *others), h = step(x, (x * w).sin()) if where == "argument" else step(x)
            if backward == "outside":
                result.backward()
            yield w.grad, h.grad, h.requires_grad, [o.requires_grad for o in others], others

    twin(scenario)()


CHANGED = {
    "by hand": lambda w, optimizer: w.detach().mul_(0.9),
    "without gradients": lambda w, optimizer: weft.no_grad()(w.mul_)(0.9),
    "by an optimizer": lambda w, optimizer: optimizer.step(),
}


@pytest.mark.parametrize("where", ["inside", "outside"])
@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_gradients_of_a_leaf_from_before_and_after_a_change(change, where):
    """Those of each value were added up for themselves, and then to each other: other bits than eager mode's."""

    def scenario(compile):
        w, v = leaf(40), leaf(40)
        optimizer = weft.optim.Adam([w], lr=0.1)

        @compile
        def step(x):
            before = w * 3.0 + w + w * x
            (w * x).square().sum().backward()
            change(w, optimizer)
            w.grad = None
            loss = (before * w * v + w).tanh().sum()
            if where == "inside":
                loss.backward()
            return loss, before.detach()

        for _ in range(6):
            loss, before = step(weft.randn(40))
            if where == "outside":
                loss.backward()
            yield loss, before, w, w.grad, v.grad

    twin(scenario)()


@pytest.mark.parametrize("show", [lambda x, t: t.t(), lambda x, t: t, lambda x, t: t[0], lambda x, t: x.detach().t()])
def test_views_made_before_their_base_was_asked_for_gradients(show):
    """Arguments that are views of one another: a change would be lost, but for what detach() has made."""

    def scenario(compile):
        a = randn(3, 2)

        @compile
        def f(x, t):
            x.requires_grad_()
            show(x, t).add_(1.0)

        yield error_of(lambda: f(a, a.t()))
        yield a

    twin(scenario)()
