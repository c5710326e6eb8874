"""Compiled functions whose calls go many ways run eagerly, where the time it takes to follow them says so."""

from types import SimpleNamespace

import pytest
from compiled_twin import assert_same

import weft
from weft import contest as contest_module
from weft.contest import EAGER, REPLAYED, TRIAL, WARMING, Contest
from weft.runtime.replay import usual_learning

LONG = [SimpleNamespace(op=object())] * 50  # steps: eager calls of so many take 12.5 us at the very least


def usual(calls, n_followed):
    recording = SimpleNamespace(calls=calls, n_followed=n_followed)
    return SimpleNamespace(recording=recording, outside=None, entries=LONG, walks=[])


def tried(contest, expected, replayed, eager, followed_each=1):
    """The trial of a contest, all of it; which ways calls went."""
    ways = []
    for k in range(len(TRIAL)):
        way = contest.way(expected)
        ways.append(way)
        if way is None:
            break
        if expected is not None and way is REPLAYED:
            expected.recording.n_followed += followed_each
        contest.took(way, replayed[k % len(replayed)] if way is REPLAYED else eager)
        if contest._n_tried == 0:
            break
    return ways


def test_calls_that_are_followed_again_and_again_are_tried():
    for n_followed, are_many in ((5, False), (20, True)):
        contest = Contest()
        assert contest.way(usual(calls=100, n_followed=n_followed)) is REPLAYED
        assert contest.goes_many_ways is are_many
    contest = Contest()
    assert contest.way(None) is REPLAYED and contest.goes_many_ways


def test_only_what_was_followed_since_the_last_time_counts():
    contest, expected, found = Contest(), usual(calls=0, n_followed=0), []
    for calls, n_followed in ((100, 12), (200, 20), (300, 40)):
        expected.recording.calls, expected.recording.n_followed = calls, n_followed
        contest.way(expected)
        found.append(contest.goes_many_ways)
    assert found == [False, False, True]


@pytest.mark.parametrize("expected", [None, usual(100, 50)], ids=["nothing expected", "one expected"])
def test_slow_calls_between_quick_ones_decide(expected):
    """One of four takes a hundred times as long: without it replays would be quicker."""
    contest = Contest()
    assert set(tried(contest, expected, [1e-5, 1e-5, 1e-5, 1e-3], 5e-5)) == {REPLAYED, WARMING, EAGER}
    assert contest.is_eager
    assert contest.described() == "50 us against 190 us replayed"


def test_calls_that_go_one_way_by_now_are_not_tried_to_the_end():
    contest = Contest()
    ways = tried(contest, usual(100, 50), [1e-5], 5e-6, followed_each=0)
    assert EAGER not in ways and not contest.is_eager


def test_programs_that_are_compiled_in_a_trial_do_not_end_it():
    contest = Contest()
    tried(contest, usual(100, 50), [0.05, 1e-5], 5e-5)
    assert contest.is_eager


@pytest.mark.parametrize("call_eagerly", [False, True])
def test_the_bits_are_the_same_whichever_way_calls_go(monkeypatch, call_eagerly):
    """Rows chosen by a mask: other numbers of them in each call."""
    monkeypatch.setattr(contest_module, "AFTER", 8)
    monkeypatch.setattr(contest_module, "_MORE_SECONDS", 1e9)
    monkeypatch.setattr(usual_learning, "_LEARNED_BY", 8)
    monkeypatch.setattr(Contest, "typical", lambda self, way: 1e3 if (way is EAGER) is call_eagerly else 2e3)

    def scenario(compile):
        @compile
        def accept(x, u):
            kept = x[u < (-x * x / 4).exp()]
            return kept.mean(), len(kept), kept * 2

        for _ in range(8 + len(TRIAL) + 8):
            yield accept(weft.randn(20), weft.rand(20))
        if hasattr(accept, "recordings"):
            assert accept._contest.goes_many_ways and accept._contest.is_eager is call_eagerly

    assert_same(scenario)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_where_no_call_is_like_another_it_is_asked_sooner(monkeypatch, fullgraph):
    monkeypatch.setattr(contest_module, "AFTER", 32)

    def step(x, n):
        for _ in range(n):
            x = x.tanh()
        return x + 1

    def n_calls_before(trial_of):
        f, x = weft.compile(step, fullgraph=fullgraph), weft.randn(4)
        for k in range(14):
            if f._contest.seconds:
                return k
            assert f(x * 2, trial_of(k)).tolist() == step(x * 2, trial_of(k)).tolist()
        return None

    assert n_calls_before(lambda k: k) == (None if fullgraph else contest_module.ALL_FOLLOWED + 1)
    assert n_calls_before(lambda k: 3) is None
