"""In-place changes in replayed calls: state, buffers, arguments, slices, gradients that grow. As without the decorator.

Every scenario calls one function often enough to be replayed; the eighth call (and often a later one) is another.
"""

import numpy as np
import pytest
from compiled_twin import assert_same, error_of, leaf, twin

import weft
from weft import nn
from weft.nn import functional as F
from weft.runtime.replay.frame_usual import UsualFrame
from weft.runtime.replay.native import native_code_is_used

N_CALLS, ODD_CALLS = 13, (7, 10)


def is_replayed(function, *arguments, n=8):
    f = weft.compile(function)
    for _ in range(n):
        f(*arguments)
    return f.recordings[0].not_replayed is None and f.recordings[0].usual is not None


def test_changes_in_place_are_replayed():
    s, x = weft.zeros(3), weft.ones(3)

    def state(x):
        s.mul_(0.9).add_(x, alpha=0.1)
        return s * 2

    def sliced(x):
        y = weft.zeros(6)
        y[1:4] = x
        return y

    def argument(t, x):
        t += x

    assert is_replayed(state, x)
    assert is_replayed(sliced, x)
    assert is_replayed(argument, weft.zeros(3), x)


def odd_calls(change):
    """A scenario of a compiled function of x with a state, which is another in some calls."""

    def scenario(compile):
        s = weft.randn(3)

        def f(x, k):
            s.mul_(0.5)
            y = x * 2
            y.add_(s)
            if k in ODD_CALLS:
                extra = change(s, x, y)
            else:
                extra = None
            y[1] = s[0] * 3
            return y, s + 1, extra

        f, seen = compile(f), []
        for k in range(N_CALLS):
            x = weft.randn(3)
            found = f(x, k)
            seen += [*found, s.clone(), s._version, x]
            if k == 5:
                kept = found[0]
        return [*seen, kept]

    return scenario


CHANGES = {
    "none": lambda s, x, y: None,
    "a view is alive": lambda s, x, y: KEPT.append(y[1:]),
    "a view of the state is alive": lambda s, x, y: KEPT.append(s[1:]),
    "the value is kept": lambda s, x, y: KEPT.append(y),
    "the state is read": lambda s, x, y: s.sum().item(),
    "the value is read": lambda s, x, y: y.tolist(),
    "the state is changed again": lambda s, x, y: s.add_(1.0),
    "the argument is changed": lambda s, x, y: x.zero_(),
    "by another type": lambda s, x, y: y.add_(weft.ones(3, dtype=weft.int64)),
    "refused": lambda s, x, y: error_of(y.add_, weft.ones(2)),
    "a version": lambda s, x, y: (s._version, y._version),
    "an error": lambda s, x, y: error_of(lambda: 1 / 0),
    "shape of a pending": lambda s, x, y: (y.shape, y.requires_grad, y.is_leaf, y.grad_fn is None),
    "by a NumPy array": lambda s, x, y: y.mul_(weft.from_numpy(np.arange(3.0, dtype=np.float32))),
    "a wider number": lambda s, x, y: y.mul_(2),
}
KEPT = []


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_odd_call(change):
    KEPT.clear()
    assert_same(odd_calls(change))


@twin
def test_weights_by_hand(compile):
    w1, b1, w2 = leaf(4, 5), leaf(5), leaf(5, 1)

    def step(x, y):
        loss = ((weft.tanh(x @ w1 + b1) @ w2 - y) ** 2).mean()
        loss.backward()
        with weft.no_grad():
            for p in (w1, b1, w2):
                p -= 0.1 * p.grad
                p.grad = None
        return loss

    step, seen = compile(step), []
    for _ in range(N_CALLS):
        seen += [step(weft.randn(6, 4), weft.randn(6, 1)).detach(), w1.clone().detach(), w1._version, b1.is_leaf]
    return [*seen, w1, b1, w2]


@twin
def test_used_again_after_the_change(compile):
    w = leaf(3)

    def step(x):
        (w * x).sum().backward()
        with weft.no_grad():
            w.sub_(w.grad, alpha=0.1)
        w.grad = None
        later = (w * x).exp().sum()
        later.backward()
        return later

    step, seen = compile(step), []
    for _ in range(N_CALLS):
        seen += [step(weft.randn(3)).detach(), w.detach().clone(), w.grad.clone()]
        w.grad = None
    return seen


@twin
def test_micro_batches(compile):
    model = nn.Linear(4, 1)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(x, y, n):
        optimizer.zero_grad()
        for k in range(n):
            (F.mse_loss(model(x[2 * k : 2 * k + 2]), y[2 * k : 2 * k + 2]) / n).backward()
        optimizer.step()

    step, seen = compile(step), []
    for k in range(N_CALLS):
        step(weft.randn(6, 4), weft.randn(6, 1), 2 if k == 9 else 3)
        seen += [model.weight.detach().clone(), model.weight.grad.clone(), model.bias.grad.clone()]
    return seen


@twin
def test_gradients_that_were_there(compile):
    w = leaf(3)

    def step(x, k):
        if k % 5 == 4:
            w.grad = None
        elif w.grad is not None:
            w.grad.zero_()
        (w * x).sum().backward()
        (w * w * x).sum().backward()

    step, seen = compile(step), []
    for k in range(20):
        before = w.grad
        step(weft.randn(3), k if k > 10 else 0)
        seen += [w.grad.clone(), before is w.grad, w.grad._version]
    return seen


@twin
def test_set_to_none_false(compile):
    model = nn.Linear(3, 2)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    step, seen = compile(step), []
    for _ in range(N_CALLS):
        seen += [step(weft.randn(4, 3)).detach(), model.weight.grad.clone(), model.weight.detach().clone()]
    return seen


@twin
def test_batch_norm_in_training(compile):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step, seen = compile(step), []
    for k in range(N_CALLS):
        if k == 6:
            model.eval()
        if k == 9:
            model.train()
        seen += [step(weft.randn(5, 4), weft.randn(5, 2)).detach()]
        seen += [b.clone() for b in model.buffers()]
    return [*seen, *model.parameters()]


@twin
def test_weights_averaged_over_time(compile):
    model = nn.Linear(3, 2)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
    shadow = [p.detach().clone() for p in model.parameters()]

    def step(x):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        with weft.no_grad():
            for s, p in zip(shadow, model.parameters()):
                s.mul_(0.9).add_(p, alpha=0.1)

    step, seen = compile(step), []
    for k in range(N_CALLS):
        if k == 8:
            shadow[0] = shadow[0].clone()
        step(weft.randn(4, 3))
        seen += [s.clone() for s in shadow]
    return seen


@twin
def test_a_ring_buffer(compile):
    ring = weft.zeros(4, 2)

    def push(x, k):
        ring[k % 4] = x
        return ring.sum(0)

    push, seen = compile(push), []
    for k in range(16):
        seen += [push(weft.randn(2), k), ring.clone()]
    return seen


@twin
def test_a_history_in_a_made_tensor(compile):
    w = leaf(3)

    def f(x):
        y = weft.zeros(5)
        y[1:4] = w * x
        y.mul_(y)
        return (y * 2).sum()

    f, seen = compile(f), []
    for k in range(N_CALLS):
        loss = f(weft.randn(3))
        if k % 4 != 3:
            loss.backward()
        seen += [loss.detach(), w.grad.clone()]
    return seen


@twin
def test_the_changed_value_is_the_result(compile):
    w = leaf(3)

    def f(x):
        y = x * w
        z = y.add_(1.0)
        return z if z is y else None

    f, seen = compile(f), []
    for k in range(N_CALLS):
        y = f(weft.randn(3))
        if k % 3:
            y.sum().backward()
        seen += [y.detach(), y._version, w.grad]
    return seen


@twin
def test_an_argument_is_changed_and_differentiated(compile):
    w = leaf(3)

    def f(t, x):
        t.add_(x)
        return (t * w).sum()

    f, seen, t = compile(f), [], weft.zeros(3)
    for k in range(N_CALLS):
        loss = f(t if k != 8 else weft.ones(3), weft.randn(3))
        if k % 2:
            loss.backward()
        if k == 9:
            t.add_(1)
            seen.append(error_of(loss.backward))
        seen += [loss.detach(), t.clone(), t._version, w.grad]
    return seen


@twin
def test_an_error_in_the_middle(compile):
    s = weft.zeros(2)

    def f(x, k):
        s.add_(x)
        if k in ODD_CALLS:
            raise KeyError("odd")
        s.mul_(0.5)
        return s.sum()

    f, seen = compile(f), []
    for k in range(N_CALLS):
        seen += [error_of(f, weft.randn(2), k), s.clone(), s._version]
    return seen


@twin
def test_read_only_and_shared_memory(compile):
    array = np.zeros(3, np.float32)
    frozen = weft.from_numpy(array.copy())

    def f(t):
        t.add_(1.0)
        return t * 2

    f, seen = compile(f), []
    for k in range(N_CALLS):
        t = weft.from_numpy(array) if k == 7 else weft.full((3,), float(k))
        if k == 10:
            t = frozen[None].expand(2, 3)
            seen.append(error_of(f, t))
            continue
        seen += [f(t), t.clone(), array.copy()]
    return seen


def test_memory_stays_flat():
    s, w = weft.zeros(3), leaf(3)

    @weft.compile
    def f(x):
        s.mul_(0.5).add_(x)
        y = x * w
        y[0] = 1.0
        y.sum().backward()
        w.grad.zero_()
        return y.detach()

    import gc

    for _ in range(10):
        f(weft.ones(3))
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200):
        f(weft.ones(3))
    gc.collect()
    assert len(gc.get_objects()) - before < 20


def micro_batches(surgery):
    """Calls that add to gradients which are new every three calls; before the call that is another, something happens
    to a gradient, and after it to none any more."""

    def scenario(compile):
        w, b = leaf(3, 2), leaf(2)

        def micro_step(x):
            loss = (x @ w + b).square().sum() / 3
            loss.backward()
            return loss

        f, seen, kept = compile(micro_step), [], []
        for k in range(24):
            if k in (14, 19):
                kept.append(surgery(w, b))
            before = w.grad
            seen += [error_of(lambda: f(weft.randn(5, 3)).detach()), before is w.grad, w.grad, b.grad]
            seen += [w.grad._version, b.grad is None or b.grad._version]
            if k % 3 == 2:
                w.grad = b.grad = None
        return [*seen, [x for x in kept if isinstance(x, (list, weft.Tensor))]]

    return scenario


def without_one(w, b):
    b.grad = None


def of_another_kind(w, b):
    w.grad = weft.from_numpy(np.ones((3, 2), np.float32))


def a_part_of_another(w, b):
    rows = weft.ones(4, 3, 2)
    w.grad = rows[1]
    return rows


def turned(w, b):
    w.grad = weft.ones(2, 3).t()


def two_that_share(w, b):
    both = weft.zeros(8)
    w.grad, b.grad = both[:6].view(3, 2), both[6:]
    return both


def somebody_holds_it(w, b):
    return w.grad


def a_view_of_it(w, b):
    return w.grad.detach()


def hook_of_a_leaf(w, b):
    met = []
    w.register_hook(lambda g: met.append(g.sum().item()))
    return met


def hook_after(w, b):
    met = []
    b.register_post_accumulate_grad_hook(lambda p: met.append(p.grad.clone()))
    return met


def graph_outside(w, b):
    return (w * 2).sum()


def with_a_history(w, b):
    w.grad = w * 2


@pytest.mark.parametrize(
    "surgery",
    [
        without_one, of_another_kind, a_part_of_another, turned, two_that_share, somebody_holds_it, a_view_of_it,
        hook_of_a_leaf, hook_after, graph_outside, with_a_history,
    ],
)  # fmt: skip
def test_gradients_that_grow(surgery):
    assert_same(micro_batches(surgery))


def test_gradients_that_grow_are_added_in_native_code(monkeypatch):
    """Whether leaves have been reached by other graphs before or not."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def micro_step(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    f, asked = weft.compile(micro_step), []
    for name in ("backward_again", "inplace_again"):
        method = getattr(UsualFrame, name)

        def counted(self, *args, name=name, method=method):
            asked.append(name)
            return method(self, *args)

        monkeypatch.setattr(UsualFrame, name, counted)
    for k in range(40):
        if k == 32:
            asked.clear()
        if k % 4 == 0:
            model.zero_grad()
        f(weft.randn(5, 3))
    assert (asked == []) == native_code_is_used()
