"""How native code that runs without the interpreter's lock looks for Ctrl-C: it takes the lock for a moment.

It takes it again about as often as a person would notice (compiler/emit/interrupt.py), and waits for it no longer than
the interpreter lets another thread keep it.
"""

from functools import cache

from ...compiler.translate.kinds import I32, I64
from ...compiler.translate.language import External, native
from . import translated

take_lock = External("PyGILState_Ensure", (), I32, quiet=True, python=lambda: 0)
let_go_of_lock = External("PyGILState_Release", (I32,), quiet=True, python=lambda state: None)
was_interrupted = External("PyOS_InterruptOccurred", (), I32, quiet=True, python=lambda: 0)


@native(name="weft_seen_without_lock")
def seen_without_lock() -> I64:
    """Whether there was an interrupt, which is forgotten then; on any thread but the main one there never is."""
    state = take_lock()
    seen = was_interrupted()
    let_go_of_lock(state)
    return seen


@cache
def seen_address():
    """The address of `i32 seen_without_lock()`."""
    return translated.load("looking", [seen_without_lock]).address("weft_seen_without_lock")
