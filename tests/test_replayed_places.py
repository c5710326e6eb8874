"""Compiled calls that read or write elsewhere every time: `x[i] = value`, `x[i : i + 8]`, where `i` is a Python number.
After a few places each of which has a path of its own, one path does for all. As without the decorator.
"""

import pytest
from compiled_twin import assert_same, error_of

import weft
from weft.runtime.record import frame_eager
from weft.runtime.replay import eager_native
from weft.runtime.replay.native import native_code_is_used

N_CALLS = 18


def row(x, i, v):
    x[i] = v
    return x.sum(0)


def column(x, i, v):
    x[:, i % 4] = v.sum()
    return x * 2


def block(x, i, v):
    x[i : i + 2] = v
    x[i + 1, 1:3] = v[:2] * 2
    return x


def element(x, i, v):
    x[i, -1] = 3.5
    x[0, i % 4] = v[0]


def strided(x, i, v):
    x[i % 3 :: 2, ::3] = v[:2]
    return x[0]


def of_the_call(x, i, v):
    y = weft.zeros(7, 4)
    y[i] = v
    return y + x[0, 0]


def read(x, i, v):
    return x[i] * v


def read_block(x, i, v):
    return x[i : i + 2].sum(0) + v, x[i, 2]


def read_and_write(x, i, v):
    x[i] = x[i - 1] * 0.5 + v
    return x


def read_what_was_written(x, i, v):
    x.mul_(0.5)
    return x[i] + v


def history(x, i, v):
    w = v.detach().requires_grad_()
    y = weft.zeros(7, 4)
    y[i] = w * 2
    y.exp().sum().backward()
    return w.grad


def read_of_a_table(x, i, v):
    w = x.detach().requires_grad_()
    (w[i] * v - w[i - 1].sin() * w[i, 2]).sum().backward()
    return w.grad


def read_of_the_call(x, i, v):
    y = x * v
    return y[i].exp() + y[i % 4, i % 3]


def read_and_shown(x, i, v):
    return x[i], x[i] * v, x.t()[i % 4].view(7, 1)


def read_now_and_then(x, i, v):
    y = x[i]
    return y if i % 3 == 1 else y * v


def read_and_changed(x, i, v):
    y = x[i]
    y.mul_(v)
    return y.sum()


def changed_behind(x, i, v):
    y, z = x[i], x[i - 1] * v
    x.add_(1.0)
    return y * v, z


def read_in_the_middle(x, i, v):
    y = x[i]
    return y * v if float(y[0]) > 0 else v


PROGRAMS = [
    row, column, block, element, strided, of_the_call, read, read_block, read_and_write, read_what_was_written, history,
    read_of_a_table, read_of_the_call, read_and_shown, read_now_and_then, read_and_changed, changed_behind,
    read_in_the_middle,
]  # fmt: skip
PLACES = {
    "rising": lambda k: k % 5,
    "in turn": lambda k: (0, 3)[k % 2],
    "negative": lambda k: -2 - k % 4,
    "out of range now and then": lambda k: 9 if k in (6, 13) else k % 5,
    "the same for long": lambda k: k // 6,
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_places_that_change(program, place):
    def scenario(compile):
        f, x, seen = compile(program), weft.randn(7, 4), []
        results = []
        for k in range(N_CALLS):
            seen += [error_of(lambda k=k: results.append(f(x, place(k), weft.randn(4)))), x.clone(), x._version > 0]
        return seen, results

    assert_same(scenario)


@pytest.mark.parametrize("program", PROGRAMS[:8], ids=lambda program: program.__name__)
def test_one_path_does_for_all(program):
    f, x = weft.compile(program), weft.randn(40, 4)
    for k in range(30):
        f(x, k % 7, weft.randn(4))
    assert f.recordings[0].n_branches < 14
    assert f.recordings[0].not_replayed is None and f.recordings[0].replays


@pytest.mark.parametrize("program", [read, read_of_a_table, read_of_the_call], ids=lambda program: program.__name__)
def test_a_part_at_any_place_is_one_program(program):
    f, x = weft.compile(program, fullgraph=True), weft.randn(40, 4)
    for k in range(80):
        f(x, k % 37, weft.randn(4))
    (recording,) = f.recordings
    followed = recording.n_followed
    for k in range(37):
        f(x, k, weft.randn(4))
    assert f.breaks == () and recording.n_branches < 14 and recording.n_followed == followed


@pytest.mark.parametrize("order", [1, 2])
def test_backward_outside_of_what_was_read_at_changing_places(order):
    def scenario(compile):
        w, x = weft.randn(7, 4, requires_grad=True), weft.randn(9, 4)
        f = compile(lambda i, v: ((w[i] * v).sin() * w[i - 1] * x[i]).sum())
        for k in range(24):
            loss = f(k % 5, weft.randn(4))
            (first,) = weft.autograd.grad(loss, w, create_graph=order == 2)
            yield loss, first, [node.name() for node, _ in loss.grad_fn.next_functions]
            if order == 2:
                yield weft.autograd.grad(first.square().sum(), w)

    assert_observed_same(scenario)


def test_places_that_change_after_a_backward_has_saved_them():
    """x[i] was saved as a view of x, which is changed before the backward: an error as in eager mode."""

    def scenario(compile):
        w, x = weft.randn(4, requires_grad=True), weft.randn(9, 4)
        f = compile(lambda i: (x[i] * w).sum())
        for k in range(24):
            loss = f(k % 5)
            if k % 4 == 3:
                x.add_(1.0)
            yield error_of(loss.backward), None if w.grad is None else w.grad.clone()

    assert_observed_same(scenario)


def assert_observed_same(scenario):
    assert_same(lambda compile: list(scenario(compile)))


def test_explain_tells_where_parts_are_taken():
    f, x = weft.compile(read_block), weft.randn(7, 4)
    for k in range(14):
        f(x, k % 5, x[0])
    text = f.explain()
    assert "select: parts of a tensor from outside are taken here at other places than before" in text
    assert f"test_replayed_places.py:{read_block.__code__.co_firstlineno + 1}:" in text
    assert "take the part before" in text


def test_the_whole_graph_is_refused_no_path():
    f, x = weft.compile(read, fullgraph=True), weft.randn(40, 4)
    for k in range(8):
        assert f(x, k, x[0]).tolist() == (x[k] * x[0]).tolist()
    assert f.breaks == ()


def test_what_runs_in_the_middle_is_native_code_too():
    """Parts that are large are no copies."""
    rows, labels = weft.randn(4 * 1040, 16), weft.randn(4 * 1040, 17)
    model = weft.nn.Linear(16, 17)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.01)

    def step(k):
        loss = weft.nn.functional.mse_loss(model(rows[k : k + 1040]), labels[k : k + 1040])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def calls(f, n):
        return [f(k % 4 * 1040).item() for k in range(n)]

    weights = [p.detach().clone() for p in model.parameters()]
    expected = calls(step, 96)
    with weft.no_grad():
        for p, before in zip(model.parameters(), weights):
            p.copy_(before)
    f = weft.compile(step)
    assert calls(f, 80) == expected[:80]
    before = eager_native.taken("calls_taken")
    assert calls(f, 16) == expected[80:]
    n_slices = eager_native.taken("calls_taken") - before
    assert n_slices >= 32 if native_code_is_used() else n_slices == 0


def test_places_that_change_where_there_is_no_room_for_more_paths(monkeypatch):
    """What runs eagerly then is a view, not a copy: changes of it are changes of the tensor."""
    monkeypatch.setattr(frame_eager, "FEW", 2)

    def scenario(compile):
        w, x, y, seen = weft.randn(4, requires_grad=True), weft.zeros(3, 4), weft.randn(6, 4), []

        @compile
        def step(i):
            seen.append(float(w[i % 4]))
            seen.append(y[i % 6].sum().item())
            x[i % 3].copy_(w.detach() + i)

        for i in range(1, 41):
            step(i)
            yield x.clone(), x._version, list(seen)

    assert_observed_same(scenario)
