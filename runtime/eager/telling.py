"""Telling native code of eager mode what plan.py has for it. Imported when there is something to tell: few programs
call an op often enough."""

import importlib
import sys

from ..code import jit
from ..programs.background import is_meanwhile

_NATIVE = "weft.runtime.replay"
_CALLS_WITHOUT_COMPILER = 1 << 20  # until it is asked again, because it may be on disk by then


def told(name, *args, busy):
    """What a function of eager_native.py returns; `busy` if code is being made: the thread that makes it may be waiting
    for this one, and a handler of signals interrupts the making; or if what runs eagerly will do so for a moment only
    (background.py), or making native code does not pay yet. None where none can be made: Python goes on."""
    if jit.is_compiling() or is_meanwhile():
        return busy
    with jit.compiling:
        try:
            return getattr(_module("eager_native"), name)(*args) if _module("native_making").is_here() else busy
        except jit.NoCompiler:
            return busy and _CALLS_WITHOUT_COMPILER


def _module(name):
    """Imported late: few programs get as far as this before they have trained for a while. And only once: an import
    takes a lock, which CPython 3.10 loses if a handler of signals raises in that moment."""
    name = f"{_NATIVE}.{name}"
    return sys.modules.get(name) or importlib.import_module(name)
