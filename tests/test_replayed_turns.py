"""Calls that go different ways in turn: several models in one step, outcomes of an `if`, results kept or not, in any
order. As without the decorator; and each way is replayed, not recorded again."""

import random
from types import SimpleNamespace

import pytest
from compiled_twin import assert_same, leaf, twin

import weft
from weft import nn
from weft.nn import functional as F
from weft.runtime.record.frame import Frame
from weft.runtime.replay import usual_depart
from weft.runtime.replay.compiled_call import MOST_WAYS, N_TURNS, expected_way, note
from weft.runtime.replay.frame_usual import UsualFrame


def ensemble(n, optimizer=weft.optim.Adam):
    models = [nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)) for _ in range(n)]
    return models, [optimizer(m.parameters(), lr=0.01) for m in models]


def training_step(models, optimizers):
    def step(k, x, y):
        optimizers[k].zero_grad()
        loss = F.mse_loss(models[k](x), y)
        loss.backward()
        optimizers[k].step()
        return loss

    return step


@pytest.fixture
def recorded(monkeypatch):
    """How many calls were run by a Frame."""
    made = []
    begin = Frame.begin
    monkeypatch.setattr(Frame, "begin", lambda self, *a: (made.append(1), begin(self, *a))[1])
    return made


@pytest.mark.parametrize("n", [2, 3, 5])
def test_models_in_turn_are_replayed(recorded, n):
    step = weft.compile(training_step(*ensemble(n)))
    for k in range(5 * n):
        step(k % n, weft.randn(6, 4), weft.randn(6, 1))
    recorded.clear()
    for k in range(5 * n):
        step(k % n, weft.randn(6, 4), weft.randn(6, 1))
    assert recorded == []


@pytest.mark.parametrize("order", ["in turn", "random", "in runs"])
def test_models_in_any_order(order):
    draw = random.Random(0)
    numbers = {
        "in turn": [k % 3 for k in range(36)],
        "random": [draw.randrange(3) for _ in range(48)],
        "in runs": [k // 6 % 3 for k in range(48)],
    }[order]

    def scenario(compile):
        models, optimizers = ensemble(3)
        step, seen = compile(training_step(models, optimizers)), []
        for k in numbers:
            seen.append(step(k, weft.randn(6, 4), weft.randn(6, 1)).detach())
        return [*seen, *(p for m in models for p in m.parameters())]

    assert_same(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_outcomes_in_any_order(seed):
    def scenario(compile):
        draw = random.Random(seed)
        s, w = weft.zeros(3), leaf(3)

        def f(x, a, b):
            y = x * 2
            y.add_(1.0)
            v = y[1:]
            if y.sum() > 0:
                y.mul_(s)
                s.add_(0.5)
            if a:
                z = (y * w).exp()
                if b:
                    s.mul_(0.9)
                    return z.sum(), v
                return z, y
            u = y.tanh()
            if b:
                (u * w).sum().backward()
                return u.detach(), w.grad
            return v, u

        f, seen, kept = compile(f), [], []
        for k in range(60):
            x = weft.randn(3)
            found = f(x, draw.random() < 0.5, draw.random() < 0.5)
            if found[0].requires_grad and draw.random() < 0.5:
                found[0].sum().backward()
            seen += [*found, s.clone(), w.grad]
            if k % 7 == 0:
                kept.append(found)
            if k % 5 == 0:
                w.grad = None
        return [*seen, *kept]

    assert_same(scenario)


def test_outcomes_in_turn_are_replayed(recorded):
    @weft.compile
    def f(x):
        y = x * 2
        return y + 1 if y.sum() > 0 else y - 1

    for k in range(12):
        f(weft.full((3,), -1.0 if k % 2 else 1.0))
    recorded.clear()
    for k in range(12):
        assert f(weft.full((3,), -1.0 if k % 2 else 1.0)).tolist() == ([-3.0] * 3 if k % 2 else [3.0] * 3)
    assert recorded == []


@twin
def test_methods_of_several_objects(compile):
    class Filter:
        def __init__(self, gain):
            self.gain, self.state = gain, weft.zeros(3)

        @compile
        def update(self, z):
            self.state = self.state + self.gain * (z - self.state)
            return self.state

    filters, seen = [Filter(g) for g in (0.1, 0.5, 0.9)], []
    for k in range(30):
        seen.append(filters[k % 3 if k < 20 else 1].update(weft.randn(3)))
    return [*seen, *(f.state for f in filters)]


@twin
def test_training_and_evaluation_in_turn(compile):
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 2))
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def run(x, y):
        if not model.training:
            with weft.no_grad():
                return F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run, seen = compile(run), []
    for k in range(24):
        model.train(k % 3 != 2)
        seen.append(run(weft.randn(5, 4), weft.randn(5, 2)))
    return [*seen, *model.parameters()]


@twin
def test_batches_of_several_sizes(compile):
    model = nn.Linear(4, 2)
    f, seen = compile(lambda x: model(x).square().sum()), []
    for k in range(30):
        loss = f(weft.randn((8, 5, 3)[k % 3], 4))
        loss.backward()
        seen += [loss.detach(), model.weight.grad.clone()]
    return seen


def test_what_is_replayed_is_limited():
    """Objects that are new all the time do not pile up."""
    step = weft.compile(lambda m, x: m(x).sum())
    for _ in range(40):
        model = nn.Linear(3, 2)
        for _ in range(4):
            step(model, weft.randn(2, 3))
    assert len(step.recordings[0].replays) <= 8
    assert len(step.recordings[0].memories) <= 24


@twin
def test_ways_that_part_after_a_change_of_what_is_new_in_every_call(compile):
    # The way that went on with the call did not get the tensor, and failed where it departed in turn.
    given = [None]

    def f(x, k):
        given[0].add_(x)
        y = given[0] * 2
        return (y.cos(), y.sin(), y.exp() + 1)[k]

    f, seen, kept = compile(f), [], []
    for k in [0, 1] * 6 + [0, 1, 2] * 4 + [0, 2, 1] * 4:
        given[0] = weft.full((3,), float(k))
        kept.append(given[0])
        seen += [f(weft.ones(3), k), given[0]]
    return seen


def test_what_is_caught_does_not_end_a_replay():
    def f(x, y):
        found = []
        wrong = (lambda y: x @ y, lambda y: x + y[:2], lambda y: x.sum(3), lambda y: x.reshape(7), lambda y: x + "a")
        for operation in wrong:
            try:
                operation(y)
            except (RuntimeError, IndexError, TypeError) as error:
                found.append(str(error))
            y = y * 2
        return x * 2, y, found

    compiled, x, y = weft.compile(f), weft.ones(4), weft.ones(3)
    expected = f(x, y)
    for _ in range(10):
        result = compiled(x, y)
        assert [v.tolist() for v in result[:2]] == [v.tolist() for v in expected[:2]] and result[2] == expected[2]
    usual = compiled.recordings[0].usual
    assert usual is not None and not usual.departed.value


def micro_batches(compile, n_batches, zero):
    model = nn.Linear(3, 2)
    optimizer, seen = weft.optim.SGD(model.parameters(), lr=0.1), []
    micro = compile(lambda x, y: F.mse_loss(model(x), y).backward())
    for k in range(n_batches):
        micro(weft.randn(5, 3), weft.randn(5, 2))
        if k % 4 == 3:
            optimizer.step()
            optimizer.zero_grad(set_to_none=zero)
        seen.append([(p.detach().clone(), p.grad if p.grad is None else p.grad.clone()) for p in model.parameters()])
    return seen


@pytest.mark.parametrize("zero", (True, False))
def test_gradients_that_grow_over_several_calls(zero):
    assert_same(lambda compile: micro_batches(compile, 25, zero))


def test_calls_in_which_gradients_grow_are_replayed(monkeypatch):
    real, made, functions = usual_depart.Frame, [], []
    monkeypatch.setattr(usual_depart, "Frame", lambda recording: made.append(recording.calls) or real(recording))
    micro_batches(lambda f: functions.append(weft.compile(f)) or functions[-1], 60, True)
    assert all(calls < 30 for calls in made), made
    assert functions[0].recordings[0].calls == 60


def two_losses(x, w, first):
    a, b = (x * w).sum(), (x * w).exp().sum()
    (a if first else b).backward()
    return a.detach()


def two_gradients(x, w, first):
    a, b = (x * w).sum(), (x * w).exp().sum()
    return weft.autograd.grad(a if first else b, w)


def two_changes(x, w, first):
    y = x * 2
    if first:
        return y.add_(1)
    return y.mul_(3)


@pytest.mark.parametrize("function", (two_losses, two_gradients, two_changes))
@pytest.mark.parametrize("every", (2, 3, 5))
def test_ways_that_part_where_gradients_are_asked_for(function, every, recorded):
    def scenario(compile):
        f, w, seen = compile(function), leaf(3), []
        for k in range(12 * every):
            w.grad = None
            seen += [f(weft.randn(3), w, k % every == 0), w.grad]
        return seen

    assert_same(scenario)
    assert len(recorded) < 20


def test_such_ways_go_on_in_each_other(monkeypatch):
    real, made, w = usual_depart.Frame, [], leaf(3)
    monkeypatch.setattr(usual_depart, "Frame", lambda recording: made.append(recording) or real(recording))
    draw = random.Random(1)
    for function in (two_losses, two_gradients, two_changes):
        f = weft.compile(function)
        for k in range(40):
            w.grad = None
            if k == 20:
                made.clear()
            f(weft.randn(3), w, k % 2 == 0 if k < 20 else draw.random() < 0.5)
        assert made == [], function


@pytest.fixture
def departed(monkeypatch):
    """The numbers of calls that did not go the way that was tried first."""
    numbers, depart = [], UsualFrame.depart
    monkeypatch.setattr(
        UsualFrame, "depart", lambda self, **how: numbers.append(self.recording.calls) or depart(self, **how)
    )
    return numbers


_MODELS = [nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)) for _ in range(3)]
_TABLE = {"exp": weft.exp, "tanh": weft.tanh, "square": weft.square}
ARGUMENTS = {
    "a flag": (lambda x, keep: (x if keep else x + 1, x.sum()), (True, False)),
    "None or a tensor": (lambda x, y: x * 2 if y is None else x * y, (None, weft.ones(4))),
    "a text": (lambda x, kind: _TABLE[kind](x) + 1, tuple(_TABLE)),
    "a function": (lambda x, f: f(x) + 1, tuple(_TABLE.values())),
    "a small integer": (lambda x, n: x * 3 if n < 0 else (x * 2).exp() + n, (-1, 0)),
    "a model": (lambda x, model: model(x).detach(), tuple(_MODELS)),
}


@pytest.mark.parametrize("how", ["position", "keyword"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_tell_which_way_a_call_goes(name, how, departed):
    function, given = ARGUMENTS[name]
    f, draw = weft.compile(function, fullgraph=True), random.Random(1)
    keyword = function.__code__.co_varnames[1]
    for k in range(150):
        if k == 110:
            departed.clear()
        x, one = weft.randn(4), draw.choice(given)
        result = f(x, one) if how == "position" else f(x, **{keyword: one})
        expected = function(x, one)
        assert [r.tolist() for r in result] == [r.tolist() for r in expected]
    # Two hashes may be the same.
    assert len(departed) < 8


def test_sizes_in_any_order_are_replayed(recorded, departed):
    w, draw = weft.randn(4, 3), random.Random(2)
    f = weft.compile(lambda x: (x @ w).tanh().sum(0), fullgraph=True)
    batches = [weft.randn(n, 4) for n in (8, 5, 3, 7, 2)]
    for k in range(80):
        if k == 40:
            recorded.clear()
        x = draw.choice(batches)
        assert f(x).tolist() == (x @ w).tanh().sum(0).tolist()
    assert recorded == departed == []


def test_ways_are_forgotten_with_their_recordings():
    """More than there is room for, and models that are gone."""
    f = weft.compile(lambda m, x: m(x).sum().detach())
    for n in range(1, 90):
        model = nn.Linear(3, 2)
        for _ in range(4):
            f(model, weft.ones(n % 80 + 1, 3))
    assert len(f._ways) <= MOST_WAYS
    assert {id(way) for way in f._ways} <= {id(way) for recording in f.recordings for way in recording.replays}


@pytest.mark.parametrize("every", [2, 3, 5, 10, 50])
def test_every_tenth_call_begins_as_what_it_is(monkeypatch, every):
    """A log now and then, averages after every fifth step: neither that call nor the one before it is handed over."""
    handed_over = []
    depart = UsualFrame.depart
    monkeypatch.setattr(UsualFrame, "depart", lambda self, **how: (handed_over.append(1), depart(self, **how))[1])

    def scenario(compile):
        n, total = [0], weft.zeros(3)

        @compile
        def step(x):
            n[0] += 1
            y = (x * 2).tanh()
            if n[0] % every == 0:
                total.add_(y.detach())
            return y.sum()

        for _ in range(6 * every + 20):
            step(weft.randn(3))
        handed_over.clear()
        yield [step(weft.randn(3)) for _ in range(2 * every)]
        yield total

    assert_same(lambda compile: list(scenario(compile)))
    assert handed_over == []


def test_ways_in_no_order_are_no_slower_to_be_expected():
    """What was done after so many calls of one way counts only where it has been so twice."""
    draw = random.Random(1)
    words, wrong = SimpleNamespace(turns=[0] * N_TURNS, history=0, last=0), 0
    for _ in range(2000):
        k = 2 if draw.random() < 0.1 else 1
        wrong += expected_way(words, 0, words.history) != k - 1
        note(words, 0, words.history, k)
    assert wrong < 2000 * 0.22


def test_the_way_that_takes_what_comes_is_found_at_once(departed):
    """What the call has just made is among what it stacks, somewhere else each time: eight ways but for one op."""
    from random import Random

    def scenario(compile):
        rng, buffer = Random(3), [weft.full((3,), 0.1 * k) for k in range(6)]

        @compile
        def f(k):
            new = weft.full((3,), 0.01 * k) * 2
            picked = [*rng.sample(buffer, 4)]
            if k % 3 == 0:
                picked[rng.randrange(4)] = new
            buffer[k % 6] = new
            return weft.stack(picked).tanh().sum(0)

        for k in range(150):
            before = len(departed)
            yield f(k)
            if k > 120:
                yield len(departed) - before <= 1

    assert_same(scenario)


def test_parameters_that_are_others_in_every_call_come_in_natively(monkeypatch):
    in_python = []
    enter = UsualFrame._enter_fresh
    monkeypatch.setattr(UsualFrame, "_enter_fresh", lambda *args: in_python.append(1) or enter(*args))

    def scenario(compile):
        layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(5)])
        f = compile(lambda x, k: layers[k](x).relu().detach())
        for k in range(120):
            before = len(in_python)
            yield f(weft.full((2, 3), 0.1 * k), k % 5)
            if k > 100:
                yield len(in_python) == before

    assert_same(scenario)
