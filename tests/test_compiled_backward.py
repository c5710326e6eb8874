"""Backward through compiled calls, from inside and outside: the gradients and the errors of eager mode."""

from compiled_twin import error_of, leaf, twin

import weft
from weft import nn, optim, randn


@twin
def test_outside_backward(compile):
    w = leaf(3, 2)
    x = randn(4, 3)
    f = compile(lambda x, w: ((x @ w).tanh() ** 2).mean())
    for _ in range(3):
        l = f(x, w)
        yield l
        l.backward()
        yield w.grad


@twin
def test_retain_twice(compile):
    w = leaf(3)
    f = compile(lambda w: (w.exp() * w).sum())
    for _ in range(2):
        l = f(w)
        l.backward(retain_graph=True)
        yield w.grad
        l.backward()
        yield w.grad
        yield error_of(l.backward)


@twin
def test_freed_without_saved(compile):
    # add saves nothing: second backward works in PyTorch
    w = leaf(3)
    f = compile(lambda w: (w + 1.0).sum())
    for _ in range(2):
        l = f(w)
        l.backward()
        yield error_of(l.backward)
        yield w.grad


@twin
def test_freed_results_of_two_shapes(compile):
    w = leaf(4)

    def f(w):
        a = w * 2.0
        b = a.exp()
        c = weft.cat([b, b * b])
        (b.sum() + c.sum()).backward()
        return a, b, c

    f = compile(f)
    for _ in range(3):
        a, b, c = f(w)
        yield error_of(((b * 1.5).sum() + (c * 1.5).sum()).backward)


@twin
def test_saved_input_changed(compile):
    w = leaf(3)
    x = randn(3)
    f = compile(lambda w, x: (w * x).sum())
    for _ in range(2):
        l = f(w, x)
        x.add_(1.0)
        yield error_of(l.backward)
        yield w.grad
        l = f(w, x)
        with weft.no_grad():
            w.add_(1.0)
        yield error_of(l.backward)
        yield w.grad


@twin
def test_unsaved_input_changed(compile):
    w = leaf(3)
    x = randn(3)
    f = compile(lambda w, x: (w + x).exp().sum())
    for _ in range(2):
        l = f(w, x)
        x.add_(1.0)
        with weft.no_grad():
            w.mul_(2.0)
        yield error_of(l.backward)
        yield w.grad


@twin
def test_output_changed_before_backward(compile):
    w = leaf(3)
    f = compile(lambda x: ((w * x).exp(), (w * x), (w * x).sin()))
    for k in range(3):
        for _ in range(2):
            o = f(randn(3))
            with weft.no_grad():
                o[k].mul_(2.0)
            yield error_of((o[0] + o[1] + o[2]).sum().backward)
            yield w.grad
            o = f(randn(3))
            o[k].mul_(2.0)
            yield error_of((o[0] + o[1] + o[2]).sum().backward)
            yield w.grad, o


@twin
def test_input_grad_modes(compile):
    f = compile(lambda a, b: (a * b).sum())
    for _ in range(2):
        a, b = leaf(3), randn(3)
        f(a, b).backward()
        yield a.grad
        a, b = randn(3), leaf(3)
        f(a, b).backward()
        yield b.grad
        a = leaf(3)
        b = a * 2
        f(a, b).backward()
        yield a.grad
        with weft.no_grad():
            yield f(a, b)


@twin
def test_backward_with_gradient_inside(compile):
    w = leaf(3)
    gg = randn(3)

    def f(x):
        y = w * x
        y.backward(gg)
        z = w * y.detach()
        z.backward(z.detach(), retain_graph=True)
        z.backward(x)
        return y, z

    f = compile(f)
    for _ in range(3):
        yield f(randn(3)), w


@twin
def test_backward_errors_inside(compile):
    w = leaf(3)

    def f(k, x):
        y = (w * x).exp()
        if k == 0:
            y.backward()
        if k == 1:
            x.sum().backward()
        if k == 2:
            l = y.sum()
            l.backward()
            l.backward()
        if k == 3:
            y.backward(randn(4))
        if k == 4:
            l = y.sum()
            l.backward()
            return l

    f = compile(f)
    for _ in range(2):
        for k in range(5):
            yield error_of(f, k, randn(3)), w
    yield error_of(f(4, randn(3)).backward)


@twin
def test_retain_inside_backward_outside(compile):
    w = leaf(3)

    def f(x):
        z = (w * x).exp().sum()
        z.backward(retain_graph=True)
        return z

    f = compile(f)
    for _ in range(3):
        z = f(randn(3))
        yield z, w.grad
        z.backward()
        yield w.grad
        yield error_of(z.backward)


@twin
def test_accumulate_outside(compile):
    w = leaf(5)
    f = compile(lambda x: (w * x).exp().sum())
    for _ in range(3):
        f(randn(5)).backward()
        f(randn(5)).backward()
        yield w.grad
        w.grad = None
        (f(randn(5)) + f(randn(5)) * 2).backward()
        yield w.grad


@twin
def test_chain_of_compiled(compile):
    a = nn.Linear(3, 4)
    b = nn.Linear(4, 2)
    fa = compile(lambda x: a(x).tanh())
    fb = compile(lambda x: b(x))
    loss = compile(lambda p: (p**2).mean())
    o = optim.Adam(list(a.parameters()) + list(b.parameters()), lr=0.1)
    for _ in range(3):
        o.zero_grad()
        l = loss(fb(fa(randn(5, 3))))
        l.backward()
        o.step()
        yield l, list(a.parameters()), list(b.parameters())


@twin
def test_rnn_cell_outside(compile):
    c = nn.Linear(8, 4)
    cell = compile(lambda x, h: (c(weft.cat([x, h], 1))).tanh())
    for _ in range(2):
        h = weft.zeros(3, 4)
        for _ in range(4):
            h = cell(randn(3, 4), h)
        h.pow(2).sum().backward()
        yield h, list(c.parameters())


@twin
def test_freeze_by_detach(compile):
    a, b = leaf(3), leaf(3)

    def f(x, k):
        h = a * x
        if k:
            h = h.detach()
        return (h * b).sum()

    f = compile(f)
    for k in (0, 1, 0, 1):
        y = f(randn(3), k)
        yield y
        y.backward()
        yield a.grad, b.grad


@twin
def test_checkpoint_like(compile):
    w = leaf(4, 4)

    def block(x):
        return (x @ w).tanh()

    def f(x):
        for _ in range(3):
            x = block(x)
        return x.sum()

    f = compile(f)
    for _ in range(2):
        x = leaf(2, 4)
        l = f(x)
        l.backward()
        yield l, x.grad, w.grad


@twin
def test_update_then_loss_outside(compile):
    w = leaf(3)
    w.grad = randn(3)

    def f(x):
        with weft.no_grad():
            w.sub_(0.1 * w.grad)
        return (w * x).exp().sum()

    f = compile(f)
    for _ in range(3):
        y = f(randn(3))
        yield y
        y.backward()
        yield w


@twin
def test_shared_between_calls(compile):
    # w used twice in each of two calls
    w = leaf(50)
    f = compile(lambda x: (w * x).sin() * w)
    for _ in range(3):
        y = f(f(randn(50))) + f(randn(50))
        yield y
        y.sum().backward()
        yield w.grad
