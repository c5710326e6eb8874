"""Test helpers are imported by name from this folder; golden files are compared, or written with --update-golden."""

import gc
import os
import sys
from importlib import import_module
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
sys.path.insert(0, str(_HERE))


def pytest_configure(config):
    if os.environ.get("WEFT_TEST_GUARD_PAGES"):
        # Imports weft, which most tests do anyway.
        from guard_pages import install_if_asked

        install_if_asked()


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/* from what the code gives now")


@pytest.fixture(autouse=True, scope="module")
def what_other_files_have_left_is_not_looked_through():
    """By the collector, in each of hundreds of collections that tests ask for: after thousands of tests one took
    seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def replayed_however_often(monkeypatch):
    """What is tested is what happens in a compiled call, so time does not decide whether there are any, nor with how
    many shapes other tests have called an op."""
    if "weft" in sys.modules:
        import_module("weft.runtime.eager.plan")._told_of.clear()
        monkeypatch.setattr("weft.contest.AFTER", import_module("weft.contest").NEVER)
        monkeypatch.setattr("weft.contest.LOOKED_INTO_AFTER", 5)
        monkeypatch.setattr("weft.whole_calls.GAIN", 0.0)
        monkeypatch.setattr("weft.made_anew.PAYS_AFTER", 0)
        monkeypatch.setattr("weft.ways.LONG", float("inf"))
        monkeypatch.setattr("weft.runtime.record.frame_flush.MOST_SECONDS_ANEW", float("inf"))
        monkeypatch.setattr("weft.runtime.replay.native_making.PAYS_AFTER", 0)


@pytest.fixture(autouse=True)
def asked_where_that_is_tested(request):
    """Functions ask classes of the user's in files with ASKS: those that such classes are made in open the doors for
    all that come after."""
    if "weft.doors" in sys.modules:
        doors = sys.modules["weft.doors"]
        if getattr(request.module, "ASKS", False):
            doors.open_doors()
        elif doors.opened:
            doors.close_doors()


@pytest.fixture(autouse=True)
def the_cache_is_the_one_of_the_environment():
    """A test that does without has put the environment's word back after the last look at it, maybe."""
    if "weft.runtime.code.cache" in sys.modules:
        default_cache = sys.modules["weft.runtime.code.cache"].default_cache
        if not default_cache().keeps and os.environ.get("WEFT_CACHE") != "0":
            default_cache.cache_clear()


@pytest.fixture(autouse=True)
def no_call_stays_open():
    """Else what comes after it would belong to it: no function would be compiled any more."""
    yield
    if "weft.runtime.state.modes" in sys.modules:
        modes = sys.modules["weft.runtime.state.modes"].state
        frame, modes.frame = modes.frame, None
        hidden, modes.hidden = modes.hidden, None
        assert frame is None, f"a call of {frame.recording.name} is still open"
        assert hidden is None, f"a call of {hidden.recording.name} is still hidden"


@pytest.fixture
def python_runs(monkeypatch):
    """Calls of compiled functions run their Python, whatever is known of it."""
    monkeypatch.setattr("weft.contest.LOOKED_INTO_AFTER", import_module("weft.contest").NEVER)


@pytest.fixture
def without_torch(monkeypatch):
    """as_torch asks whether somebody has imported torch, as another test may have.

    All of it goes for a while: what remained of it would be gone afterwards, and torch be loaded twice, which it does
    not bear.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def golden(request):
    """golden(name, text): the text must equal tests/golden/name."""

    def check(name, text):
        path = _HERE / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; run pytest --update-golden and read the new file"
        assert text == path.read_text(), f"{name} changed; run pytest --update-golden and read the difference"

    return check
