"""Control flow, exceptions, modes and changed surroundings mean in a compiled function what they mean in Python."""

from compiled_twin import error_of, leaf, twin

import weft
from weft import nn, optim, randn


@twin
def test_branches(compile):
    w = leaf(3)

    def f(x):
        if x.sum() > 0:
            y = w * x
        else:
            y = w - x
        y = y.exp().sum()
        y.backward()
        return y

    f = compile(f)
    for _ in range(8):
        yield f(randn(3)), w.grad


@twin
def test_while_loop(compile):
    def f(x):
        n = 0
        while x.abs().max() > 0.1 and n < 50:
            x = x * 0.7
            n += 1
        return x, n

    f = compile(f)
    for _ in range(8):
        yield f(randn(3))


@twin
def test_while_grad(compile):
    w = leaf(3)

    def f(x):
        y = w * x
        while (y.detach().abs().max() > 0.5).item():
            y = y * 0.5
        return y.sum()

    f = compile(f)
    for k in range(8):
        y = f(randn(3) * (k + 1))
        yield y
        y.backward()
        yield w.grad


@twin
def test_counters(compile):
    n = [0]
    l = []

    def f(x):
        n[0] += 1
        l.append(x * n[0])
        return x * n[0] + len(l)

    f = compile(f)
    for _ in range(5):
        yield f(randn(3)), n, l


@twin
def test_float_args(compile):
    f = compile(lambda x, a, b=2.0: x * a + b)
    x = randn(3)
    for k in range(5):
        yield f(x, 0.1 * k), f(x, k), f(x, k, b=k * 0.5), f(x, True)


@twin
def test_exceptions(compile):
    w = leaf(3)
    o = optim.SGD([w], lr=0.1)
    box = []

    def f(x, k):
        y = (w * x).sum()
        box.append(y * 2)
        if k == 0:
            raise KeyError("k")
        o.zero_grad()
        y.backward()
        if k == 1:
            raise ValueError
        o.step()
        if k == 2:
            raise TypeError
        (w * 2) @ weft.ones(4)
        return y

    f = compile(f)
    for k in (0, 1, 2, 3, 0, 1, 2, 3):
        yield error_of(f, randn(3), k)
        yield box, w, weft.runtime.state.modes.state.frame is None


@twin
def test_exceptions_keep_commits(compile):
    w = randn(3)
    b = randn(3)

    def f(k):
        w.add_(1.0)
        if k == 1:
            raise ValueError
        b.mul_(w)
        if k == 2:
            weft.ones(3) @ weft.ones(4)
        w.sub_(b)
        return w * 2

    f = compile(f)
    for k in (0, 1, 2, 0, 1, 2, 0):
        yield error_of(f, k), w, b, w._version


@twin
def test_changing_globals(compile):
    global SHIFT
    SHIFT = randn(3)
    c = [randn(3)]

    class A:
        w = randn(3)

    a = A()
    f = compile(lambda x: x * SHIFT + c[0] - a.w)
    yield f(randn(3))
    SHIFT = randn(3)
    yield f(randn(3))
    c[0] = randn(3)
    yield f(randn(3))
    a.w = randn(1)
    yield f(randn(3))
    SHIFT = 2.5
    yield f(randn(3))
    SHIFT = randn(3).double()
    yield f(randn(3))


@twin
def test_dtypes_change(compile):
    f = compile(lambda x: (x * 2 + 1).sum())
    for x in (randn(3), randn(3).double(), weft.arange(3), weft.tensor([True, False, True]), randn(3)):
        yield f(x)
    for x in (randn(3), leaf(3)):
        yield f(x)
    with weft.no_grad():
        yield f(leaf(3))
    yield f(leaf(3))


@twin
def test_no_grad_inside(compile):
    w = leaf(3)

    def f(x):
        with weft.no_grad():
            a = w * x
        b = w * x
        with weft.no_grad(), weft.enable_grad():
            c = w * x
        return a, b, c, (a * b * c).sum()

    f = compile(f)
    for _ in range(2):
        *o, l = f(randn(3))
        yield o, l
        l.backward()
        yield w.grad


@twin
def test_nested(compile):
    w = leaf(3)
    g = compile(lambda x: (x * w).exp())
    f = compile(lambda x: g(x) + g(x * 2))
    for _ in range(2):
        y = f(randn(3))
        yield y
        y.sum().backward()
        yield w.grad
        yield g(randn(3))


@twin
def test_recursion(compile):
    def fact(x, n):
        return x if n == 0 else f(x * n, n - 1)

    f = compile(fact)
    for n in (3, 2, 3, 5):
        yield f(randn(3), n)


@twin
def test_default_dtype(compile):
    f = compile(lambda x: (x.long().sum() * 1.5, weft.zeros(2), x * 2.0, weft.tensor([1.5])))
    for d in (weft.float32, weft.float64, weft.float32):
        weft.set_default_dtype(d)
        yield f(weft.ones(3, dtype=weft.float32))
    weft.set_default_dtype(weft.float32)


@twin
def test_generators(compile):
    def f(x):
        return (
            weft.rand(3) + x,
            weft.randn(2),
            weft.randint(0, 9, (3,)),
            weft.randperm(5),
            nn.functional.dropout(x, 0.5),
        )

    f = compile(f)
    for _ in range(3):
        yield f(randn(3))
    weft.manual_seed(3)
    yield f(randn(3))
    weft.manual_seed(3)
    yield f(randn(3))


@twin
def test_shape_errors(compile):
    f = compile(lambda x, y: x @ y)
    g = compile(lambda x, y: (x * 2).view(5))
    for _ in range(2):
        yield error_of(f, randn(3), randn(4)), error_of(g, randn(3), randn(2)), f(randn(3), randn(3))


@twin
def test_slices_by_int(compile):
    X = randn(40, 2)
    f = compile(lambda k: X[k] * 2)
    for k in range(40):
        yield f(k)


@twin
def test_index_error(compile):
    w = leaf(4, 3)
    out = []

    def f(i):
        b = w * 2
        out.append(b)
        y = w[i].sum()
        with weft.no_grad():
            w.add_(1.0)
        return y

    f = compile(f)
    for i in ([0, 1], [2, 3], [0, 9], [1, -1], [1, -9]):
        yield error_of(f, weft.tensor(i))
        yield w.detach().sum() if i[1] < 4 and i[1] > -5 else 0


@twin
def test_pickle_copy(compile):
    import copy

    f = compile(lambda x: x * 2)
    w = leaf(3)
    m = compile(nn.Linear(2, 2))
    yield m(randn(1, 2)), [n for n, _ in m.named_parameters()], list(m.state_dict())
    y = f(w)
    yield error_of(copy.deepcopy, y)
    yield error_of(copy.deepcopy, f(randn(3)))
