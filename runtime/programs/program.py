"""Programs: the native code of a stretch of a recording, found in memory or on disk, or compiled now.

The key of a program is the text of its recorded steps, so finding one on disk needs neither the graph nor LLVM.
"""

import ctypes
import threading
import time
from collections import ChainMap
from contextlib import contextmanager
from copy import copy
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from ...compiler import dtypes
from ...compiler.conventions import INTERRUPTED, LET_GO, SEEN
from ..code import jit, kernels, looking, threads
from ..code.cache import default_cache, pack, unpack
from ..state.aligned import new_array
from ..state.references import first_unheld
from ..state.turns import not_following, set_writing
from . import background, progress
from .arena import arena
from .description import Stretch
from .flights import Flight
from .places import Places
from .recording import new_counter
from .writing import Writing

# Reusing a large result that nobody holds any more saves its page faults, which cost more than most kernels.
_REUSED_BYTES = 16384
_REUSED_COUNT = 3
_MORE_THAN_THERE_IS = 1 << 62  # bytes

set_writing(Writing)


class NotThere(Exception):
    """A program that nobody waits for now would have to be loaded or compiled."""


class _Patience(threading.local):
    has_time = True  # for programs to be loaded and compiled


_patience = _Patience()
captures = []  # of those who want to know what programs are made of and run on (capture.py)


class Needed(NamedTuple):
    """What must exist after a flush: numbers of values, of views of them, (input, new value) pairs to be written into
    the input's memory, and (at the end of a call) the values that a backward may start from."""

    live: tuple
    views: tuple
    commits: tuple
    differentiable: tuple


class Program:
    """Loaded code and how to call it.

    A program may be run by its address on a table of one's own while the interpreter lock is held. That is not done
    with those of which `lets_go` says that they let go of the lock: native code finds that the arena has no room for
    them (`native_arena`), and leaves them to `compute`.

    meta (also stored on disk): "inputs" numbers of values, "writes" which of them it writes into (by position),
    "places" how they lie in memory, "numbers" (position, kind)
    of run-time numbers, "extents" the numbers that its code wants to be told, "outputs" (shape, dtype name), "n_live",
    "arena", "has_team" and "worker_bytes" as in the plan, "symbols" the routines it calls, "plan" what explain shows.
    """

    is_interim, error = False, None
    of_many = None  # the OfMany that made it, if its code is for many sizes (sizes.py)
    rolled = None  # what it was made of, if its loops are rolled up and a backward may follow (loops.py)
    pool_word, first_symbol = 2, 3  # words of a table: compiler/emit/program.py

    def __init__(self, meta, library):
        self.library = library
        self.serves_many = "n" in meta  # its code is for many sizes (sizes.py), and this is for those of one call
        self.first_array = self.first_symbol + len(meta["symbols"])
        self.inputs = tuple(meta["inputs"])
        self.input_set = frozenset(self.inputs)
        self.writes, self.lets_go = tuple(meta.get("writes", ())), LET_GO in meta["symbols"]
        self.numbers = tuple((k, float(code)) for k, code in meta["numbers"])
        self.has_team = meta["has_team"]
        self.take_sizes(meta)
        self.address = library.address("weft_program")
        self.function = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self.address)
        self._make_table([0] * (self.first_array + len(self.inputs) + len(self.outputs)))
        for k, symbol in enumerate(meta["symbols"]):
            self.table[self.first_symbol + k] = kernels.routine(symbol)
        if self.lets_go:
            self.table[self._word_of(LET_GO)] = 0
        if self.has_team:
            self.table[self.pool_word] = threads.pool_address()
        self.counter = new_counter()

    def take_sizes(self, meta):
        """Be the program of these sizes."""
        self.meta, self.places = meta, Places(meta["places"])
        self.outputs = outputs_of(meta)
        self.pools = pools_of(self.outputs)
        self.tell_extents(meta["extents"])
        if self.has_team:
            threads.reserve_scratch(meta["worker_bytes"])
        self.set_arena(meta["arena"])

    def tell_extents(self, extents):
        """Write the numbers that its code wants to be told where it reads them."""
        if extents:
            numbers = (ctypes.c_int64 * len(extents))(*extents)
            ctypes.memmove(self.library.address("extents"), numbers, ctypes.sizeof(numbers))

    def set_arena(self, n_bytes):
        self.arena_bytes = n_bytes
        words = arena.words_of_writers if self.writes else arena.words
        self.native_arena = words, _MORE_THAN_THERE_IS if self.lets_go else self.arena_bytes

    @property
    def calls(self):
        return self.counter[0]

    @calls.setter
    def calls(self, value):
        self.counter[0] = value

    def can_run(self, frame):
        """Whether everything the program reads is in memory."""
        return self.input_set <= frame.arrays.keys()

    def call(self, arrays, numbers, expected=None):
        """Run on input arrays and all numbers of the call. Returns the output arrays, or None if a check failed.
        `expected`: the Expectation that some of the arrays are from, if the call has met one."""
        self.counter[0] += 1
        return self.compute(arrays, numbers, expected)

    def compute(self, arrays, numbers, expected=None, frame=None):
        """`call` for those who count their calls themselves. The frame learns at once when it has been done."""
        self.places.require(arrays, expected)
        outputs = self.new_outputs()
        returned = []
        if frame is not None:
            frame.written, frame.returned = outputs, returned
        self._run(arrays, outputs, numbers, returned)
        if captures:
            captures[-1].ran(self, arrays, numbers, outputs)
        return None if returned[0] else outputs

    def _run(self, arrays, outputs, numbers, returned):
        """Run, and note what it returned in the moment it ends."""
        if not self.lets_go:
            # The interpreter may switch threads between filling the table and running on it.
            with arena.in_use:
                if not self.must_ask:
                    run = self._with_free_table()
                    try:
                        # Its holder is here: a larger one may take its place meanwhile.
                        block = self.scratch()
                        run._run_on(block, arrays, outputs, numbers, returned)
                    finally:
                        run.in_use = False
                    return
        with not_following():
            self._run_apart(arrays, outputs, numbers, returned)

    @property
    def must_ask(self):
        """Whether programs are in flight that might read what this one writes."""
        return bool(self.writes) and arena.is_lent

    def _run_apart(self, arrays, outputs, numbers, returned):
        """The same while other programs are in flight, with a block of the arena of its own."""
        flight, lent, run = Flight(arrays, self.writes), arena.loan(), None
        try:
            flight.begin(not arena.is_used_here())
            with arena.in_use:
                # Who has found that no program was in flight is done now.
                run = self._with_free_table()
                lent.take(self.arena_bytes)
            if self.lets_go:
                run.table[self._word_of(LET_GO)] = kernels.routine(LET_GO)
                if SEEN in self.meta["symbols"]:
                    run.table[self._word_of(SEEN)] = looking.seen_address()
            run._run_on(lent.block, arrays, outputs, numbers, returned)
        finally:
            lent.give_back()
            flight.end()
            if run is not None:
                run.in_use = False

    def _word_of(self, symbol):
        """Where its table has the address of a routine that it calls."""
        return self.first_symbol + self.meta["symbols"].index(symbol)

    def _with_free_table(self):
        """The program with a table that nobody else is filling."""
        run = self if not self.in_use else self.with_own_table()
        run.in_use = True
        return run

    def _run_on(self, block, arrays, outputs, numbers, returned):
        self.table[0] = block[0]
        self.table[self.first_array :] = list(map(id, arrays + outputs))
        self.fill_numbers(numbers)
        # In C as a whole: nothing can come between the end of the program and the note of it.
        returned.extend(map(self.function, self.table_address))
        while returned[0] == INTERRUPTED:
            # Nothing was written. The handler of the signal runs here; if it raises nothing, all begins again.
            returned.clear()
            returned.extend(map(self.function, self.table_address))

    def new_outputs(self):
        """Arrays for the results of a run."""
        empty = np.empty
        return [
            empty(shape, dtype) if pool is None else self._output(pool, shape, dtype)
            for (shape, dtype), pool in zip(self.outputs, self.pools)
        ]

    def scratch(self):
        """The arena's block, which who runs the program has to hold."""
        return arena.block if self.arena_bytes <= arena.block[1] else arena.reserve(self.arena_bytes)

    def fill_numbers(self, numbers):
        """Write those of a call that the program reads where its table says that they are."""
        for slot, (position, code) in enumerate(self.numbers):
            (self.scalars if code == -3 else self.integers)[slot] = numbers[position]

    def with_own_table(self):
        """The program with a table of its own, such as for a finalizer or a signal handler that interrupts the filling
        of the first one."""
        other = copy(self)
        other._make_table(list(self.table))
        return other

    def _make_table(self, words):
        self.scalars = (ctypes.c_double * max(len(self.numbers), 1))()
        self.integers = (ctypes.c_int64 * len(self.scalars)).from_buffer(self.scalars)
        self.table = (ctypes.c_size_t * len(words))(*words)
        self.table[1] = ctypes.addressof(self.scalars)
        self.table_address = (ctypes.addressof(self.table),)
        self.in_use = False

    def own_table(self, stable):
        """(table, its scalars) for a caller that fills in the rest by itself, and runs it: the inputs in `stable` are
        there. The others must be as `places` says."""
        table, scalars = np.array(self.table, np.uint64), np.zeros(max(len(self.numbers), 1), np.uint64)
        table[1] = scalars.ctypes.data
        if self.lets_go:
            table[self._word_of(LET_GO)] = 0
        for k, vid in enumerate(self.inputs):
            if vid in stable:
                self.places.require_one(k, stable[vid])
                table[self.first_array + k] = id(stable[vid])
        return table, scalars

    def release(self):
        """Give back the arrays that are kept for results to come."""
        for pool in self.pools:
            if pool is not None:
                pool.clear()

    @staticmethod
    def _output(pool, shape, dtype):
        array = first_unheld(pool)
        if array is None:
            array = new_array(shape, dtype)
            if len(pool) < _REUSED_COUNT:
                pool.append(array)
        return array

    def run(self, frame):
        """Run for the flight of a call. True if a check failed; then nothing was written."""
        known = frame.memory()
        self.counter[0] += 1
        arrays = [known[v] for v in self.inputs]
        return self.compute(arrays, frame.numbers, frame.met_expected, frame) is None


def outputs_of(meta):
    """(shape, NumPy's dtype) of each array that a program writes."""
    return tuple([(tuple(shape), dtypes.dtype_named(name).numpy) for shape, name in meta["outputs"]])


def pools_of(outputs):
    """Where arrays are kept that are large enough to be used again."""
    return tuple([[] if prod(s) * d.itemsize >= _REUSED_BYTES else None for s, d in outputs])


@contextmanager
def with_what_is_there():
    """A block in which programs run that are in memory, and all others raise NotThere."""
    before = _patience.has_time
    try:
        _patience.has_time = False
        yield
    finally:
        _patience.has_time = before


def program_for(frame, needed):
    """The program that computes `needed` from what is in memory. Raises NotReady while it is made in the background."""
    known = frame.step.known
    last = known.last
    if last is not None and last[0] == frame.flushed and last[1] == needed and last[2].can_run(frame):
        return last[2]
    key = (frame.flushed, needed)
    program = known.forward.get(key)
    if program is not None and program.can_run(frame):
        known.last = (frame.flushed, needed, program)
        return program
    if not _patience.has_time:
        raise NotThere("it was interrupted before its program was there; nothing of it was computed")
    with in_background(frame):
        program = _load_forward(frame, needed)
    known.forward[key] = program
    frame.recording.programs.append(program)
    return program


def in_background(frame, may_be=True):
    """A block in which programs of a call are made as its function was compiled: waited for or in the background."""
    return background.made_there(may_be and frame.recording.in_background and not captures)


def _build(stretch, needed):
    from ..record.build import build_forward

    return build_forward(stretch, needed)


def _roll(stretch, needed):
    from ..record.build_loops import rolled_forward

    return rolled_forward(stretch, needed)


def _roll_backward(*arguments):
    from ..record.build_loops import rolled_backward

    return rolled_backward(*arguments)


def _load_forward(frame, needed):
    """One for several sizes if that is wanted and can be."""
    stretch, sizes = Stretch(frame), frame.recording.sizes
    if captures:
        captures[-1].described(stretch, needed)
    with progress.shown(frame.recording.name, frame.step.depth):
        if sizes is None:
            return load_program(stretch.text(needed), lambda: _build(stretch, needed))
        build, openings, text = partial(_build, needed=needed), frame.recording.openings, stretch.text(needed)
        if sizes.loops is not None:
            found = sizes.loops.load(stretch, partial(_roll, stretch, needed), bool(needed.differentiable))
            if found is not None:
                return found

        def describe(described):
            return text if described is stretch else described.text(needed)

        return sizes.load(stretch, describe, build, bool(needed.differentiable), openings)


def load_backward(frame, describe, build):
    """The program of a backward, which describe(stretch) names and build(stretch, split) makes. It reads what the
    forward has saved: what that is was decided when the forward was compiled, for its sizes."""
    stretch, sizes, last = Stretch(frame), frame.recording.sizes, frame.last_program
    if sizes is None:
        return load_program(describe(stretch), lambda: build(stretch, None))
    if last.serves_many:
        split = last.meta["split"]
        return sizes.load_backward(stretch, describe, partial(build, split=split), str(split), frame.recording.openings)
    return sizes.load_exact(stretch, describe, partial(build, split=None))


def load_rolled_backward(frame, needed, present, continued):
    """The same where loops of the forward are rolled up; None if what it has saved is not enough."""
    stretch, program = Stretch(frame), frame.last_program
    rolled = _roll_backward(stretch, program.rolled, program.meta["cut"], needed, present, continued)
    if rolled is None:
        return None
    order, reached = needed.differentiable, program.meta["reached"]
    what = (tuple(map(order.index, present)), tuple(map(reached.index, continued)))
    is_whole = present == order and not continued
    return frame.recording.sizes.loops.load_backward(stretch, rolled, () if is_whole else what)


def load_program(text, build):
    """The program stored under a text, or the one `build() -> (meta, IR text)` makes; None if it cannot make one."""
    with jit.compiling:
        return _find(text, build)


def _find(text, build):
    began = time.perf_counter()
    found = load_code(text, build)
    return found and linked(*found, began)


def linked(meta, code, began, **own):
    """The Program of loaded code, which was asked for at this time; `own`: what is said of it beside its meta."""
    library = jit.link(code)
    return Program(ChainMap(own, meta, {"seconds": time.perf_counter() - began}), library)


def load_code(text, build):
    """The (meta, machine code) stored under a text, or of what `build() -> (meta, IR text)` makes; `jit.compiling` is
    held. Raises NotReady where that is to be made in the background."""
    is_made, found = background.take(text)
    if is_made:
        return found
    cache = default_cache()
    entry = cache.get(text)
    if entry is not None:
        meta, code = unpack(entry.payload)
        return {**meta, "source": "disk"}, code
    background.begin(text, build)
    made = build()
    if made is None:
        return None
    meta, ir = made
    code = _compiled(meta, ir)
    cache.put(text, pack(meta, code))
    return {**meta, "source": "compiled"}, code


def _compiled(meta, ir):
    """Object code of a program; meanwhile that of what it calls, which its loading will ask for."""
    with jit.compiling:
        compilation = jit.begin_in_parts(ir)
        kernels.begin_routines(meta["symbols"])
        if meta["has_team"]:
            threads.pool_address()
        return compilation.finish()
