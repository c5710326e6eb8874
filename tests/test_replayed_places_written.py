"""Compiled calls that change a tensor elsewhere every time: `x[i] += v`, rings, tables, caches, slices at counted
places. As without the decorator, and as in PyTorch.
"""

import numpy as np
import pytest
from compiled_twin import assert_same, error_of

import weft

N_CALLS = 24


def row(x, i, v):
    x[i] += v


def row_by_method(x, i, v):
    x[i].add_(v, alpha=2.0).mul_(0.5)
    return x[i % 3]


def element(x, i, v):
    x[i, i % 4] += 0.5
    x[i, 1] -= v[0]


def column(x, i, v):
    x[:, i % 4] *= v.sum()
    return x.sum(0)


def block(x, i, v):
    x[i : i + 2] -= v
    x[i : i + 2, 1:3] *= 0.5
    return x[i : i + 2].sum()


def corner(x, i, v):
    x[i : i + 2, i % 3 : i % 3 + 2] = v[:2]
    x[i : i + 3, -1].clamp_(min=0.0)


def part_of_a_row(x, i, v):
    x[i, 1:3] += v[1:3]
    x[i][0] = 9.0
    x[i][:2].mul_(2.0)


def copied(x, i, v):
    x[i].copy_(v)
    x[i - 1].zero_()
    x.t()[i % 4].fill_(2.0)


def kept_view(x, i, v):
    y = x[i]
    y += v
    z = y * 2
    y.mul_(z)
    return z, x.sum()


def shown_view(x, i, v):
    y = x[i]
    y += v
    return y


def two_views(x, i, v):
    y, z = x[i], x[i - 1]
    y += v
    return z * y


def view_of_a_view(x, i, v):
    y = x[1:]
    y[i % 4] += v
    y[i % 4 : i % 4 + 2, 0].neg_()
    return y * 1.0


def learned(x, i, v):
    target = v[0] + 0.9 * x[i - 1].max()
    x[i, i % 4] += 0.1 * (target - x[i, i % 4])


def inside(x, i, v):
    y = weft.zeros(7, 4)
    y[i] = v
    y[i % 5 : i % 5 + 2] += x[:2]
    y[:, i % 3 : i % 3 + 2] *= 3.0
    return y


def read_in_between(x, i, v):
    x[i] += v
    total = float(x[i].sum())
    x[i - 1 if total > 0 else i] = total
    return x.mean()


def swapped(x, i, v):
    x[i], x[i - 1] = x[i - 1].clone(), x[i].clone()


PROGRAMS = [
    row, row_by_method, element, column, block, corner, part_of_a_row, copied, kept_view, shown_view, two_views,
    view_of_a_view, learned, inside, read_in_between, swapped,
]  # fmt: skip
PLACES = {
    "rising": lambda k: k % 5,
    "in turn": lambda k: (0, 3)[k % 2],
    "negative": lambda k: -3 - k % 4,
    "out of range now and then": lambda k: 9 if k in (6, 13) else k % 5,
}


def names(program):
    return program.__name__


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("program", PROGRAMS, ids=names)
def test_changes_at_places_that_change(program, place):
    def scenario(compile):
        f, x, results = compile(program), weft.randn(7, 4), []
        for k in range(N_CALLS):
            yield error_of(lambda k=k: results.append(f(x, place(k), weft.randn(4)))), x.clone(), x._version
        yield results

    assert_same(lambda compile: list(scenario(compile)))


@pytest.mark.oracle
@pytest.mark.parametrize("program", PROGRAMS, ids=names)
def test_as_in_pytorch(program):
    torch = pytest.importorskip("torch")
    f, rng = weft.compile(program), np.random.RandomState(0)
    start = rng.standard_normal((7, 4)).astype("float32")
    x, y = weft.tensor(start), torch.tensor(start)
    in_torch = program if program is not inside else lambda *args: _with(inside, torch)(*args)
    for k in range(N_CALLS):
        v = rng.standard_normal(4).astype("float32")
        found, wanted = f(x, k % 5, weft.tensor(v)), in_torch(y, k % 5, torch.tensor(v))
        np.testing.assert_allclose(x.numpy().copy(), y.numpy(), rtol=1e-5, atol=1e-6)
        if isinstance(wanted, torch.Tensor):
            np.testing.assert_allclose(found.numpy().copy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


def _with(program, torch):
    return type(program)(program.__code__, {"weft": torch})


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p is not read_in_between and p is not shown_view], ids=names
)
def test_one_path_does_for_all(program):
    f, x = weft.compile(program), weft.randn(7, 4)
    for k in range(60):
        f(x, k % 5, weft.randn(4))
    (recording,) = f.recordings
    followed = recording.n_followed
    for k in range(20):
        f(x, k % 5, weft.randn(4))
    assert recording.n_followed == followed and recording.not_replayed is None and f.breaks == ()


# --- with gradients ---------------------------------------------------------------------------------------------------
def history_of_a_row(w, i, v):
    y = w * 2
    y[i] += v
    return (y.exp() * v).sum()


def history_of_values(w, i, v):
    y = weft.zeros(7, 4)
    y[i] = w[i] * v
    y[i : i + 2, 1:3] = w[:2, :2].sin()
    return (y * y).sum()


def history_of_both(w, i, v):
    y = w.sin()
    y[i % 5 : i % 5 + 2] = y[i % 4 : i % 4 + 2] * v
    y[:, i % 4] *= w[:, 0]
    y[i, 1:3].mul_(w[0, 1:3])
    return (y * w).sum()


def history_of_slices(w, i, v):
    return (w[i : i + 2] * v).square().sum() + (w[:, i % 3 : i % 3 + 2] * w[:, 1:3]).sum()


def history_of_a_view(w, i, v):
    y = w * 1.5
    z = y[i]
    z *= v
    return (z * y).sum()


WITH_HISTORY = [history_of_a_row, history_of_values, history_of_both, history_of_slices, history_of_a_view]


@pytest.mark.parametrize("program", WITH_HISTORY, ids=names)
def test_gradients_inside_the_call(program):
    def scenario(compile):
        w = weft.randn(7, 4, requires_grad=True)
        optimizer = weft.optim.SGD([w], lr=0.01)

        @compile
        def step(i, v):
            loss = program(w, i, v)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        for k in range(N_CALLS):
            yield step(k % 5, weft.randn(4)), w.grad.clone(), w.detach().clone()

    assert_same(lambda compile: list(scenario(compile)))


@pytest.mark.parametrize("program", WITH_HISTORY, ids=names)
@pytest.mark.parametrize("order", [1, 2])
def test_gradients_outside_of_the_call(program, order):
    def scenario(compile):
        f, w = compile(program), weft.randn(7, 4, requires_grad=True)
        for k in range(N_CALLS):
            loss = f(w, k % 5, weft.randn(4))
            (first,) = weft.autograd.grad(loss, w, create_graph=order == 2)
            yield loss, first, _names_of_nodes(loss.grad_fn)
            if order == 2:
                yield weft.autograd.grad(first.square().sum(), w)

    assert_same(lambda compile: list(scenario(compile)))


def _names_of_nodes(node, depth=4):
    if node is None or depth == 0:
        return []
    return [node.name(), [_names_of_nodes(other, depth - 1) for other, _ in node.next_functions]]


@pytest.mark.oracle
@pytest.mark.parametrize("program", WITH_HISTORY, ids=names)
def test_gradients_as_in_pytorch(program):
    torch = pytest.importorskip("torch")
    f, rng = weft.compile(program), np.random.RandomState(1)
    start = rng.standard_normal((7, 4)).astype("float32")
    w, u = weft.tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)
    in_torch = _with(program, torch)
    for k in range(N_CALLS):
        v = rng.standard_normal(4).astype("float32")
        (found,) = weft.autograd.grad(f(w, k % 5, weft.tensor(v)), w)
        (wanted,) = torch.autograd.grad(in_torch(u, k % 5, torch.tensor(v)), u)
        np.testing.assert_allclose(found.numpy().copy(), wanted.numpy(), rtol=1e-5, atol=1e-5)


def test_leaves_are_not_changed():
    def scenario(compile):
        w = weft.randn(7, 4, requires_grad=True)

        @compile
        def f(i, v, allowed):
            if allowed:
                with weft.no_grad():
                    w[i] += v
            else:
                w[i] += v

        for k in range(N_CALLS):
            yield error_of(lambda k=k: f(k % 5, weft.randn(4), k % 7 != 6)), w.detach().clone(), w._version

    assert_same(lambda compile: list(scenario(compile)))


def test_what_a_backward_has_saved_and_the_call_changes():
    """x was saved, and a row of it is changed before the backward: an error as in eager mode."""

    def scenario(compile):
        w, x = weft.randn(7, 4, requires_grad=True), weft.randn(7, 4)

        @compile
        def f(i, v):
            loss = (w * x).sum()
            if i != 4:
                x[i] += v
            return loss

        for k in range(N_CALLS):
            yield error_of(f(k % 5, weft.randn(4)).backward), None if w.grad is None else w.grad.clone(), x.clone()

    assert_same(lambda compile: list(scenario(compile)))


def test_views_from_outside_show_what_the_call_has_written():
    def scenario(compile):
        x = weft.randn(7, 4)
        held = x[2]

        @compile
        def f(i, v):
            x[i] += v
            return x.sum() + held.sum()

        for k in range(N_CALLS):
            yield f(k % 5, weft.randn(4)), held.clone(), held._version

    assert_same(lambda compile: list(scenario(compile)))


# --- as people write it -----------------------------------------------------------------------------------------------
def test_a_ring_with_a_counter_of_its_own():
    def scenario(compile):
        class Ring:
            def __init__(self, size):
                self.rows, self.at, self.size = weft.zeros(size, 4), 0, size

            @compile
            def push(self, v):
                self.rows[self.at] = v
                self.at = (self.at + 1) % self.size
                return self.rows.mean(0)

        ring = Ring(9)
        for _ in range(40):
            yield ring.push(weft.randn(4)), ring.at

    assert_same(lambda compile: list(scenario(compile)))


def test_keys_and_values_of_one_token_at_a_time():
    def scenario(compile):
        keys, values = weft.zeros(2, 16, 8), weft.zeros(2, 16, 8)
        to_all = weft.nn.Linear(8, 24)

        @compile
        @weft.no_grad()
        def token(x, k):
            q, key, value = to_all(x).chunk(3, -1)
            keys[:, k : k + 1] = key
            values[:, k : k + 1] = value
            visible = weft.arange(16) <= k
            scores = (q @ keys.transpose(1, 2)).masked_fill(~visible, float("-inf"))
            return scores.softmax(-1) @ values

        for k in range(40):
            yield token(weft.randn(2, 1, 8), k % 16), keys.clone()

    assert_same(lambda compile: list(scenario(compile)))


def test_a_table_that_is_learned():
    def scenario(compile):
        q, state = weft.zeros(6, 2), 0

        @compile
        def learn(s, a, r, s1, lr=0.1, gamma=0.9):
            target = r + gamma * q[s1].max()
            q[s, a] += lr * (target - q[s, a])

        for _ in range(80):
            a = int(weft.rand(()) > 0.4)
            after = (state + 1) % 6 if a else 0
            learn(state, a, float(after == 5), after)
            state = after
            yield q.clone(), q._version

    assert_same(lambda compile: list(scenario(compile)))


def test_batches_of_a_table_and_what_is_left_over():
    def scenario(compile):
        rows, labels = weft.randn(39, 4), weft.randn(39, 1)
        model = weft.nn.Linear(4, 1)
        optimizer = weft.optim.Adam(model.parameters(), lr=0.01)

        @compile
        def step(k):
            loss = weft.nn.functional.mse_loss(model(rows[k : k + 8]), labels[k : k + 8])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(6):
            for k in range(0, 39, 8):
                yield step(k), model.weight.detach().clone()

    assert_same(lambda compile: list(scenario(compile)))


def test_columns_of_a_large_table_in_turn():
    def scenario(compile):
        x = weft.zeros(200, 500)

        @compile
        def f(t, v):
            x[:, t : t + 4] = v
            x[t % 200] += 1.0
            return x[:, t].sum()

        for k in range(30):
            yield f(16 * k % 490, weft.randn(200, 4)), x.sum()

    assert_same(lambda compile: list(scenario(compile)))


def test_where_there_is_no_room_for_more_paths(monkeypatch):
    monkeypatch.setattr("weft.runtime.programs.recording.MAX_BRANCHES", 5)

    def scenario(compile):
        x = weft.zeros(7, 4)

        @compile
        def f(i, v):
            x[i] = v
            x[i - 1] += v * 2
            return x[i : i + 2].sum()

        for k in range(30):
            yield f((k * k) % 5, weft.randn(4)), x.clone(), x._version

    assert_same(lambda compile: list(scenario(compile)))


def test_rows_of_a_bank_are_changed_where_they_are():
    """A program would copy all of it: what is changed elsewhere each time is changed between two programs."""

    def scenario(compile):
        bank, w = weft.zeros(2400, 64), weft.randn(64, 64)

        @compile
        def f(i, v):
            h = (v @ w).tanh()
            bank[i] += h
            bank[i, 3:9].mul_(0.5)
            return h.sum()

        for k in range(30):
            yield f(7 * k % 1000, weft.randn(64)), bank[7 * k % 1000].clone(), bank._version

    assert_same(lambda compile: list(scenario(compile)))
