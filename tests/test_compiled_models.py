"""Modules inside compiled functions: training, buffers, changed structure, branches, bad indices."""

from compiled_twin import error_of, leaf, twin

import weft
from weft import nn, optim, randn


class Counting(nn.Module):
    """A buffer changed in place, keyword arguments, nested arguments and results."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("count", weft.zeros(()))

    def forward(self, x, *, scale=1.0, deep=None):
        self.count.add_(1.0)
        y = self.linear(x) * scale
        if deep is not None:
            y = y + deep["a"][0]
        return {"y": y, "count": self.count}


def net():
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 2))


def params(module):
    return list(module.parameters())


@twin
def test_grad_norm_print(compile):
    m = nn.Linear(3, 2)
    o = optim.Adam(m.parameters(), lr=0.1)
    import contextlib
    import io

    def step(x):
        l = m(x).pow(2).mean()
        o.zero_grad()
        l.backward()
        n = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
        print(f"{l.item():.4f} {n:.4f} {m.weight}")
        o.step()
        return l

    step = compile(step)
    for _ in range(3):
        s = io.StringIO()
        with contextlib.redirect_stdout(s):
            l = step(randn(4, 3))
        yield l, s.getvalue()


@twin
def test_bn(compile):
    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    f = compile(lambda x: m(x))
    for _ in range(3):
        y = f(randn(5, 3))
        yield y
        y.sum().backward()
        yield list(m.parameters()), list(m.buffers())
        y = f(randn(5, 3))
        (y**2).mean().backward()
        yield list(m.parameters())
        m.eval()
        y = f(randn(2, 3))
        y.sum().backward()
        yield y, list(m.parameters())
        m.train()


@twin
def test_ragged(compile):
    m = net()
    o = optim.Adam(m.parameters())
    X = randn(10, 3)

    def step(x):
        l = m(x).pow(2).mean()
        o.zero_grad()
        l.backward()
        o.step()
        return l

    step = compile(step)
    for _ in range(2):
        for k in range(0, 10, 4):
            yield step(X[k : k + 4])
    yield params(m)
    m.double()


@twin
def test_index_errors_inside(compile):
    e = nn.Embedding(5, 3)
    o = optim.SGD(e.parameters(), lr=0.1)
    log = []

    def step(i, t):
        l = nn.functional.cross_entropy(e(i), t)
        log.append(l.detach())
        o.zero_grad()
        l.backward()
        o.step()
        return l

    step = compile(step)
    for i, t in (
        ([0, 1], [0, 2]),
        ([2, 3], [1, 1]),
        ([0, 7], [0, 0]),
        ([1, 1], [0, 1]),
        ([1, 2], [0, 3]),
        ([4, 4], [2, 2]),
    ):
        bad = max(i) > 4 or max(t) > 2
        yield error_of(step, weft.tensor(i), weft.tensor(t))
        yield None if bad else list(e.parameters())


@twin
def test_many_branches_grad(compile):
    w = leaf(40)
    o = optim.SGD([w], lr=0.1, momentum=0.9)

    def f(k):
        l = w[k].exp()
        o.zero_grad()
        l.backward()
        o.step()
        return l

    f = compile(f)
    for k in range(25):
        yield f(k), w


@twin
def test_many_branches_grad2(compile):
    w = leaf(40)

    def f(k):
        y = w * 2
        z = y[k].exp() * y.sum()
        return y, z

    f = compile(f)
    for k in range(25):
        y, z = f(k)
        yield y, z
        (z + y.sum()).backward()
        yield w.grad


@twin
def test_module_changes(compile):
    m = net()
    f = compile(m)
    x = randn(4, 3)
    yield f(x)
    m.eval()
    yield f(x)
    m.train()
    yield f(x), f(x)
    m[1] = nn.Tanh()
    yield f(x)
    m.append(nn.Linear(2, 2))
    yield f(x)
    yield f(x).sum()
    m.eval()
    y = f(x).sum()
    y.backward()
    yield params(m)


@twin
def test_module_kwargs(compile):
    m = Counting()
    f = compile(m)
    for k in range(3):
        yield f(randn(4, 3), scale=0.5 * k), f(x=randn(4, 3)), f(randn(4, 3), deep={"a": [randn(2)]}), m.count


@twin
def test_compiled_method(compile):
    class C:
        def __init__(s, k):
            s.w = randn(3) * k

        @compile
        def f(s, x):
            return x * s.w

    a, b = C(1), C(2)
    for _ in range(2):
        yield a.f(randn(3)), b.f(randn(3)), C.f(a, randn(3))
