"""Running compiled programs between red zones: what they write outside of their memory is seen. Not a test.

    with red_zones() as calls:      every program runs on copies of its inputs, on outputs and an arena of its own, each
        ...                         with a zone of a pattern before and behind it that must be there afterwards

Inputs that a program is not to write must be as they were. The pattern is no NaN, which would survive arithmetic: what
is computed from it and written over it is seen too. Native replay, which calls programs by itself, is off meanwhile.
"""

from contextlib import contextmanager

import numpy as np

from weft.runtime.programs import program
from weft.runtime.replay import native

_ZONE_BYTES = 4096
_PATTERN = 0xA5


class Guarded:
    """Memory for an array, between two red zones. Views of the same strides as the array's are views of it."""

    def __init__(self, what, low, high):
        """Room for the bytes from `low` to `high`, counted from where an array's data begin."""
        self.what, self.size, self.low = what, high - low, low
        self.memory = np.full(self.size + 2 * _ZONE_BYTES + 64, _PATTERN, np.uint8)
        self.first = _ZONE_BYTES + -(self.memory.ctypes.data + _ZONE_BYTES) % 64

    def view(self, shape, dtype, strides):
        return np.ndarray(shape, dtype, self.memory.data, self.first - self.low, strides)

    def require_untouched(self):
        last = self.first + self.size
        for name, zone in (("before", self.memory[: self.first]), ("behind", self.memory[last:])):
            bad = np.flatnonzero(zone != _PATTERN)
            assert not len(bad), f"a program wrote {len(bad)} bytes {name} {self.what}"


def copy_of(what, array):
    """(the memory, an array in it that holds the same)."""
    spans = [(extent - 1) * step for extent, step in zip(array.shape, array.strides)] if array.size else []
    high = sum(s for s in spans if s > 0) + array.itemsize * bool(array.size)
    memory = Guarded(what, sum(s for s in spans if s < 0), high)
    copy = memory.view(array.shape, array.dtype, array.strides)
    copy[...] = array
    return memory, copy


def compute(self, arrays, numbers, expected=None, frame=None):
    """`Program.compute` between red zones."""
    self.places.require(arrays, expected)
    inputs = [copy_of(f"input {k}: {a.dtype}{a.shape}", a) for k, a in enumerate(arrays)]
    outputs = [copy_of(f"output {k}: {d}{s}", np.zeros(s, d)) for k, (s, d) in enumerate(self.outputs)]
    arena = Guarded("the arena", 0, self.arena_bytes)
    table, scalars = self.own_table({})
    table[0] = arena.memory.ctypes.data + arena.first
    table[self.first_array :] = [id(array) for _, array in [*inputs, *outputs]]
    for slot, (position, code) in enumerate(self.numbers):
        scalars[slot : slot + 1].view(np.float64 if code == -3 else np.int64)[0] = numbers[position]
    failed = self.function(table.ctypes.data)
    for memory in (arena, *(m for m, _ in inputs), *(m for m, _ in outputs)):
        memory.require_untouched()
    for k, (array, (_, copy)) in enumerate(zip(arrays, inputs)):
        if self.places[k].is_written and not failed:
            array[...] = copy
        else:
            assert copy.tobytes() == array.tobytes(), f"a program wrote to its input {k}, {array.dtype}{array.shape}"
    written = [copy.copy() for _, copy in outputs]
    if frame is not None:
        frame.written, frame.returned = written, [failed]
    return None if failed else written


@contextmanager
def red_zones():
    """Gives a list of the programs that ran."""
    before = program.Program.compute, native.layout
    calls = []

    def noted(self, *args):
        calls.append(self)
        return compute(self, *args)

    program.Program.compute, native.layout = noted, lambda: None
    try:
        yield calls
    finally:
        program.Program.compute, native.layout = before
