"""Tracebacks as people need them: their own lines, without weft's between and after them.

    File "train.py", line 12, in step          File "train.py", line 12, in step
      return hidden @ weight           ->        return hidden @ weight
    File "weft/runtime/eager/gate.py" ...      OpError: matmul: shapes (2, 3) and (4, 5) cannot ...
    File "weft/runtime/record/frame.py" ...
    ... five more of weft's
    OpError: matmul: shapes (2, 3) and (4, 5) cannot ...

A function that a program calls catches what goes through it, calls `shorten`, and raises it again: that costs calls
which do not fail nothing. What weft says on purpose says it all in its message. An error that nobody has foreseen keeps
every frame, and WEFT_TRACEBACKS=full keeps them in all: who works on weft wants to know where a message comes from.
"""

import os
import sys
from functools import wraps
from opcode import opmap

_RAISE = opmap["RAISE_VARARGS"]
# Who calls these of weft's own has made a mistake that is weft's.
_LIBRARIES = frozenset(["ctypes", "llvmlite", "networkx", "numpy"])
_vanishes = sys.version_info >= (3, 11)  # before, `raise` shows its own line whatever the traceback is


def shorten(error):
    """Takes weft's frames out of the traceback of an exception, in an `except` that ends with `raise`; the one that is
    in this `except` too, from CPython 3.11 on. Layers' `forward` stays: it tells where in a model an error is."""
    caught = error.__traceback__
    entries = list(_entries(caught.tb_next))
    if not entries or os.environ.get("WEFT_TRACEBACKS") == "full" or not _is_for_users(error, entries):
        return
    if _is_own(entries[-1].tb_frame):  # it is weft's: one of the user's may refuse attributes
        error._weft_says_it = True
    kept = [entry for entry in entries if _is_shown(entry.tb_frame)]
    for entry, after in zip(kept, [*kept[1:], None]):
        entry.tb_next = after
    caught.tb_next = kept[0] if kept else None
    if _vanishes:
        error.with_traceback(caught.tb_next)


def shortening(function):
    """Decorates what programs call, and calls much, but not often."""

    @wraps(function)
    def shortened(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return shortened


def _entries(traceback):
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_for_users(error, entries):
    """Whether weft has raised it on purpose, or somebody whom weft called for the user. One that has been shortened
    does not show any more who raised it."""
    own = [k for k, entry in enumerate(entries) if _is_own(entry.tb_frame)]
    if not own:
        return False
    last = own[-1]
    if last == len(entries) - 1:
        if hasattr(error, "_weft_says_it"):
            return True
        code, at = entries[last].tb_frame.f_code.co_code, entries[last].tb_lasti
        return code[at] == _RAISE and not isinstance(error, AssertionError)
    return _package(entries[last + 1].tb_frame) not in _LIBRARIES


def _is_shown(frame):
    if not _is_own(frame):
        return True
    return frame.f_code.co_name == "forward" and frame.f_globals["__name__"].startswith("weft.nn.")


def _is_own(frame):
    return _package(frame) == "weft"


def _package(frame):
    return str(frame.f_globals.get("__name__")).partition(".")[0]
