"""Programs made in a thread of their own, while the calls that want them go on without: `compile(background=True)`.

    load_code(text, build)      not in the cache, and the caller has somebody who computes it meanwhile
        raises NotReady         there is a Job for this text, which works from the next start() on
    load_code(text, build)      later: what the Job has made
    add(job)                    one that no call waits for (runtime/replay/native_making.py)

One thread does one Job after the other, and ends when there is none left. It takes two locks, never both:

    jit.compiling   where LLVM is begun or asked for what it has made, code is loaded, or the table of Jobs is read;
                    others who make code wait for these moments only
    building        while graphs become text, which nobody else waits for but a fork: that copies one thread alone, and
                    what another one holds then is held for ever in the child

Whoever forks takes both, in this order. In the child there are no Jobs, and calls begin new ones. What fails here is
made once more by the next call itself, so errors are raised where they would be without all this. At the end of the
process nothing new is begun, and the thread ends with the interpreter.
"""

import atexit
import os
import threading
import time
from collections import deque
from contextlib import contextmanager

from ...compiler.later import imported
from ..code import dump, emission, jit, kernels, threads
from ..code.cache import default_cache, pack

_MOST_ENDED = 64  # Jobs whose programs nobody has asked for; they are in the disk cache
_jobs = {}  # text -> Job; this and the next are read and written while `jit.compiling` is held
_waiting = deque()
_threads = []  # the one at work
_at_end = []  # that the process ends
building = threading.RLock()
_ROOT = __package__.rpartition(".")[0]


class NotReady(Exception):
    """A program is being made in the background. `job`: where; `opened`: what it is made from, with extents in place of
    numbers, if it is one for many sizes."""

    def __init__(self, job):
        super().__init__("the program is being compiled in the background")
        self.job, self.opened = job, None


class _Mode(threading.local):
    is_wanted = is_meanwhile = False


_mode = _Mode()


@contextmanager
def made_there(is_wanted):
    """A block in which programs that are not there are made in the background, or not, and NotReady is raised."""
    before = _mode.is_wanted
    try:
        _mode.is_wanted = is_wanted and not dump.wanted_stages()
        yield
    finally:
        _mode.is_wanted = before


@contextmanager
def meanwhile():
    """A block that runs eagerly because its program is not there yet."""
    before = _mode.is_meanwhile
    try:
        _mode.is_meanwhile = True
        yield
    finally:
        _mode.is_meanwhile = before


def is_meanwhile():
    """Whether this thread is in such a block: then native code of eager mode, which takes longer to make than most
    programs do, would come too late."""
    return _mode.is_meanwhile


def is_here():
    """Whether this is the thread that makes programs in the background."""
    return threading.current_thread() in _threads


class Job:
    """A program in the making. `found`: its (meta, machine code), None if there can be none. `failure`: the error that
    ended it, None if there was none."""

    __slots__ = ("build", "text", "found", "failure", "is_done", "_done")

    def __init__(self, text, build):
        self.text, self.build = text, build
        self.found, self.failure, self.is_done = None, None, False
        self._done = threading.Event()

    def wait(self, seconds=None):
        """Until it is done, or so long at most."""
        start()
        if not self.is_done:  # else it may belong to the process that has forked this one
            self._done.wait(seconds)

    def run(self):
        began = time.perf_counter()
        try:
            with building:
                made = self.build()
            if made is not None:
                meta, code = made[0], _compiled(*made)
                self.found = {**meta, "source": "background", "seconds": time.perf_counter() - began}, code
        except BaseException as error:
            self.failure = error.with_traceback(None)
        with jit.compiling:
            if self.found is not None:
                default_cache().put(self.text, pack(meta, code))
            self.end()

    def fail(self):
        self.failure = InterruptedError("the interpreter ends")
        self.end()

    def end(self):
        self.build, self.is_done = None, True
        self._done.set()


def _compiled(meta, ir):
    """Object code of a program; what it calls is loaded, too."""
    with jit.compiling:
        check_goes_on()
        compilation = jit.begin_in_parts(ir)
        begun = [compilation, *kernels.begin_routines(meta["symbols"])]
    for one in begun:
        one.wait()
    with jit.compiling:
        for symbol in meta["symbols"]:
            kernels.routine(symbol)
        if meta["has_team"]:
            threads.pool_address()
        return compilation.finish()


# --- the table of Jobs, while `jit.compiling` is held -----------------------------------------------------------------
def take(text):
    """(whether there is a Job that has made the program of a text or found that there is none; what it has found)."""
    job = _jobs.get(text)
    if job is None or not job.is_done or job.failure is not None:
        return False, None
    del _jobs[text]
    found, job.found = job.found, None
    return True, found


def begin(text, build):
    """Raise NotReady if a program can be made in the background and is not, else return: the caller has to make it."""
    if not _mode.is_wanted or _at_end:
        return
    job = _jobs.get(text)
    if job is None:
        ended = [other for other in _jobs.values() if other.is_done]
        for other in ended[: len(ended) - _MOST_ENDED + 1 if len(ended) >= _MOST_ENDED else 0]:
            del _jobs[other.text]
        job = _jobs[text] = Job(text, build)
        _waiting.append(job)
    if job.failure is None:
        raise NotReady(job)


def add(job):
    """Give the thread a Job that no call waits for."""
    with jit.compiling:
        if _at_end:
            job.fail()
            return
        _jobs[job.text] = job
        _waiting.append(job)
    start()


def check_goes_on():
    """Raise InterruptedError if the process ends."""
    if _at_end:
        raise InterruptedError


def start():
    """Begin to work, if there are Jobs: who has met NotReady calls this once it has computed what it wanted, for which
    it would otherwise share the interpreter with the thread."""
    with jit.compiling:
        if not _waiting or _threads:
            return
        thread = threading.Thread(target=_work, name="weft-compiler", daemon=True)
        _threads.append(thread)
        try:
            thread.start()
        except RuntimeError:  # at the end of the interpreter there are no new ones
            _threads.clear()
            while _waiting:
                _waiting.pop().fail()
        if not _registered:
            _registered.append(atexit.register(_end))


_registered = []


def _work():
    # Imported before `building` is taken, by a function that a fork waits for.
    imported(f"{_ROOT}.record.build_loops")
    while True:
        with jit.compiling:
            if not _waiting or _at_end:
                _threads.clear()
                return
            job = _waiting.popleft()
        job.run()


def _end():
    with jit.compiling:
        _at_end.append(True)
    emission.stop()


# --- forks ------------------------------------------------------------------------------------------------------------
def _before_fork():
    jit.compiling.acquire()
    building.acquire()


def _after_fork():
    building.release()
    jit.compiling.release()


def _after_fork_in_child():
    for job in _jobs.values():
        job.build, job.is_done = None, True
    _jobs.clear()
    _waiting.clear()
    _threads.clear()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
