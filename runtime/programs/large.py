"""Programs of eager mode on large operands: run without the interpreter's lock, on memory of their own.

What eager mode runs on large arrays may take long, and other threads of Python (one that loads data) go on meanwhile,
as they do while NumPy computes. So every run has its own table and its own scratch memory; what it reads and writes is
held by the caller. Nothing is written that somebody else knows, so the lock is let go of for the whole run.

Results come from arrays that nobody holds any more, if there are any of the shape and type: fresh pages cost more than
most kernels.
"""

import ctypes

import numpy as np

from ...compiler.conventions import INTERRUPTED, SEEN
from ..code import looking
from ..state.aligned import address_of, new_array
from ..state.references import first_unheld

# Giving the lock back and taking it again costs a fraction of a microsecond, if nobody else wants it.
RELEASING_ELEMENTS = 1 << 17
KEPT_BYTES = 1 << 26  # of results and of scratch memory that wait for their next use
_KEPT_OF_A_KIND = 4  # a result, the gradients of two operands, and their sum
_KEPT_ARENAS = 2

MOST_KINDS = 1024

_results = {}  # (shape, type) -> arrays; the kind that was asked for last is the last
_arenas = []


class LargeProgram:
    """A Program, run for eager mode. `n_elements`: how many it computes, roughly."""

    __slots__ = ("program", "inputs", "function", "words")

    def __init__(self, program, n_elements):
        self.program, self.inputs = program, program.inputs
        kind = ctypes.CFUNCTYPE if n_elements >= RELEASING_ELEMENTS else ctypes.PYFUNCTYPE
        self.function = kind(ctypes.c_int64, ctypes.c_void_p)(program.address)
        self.words = list(program.table[: program.first_array])
        if kind is ctypes.CFUNCTYPE and SEEN in program.meta["symbols"]:
            self.words[program.first_symbol + program.meta["symbols"].index(SEEN)] = looking.seen_address()
        # There may be thousands, and nobody asks them to explain themselves.
        program.meta = {}

    def call(self, arrays, numbers):
        """The results for these arrays, or None if a check failed. `numbers`: what has the positions of its numbers."""
        program = self.program
        program.places.require(arrays)
        outputs = [new_result(shape, dtype) for shape, dtype in program.outputs]
        scalars = (ctypes.c_double * max(len(program.numbers), 1))()
        for slot, (position, code) in enumerate(program.numbers):
            into = scalars if code == -3 else (ctypes.c_int64 * len(scalars)).from_buffer(scalars)
            into[slot] = numbers[position]
        words = [*self.words, *map(id, arrays), *map(id, outputs)]
        arena = _taken_arena(program.arena_bytes)
        words[0], words[1] = (address_of(arena) + 63) & ~63, ctypes.addressof(scalars)
        table = (ctypes.c_size_t * len(words))(*words)
        try:
            failed = self.function(ctypes.addressof(table))
            while failed == INTERRUPTED:  # nothing was written; the handler of the signal runs between these lines
                failed = self.function(ctypes.addressof(table))
        finally:
            _give_back(arena)
        return None if failed else outputs


def new_result(shape, dtype):
    """An array that nobody else holds."""
    kept = results_of(shape, dtype)
    array = first_unheld(kept)
    if array is None:
        array = new_array(shape, dtype)
        if len(kept) < _KEPT_OF_A_KIND and _has_room(array.nbytes, kept):
            kept.append(array)
    return array


def some_results(shape, dtype):
    """The list of those that wait for their next use, with two in it if there is room."""
    _ = new_result(shape, dtype), new_result(shape, dtype)
    return results_of(shape, dtype)


def results_of(shape, dtype):
    """The list of those that wait for their next use, or are in use: native code looks into it, too."""
    found = _results.pop((shape, dtype), None)
    _results[shape, dtype] = kept = [] if found is None else found
    if found is None and len(_results) > MOST_KINDS:
        for kind in [kind for kind, arrays in list(_results.items()) if not arrays and arrays is not kept]:
            _results.pop(kind, None)
    return kept


def _has_room(n_bytes, asking):
    """Whether so much more can be kept, now that what nobody holds was let go of where that was necessary."""
    excess = n_bytes + sum(a.nbytes for kept in list(_results.values()) for a in kept) - KEPT_BYTES
    for kept in list(_results.values()):
        if excess <= 0:
            break
        if kept is not asking:
            excess -= sum(a.nbytes for a in kept)
            kept.clear()
    return excess <= 0


def forget():
    """Let go of the memory that waits for its next use."""
    for kept in list(_results.values()):
        kept.clear()
    _results.clear()
    _arenas.clear()


def _taken_arena(n_bytes):
    try:
        arena = _arenas.pop()
    except IndexError:
        arena = None
    return arena if arena is not None and arena.nbytes >= n_bytes + 64 else np.empty(n_bytes + 64, np.uint8)


def _give_back(arena):
    if len(_arenas) < _KEPT_ARENAS and arena.nbytes <= KEPT_BYTES:
        _arenas.append(arena)
