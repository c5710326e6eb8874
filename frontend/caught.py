"""Errors that a function catches itself.

A compiled call computes when it has to, so a function that fails by the values it is given would fail later than in
eager mode: outside of the `try` that was written for it. So in such a block it is tried first, at once and apart from
the call, and becomes part of the call if it can be computed.
"""

import functools
import sys

from .compiler.ops.comparison import satisfied
from .runtime.replay.native import outside_the_call
from .runtime.state.modes import state
from .runtime.state.tensor import tensor_of

_PUSHED, _OF_A_WITH = "PUSH_EXC_INFO", "WITH_EXCEPT_START"


def demand(valid, message, message_of_calls):
    """ValueError with message() if one of the truths does not hold; in a compiled call that has another message, which
    needs no values, and comes when the call computes, or at once where it is caught."""
    if state.frame is None:
        if not valid.all().item():
            raise ValueError(message())
    else:
        tried_if_caught(lambda truths: satisfied(truths, message=message_of_calls), valid)


def tried_if_caught(function, *operands):
    """function(*operands), which raises its error here if the caller's caller, or who has called it in a compiled call,
    stands in a `try`."""
    if state.frame is not None and _is_caught(sys._getframe(2)):
        values = [tensor_of(x.array) for x in operands]
        with outside_the_call():
            function(*values)
    return function(*operands)


def _is_caught(frame):
    """Whether there is a `try` between a Python frame and the compiled call.

    A call that native code has begun has no Python frame in which it begins. It knows by the calls like it that were
    followed before, which places on the stack are in it, and whether one of these stands in a `try`.
    """
    own = state.frame
    known = own.recording.caught.setdefault((frame.f_code.co_name, frame.f_lasti), {})
    if own.is_usual and known:
        places = _places(frame, max(map(len, known)))
        inside = [chain for chain in known if places[: len(chain)] == chain]
        if inside:
            return known[max(inside, key=len)]
    places, handled = _places_to_try(frame)
    if not own.is_usual and places and len(known) < _MOST_KNOWN:
        known[tuple(places)] = handled
    return handled


def _places(frame, count):
    """The codes and positions of a Python frame and of those that have called it, not more than so many."""
    places = []
    while frame is not None and count:
        places.append((frame.f_code, frame.f_lasti))
        frame, count = frame.f_back, count - 1
    return tuple(places)


def _places_to_try(frame):
    """(the same up to the first in a `try`, or up to where the compiled call begins; whether there is one)."""
    places = []
    while frame is not None and not _is_beginning(frame):
        places.append((frame.f_code, frame.f_lasti))
        if frame.f_globals.get("__name__") not in _DOORS and _handles(*places[-1]):
            return places, True
        frame = frame.f_back
    return places, False


_MOST_KNOWN = 64
# Where the compiled call begins: what its caller catches it catches in any case.
_CALLS, _RUNTIME = f"{__package__}.compiled", f"{__package__}.runtime."
# Which catch errors only to say more of them, or catch nothing that is an error.
_DOORS = (f"{__package__}.kinds", f"{__package__}.vmapping", f"{__package__}.rows_at_once")


def _is_beginning(frame):
    name = frame.f_globals.get("__name__", "")
    return name == _CALLS or name.startswith(_RUNTIME)


@functools.lru_cache(4096)
def _handles(code, position):
    """Whether an instruction stands in a `try`. A `with` only passes errors on."""
    # Only needed here, and it takes milliseconds to import.
    import dis

    instructions = {i.offset: i for i in dis.get_instructions(code)}
    if sys.version_info < (3, 11):
        opened = [i for i in instructions.values() if i.opname == "SETUP_FINALLY"]
        return any(i.offset < position < i.argval for i in opened)
    # What is around a block is written at its handler.
    while (target := next((to for start, stop, to in _table(code) if start <= position < stop), None)) is not None:
        if _is_handler(instructions, target):
            return True
        position = target
    return False


def _is_handler(instructions, target):
    following = [instructions[k].opname for k in sorted(instructions) if k >= target][:2]
    return following[0] == _PUSHED and following[1] != _OF_A_WITH


def _table(code):
    """(start, stop, handler) of a code object's exceptions, in bytes: CPython's Objects/exception_handling_notes.txt.
    Numbers have 6 bits per byte, and a 7th if they go on."""
    numbers, value, fields = [], 0, iter(code.co_exceptiontable)
    for byte in fields:
        value = (value << 6) + (byte & 63)
        if not byte & 64:
            numbers.append(2 * value)
            value = 0
    return [
        (start, start + length, target) for start, length, target in zip(numbers[::4], numbers[1::4], numbers[2::4])
    ]
