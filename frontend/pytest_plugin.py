"""The plugin for pytest that comes with weft: found by itself where weft is installed, or -p weft.pytest_plugin.

    pytest --weft-eager                                compiled functions run as the Python they are
    pytest --weft-seed 7                               other random numbers than usual

    @pytest.mark.weft_no_breaks                        fails if a function that is compiled in the test has breaks
    @pytest.mark.weft_no_breaks(functions=[step])      the same of functions that exist already

Before each test weft's generator is seeded from the test's name, so that a test draws the same alone and among others.
"""

import zlib

import pytest

from .compiled import CompiledFunction, compiled_in_block, run_eagerly
from .runtime.state.random import manual_seed

_MARK = "weft_no_breaks"


def pytest_addoption(parser):
    group = parser.getgroup("weft")
    group.addoption("--weft-eager", action="store_true", help="run what weft.compile has compiled as Python")
    group.addoption("--weft-seed", type=int, default=0, help="seed of weft's random numbers, with each test's name")


def pytest_configure(config):
    config.addinivalue_line("markers", f"{_MARK}(functions=()): what the test compiles, and these, must have no breaks")
    if config.getoption("--weft-eager"):
        run_eagerly(True)


def pytest_unconfigure(config):
    if config.getoption("--weft-eager"):
        run_eagerly(False)


def pytest_report_header(config):
    if config.getoption("--weft-eager"):
        return "weft: compiled functions run eagerly"
    return None


def seed_of(config, nodeid):
    """The seed of a test: a number that its name and the option decide."""
    return zlib.crc32(f"{config.getoption('--weft-seed')} {nodeid}".encode())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    manual_seed(seed_of(item.config, item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    mark = item.get_closest_marker(_MARK)
    if mark is None:
        return (yield)
    given = _functions_of(mark)
    with compiled_in_block() as met:
        result = yield
    if not item.config.getoption("--weft-eager"):
        _require_no_breaks(given + [f for f in met if f not in given])
    return result


def _functions_of(mark):
    """The compiled functions that a marker names: one or a sequence, by keyword or by position."""
    unknown = mark.kwargs.keys() - {"functions"}
    given = mark.kwargs.get("functions", mark.args[0] if mark.args else ())
    functions = given if isinstance(given, (list, tuple, set)) else [given]
    wrong = [f for f in functions if not isinstance(f, CompiledFunction)]
    if wrong or unknown or len(mark.args) > 1:
        what = repr(wrong[0]) if wrong else ", ".join(sorted(unknown)) or "several positional arguments"
        pytest.fail(f"{_MARK}: expected functions=[...] of what weft.compile has made, got {what}", pytrace=False)
    return list(functions)


def _require_no_breaks(functions):
    broken = [f for f in functions if f.breaks]
    if broken:
        texts = "\n".join(f.explain() for f in broken)
        pytest.fail(f"{_MARK}: {len(broken)} compiled function(s) left the fast path\n{texts}", pytrace=False)
