"""Whether the native code of replays and eager mode is there; and if not, when and where it is made.

It is the same for all programs, and kept on disk: seconds of compiling, once per machine. Until it is there calls take
their ways in Python, with equal bits. So it is made when that pays, and in the background: whoever would use it asks
`is_here`, and goes on without if it is not.

What is made when a call needs it, in that call: kernels of single ops, which Python's ways need too.
"""

import functools
import threading
from time import perf_counter

from ...compiler.later import expect_logging, imported, is_logging_expected
from ..code import jit, kernels, made_here, translated
from ..code.cache import default_cache, pack
from ..programs import background
from . import native
from .object_layout import layout_of_objects

# Asked so often, it pays: each time for a compiled call that could have been replayed, which saves 60 us, or for eight
# calls of an op, which saves as much.
PAYS_AFTER = 64
# In the order in which programs come to need them.
_PARTS = (
    "compiled_call",
    "bound_call",
    "eager_native",
    "native_operators",
    "native_keys",
    "native_questions",
    "native_methods",
    "native_in_place",
    "native_functions",
    "native_values",
    "finished_calls",
    "finished_tables",
    "whole_call",
    "usual_applied",
    "prepared_call",
)
_EVERYTHING = "native code of replays and eager mode"


class _Asked:
    """How often it was asked for in this process; the Job that makes it; whether it is there."""

    def __init__(self):
        self.n, self.job, self.is_answered = 0, None, False


_asked = _Asked()


def is_here():
    """Whether native code takes no time to get. What asks often enough has it made in the background."""
    asked = _asked
    if asked.is_answered or not PAYS_AFTER:
        return True
    if asked.job is None:
        asked.n += 1
        pays = asked.n > PAYS_AFTER
        # The disk is looked at when it is asked for first, and before it is made.
        if asked.n > 1 and not (pays and _may_begin()):
            return False
        if not _is_at_hand():
            if not pays:
                return False
            asked.job = Everything()
            background.add(asked.job)
    # A Job that failed has said nothing: then who uses the code makes it, and gets the error where it is to be raised.
    asked.is_answered = asked.job is None or asked.job.is_done
    return asked.is_answered


def _may_begin():
    """Compiling imports what is registered for forks: not while another thread may be forking, which would let go of
    locks that it has not taken. This is the thread that forks, as a rule, or all of that has been imported."""
    if threading.current_thread() is threading.main_thread():
        expect_logging()
    return is_logging_expected()


def make_now():
    """Make it, or wait until it is made; how many seconds that took. Raises what makes it impossible."""
    asked, began = _asked, perf_counter()
    if asked.is_answered or _is_at_hand():
        asked.is_answered = True
        return 0.0
    if asked.job is None or asked.job.is_done:
        asked.job = Everything()
        asked.job.run()
    asked.job.wait()
    if asked.job.failure is not None:
        raise asked.job.failure
    asked.is_answered = True
    return perf_counter() - began


def is_awaited():
    """Whether something has asked and goes on without."""
    return bool(PAYS_AFTER and _asked.n) and not _asked.is_answered


def is_being_made():
    return _asked.job is not None and not _asked.job.is_done


def _is_at_hand():
    cache = default_cache()
    return native.layout() is None or not cache.keeps or cache.get(_key()) is not None


def _key():
    return f"{_EVERYTHING}: {native.layout()}"


class Everything(background.Job):
    """All of the native code, each part of which is on disk as soon as it is made."""

    __slots__ = ()

    def __init__(self):
        super().__init__(_EVERYTHING, None)

    def run(self):
        began = perf_counter()
        try:
            for key, make in _parts():
                _make(key, make)
            with jit.compiling:
                default_cache().put(_key(), pack({}, b""))
        except BaseException as error:
            self.failure = error.with_traceback(None)
        made_here.in_background += perf_counter() - began
        with jit.compiling:
            self.end()


def _parts():
    """(key, function that gives meta and IR text) of each."""
    # What others import, and a fork waits for, is imported before `building` is taken.
    modules = [imported(f"{__package__}.{name}") for name in _PARTS]
    imported(translated.TRANSLATOR)
    layout = layout_of_objects()
    yield native.key(), lambda: ({}, native.text())
    for module in modules:
        wanted = module.part(layout)
        yield translated.key_of(*wanted), functools.partial(translated.translate, *wanted[1:])


def _make(key, make):
    cache = default_cache()
    if kernels.is_at_hand(key):
        return
    with background.building:
        meta, text = make()
    with jit.compiling:
        background.check_goes_on()
        compilation = jit.begin(text)
    compilation.wait()
    with jit.compiling:
        cache.put(key, pack(meta, compilation.finish()))
