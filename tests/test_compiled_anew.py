"""Functions that are compiled again and again: that is said once, and calls that do not come again run eagerly."""

import warnings

import pytest

import weft
from weft import signatures


def total(x, scale):
    return (x * x * scale).sum()


@pytest.fixture
def few(monkeypatch):
    """Limits that a test reaches soon."""
    monkeypatch.setattr(signatures, "MAX_SIGNATURES", 6)
    monkeypatch.setattr(signatures, "IN_VAIN", 4)
    monkeypatch.setattr("weft.compiled.WARNED_AT", 3)


def called(function, sizes):
    """What was warned of in calls with these sizes, whose results are those of eager mode."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in sizes:
            assert function(weft.arange(n, dtype=weft.float32), scale=2.0) == total(weft.arange(n).float(), 2.0)
    return caught


def test_the_argument_that_changes_is_named_once_at_the_users_line(few):
    f = weft.compile(total, dynamic=False)
    (first,) = called(f, [1, 2, 3, 4])
    assert first.category is RuntimeWarning and first.filename == __file__
    assert str(first.message).startswith(
        "weft: total has been compiled for 3 signatures; what changes most often is x (last: x: float32[3] -> "
        "float32[4]). Each takes a compilation: pad what changes to a few shapes"
    )


def test_then_what_comes_once_runs_eagerly_which_is_said_too(few):
    f = weft.compile(total, dynamic=False)
    _, second = called(f, range(1, 12))
    assert second.filename == __file__
    assert "4 signatures that were not called again, so new ones run eagerly until they come for the 3rd" in str(
        second.message
    )
    assert "7 call(s) with signatures that seldom come ran eagerly" in f.explain()


def test_large_functions_are_compiled_for_fewer_signatures_that_come_once():
    def trained(x, parts):
        for _ in range(parts):
            x = (x @ x.T).softmax(-1) @ x + 0.1
        return x.sum()

    f = weft.compile(trained, dynamic=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(2, 12):
            x = weft.randn(n, 3)
            assert f(x, 30).equal(trained(x, 30))
    n_kernels = len(f.recordings[0].programs[0].meta["plan"]["kernels"])
    n_compiled = max(signatures.FEW, -(-signatures.IN_VAIN // (1 + n_kernels // signatures.LARGE)))
    assert n_compiled < 10 == n_compiled + f._recordings.n_eager
    assert f"compiled for {n_compiled} signatures that were not called again" in str(caught[0].message)


def test_one_of_many_is_tried_all_the_same(few, monkeypatch):
    """What comes later may share its program: then all are recorded again."""
    monkeypatch.setattr(signatures, "TRIED", 5)
    monkeypatch.setattr(signatures, "LOOKED_AT", 5)
    monkeypatch.setattr("weft.runtime.replay.many_learning.LEAST_SIZES", float("inf"))

    def steps(x, n):
        for _ in range(n):
            x = (x * 2).tanh()
        return x

    f = weft.compile(steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(1, 5):
            f(weft.randn(*[2] * n), n)
        assert f._recordings.n_eager == 0
        for n in range(2, 20):
            x = weft.randn(n, 3)
            assert f(x, 2).equal(steps(x, 2))
    # The first that is tried has a program of its own, the next one that serves all sizes: enough to try again.
    assert f._recordings.n_eager == 8 and all("n" in r.programs[0].meta for r in f.recordings[-5:])


def test_what_comes_again_is_compiled_and_replayed(few):
    f = weft.compile(total, dynamic=False)
    called(f, range(1, 12))
    n_recorded = len(f._recordings.reasons)
    assert called(f, [50] * 8) == []
    assert len(f._recordings.reasons) == n_recorded + 1
    assert any(r.calls == 6 and r.replays for r in f.recordings)
    called(f, range(20, 24))
    assert len(f._recordings.reasons) == n_recorded + 1


def test_sizes_that_share_a_program_are_not_worth_a_word(few):
    f = weft.compile(total)
    assert called(f, range(1, 30)) == []
    assert f._recordings.n_eager == 0 and "eagerly" not in f.explain()


def test_a_function_that_must_be_whole_is_compiled_every_time(few):
    f = weft.compile(total, dynamic=False, fullgraph=True)
    assert len(called(f, range(1, 12))) == 1
    assert f._recordings.n_eager == 0
