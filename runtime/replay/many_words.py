"""The words of a usual call that follow from its sizes: what native code reads of arguments, of what its program reads
and writes, and of results (native_words.py), written at once for other sizes."""

import numpy as np

from ...compiler import dtypes
from ..programs.formulas import function_of, has_formula, times, with_formulas
from ..state.aligned import is_large, new_array
from . import native_words as t
from .native_records import ProgramWords, fill_table, words_of_argument

# Where the address of lengths and strides is among the words of an argument, and of what a program reads.
_LENGTHS, _META = 2, 2


class SizeWords:
    """Those of a UsualFrame of ResizedPrograms. arguments: (place, its key with Formulas) of those whose
    sizes change; programs: (words of the call or of a read in the middle, the program, numbers of what it gives)."""

    def __init__(self, usual, programs, arguments, names):
        self.usual, self._held, self._cells, self._places, self._outputs = usual, [], [], [], []
        made = [vid for segment in usual.segments for vid in segment.made]
        self._writer = ProgramWords(usual, self._held, made)
        self._arenas = [(words, program) for words, program, _ in programs]
        self._write_arguments(arguments)
        for one in programs:
            self._write_program(*one)
        self._buffer = np.zeros(max(len(self._cells), 1), np.int64)
        first = self._buffer.ctypes.data
        for table, row, column, k in self._places:
            table[row, column] = first + 8 * k
        self._fill, self._n = function_of(self._cells, names), len(self._cells)
        self._shapes = function_of([shape for *_, shape, _ in self._outputs], names)
        self._pools = []

    def _note(self, table, row, column, lengths):
        """The lengths are to be where that word of the table says."""
        self._places.append((table, row, column, len(self._cells)))
        self._cells += lengths

    def _write_arguments(self, arguments):
        usual, held = self.usual, self._held
        records = zip(usual.argument_keys, usual.argument_types, usual.reads_argument)
        rows = [words_of_argument(held, *one, not usual.changes_arguments) for one in records]
        fill_table(held, usual._native.words, t.ARGUMENTS, rows, t.ARGUMENT_WORDS)
        for place, (shape, dtype, _, _, strides) in arguments:
            self._note(held[-1], place, _LENGTHS, _lengths(shape, strides, dtype.itemsize))

    def _write_program(self, words, program, results):
        open_meta = program.of_many.code[0]
        changing, live = self._writer.fill_sizes(words, program, results)
        stable = self.usual.expectation.known
        rows = [k for k, vid in enumerate(program.inputs) if vid not in stable]
        for row, k in enumerate(rows):
            shape, name, strides, _ = with_formulas(open_meta["places"][k])
            if has_formula(shape) or has_formula(strides):
                size = dtypes.dtype_named(name).numpy.itemsize
                self._note(changing, row, 2 + _LENGTHS, _lengths(shape, strides, size))
        for row, (shape, name) in enumerate(map(with_formulas, open_meta["outputs"])):
            if has_formula(shape):
                self._note(live, row, t.SHAPE, list(shape))
                result = results[row] if row < len(results) else None
                self._outputs.append((live, row, result, tuple(shape), dtypes.dtype_named(name).numpy))

    def write(self, numbers):
        """The sizes are these; the metas of the frame are theirs."""
        metas, pools = self.usual.metas, []
        self._buffer[: self._n] = self._fill(*numbers)
        for words, program in self._arenas:
            words[t.ARENA_BYTES] = program.native_arena[1]
        for (live, row, result, _, dtype), shape in zip(self._outputs, self._shapes(*numbers)):
            if result is not None:
                live[row, _META] = id(metas[result])
            # As words_of_output has it.
            pools.append([new_array(shape, dtype) if is_large(shape, dtype) else None for _ in range(2)])
            live[row, t.POOL] = id(pools[-1])
        self._pools = pools


def _lengths(shape, strides, itemsize):
    """The shape, and the strides in bytes; as words_of (runtime/programs/places.py) has them."""
    if strides is not None:
        return [*shape, *(times(step, itemsize) for step in strides)]
    within, steps = itemsize, []
    for size in reversed(shape):
        steps.insert(0, within)
        within = times(within, size)
    return [*shape, *steps]
