"""What lasts until the process ends: the code that threads may be in, and what CPython keeps addresses of.

The interpreter ends while daemon threads are still there. It takes all modules apart, with what they hold, and a thread
that wants its lock then is made to leave: the C library goes through the frames on its stack, and reads the code to
which each one would have returned. Machine code must still be there, though nobody holds it any more.
"""

import atexit
import ctypes
import weakref

_code = weakref.WeakSet()
_at_end = []


def keep_for_ever(thing):
    """The object, which is never freed from now on."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


def keep_at_end(library):
    """Free code as soon as nobody holds it, but not once the interpreter ends."""
    if _at_end:
        keep_for_ever(library)
    else:
        _code.add(library)


def _end():
    _at_end.append(True)
    for library in list(_code):
        keep_for_ever(library)


# First of all, so that it runs last: what others do at the end may load code.
atexit.register(_end)
