"""Calls leave nothing behind: a short version of `python -m benchmarks.memory`."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.idioms import IDIOMS  # noqa: E402
from benchmarks.idioms.child import Session  # noqa: E402
from benchmarks.memory import USUAL, Growth, growth_of, main  # noqa: E402

LEAKING = []


@pytest.fixture(scope="module")
def session():
    return Session("weft", 1)


@pytest.mark.parametrize("name", USUAL)
def test_calls_leave_nothing_behind(session, name):
    found = growth_of(name, session.built(IDIOMS[name]), 1000)
    assert found.is_flat, found


def test_what_a_call_leaves_is_seen():
    found = growth_of("leaking", lambda: LEAKING.append([]), 1000)
    assert found.blocks >= 1000 and not found.is_flat and "GREW" in str(found)


def test_bytes_count_too():
    assert not Growth("bytes", 1000, 0, 0, 1 << 30).is_flat


def test_from_the_command_line(capsys):
    assert main(["--calls", "50", "--idiom", "pair"]) == 0
    assert "pair: 50 calls" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--idiom", "nothing"])
    assert "no idioms: nothing" in capsys.readouterr().err
