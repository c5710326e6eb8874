"""Keys of `x[key] = value` that are used again and again: native code is told what they lead to.

note_write  says so; asked for while native code reads keys at all
"""

from functools import lru_cache
from math import prod

from .compiler.later import later
from .compiler.ops import view
from .runtime.state.tensor import Tensor, shape_of

_note = later("runtime.replay.native_keys:note_write")
# So many uses later it may be worth telling native code of a key.
_USES = 16
# Of places with more elements, a number is written without an array for it.
_MOST_MADE = 1 << 13


@lru_cache(4096)
def _uses(*what):
    return [0]


def _is_usual(*what):
    uses = _uses(*what)
    uses[0] += 1
    return not uses[0] % _USES


def note_write(x, sizes, key, plain, value, place):
    """place: of x[key] = value, as indexing.py has it. What becomes of the value before it is written is found out here
    as `setitem` does it."""
    spec, shape, lengths = place
    dtype, made, given, steps = x.dtype, None, (), []
    if value.__class__ is Tensor and value.dtype is dtype:
        given = now = shape_of(value)
        while len(now) > len(shape) and now[0] == 1:
            now = now[1:]
            steps.append((view.reshape, {"shape": now}))
        if now != shape:
            steps.append((view.expand, {"shape": shape}))
        if shape != lengths:
            steps.append((view.reshape, {"shape": lengths}))
    elif value.__class__ in (int, float) and dtype.is_compiled and prod(lengths) <= _MOST_MADE:
        made = {"shape": lengths, "dtype": dtype}
    else:
        return
    if _is_usual(sizes, plain, dtype, given, made is None):
        _note(sizes, key, dtype, given, steps, made, {"spec": spec}, given == shape)
