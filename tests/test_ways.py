"""Calls that cannot be replayed go the way that is quicker: followed step by step, or eagerly, with the same bits."""

import pytest

import weft
from weft import trials
from weft.runtime.code import made_here
from weft.runtime.replay.frame_usual import UsualFrame
from weft.ways import AFTER, AFTER_LONG, AFTER_NEW, WARMING, Ways

WEIGHTS = weft.randn(4, 4, dtype=weft.float64)


def flow(x):
    x = x.detach().requires_grad_()
    value = weft.linalg.matrix_exp(WEIGHTS * x[0] + x[1]).sum()
    return value.detach(), weft.autograd.grad(value, x)[0]


def test_the_bits_are_those_of_eager_mode_whichever_way_it_goes():
    compiled = weft.compile(flow)
    for k in range(4 * AFTER):
        x = weft.tensor([1.0, k / 8], dtype=weft.float64)
        assert [y.tolist() for y in compiled(x)] == [y.tolist() for y in flow(x)]
    assert compiled.recordings[0].ways.is_eager is not None
    text = compiled.explain()
    assert "calls are not replayed" in text and ("followed step by step" in text)


def test_who_wants_no_eager_calls_gets_none():
    compiled = weft.compile(lambda x: weft.linalg.cholesky(x) * 2, fullgraph=True)
    for _ in range(2 * AFTER):
        assert compiled(weft.eye(2)).tolist() == [[2, 0], [0, 2]]
    assert compiled.recordings[0].ways is None


def test_calls_that_are_replayed_are_not_measured():
    compiled = weft.compile(lambda x: x.exp() * 2)
    for _ in range(2 * AFTER):
        compiled(weft.ones(3))
    assert compiled.recordings[0].replays and compiled.recordings[0].ways is None


def test_calls_that_take_long_are_asked_about_sooner(monkeypatch):
    # As if a call took more than a second, of which eager mode would have taken little: 16 of those are too many.
    monkeypatch.setattr("weft.ways.LONG", 0.0)
    compiled = weft.compile(flow)
    for k in range(AFTER_LONG + 1):
        x = weft.tensor([1.0, k / 8], dtype=weft.float64)
        assert [y.tolist() for y in compiled(x)] == [y.tolist() for y in flow(x)]
        assert (compiled.recordings[0].ways is not None) == (k >= AFTER_LONG)


def taken(ways, n, eager, followed, clock):
    """Which of the next n calls go eagerly, if calls take so many seconds."""
    found = []
    for _ in range(n):
        is_eager = ways.call_eagerly()
        seconds = eager if is_eager else followed
        ways.run(ways.eager if is_eager else ways.followed, clock.wait, (seconds,))
        found.append(is_eager)
    return found


class Clock:
    now = 0.0

    def wait(self, seconds):
        self.now += seconds

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(weft.ways, "time", made)
    return made


def test_both_ways_are_tried_in_turn_and_the_quicker_one_is_taken(clock):
    ways = Ways()
    assert taken(ways, 10 + WARMING, 1e-4, 5e-4, clock) == [False, *[True] * WARMING, True, *[False, True] * 4]
    assert ways.is_eager and ways.described() == "100 us against 500 us followed step by step"
    assert all(taken(ways, 60, 1e-4, 5e-4, clock))


def test_after_a_while_they_are_tried_again(clock):
    ways = Ways()
    taken(ways, 10 + WARMING, 1e-4, 5e-4, clock)
    later = taken(ways, 30_000, 1e-4, 1e-5, clock)
    assert later[0] and not later[-1]
    assert 0 < sum(later[1100:]) < 100  # tried more and more seldom


@pytest.mark.parametrize("eager, followed", [(1e-5, 1e-3), (1e-3, 1e-5)])
def test_trials_cost_little_of_what_calls_take(clock, eager, followed):
    ways, slower = Ways(), max(eager, followed)
    taken(ways, 30_000, eager, followed, clock)
    lost = sum(is_eager is (eager == slower) for is_eager in taken(ways, 30_000, eager, followed, clock))
    assert lost * slower < 0.05 * 30_000 * min(eager, followed)


def test_slow_eager_calls_are_not_tried_for_long(clock):
    ways = Ways()
    assert sum(taken(ways, 40, 30.0, 1.0, clock)) == 1


def test_what_the_first_eager_calls_take_to_get_ready_does_not_count(clock):
    ways = Ways()
    assert taken(ways, 1, 0.4, 0.01, clock) == [False]
    for eager in (0.4, 0.1, 0.03, 0.001):  # kernels are loaded, then plans are made
        assert taken(ways, 1, eager, 0.01, clock) == [True] and ways.is_eager is None
    taken(ways, 10, 0.001, 0.01, clock)
    assert ways.is_eager and all(taken(ways, 10, 0.001, 0.01, clock))


def test_what_is_compiled_for_all_eager_calls_to_come_is_no_part_of_them(clock, monkeypatch):
    monkeypatch.setattr(made_here, "seconds", {})

    def compiles_once():
        clock.wait(30.0 if not made_here.seconds else 0.001)
        made_here.seconds["kernels"] = 29.999

    ways = Ways(1.0, 1.0)
    for _ in range(WARMING + 1):
        assert ways.call_eagerly()
        ways.run(ways.eager, compiles_once, ())
    assert ways.is_eager and max(ways.warming) < 0.01


def test_calls_that_need_new_programs_each_time_end_up_in_eager_mode(monkeypatch):
    """No two are alike, so that nothing is known that stands against replays; each of them takes long."""
    monkeypatch.setattr("weft.ways.LONG", 1e-9)
    monkeypatch.setattr("weft.ways._CLEARLY", 0.0)
    monkeypatch.setattr("weft.ways._SECONDS", 0.0)

    def search(x, n):
        for _ in range(n):
            x = (x * 0.5).tanh()
            if x.sum().item() > 100:
                break
        return x

    compiled, x = weft.compile(search), weft.randn(4)
    for k in range(12):
        assert compiled(x, k + 1).tolist() == search(x, k + 1).tolist()
    (recording,) = compiled.recordings
    assert recording.calls <= AFTER_NEW + 2 and recording.ways is not None


def test_programs_of_one_call_that_take_too_long_are_the_last_ones(monkeypatch):
    monkeypatch.setattr("weft.runtime.record.frame_flush.MOST_SECONDS_ANEW", 0.0)

    def search(x):
        seen = []
        for k in range(6):
            x = (x * (k + 1)).tanh()
            seen.append(x.sum().item())
        return x, seen

    compiled, x = weft.compile(search), weft.randn(4)
    for _ in range(4):
        (got, seen), (expected, also) = compiled(x), search(x)
        assert got.tolist() == expected.tolist() and seen == also
    (recording,) = compiled.recordings
    assert recording.compiled_long and "took more than 0 s to compile" in compiled.explain()


def test_an_error_is_no_measurement(clock):
    ways = Ways()
    with pytest.raises(ZeroDivisionError):
        ways.run(ways.followed, lambda: 1 / 0, ())
    assert ways.followed == []


def test_when_tried_again_one_call_that_takes_much_longer_is_enough():
    ways = Ways()

    def went(followed, eager):
        """How many calls were followed until it was decided."""
        n = 0
        while ways.is_eager is None:
            is_eager = ways.call_eagerly()
            ways._has_taken(ways.eager if is_eager else ways.followed, eager if is_eager else followed)
            n += not is_eager
        return n

    assert went(followed=1e-3, eager=1e-5) == 5
    for _ in range(2):
        while ways.is_eager is not None:
            assert ways.call_eagerly() or ways.is_eager is None
        assert went(followed=1e-3, eager=1e-5) == 1
        assert ways.is_eager


def test_calls_that_are_followed_far_too_slowly_are_left_at_once(clock):
    ways = Ways()
    assert taken(ways, 30, 0.01, 3.0, clock) == [False, *[True] * 29] and ways.is_eager


def descending(compile, keeps, n=120):
    """A step of a descent; from the middle on somebody watches the memory of the weights. Yields each loss."""
    w, kept, watching = weft.ones(3, requires_grad=True), [], []
    optimizer = weft.optim.SGD([w], lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = (w * x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    for k in range(n):
        yield step(weft.full((3,), 1.0 + k % 5)), kept
        if k == 20 and keeps:
            kept.append(w.detach())
            watching.append(w.watch())


def test_calls_that_always_depart_end_up_in_the_quicker_way(monkeypatch):
    departed, depart = [], UsualFrame.depart
    monkeypatch.setattr(UsualFrame, "depart", lambda self, **how: departed.append(1) or depart(self, **how))
    functions = []
    losses = []
    for loss, kept in descending(lambda f: functions.append(weft.compile(f)) or functions[-1], True):
        losses.append((loss.item(), [x.tolist() for x in kept]))
    assert losses == [(loss.item(), [x.tolist() for x in kept]) for loss, kept in descending(lambda f: f, True)]
    assert 16 <= len(departed) < 24 and functions[0].recordings[0].ways is not None


def test_nothing_departs_for_good_where_calls_are_replayed_in_between():
    f = weft.compile(lambda x, y: (x * 2 if y is None else x @ y if y.ndim == 1 else x + y).exp())
    x = weft.randn(3)
    for k in range(60):
        y = (None, weft.ones(3), weft.ones(1, 3))[k % 3]
        assert f(x, y).tolist() == (x * 2 if y is None else x @ y if y.ndim == 1 else x + y).exp().tolist()
    assert all(recording.replays for recording in f.recordings)


def test_eager_calls_that_are_quicker_are_not_asked_each_time():
    asked, seen = [], []

    class Watched(weft.compiled.CompiledFunction):
        def _call(self, *arguments):
            asked.append(1)
            return super()._call(*arguments)

    f = Watched(lambda x: seen.append(x[0].item()) or x * 2)
    x = weft.arange(3.0)
    f(x)
    (recording,) = f.recordings
    recording.ways = Ways()
    recording.ways.is_eager, recording.ways.n_left, recording.replays = True, 100, []
    asked.clear()
    for _ in range(60):
        assert f(x).tolist() == [0.0, 2.0, 4.0]
    assert len(asked) == 1 and len(seen) == 61

    for _ in range(60):
        f(x)
    # The 100 are over: other ways are tried again.
    assert len(asked) > 1 and len(seen) == 121


def test_the_longer_all_calls_are_eager_ones_the_less_is_asked():
    f = weft.compile(lambda x: x * 2)
    x, long = weft.arange(3.0), 2 * trials._MOST_UNASKED
    f(x)
    (recording,) = f.recordings
    recording.ways = Ways()

    def pauses(n):
        found = []
        for _ in range(n):
            f._n_left.value = 0
            assert f(x).tolist() == [0.0, 2.0, 4.0]
            found.append(f._n_left.value)
        return found

    recording.ways.is_eager, recording.ways.n_left, recording.replays = True, 100 * long, []
    f._unasked = True
    first = trials._UNASKED
    assert pauses(7) == [2 * first, 4 * first, 8 * first, 16 * first, *[32 * first] * 3]
    # One call goes another way: the arguments are looked at sooner again.
    recording.ways.is_eager = False
    f._n_left.value = 0
    assert f(x).tolist() == [0.0, 2.0, 4.0] and not f._unasked
    assert f._n_unasked == first
