"""Training steps inside a compiled function leave parameters and optimizers as eager mode does."""

import pytest
from compiled_twin import assert_same, leaf, twin

import weft
from weft import nn, optim, randn


def net():
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 2))


def params(module):
    return list(module.parameters())


def training(make_optimizer, set_to_none=True, clip=False, schedule=False, rounds=1):
    """Four steps of a small network; `rounds` backward passes are accumulated in each."""

    def scenario(compile):
        model = net()
        optimizer = make_optimizer(model.parameters())
        scheduler = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        x, y = randn(4, 3), randn(4, 2)

        def step(x, y):
            optimizer.zero_grad(set_to_none=set_to_none)
            for _ in range(rounds):
                loss = ((model(x) - y) ** 2).mean()
                loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            return loss

        step = compile(step)
        for _ in range(4):
            yield step(x, y)
            yield params(model)
            if schedule:
                scheduler.step()
        yield list(model.state_dict().values())

    return scenario


@pytest.mark.parametrize(
    "make_optimizer, options",
    [
        (lambda p: optim.SGD(p, lr=0.1), {}),
        (lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), {"set_to_none": False}),
        (lambda p: optim.Adam(p, lr=0.1), {"clip": True}),
        (lambda p: optim.AdamW(p, lr=0.1), {"schedule": True}),
        (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), {"rounds": 2}),
        (lambda p: optim.Adam(p, lr=0.1), {"set_to_none": False, "rounds": 2, "clip": True}),
    ],
)
def test_training(make_optimizer, options):
    assert_same(training(make_optimizer, **options))


@twin
def test_freezing(compile):
    m = net()
    m.eval()
    x = randn(4, 3)

    def f(x):
        for p in m.parameters():
            p.grad = None
        l = m(x).sum()
        l.backward()
        return l

    f = compile(f)
    for k in range(6):
        for j, p in enumerate(m.parameters()):
            p.requires_grad_(not (k % 3 == 1 and j < 2))
        yield f(x), params(m)


@twin
def test_toggle_inside(compile):
    w = leaf(3)

    def f(x):
        w.requires_grad_(False)
        a = (w * x).sum()
        w.requires_grad_(True)
        b = (w * x).sum()
        (a + b).backward()
        return a, b

    f = compile(f)
    for _ in range(3):
        yield f(randn(3)), w


@twin
def test_two_optimizers(compile):
    g = nn.Linear(2, 3)
    d = nn.Linear(3, 1)
    og = optim.Adam(g.parameters(), lr=0.1)
    od = optim.SGD(d.parameters(), lr=0.1)

    def step(z, x):
        fake = g(z)
        ld = d(x).mean() - d(fake.detach()).mean()
        od.zero_grad()
        ld.backward()
        od.step()
        lg = -d(g(z)).mean()
        og.zero_grad()
        lg.backward()
        og.step()
        return ld, lg

    step = compile(step)
    for _ in range(4):
        yield step(randn(4, 2), randn(4, 3))
        yield params(g) + params(d)


@twin
def test_tied(compile):
    a = nn.Linear(3, 3)
    b = nn.Linear(3, 3)
    b.weight = a.weight
    o = optim.SGD(list(a.parameters()) + [b.bias], lr=0.1)

    def step(x):
        l = b(a(x).tanh()).sum()
        o.zero_grad()
        l.backward()
        o.step()
        return l

    step = compile(step)
    for _ in range(3):
        yield step(randn(2, 3)), params(a), params(b)


@twin
def test_manual_sgd(compile):
    w = leaf(3)
    b = leaf(())

    def step(x, y):
        l = ((x @ w + b - y) ** 2).mean()
        l.backward()
        with weft.no_grad():
            w.sub_(0.1 * w.grad)
            b.__isub__(0.1 * b.grad)
        w.grad.zero_()
        b.grad.zero_()
        return l

    step = compile(step)
    for _ in range(4):
        yield step(randn(5, 3), randn(5)), w, b


@twin
def test_manual_sgd_data(compile):
    w = leaf(3)

    def step(x):
        l = ((x @ w) ** 2).mean()
        l.backward()
        w.data.sub_(w.grad * 0.1)
        w.grad = None
        return l, w.data * 2, w.detach()

    step = compile(step)
    for _ in range(4):
        yield step(randn(5, 3)), w


@twin
def test_manual_sgd_data2(compile):
    w = leaf(3)

    def step(x):
        l = ((x @ w) ** 2).mean()
        l.backward()
        w.data -= w.grad * 0.1
        w.grad = None
        return l

    step = compile(step)
    for _ in range(4):
        yield step(randn(5, 3)), w


@twin
def test_set_data(compile):
    w = leaf(3)

    def step(x):
        l = ((x @ w) ** 2).mean()
        l.backward()
        w.data = w.data - w.grad * 0.1
        w.grad = None
        return l

    step = compile(step)
    for _ in range(4):
        yield step(randn(5, 3)), w


@twin
def test_two_rounds(compile):
    w = leaf(3)
    o = optim.Adam([w], lr=0.1)

    def step(x):
        out = []
        for _ in range(2):
            l = ((x @ w) ** 2).mean()
            o.zero_grad()
            l.backward()
            o.step()
            out.append(l)
        return out

    step = compile(step)
    for _ in range(3):
        yield step(randn(5, 3)), w


@twin
def test_item_middle(compile):
    w = leaf(3)
    o = optim.SGD([w], lr=0.1)
    log = []

    def step(x):
        l = ((x @ w) ** 2).mean()
        log.append(l.item())
        o.zero_grad()
        l.backward()
        log.append(w.grad.tolist())
        o.step()
        log.append(repr(w))
        return l

    step = compile(step)
    for _ in range(3):
        yield step(randn(5, 3)), w, list(log)


@twin
def test_setting_grad_inside(compile):
    w = leaf(3)
    o = optim.SGD([w], lr=0.1)

    def f(x):
        w.grad = x * 2
        o.step()
        w.grad = None
        y = (w * x).sum()
        y.backward()
        w.grad = w.grad * 2
        w.grad.add_(1.0)
        g = w.grad
        w.grad = None
        return g, w * 1

    f = compile(f)
    for _ in range(3):
        yield f(randn(3)), w


@twin
def test_ema(compile):
    m = nn.Linear(3, 2)
    e = nn.Linear(3, 2)
    e.load_state_dict(m.state_dict())
    o = optim.SGD(m.parameters(), lr=0.1)

    def step(x):
        l = m(x).pow(2).mean()
        o.zero_grad()
        l.backward()
        o.step()
        with weft.no_grad():
            for p, q in zip(m.parameters(), e.parameters()):
                q.lerp_(p, 0.1)
                q.mul_(0.9).add_(p, alpha=0.1)
                q.copy_(q * 0.5 + p * 0.5)
        return l

    step = compile(step)
    for _ in range(4):
        yield step(randn(4, 3)), list(m.parameters()), list(e.parameters())


@twin
def test_param_swap(compile):
    a, b = leaf(3), leaf(3)

    def step(x):
        with weft.no_grad():
            t = a.clone()
            a.copy_(b)
            b.copy_(t)
        return (a * x).sum(), (b * x).sum()

    step = compile(step)
    for _ in range(3):
        p, q = step(randn(3))
        yield p, q, a, b
        (p * q).backward()
        yield a.grad, b.grad


@twin
def test_w_and_detach(compile):
    w = leaf(3)

    def f(x):
        d = w.detach()
        y = (w * x).sum()
        y.backward()
        with weft.no_grad():
            w.sub_(w.grad * 0.1)
        e = d * 2
        d.add_(1.0)
        return e, d, w * 1

    f = compile(f)
    for _ in range(3):
        yield f(randn(3)), w


@twin
def test_setitem_param(compile):
    w = leaf(4)

    def f(x):
        y = (w * x).sum()
        y.backward()
        with weft.no_grad():
            w[0] = 0.5
            w[1:3] -= w.grad[1:3]
            w.view(2, 2)[1] = w.grad.view(2, 2)[0]
        return y, w * 1

    f = compile(f)
    for _ in range(3):
        yield f(randn(4)), w
