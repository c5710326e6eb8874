"""Small programs as strangers write them, of which calls go different ways or ask for odd things. As without the
decorator; and calls like the ones before are replayed from their first op to their last."""

import random

import pytest
from compiled_twin import assert_same, leaf, twin

import weft
from weft import nn
from weft.runtime.record.frame import Frame
from weft.runtime.replay import usual_siblings


@pytest.fixture
def handed_over(monkeypatch):
    """What was done by a Frame, and what one UsualFrame has left to another."""
    made = []
    begin, take_over = Frame.begin, usual_siblings._take_over
    monkeypatch.setattr(Frame, "begin", lambda self, *a: (made.append("frame"), begin(self, *a))[1])
    monkeypatch.setattr(usual_siblings, "_take_over", lambda *a: (made.append("sibling"), take_over(*a))[1])
    return made


def steady(call, handed_over, n=40):
    """What calls leave to other frames once there have been some."""
    for _ in range(n):
        call()
    handed_over.clear()
    for _ in range(n):
        call()
    return handed_over


def stepped(function):
    """A call of the function with how often it was called."""
    count = [0]

    def call():
        count[0] += 1
        return function(count[0])

    return call


def test_a_flag_tells_which_way_a_call_goes(handed_over):
    draw = random.Random(2)
    f = weft.compile(lambda x, training=True, mode=None: (x * 2 if training else x + 1, x.exp() if mode else x))
    x = weft.randn(3)

    def call(_):
        f(x, training=draw.random() < 0.5, mode=draw.choice(["a", None]))

    assert len(steady(stepped(call), handed_over, 120)) < 6


@pytest.mark.parametrize("ways", ["001", "0012", "00102", "0011"])
def test_ways_that_come_again_in_the_same_order(handed_over, ways):
    f = weft.compile(lambda x, which: (x.exp(), x * 2, x - 1)[which[0]])
    x = weft.randn(3)
    assert steady(stepped(lambda k: f(x, [int(ways[k % len(ways)])])), handed_over) == []


def test_training_two_steps_of_three(handed_over):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.2))
    f, x = weft.compile(lambda x: model(x).detach()), weft.randn(6, 3)

    def call(k):
        model.train(k % 3 != 0)
        f(x)

    assert steady(stepped(call), handed_over) == []


@pytest.mark.parametrize("seed", range(3))
def test_flags_and_outcomes_in_any_order(seed):
    def scenario(compile):
        draw = random.Random(seed)
        w, total = leaf(3), weft.zeros(3)

        def f(x, k, norm=False, how="sum", scale=None):
            if norm:
                x = x / (x.abs().sum() + 1)
            if x.sum() > 0:
                total.add_(x)
            y = x * w if scale is None else x * w * scale
            return getattr(y, how)() + k

        f, seen = compile(f), []
        for k in range(80):
            found = f(
                weft.randn(3),
                k % 20,
                norm=draw.random() < 0.5,
                how=draw.choice(["sum", "mean", "max"]),
                scale=draw.choice([None, 0.5, k / 7]),
            )
            if draw.random() < 0.3:
                found.backward()
            seen += [found.detach(), total.clone(), w.grad]
        return seen

    assert_same(scenario)


def test_frames_that_are_gone_are_not_expected():
    """Of ways that calls no longer go nothing is kept."""
    step = weft.compile(lambda m, x, flag: m(x).sum() if flag else m(x).mean())
    for k in range(30):
        model = nn.Linear(3, 2)
        for j in range(8):
            step(model, weft.randn(2, 3), (j + k) % 3 == 0)
    assert len(step.recordings[0].replays) <= 8


def test_gradients_are_detached_in_place_and_set_to_zero(handed_over):
    model, x = nn.Linear(3, 2), weft.randn(4, 3)

    @weft.compile
    def step(x):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.detach_()
                p.grad.zero_()
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    assert steady(lambda: step(x), handed_over) == []


@twin
def test_detach_in_place_of_what_has_a_history(compile):
    w = leaf(3)

    @compile
    def f(x):
        y = x * w
        y.detach_()
        z = x.detach_() + 1
        return y, z, y.requires_grad, (y * w).sum()

    seen = []
    for _ in range(6):
        y, z, requires, loss = f(weft.randn(3))
        loss.backward()
        seen += [y, z, requires, w.grad.clone()]
    return seen


# --- parts at places that change --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "places", [lambda k: (k % 5, 3 * k % 6), lambda k: (k % 3, k % 2), lambda k: (k * k % 7, k % 5)]
)
def test_several_parts_at_places_that_change(handed_over, places):
    table = weft.randn(8, 3)

    def parts(i, j):
        return table[i] + table[j : j + 2].sum(0), table[i, 1], table[-i - 1]

    f = weft.compile(parts)

    def call(k):
        i, j = places(k)
        for a, b in zip(f(i, j), parts(i, j), strict=True):
            assert a.tolist() == b.tolist()

    assert "frame" not in steady(stepped(call), handed_over, 60)


def test_rows_of_a_table_that_the_call_uses_too(handed_over):
    table = weft.randn(6, 3)
    f = weft.compile(lambda row, x: (row * x + table.sum(0)).tanh())

    def call(k):
        assert f(table[k % 6], table[-1]).tolist() == (table[k % 6] * table[-1] + table.sum(0)).tanh().tolist()

    assert steady(stepped(call), handed_over) == []


@twin
def test_rows_of_a_table_that_the_call_changes(compile):
    table = weft.randn(6, 3)

    @compile
    def f(row, x):
        y = row * 2
        table.mul_(0.5)
        table[1] = x
        return y + row, row.clone()

    return [x for k in range(14) for x in (*f(table[k % 6], weft.randn(3)), table.clone())]


@twin
def test_rows_of_a_parameter_that_the_call_trains(compile):
    w = leaf(6, 3)

    @compile
    def f(row, x):
        (w * x).sum().backward()
        with weft.no_grad():
            w.sub_(0.1 * w.grad)
        return row * 2

    return [x for k in range(14) for x in (f(w.detach()[k % 6], weft.randn(3)), w.detach().clone(), w.grad.clone())]


@twin
def test_rows_written_in_turn(compile):
    a, b = weft.zeros(5, 3), weft.zeros(4, 5, 2)

    @compile
    def f(i, x):
        a[i] = x
        b[:, i] = x[:2]
        b[i % 4] = x[0]
        b[1:3, -1] = x[1:]
        return a.sum(0), b.mean(1)

    return [x for k in range(16) for x in (*f(k % 5, weft.randn(3)), a.clone(), b.clone())]
