"""What a compiled function returns or leaks is what the undecorated one does: values, aliasing, flags, names."""

from types import SimpleNamespace

import numpy as np
from compiled_twin import error_of, leaf, twin

import weft
from weft import randn


@twin
def test_some_outputs(compile):
    w = leaf(3)
    f = compile(lambda w: (w * 2, w.exp(), w.sum(), w.detach() * 3))
    for _ in range(2):
        a, b, c, d = f(w)
        yield [a, b, c, d]
        b.sum().backward()
        yield w.grad
        a, b, c, d = f(w)
        (a.sum() + c).backward()
        yield w.grad
        yield error_of(b.sum().backward)


@twin
def test_outputs_alias(compile):
    w = leaf(2, 3)
    x = randn(2, 3)

    def f(x, w):
        y = x * w
        v = y.t()
        return x, w, y, v, y.view(-1), x.t(), w[0], y, {"a": [y, None, 3], "b": (v, "s")}

    f = compile(f)
    for _ in range(2):
        o = f(x, w)
        yield o
        yield o[0] is x, o[1] is w, o[2] is o[7], o[2] is o[8]["a"][0]
        yield (
            np.shares_memory(o[2].detach().numpy(), o[3].detach().numpy()),
            np.shares_memory(o[4].detach().numpy(), o[2].detach().numpy()),
        )
        (o[3].sum() + o[4].sum() + o[6].sum()).backward()
        yield w.grad


@twin
def test_mutate_output_views(compile):
    x = randn(2, 3)

    def f(x):
        y = x * 2
        return y, y.view(-1), y[0], x.view(-1)

    f = compile(f)
    for _ in range(2):
        y, v, z, xv = f(x)
        v.add_(1.0)
        yield [y, v, z, xv, x]
        xv.mul_(2.0)
        yield [y, v, z, xv, x]
        y.zero_()
        yield [y, v, z, xv, x]


@twin
def test_leaked(compile):
    w = leaf(3)
    box = []

    o = SimpleNamespace()

    def f(w):
        a = w * 2
        box.append(a)
        o.b = a.exp()
        global G
        G = o.b.sum()
        return G * 1

    f = compile(f)
    for _ in range(3):
        y = f(w)
        yield y, box, o.b, G
        y.backward()
        yield w.grad
        yield error_of(o.b.sum().backward)


@twin
def test_leaked_use_next_call(compile):
    w = leaf(3)
    h = [None]

    def f(w):
        s = w * 2 if h[0] is None else h[0] * w
        h[0] = s
        return s.sum()

    f = compile(f)
    for _ in range(3):
        y = f(w)
        yield y, h
    y.backward()
    yield w.grad


@twin
def test_rnn_detached(compile):
    w = leaf(3)
    h = [weft.zeros(3)]

    def f(w):
        s = (h[0].detach() * w + 1).tanh()
        h[0] = s
        l = s.sum()
        l.backward()
        return l

    f = compile(f)
    for _ in range(4):
        yield f(w), h, w.grad


@twin
def test_containers(compile):
    from collections import OrderedDict, namedtuple

    P = namedtuple("P", "a b")

    def f(p, d, l):
        return P(p.a * 2, p.b), OrderedDict(x=d["x"] + 1, n=None), [v * 2 for v in l], (), {}, "str", 3.5

    f = compile(f)
    for k in range(1, 4):
        yield f(P(randn(2), 3), {"x": randn(3)}, [randn(1)] * k)
    o = f(P(randn(2), 3), {"x": randn(3)}, [])
    yield type(o[0]).__name__, type(o[1]).__name__


@twin
def test_attribute_of_result(compile):
    w = leaf(3)
    f = compile(lambda x: w * x)
    y = f(randn(3))
    yield (
        y.shape,
        y.dtype,
        y.ndim,
        y.is_leaf,
        y.requires_grad,
        y.grad_fn.name(),
        len(y),
        y.numel(),
        y.is_contiguous(),
        y.stride(),
    )
    yield error_of(lambda: y.requires_grad_(False))
    yield y.detach(), y.data
    y.requires_grad_(True)
    yield y
    yield error_of(y.numpy)


@twin
def test_attributes_inside(compile):
    w = leaf(3, 2)
    l = []

    def f(x):
        y = w @ x
        l.append(
            (
                y.shape,
                y.dtype.name,
                y.ndim,
                y.is_leaf,
                y.requires_grad,
                y.grad_fn.name(),
                len(y),
                y.numel(),
                y.size(0),
                y.is_contiguous(),
                y.t().is_contiguous(),
                y.stride(),
                y._version,
            )
        )
        return y.t()

    f = compile(f)
    for k in (1, 2, 2):
        yield f(randn(2, k)), l


@twin
def test_lists_and_closures_of_results(compile):
    w = leaf(3)
    keep = []

    def f(x):
        y = w * x
        keep.append((y, [y.exp(), {"z": y.view(3, 1)}]))
        return None

    f = compile(f)
    for _ in range(3):
        f(randn(3))
        yield keep
    (keep[0][0].sum() + keep[1][1][0].sum() + keep[2][1][1]["z"].sum()).backward()
    yield w.grad


@twin
def test_read_output(compile):
    w = leaf(3)

    def f(x):
        y = (w * x).exp()
        repr(y)
        return y

    f = compile(f)
    for _ in range(3):
        y = f(randn(3))
        yield y
        y.sum().backward()
        yield w.grad


@twin
def test_read_grad_fn(compile):
    w = leaf(3)

    def f(x):
        y = (w * x).exp()
        n = [y.grad_fn.name(), y.requires_grad, y.is_leaf, y.grad_fn.next_functions[0][0].name()]
        return y, n

    f = compile(f)
    for _ in range(3):
        y, n = f(randn(3))
        yield y, n, y.grad_fn.next_functions[0][0].name()
        y.sum().backward()
        yield w.grad


@twin
def test_item_middle_then_outside(compile):
    w = leaf(3)

    def f(x):
        a = (x @ w).exp()
        v = a.sum().item()
        b = a * w.sum() * v
        return a, b

    f = compile(f)
    for _ in range(3):
        a, b = f(randn(5, 3))
        yield a, b
        (a.sum() + b.sum()).backward()
        yield w.grad


@twin
def test_returned_after_own_backward(compile):
    w = leaf(3)

    def f(x):
        y = (w * x).exp()
        z = y.sum()
        q = w + x
        z.backward()
        return y, z, q, q.sum()

    f = compile(f)
    for _ in range(3):
        y, z, q, qs = f(randn(3))
        yield y, z, q, qs
        yield error_of(y.sum().backward), error_of(z.backward), error_of(qs.backward)
        yield w.grad
        yield y.grad_fn.name(), y.requires_grad


@twin
def test_views_of_params(compile):
    w = leaf(4, 3)

    def f(x):
        a = w[0]
        b = w.t()
        c = w.view(-1)
        d = w[1:3, ::2]
        return (a * x).sum() + (b.sum(1) * x).sum() + c.exp().sum(), a, b, d

    f = compile(f)
    for _ in range(3):
        l, a, b, d = f(randn(3))
        yield l, a, b, d
        (l + d.sum()).backward()
        yield w.grad
        yield np.shares_memory(b.detach().numpy(), w.detach().numpy())
        with weft.no_grad():
            w.mul_(0.5)
        yield a, b, d


@twin
def test_strided_inputs(compile):
    w = leaf(3, 4)
    f = compile(lambda x: (x * w).sum(0))
    for x in (
        randn(3, 4),
        randn(4, 3).t(),
        randn(6, 4)[::2],
        randn(3, 8)[:, ::2],
        randn(1, 4).expand(3, 4),
        weft.from_numpy(np.ones((3, 4), np.float32)[::-1]),
    ):
        y = f(x)
        yield y
        y.sum().backward()
        yield w.grad


@twin
def test_empty_and_scalar(compile):
    w = leaf(())
    f = compile(lambda x, e: (x * w, e * w, e.sum() * w, weft.cat([e, x.view(1)])))
    for _ in range(2):
        o = f(randn(()), randn(0))
        yield o
        (o[0] + o[2] + o[1].sum() + o[3].sum()).backward()
        yield w.grad


@twin
def test_ints_and_bools(compile):
    def f(x):
        i = x.argmax()
        m = x > 0
        return i, m, x[m] if bool(m.any()) else x, m.sum(), x[i], m.all(), x.long(), x.int() // 2, x.long() % 3

    f = compile(f)
    for _ in range(6):
        yield f(randn(4) * 3)


@twin
def test_detach_chain(compile):
    w = leaf(3)

    def f(x):
        a = w * x
        b = a.detach()
        c = b * w
        return a, b, c, c.detach().numpy().copy()

    f = compile(f)
    for _ in range(2):
        a, b, c, n = f(randn(3))
        yield a, b, c, n
        c.sum().backward()
        yield w.grad
        b.add_(1.0)
        yield a, b
        yield error_of(a.sum().backward)
        yield w.grad


@twin
def test_grads_as_values(compile):
    w = leaf(3)
    q = leaf(3)

    def f(x):
        y = (w * x).exp().sum()
        y.backward()
        g = w.grad
        w.grad = None
        return (g * q).sum(), g

    f = compile(f)
    for _ in range(3):
        l, g = f(randn(3))
        yield l, g
        l.backward()
        yield q.grad


@twin
def test_views_of_parts_of_one_call_are_not_changed_in_place(compile):
    @compile
    def f(x):
        return (x * 2).unbind(0)

    seen = []
    for _ in range(6):
        last = f(weft.randn(2, 3).requires_grad_())[-1]
        seen += [error_of(last.add_, 1.0), error_of(last.unsqueeze(0).add_, 1.0), error_of(last[1:].mul_, 2.0)]
    return seen


@twin
def test_what_nobody_holds_is_checked_all_the_same(compile):
    """Nothing was live at the end of these calls, so no program ran, and no check in it."""

    def picks(table, index):
        table[index]

    def looks_up(table, index):
        weft.nn.functional.embedding(index, table)
        return 3

    def returns_a_view(table, index):
        table[index]
        return table.view(6)

    def describes(table, index):
        return str(type(weft.distributions.Normal(table[0, 0], 3.0 - index.float()[0])))

    table = weft.ones(3, 2)
    for function in (picks, looks_up, returns_a_view, describes):
        f = compile(function)
        for k in (0, 1, 2, 7, 0, 0, 7, 0):
            yield error_of(f, table, weft.tensor([k]))
