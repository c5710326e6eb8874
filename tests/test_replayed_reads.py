"""Values that are read in the middle of replayed calls: `if`, `item()`, NumPy, printing. As without the decorator."""

import pytest
from compiled_twin import assert_same, error_of, leaf, look, twin

import weft
from weft import nn
from weft.nn import functional as F

N_CALLS, ODD_CALLS = 13, (7, 10)


def is_replayed(function, *arguments, n=8):
    f = weft.compile(function)
    for _ in range(n):
        f(*arguments)
    return f.recordings[0].not_replayed is None and f.recordings[0].usual is not None


def test_reads_are_replayed():
    def branches(a):
        c = a * 2
        return c + 1 if c.sum() > 0 else c - 1

    def reads(a):
        c = (a * a).sum()
        return a * c.item(), c

    assert is_replayed(branches, weft.ones(3))
    assert is_replayed(reads, weft.ones(3))


@twin
def test_both_outcomes(compile):
    def f(a, b):
        c = a * b
        if c.sum() > 0:
            return c + 1
        return c - 1, c

    f, seen = compile(f), []
    for k in range(20):
        found = f(weft.full((3,), 1.0 if k < 9 or k % 3 else -1.0), weft.rand(3))
        seen.append(found if isinstance(found, weft.Tensor) else list(found))
    return seen


@twin
def test_until_converged(compile):
    def root(x):
        y = weft.ones(3)
        for _ in range(20):
            z = (y + x / y) / 2
            if (z - y).abs().max() < 1e-6:
                break
            y = z
        return y

    root, seen = compile(root), []
    for k in range(N_CALLS):
        seen.append(root(weft.full((3,), 2.0 if k not in ODD_CALLS else 50.0)))
    return seen


READS = {
    "nothing": lambda y, z, s: None,
    "another": lambda y, z, s: z.sum().item(),
    "the value again": lambda y, z, s: (y.tolist(), y.sum().item()),
    "as an array": lambda y, z, s: KEPT.append(y.numpy()),
    "printed": lambda y, z, s: repr(z),
    "kept": lambda y, z, s: KEPT.append(y),
    "kept view": lambda y, z, s: KEPT.append(y[1:]),
    "changed": lambda y, z, s: y.add_(1),
    "changed and read": lambda y, z, s: (y.add_(1), y.tolist()),
    "the state is read": lambda y, z, s: s.tolist(),
    "an error": lambda y, z, s: error_of(lambda: y[9]),
}
KEPT = []


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_the_odd_call_reads(read):
    def scenario(compile):
        KEPT.clear()
        s = weft.zeros(3)

        def f(x, k):
            y = x * 2
            z = y.exp()
            s.add_(y)
            if z.sum() > 1e9:
                return None
            extra = read(y, z, s) if k in ODD_CALLS else None
            y.mul_(s)
            u = y[:2] * 3
            if u.sum().item() == 12345.0:
                return None
            return y, z.t(), u, extra, s * 1

        f, seen = compile(f), []
        for k in range(N_CALLS):
            found = f(weft.randn(3), k)
            seen += [*found, s.clone(), s._version]
        return [*seen, *KEPT]

    assert_same(scenario)


@twin
def test_a_training_step_that_reads_its_loss(compile):
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.05)
    log = []

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if not loss.item() < 1e6:
            raise FloatingPointError
        log.append(float(model[0].weight.grad.norm()))
        optimizer.step()
        return loss.item()

    step, seen = compile(step), []
    for _ in range(N_CALLS):
        seen.append(step(weft.randn(5, 4), weft.randn(5, 1)))
    return [*seen, *log, *model.parameters()]


@twin
def test_weights_are_read_after_the_update(compile):
    model = nn.Linear(3, 1)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        n = model.weight.norm().item()
        return model(x).sum().detach() * n

    step, seen = compile(step), []
    for k in range(N_CALLS):
        seen += [step(weft.randn(4, 3)), model.weight.detach().clone()]
        if k == 8:
            optimizer.param_groups[0]["lr"] = 0.01
    return seen


@twin
def test_reads_and_a_history(compile):
    w = leaf(3)

    def f(x):
        y = (w * x).tanh()
        if y.sum() > 100:
            return None
        return (y * y).sum()

    f, seen = compile(f), []
    for k in range(N_CALLS):
        loss = f(weft.randn(3))
        if k % 3:
            loss.backward()
        seen += [loss.detach(), w.grad]
    return seen


@twin
def test_an_error_after_a_read(compile):
    s = weft.zeros(2)

    def f(x, k):
        s.add_(x)
        if s.sum().item() > 1e9 or k in ODD_CALLS:
            raise KeyError("odd")
        s.mul_(0.5)
        return s.sum()

    f, seen = compile(f), []
    for k in range(N_CALLS):
        seen += [error_of(f, weft.randn(2), k), s.clone(), s._version]
    return seen


@twin
def test_random_choices(compile):
    def f(p):
        u = weft.rand(())
        return (p * 2, u) if u.item() < 0.7 else (p - 1, u * 1)

    f, seen = compile(f), []
    for _ in range(24):
        seen += list(f(weft.ones(2)))
    return seen


def test_a_view_that_is_alive_at_a_read_knows_its_base():
    state = weft.ones(3, 3)

    def f(x):
        row, turned = state[1:], (x * 2).t()
        if x.sum() > -100:
            row.tolist()
        return row, turned, x + 1

    compiled, x = weft.compile(f), weft.ones(2, 2)
    for _ in range(8):
        row, turned, _ = compiled(x)
        assert row._base is state and turned._base is not None and turned._base._base is None
        assert turned.tolist() == [[2.0, 2.0]] * 2 and compiled.recordings[0].not_replayed is None


def test_what_nobody_held_at_a_read_is_not_saved_later():
    """A result that was dropped before one read, though its derivative would need it, and another read after it."""

    def f(p, x):
        p = p.detach().requires_grad_()
        p.exp()
        scale = x.sum().item()
        z = p.sin()
        other = x.prod().item()
        return weft.autograd.grad(z.sum() * scale * other, p)[0]

    compiled = weft.compile(f)
    for k in range(6):
        p, x = weft.full((3,), k * 0.5), weft.full((2,), k + 1.0)
        assert compiled(p, x).tolist() == f(p, x).tolist()


def views_at_a_read(use):
    """Views of values, parameters and arguments are held where a value is read; two calls are given other memory."""

    def scenario(compile):
        layer, kept = nn.Linear(4, 6), []
        optimizer = weft.optim.SGD(layer.parameters(), lr=0.1)

        def step(x, k):
            first, second = layer(x).chunk(2, dim=1)
            turned, row = first.t(), x[1]
            loss = (first * second.exp()).mean() + row.sum() * turned[0, 1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found = use(loss, turned, row, layer, kept, k)
            return found, turned.shape

        f, seen = compile(step), []
        for k in range(16):
            x = weft.randn(3, 4) if k not in ODD_CALLS else weft.randn(4, 3).t()
            seen += [look(x) for x in f(x, k)] + [p.detach().clone() for p in layer.parameters()]
            if k % 3 == 2:
                seen += [list(kept)]
                kept.clear()
        return seen

    return scenario


def the_loss(loss, turned, row, layer, kept, k):
    return loss.item()


def the_view(loss, turned, row, layer, kept, k):
    return turned.tolist(), row.sum().item(), loss.item()


def keep_the_view(loss, turned, row, layer, kept, k):
    found = loss.item()
    kept += [turned.detach(), row]
    return found


def return_it(loss, turned, row, layer, kept, k):
    return loss.item(), row, turned.detach()


def keep_now_and_then(loss, turned, row, layer, kept, k):
    if k in ODD_CALLS:
        kept.append(row)
    return loss.item()


def changed_afterwards(loss, turned, row, layer, kept, k):
    found = loss.item()
    with weft.no_grad():
        turned.mul_(2)
    return found, turned.sum().item()


def base_changed_afterwards(loss, turned, row, layer, kept, k):
    part = layer.weight[1]
    found = loss.item()
    with weft.no_grad():
        layer.weight.mul_(0.9)
    return found, part.sum().item()


def as_an_array(loss, turned, row, layer, kept, k):
    found = loss.item()
    array = row.numpy()
    return found, array.tolist(), (row * 2).sum().item()


def whole(loss, turned, row, layer, kept, k):
    value = loss.detach()
    return loss.item(), value


def two_reads(loss, turned, row, layer, kept, k):
    found = loss.item()
    part = turned[0]
    return found, (part * 2).sum().item(), part[1:]


@pytest.mark.parametrize(
    "use",
    [
        the_loss, the_view, keep_the_view, return_it, keep_now_and_then, changed_afterwards, base_changed_afterwards,
        as_an_array, whole, two_reads,
    ],
)  # fmt: skip
def test_views_that_are_held_where_a_value_is_read(use):
    assert_same(views_at_a_read(use))


def test_views_that_are_held_at_a_read_leave_the_end_of_the_call_to_native_code():
    layer = nn.Linear(4, 6)

    @weft.compile
    def step(x):
        mean, spread = layer(x).chunk(2, dim=1)
        loss = (mean * spread.exp()).mean()
        return loss.item()

    for _ in range(8):
        step(weft.randn(3, 4))
    assert step.recordings[0].usual.slower_for == []


@twin
def test_a_part_of_an_argument_is_read_before_anything_is_computed(compile):
    table = weft.arange(6).reshape(3, 2) * 1.0

    def f(x, k):
        part = x[1]
        if part[0].item() > 0 or table[1].tolist()[0] < 3:
            return part * 2, x.sum()
        return part, table[0] + x[0]

    f, seen = compile(f), []
    for k in range(16):
        x = weft.randn(3, 2) if k not in ODD_CALLS else weft.randn(2, 3).t()
        seen += [look(y) for y in f(x.abs() * (-1) ** (k == 11), k)]
    return seen
