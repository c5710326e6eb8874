"""Calls that could be replayed run eagerly where that is quicker; nobody can tell but by the time it takes."""

import gc
import threading

import pytest

import weft
from weft import contest as contest_module
from weft.contest import EAGER, REPLAYED, TRIAL, WARMING, Contest, least_of_eager_calls
from weft.runtime.programs import recording
from weft.runtime.record.closed_again import TIMES_BEFORE
from weft.runtime.state import afterwards

AFTER = 100


@pytest.fixture(autouse=True)
def there_are_trials(monkeypatch, replayed_however_often):
    monkeypatch.setattr(contest_module, "AFTER", AFTER)


def contest_over(eager, replayed, n=None):
    """A Contest after n timed calls that take so many seconds either way."""
    contest, seconds = Contest(), {EAGER: eager, WARMING: eager, REPLAYED: replayed}
    for k in range(n or len(TRIAL)):
        if n and k and contest._n_tried == 0:
            break
        way = EAGER if contest.is_eager else TRIAL[contest._n_tried]
        contest.seconds = contest.seconds or {EAGER: [], REPLAYED: [], WARMING: []}
        contest.took(way, seconds[way])
    return contest


def decided(compiled, is_eager):
    """As if this had been found out for the function."""
    compiled._contest = contest_over(*((1e-6, 2e-6) if is_eager else (2e-6, 1e-6)))
    assert compiled._contest.is_eager is is_eager
    compiled._eagerly.value, compiled._n_left.value = is_eager, 10**9


def test_the_quicker_way_is_taken():
    assert contest_over(1e-6, 2e-6).is_eager
    assert not contest_over(2e-6, 1e-6).is_eager


def test_a_replay_that_is_hardly_slower_is_slower():
    assert contest_over(1.00e-6, 1.01e-6).is_eager and not contest_over(1.01e-6, 1.00e-6).is_eager


def test_a_call_that_had_to_wait_decides_nothing():
    contest = Contest()
    contest.way(replayed_frame())
    for k, way in enumerate(TRIAL):
        contest.took(way, (1e-6 if way is EAGER else 2e-6) + (5e-6 if k % 12 == 5 else 0))
    assert contest.is_eager


def test_one_eager_call_that_had_to_wait_does_not_end_a_trial():
    contest = Contest()
    contest.way(replayed_frame())
    for k, way in enumerate(TRIAL):
        contest.took(way, 1e-3 if k == TRIAL.index(EAGER) else 1e-6 if way is EAGER else 2e-6)
        if contest._n_tried == 0:
            break
    assert contest.is_eager


def test_long_calls_and_lost_trials_are_not_tried_to_the_end():
    assert contest_over(1e-6, 1.0, n=40).is_eager and not contest_over(1.0, 0.4, n=12).is_eager
    assert contest_over(0.2, 0.3, n=12).is_eager and not contest_over(0.295, 0.3, n=12).is_eager
    assert len(contest_over(30.0, 1e-6, n=TRIAL.index(WARMING) + 1).seconds[WARMING]) == 1
    n = TRIAL.index(EAGER) + 12
    assert contest_over(1e-4, 1e-6, n=n - 1)._n_tried == n - 1
    assert contest_over(1e-4, 1e-6, n=n)._n_tried == 0


def pauses_between(replayed, eager):
    """How many calls come before the second trial, the third and the fourth, if calls take so many seconds."""
    pauses, contest = [], Contest()
    for _ in range(3):
        contest.way(replayed_frame())
        for way in TRIAL:
            left = contest.took(way, replayed if way is REPLAYED else eager)
            if contest._n_tried == 0:
                break
        pauses.append(contest.pause)
        assert contest.is_eager or left == contest.pause
        contest.is_eager = False
    return pauses


def test_trials_become_ever_more_seldom():
    assert pauses_between(2.0e-6, 2.05e-6) == [4 * AFTER, 16 * AFTER, 64 * AFTER]


@pytest.mark.parametrize("replayed, eager", [(5e-6, 1e-6), (400e-6, 9e-6)])
def test_trials_cost_little_of_what_calls_take(replayed, eager):
    for pause in pauses_between(replayed, eager):
        assert pause * min(replayed, eager) > 30 * 12 * abs(replayed - eager)


def test_a_trial_that_replays_lost_before_ends_as_soon_as_they_lose_again():
    contest = contest_over(2e-6, 90e-6)
    assert contest.is_eager and contest.described() == "2 us against 90 us replayed"
    contest._n_left = 0
    assert contest.took(EAGER, 2e-6) == 0 and not contest.is_eager
    n = 0
    while not contest.is_eager:
        assert contest.way(replayed_frame()) is REPLAYED
        contest.took(REPLAYED, 90e-6)
        n += 1
    assert n < 7 and contest.described() == "2 us against 90 us replayed"


def test_replays_that_take_long_for_once_do_not_win_against_eager_calls_that_won_before():
    contest = contest_over(20e-6, 90e-6)
    contest._n_left = 0
    assert contest.took(EAGER, 20e-6) == 0 and not contest.is_eager
    for _ in range(len(TRIAL)):
        way = contest.way(replayed_frame())
        contest.took(way, 110e-6 if way is REPLAYED else 20e-6)
        if contest._n_tried == 0:
            break
    assert contest.is_eager


def test_eager_calls_that_become_quicker_later_are_known_to_be():
    contest = contest_over(50e-6, 90e-6)
    before, contest._n_left = contest.look_after, 10**6
    for _ in range(40):
        contest.took(EAGER, 2e-6)
    assert contest.described() == "2 us against 90 us replayed" and contest.look_after > before


def test_what_has_changed_is_tried_to_the_end():
    contest = contest_over(2e-6, 90e-6)
    for _ in range(2):
        contest.took(EAGER, 200e-6)
    assert not contest.is_eager
    ways = []
    while not contest.is_eager and len(ways) < len(TRIAL):
        ways.append(contest.way(None))
        contest.took(ways[-1], 90e-6 if ways[-1] is REPLAYED else 200e-6)
        if contest._n_tried == 0:
            break
    assert ways == list(TRIAL) and not contest.is_eager


def test_eager_calls_that_take_longer_than_in_the_trial_are_tried_again():
    contest = contest_over(1e-6, 2e-6)
    assert contest.took(EAGER, 9e-6) and contest.took(EAGER, 1e-6) and contest.took(EAGER, 9e-6)
    assert contest.is_eager
    assert contest.took(EAGER, 9e-6) == 0 and not contest.is_eager


def test_eager_calls_are_timed_the_more_seldom_the_shorter_they_are(monkeypatch):
    monkeypatch.setattr(contest_module, "AFTER", 10_000)
    pauses = [contest_over(eager, 2 * eager).took(EAGER, eager) for eager in (1e-9, 1e-6, 4e-6, 50e-6)]
    assert pauses == sorted(pauses, reverse=True) and len(set(pauses)) == 4
    for n, eager in zip(pauses, (1e-9, 1e-6, 4e-6)):
        assert n * eager < 2.1e-3


def replayed_frame():
    compiled = weft.compile(lambda x: x.exp() * 2)
    for _ in range(5):
        compiled(weft.ones(3))
    return compiled._ways[-1]


def test_calls_that_are_quicker_than_their_steps_are_not_tried_to_the_end():
    w = weft.ones(3, requires_grad=True)

    @weft.compile
    def step(x):
        loss = (x * w).sum()
        loss.backward()
        w.grad = None
        return loss.detach()

    many = weft.compile(lambda x: sum((x * k for k in range(20)), x))
    for _ in range(6):
        for function in (step, many):
            function(weft.ones(3))
    least = [least_of_eager_calls(frame) for frame in (replayed_frame(), step._ways[-1], many._ways[-1])]
    (few, _), (back, _), (more, after) = least
    assert 0 < few < back < more < 20e-6 and more < after < 60e-6

    def n_tried(seconds, seconds_after=0.0):
        contest = Contest()
        for n in range(1, len(TRIAL)):
            contest.took(contest.way(many._ways[-1]), seconds, seconds_after)
            if not contest.is_going_on():
                return n
        return None

    assert n_tried(0.9 * more) == TRIAL.index(WARMING) < TRIAL.index(EAGER) and n_tried(1.1 * more) is None
    assert n_tried(0.5 * more, 0.5 * after) == TRIAL.index(WARMING) and n_tried(more, 1.1 * after) is None


@pytest.mark.parametrize("is_eager", [False, True])
def test_the_bits_are_the_same_either_way(is_eager):
    def flow(x, scale, *, parts):
        y = weft.exp(x) * scale
        parts["last"] = y.tanh() + parts["first"]
        return parts["last"], y[1:]

    compiled, x = weft.compile(flow), weft.randn(3)
    for k in range(12):
        one, other = {"first": x.sin()}, {"first": x.sin()}
        got, expected = compiled(x, k, parts=one), flow(x, k, parts=other)
        assert [y.tolist() for y in (*got, one["last"])] == [y.tolist() for y in (*expected, other["last"])]
        if k == 5:
            decided(compiled, is_eager)


def test_explain_says_so():
    compiled = weft.compile(lambda x: x + 1)
    for _ in range(5):
        compiled(weft.ones(2))
    assert "run eagerly" not in compiled.explain()
    decided(compiled, is_eager=True)
    assert "calls run eagerly, which was quicker: 1 us against 2 us replayed" in compiled.explain()


def test_calls_are_timed_after_a_while_and_decided_for_good():
    compiled = weft.compile(lambda x: x + 1)
    for k in range(AFTER + 1 + len(TRIAL)):  # one is looked into before
        assert compiled(weft.full((2,), float(k))).tolist() == [k + 1.0] * 2
    assert compiled._contest.seconds and compiled._n_left.value > 0


def test_eager_calls_go_on_unasked_for_as_long_as_was_found_to_be_right():
    compiled, x = weft.compile(lambda x: x + 1), weft.ones(2)
    for _ in range(5):
        compiled(x)
    decided(compiled, is_eager=True)
    compiled._n_left.value, contest = 0, compiled._contest
    compiled(x)
    # No call is looked into meanwhile, which the first ones of a function are.
    assert contest.is_eager and compiled._n_left.value == contest.look_after > 2 * compiled._look_after


def differentiated(compiled, x, n):
    """Calls that are differentiated after their end, and gradients that are asked for besides."""
    found = []
    for k in range(n):
        y = compiled(x)["y"][0]
        if k % 2:
            y.sum().backward()
        else:
            found += weft.autograd.grad(y, x, weft.full((2,), k + 1.0))
        found.append(x.grad)
        x.grad = None
    return found


@pytest.mark.parametrize("is_eager", [False, True])
def test_calls_whose_results_are_differentiated_are_tried_too(monkeypatch, is_eager):
    """They stayed replayed, however slow that was: nobody knew what backward would take."""
    monkeypatch.setattr(Contest, "typical", lambda self, way: 1e3 if (way is EAGER) is is_eager else 2e3)

    def flow(x):
        y = x * 2
        return {"y": [y * 3 if y.sum().item() > 0 else y]}

    x, compiled = weft.ones(2, requires_grad=True), weft.compile(flow)
    n = AFTER + 3 * len(TRIAL)
    assert str(differentiated(compiled, x, n)) == str(differentiated(flow, x, n))
    assert compiled._contest.seconds[EAGER] and compiled._contest.has_more
    assert compiled._contest.is_eager is is_eager
    assert ("us replayed, with what is done with their results" in compiled.explain()) is is_eager


def test_backward_afterwards_a_timed_call_are_part_of_what_it_takes(monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr(afterwards, "perf_counter", lambda: next(clock))
    x, compiled = weft.ones(2, requires_grad=True), weft.compile(lambda x: {"y": [x * 2]})
    differentiated(compiled, x, 5)
    compiled._n_besides = 0
    while not afterwards.listeners:  # the first one is looked into, where there is native code
        compiled._n_left.value = 0
        differentiated(compiled, x, 1)
    for k in range(1, 3):
        (x * 2).sum().backward()  # between the calls, as it would be between eager ones
        differentiated(compiled, x, 1)
        assert len(compiled._contest.seconds[REPLAYED]) == k and len(afterwards.listeners) == 1
    assert [int(seconds) for seconds in compiled._contest.seconds[REPLAYED]] == [2, 2]
    del compiled
    gc.collect()
    assert not afterwards.listeners


def test_a_pass_inside_of_a_pass_is_part_of_it_and_one_of_another_thread_is_not(monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr(afterwards, "perf_counter", lambda: next(clock))
    x, within = weft.ones(2, requires_grad=True), []

    def differentiate():
        y, other = x * 2, (x * x).sum()
        y.register_hook(lambda g: within.append(weft.autograd.grad(other, x)))
        y.sum().backward()

    passes = afterwards.Afterwards()
    thread = threading.Thread(target=differentiate)
    thread.start()
    thread.join()
    differentiate()
    with pytest.raises(RuntimeError, match="does not require grad"):
        weft.ones(2).backward(weft.ones(2))
    assert len(within) == 2 and passes.end() == 2.0 and not afterwards.listeners
    differentiate()
    assert passes.seconds == 2.0


def test_an_error_is_no_measurement():
    fails = []

    def flow(x):
        if fails:
            raise KeyError("wrong")
        return x + 1

    compiled = weft.compile(flow)
    for _ in range(5):
        compiled(weft.ones(2))
    compiled._n_besides = 0
    while compiled._contest._n_tried == 0:  # the first one is looked into, where there is native code
        compiled._n_left.value = 0
        compiled(weft.ones(2))
    assert compiled._contest._n_tried == 1
    fails.append(True)
    for _ in range(3):
        with pytest.raises(KeyError, match="wrong"):
            compiled(weft.ones(2))
    assert compiled._contest._n_tried == 1
    fails.clear()
    assert compiled(weft.ones(2)).tolist() == [2, 2]
    assert compiled._contest._n_tried == 2


def test_a_call_that_comes_when_the_last_one_of_a_trial_has_just_been_timed():
    compiled = weft.compile(lambda x: x * 3)
    for _ in range(6):
        compiled(weft.ones(2))
    contest, ended = compiled._contest, []

    class Ending(Contest):
        __slots__ = ()

        def end(self, is_eager):
            compiled._n_left.value = 0
            ended.append(compiled(weft.ones(2)).tolist())
            return super().end(is_eager)

    contest = compiled._contest = Ending()
    compiled._n_besides = 0
    for _ in range(4 * len(TRIAL)):
        compiled._n_left.value = 0
        assert compiled(weft.ones(2)).tolist() == [3, 3]
        if ended:
            break
    assert ended == [[3, 3]] and not contest.is_going_on()


def test_in_a_compiled_call_nothing_is_timed():
    inner = weft.compile(lambda x: x * 3)
    for _ in range(5):
        inner(weft.ones(2))
    inner._n_left.value = 0
    outer = weft.compile(lambda x: inner(x) + 1)
    for _ in range(5):
        assert outer(weft.ones(2)).tolist() == [4, 4]
    assert inner._contest._n_tried == 0


def test_who_wants_no_eager_calls_gets_none():
    compiled = weft.compile(lambda x: x + 1, fullgraph=True)
    for _ in range(AFTER + len(TRIAL)):
        compiled(weft.ones(2))
    assert not compiled._contest.seconds and compiled.recordings[0].calls == AFTER + len(TRIAL)


def penalised(decorate, n):
    """Losses of calls whose gradients, and what comes of these, are differentiated in one pass after the call."""
    weft.manual_seed(3)
    layers = [weft.nn.Linear(3, 5), *[weft.nn.Tanh(), weft.nn.Linear(5, 5)] * 3, weft.nn.Tanh(), weft.nn.Linear(5, 1)]
    model = weft.nn.Sequential(*layers)
    critic, losses = decorate(model), []
    for _ in range(n):
        x = weft.randn(4, 3, requires_grad=True)
        found = critic(x)
        (slope,) = weft.autograd.grad(found.sum(), x, create_graph=True)
        loss = found.mean() + (slope.norm(dim=1) - 1).square().mean()
        loss.backward()
        losses += [loss.item(), *(p.grad.sum().item() for p in model.parameters())]
        model.zero_grad()
    return losses, critic


def test_calls_that_would_be_run_again_for_their_nodes_are_eager_ones():
    n = recording.MOST_OPENED + AFTER // 2
    losses, critic = penalised(weft.compile, n)
    assert losses == penalised(lambda f: f, n)[0]
    assert critic.recordings[0].calls < n - AFTER // 4
    assert "for which each had to be run again" in critic.explain()


def test_after_a_while_they_are_tried_once_more(monkeypatch):
    monkeypatch.setattr(contest_module, "AFTER", 20)
    _, critic = penalised(weft.compile, 30 + recording.MOST_OPENED)
    x, calls = weft.randn(4, 3), sum(one.calls for one in critic.recordings)
    results = [critic(x) for _ in range(40)]
    assert sum(one.calls for one in critic.recordings) > calls + 20 and all((r == results[0]).all() for r in results)
    assert "for which each had to be run again" not in critic.explain()


def differentiated_twice(decorate, function, n):
    w, seen = weft.linspace(0.1, 1, 4).requires_grad_(), []
    f = decorate(function)
    for k in range(n):
        x = weft.full((4,), k + 1.0, requires_grad=True)
        (g,) = weft.autograd.grad(f(x, w), x, create_graph=True)
        w.grad = None
        g.square().sum().backward()
        seen += [*g.tolist(), *w.grad.tolist(), *x.grad.tolist()]
    return seen, f


def short(x, w):
    return (w * x).tanh().sum()


@pytest.mark.parametrize("fullgraph", [False, True])
def test_gradients_of_gradients_of_few_steps_are_found_by_programs_too(fullgraph):
    n = TIMES_BEFORE + 20
    seen, f = differentiated_twice(weft.compile(fullgraph=fullgraph), short, n)
    assert seen == differentiated_twice(lambda f: f, short, n)[0]
    assert f.recordings[0].calls == n and "run eagerly" not in f.explain()


def test_what_goes_through_python_on_its_way_back_may_be_quicker_eagerly():
    class Rounded(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g

    w = weft.randn(4, requires_grad=True)

    @weft.compile
    def step(x):
        w.grad = None
        (Rounded.apply(w * 8) * x).sum().backward()

    for _ in range(8):
        step(weft.randn(4))
    assert least_of_eager_calls(step.recordings[0].usual)[0] > 0


@pytest.mark.parametrize("loss", [lambda y: y.square().mean(), lambda y: y.sum() * 2, lambda y: y.logsumexp(1).sum()])
def test_a_loss_whose_backward_was_in_the_call_has_no_gradients_to_come(loss):
    """Steps return it as it is: then eager calls would never be tried, however slow the others are."""
    model, x = weft.nn.Linear(3, 2), weft.randn(4, 3)
    for _ in range(40):
        value = loss(model(x))
        assert contest_module.has_history(value) and contest_module.has_history({"loss": [value]})
        value.backward()
        assert not contest_module.has_history((value, x))
    value = loss(model(x))
    value.backward(retain_graph=True)
    assert contest_module.has_history(value)
    assert contest_module.has_history(model.weight)
