"""Programs that could not be made: a call whose program that is runs eagerly, and says why."""

import signal

from .program import NotThere, captures

_OF_COMPILERS = "builtins", "llvmlite", "networkx", "numpy", __package__.partition(".")[0]


def is_of_compiler(error):
    """Whether an exception, while a program is made, is the compiler's own. One that a signal handler raises belongs to
    the user, and so does that there is no memory; where a program is all that is wanted (capture.py), every one."""
    if captures or isinstance(error, (NotThere, MemoryError)):
        return False
    if type(error).__module__.partition(".")[0] not in _OF_COMPILERS:
        return False
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return False
        trace = trace.tb_next
    return True


def _code_of(handler):
    """That of a handler in Python, be it a function, a method or an object that can be called."""
    while hasattr(handler, "func"):
        handler = handler.func
    function = handler if hasattr(handler, "__code__") or hasattr(handler, "__func__") else type(handler).__call__
    return getattr(getattr(function, "__func__", function), "__code__", None)
