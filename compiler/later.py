"""Functions that are imported when they are called: code that makes text is needed only where no cache has it.

    later           such a function
    imported        a module, for whoever asks for it in the middle of a program
    at_fork         what a fork does before it takes the lock of the library's logging
    expect_logging  is called before what may log, where locks of at_fork's are held; is_logging_expected: it was

A fork waits for imports in other threads: the child has no such threads, and would wait for their locks for ever.
"""

import os
import time
from importlib import import_module
from operator import attrgetter
from threading import get_ident

_ROOT = __package__.rpartition(".")[0]
_at_fork = []  # what is to be registered again once logging is imported
_importing = {}  # number of a thread -> how many imports it is in, one within the other


def later(path, *given):
    """The function at a path, "compiler.emit.sort:emit_top" say. With `given`, the one which that function makes of
    these."""
    module, _, name = path.partition(":")
    found = []  # so that it is imported once: an import takes a lock, which a handler of signals could break into

    def function(*args, **kwargs):
        if not found:
            made = attrgetter(name)(imported(f"{_ROOT}.{module}"))
            found.append(made(*given) if given else made)
        return found[0](*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    return function


def imported(name):
    """The module of that name."""
    thread = get_ident()
    before = _importing.get(thread, 0)
    _importing[thread] = before + 1
    try:
        return import_module(name)
    finally:
        if before:
            _importing[thread] = before
        else:
            del _importing[thread]


def _wait_for_others():
    own = get_ident()
    while any(thread != own for thread in tuple(_importing)):
        time.sleep(0.0001)


def at_fork(**hooks):
    """os.register_at_fork, where there is one; `hooks` may run twice at a fork, the first of them as one of the first.

    networkx imports logging, which locks itself for a fork, and who registers last locks first. A fork that held
    logging's lock would wait for a lock of `hooks`, whose holder imports networkx and waits for logging's.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**hooks)
        _at_fork.append(hooks)


def expect_logging():
    """Import logging, if nobody has: 3 ms that a program need not pay which finds its code on disk."""
    if _at_fork:
        imported("logging")
        while _at_fork:
            os.register_at_fork(**_at_fork.pop())


def is_logging_expected():
    """Whether that has been done."""
    return not _at_fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_others)
