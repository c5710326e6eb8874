"""The records of a usual call in words: what native code (native_words.py) reads in place of objects.

What words point to is held by the list `held`.
"""

from math import prod

import numpy as np

from ...compiler.ops.parts import AT_KNOWN_PLACES
from ...compiler.ops.rows import row as row_op
from ..programs.places import WRITEABLE, Place, words_of
from ..programs.recording import BACKWARD, GRADIENTS, UPDATE, new_counter
from ..state.aligned import is_large, new_array
from . import native_words

_NAMES, _SELECTED = ("spec", ""), ("axis", "index")  # of attributes


def table_of(held, rows, width):
    """(address of the rows as a table, how many there are)."""
    table = np.zeros((len(rows) + 1, width), np.int64)
    for k, row in enumerate(rows):
        row = tuple(row)
        table[k, : len(row)] = row
    held.append(table)
    return table.__array_interface__["data"][0], len(rows)  # table.ctypes would be in a cycle


def fill_table(held, words, word, rows, width):
    """The rows as a table whose address is put into a word. Returns how many there are."""
    words[word], n = table_of(held, rows, width)
    return n


def words_of_guard(held, kind, thing, container, size, pairs):
    pairs, _ = table_of(held, [map(id, pair) for pair in pairs], 2)
    return kind, _id(thing), _id(container), size, pairs, id(type(thing))


def _id(x):
    return 0 if x is None else id(x)


def words_of_argument(held, key, kind, is_read, may_have_history=False):
    """may_have_history: whether native code compares one that is no leaf. Else Python does."""
    if key is None:
        held.append(kind)
        return 0, id(kind)
    shape, dtype, flag, leaf, strides = key
    with_history = native_words.WITH_HISTORY + id(flag) if may_have_history and flag else 0
    return *words_of(Place(shape, dtype, strides, False), held), id(flag) if leaf else with_history, 0, is_read


def words_of_entry(held, entry):
    """The words of an entry; none of one that Python compares."""
    if entry.op is None or entry.fresh and not is_simple(entry) or _has_many_starts(entry):
        return ()
    if entry.op is BACKWARD:
        return _backward_entry(held, entry)
    if entry.change is not None:
        return _change_entry(held, entry)
    codes = _codes(entry)
    held.append(codes)
    row = [id(entry.op), id(entry.attributes), id(entry.grad_enabled), len(codes), codes.ctypes.data]
    if entry.op is GRADIENTS:
        n_outputs, retain_graph = entry.attributes
        row[1] = id(retain_graph)
        return [*row, entry.vid, 0, n_outputs]
    if entry.op is not UPDATE:
        root = -1 if entry.root is None else entry.root
        row += [entry.vid, any(c < 0 for c in entry.operands), 0, 0, 0, 0, root]
        row += [*[0] * (native_words.FRESH - len(row)), *_fresh(held, entry)]
        at_known = AT_KNOWN_PLACES.get(entry.op)
        return row if at_known is None else [id(at_known), *row[1:], _place(held, entry)]
    rule, n_rows, n_numbers, flags, _ = entry.attributes
    targets = entry.update.targets
    storages = np.array([*map(id, entry.update.storages), *map(id, targets)], np.int64)
    views = np.array(entry.update.views, np.int64)
    held += [storages, views, flags]
    row[:2] = id(rule), id(flags)
    row += [0, n_numbers, len(codes) // n_rows, storages.ctypes.data, len(targets), 0, -1, 0, 0]
    row += [views.ctypes.data, len(views)]
    return [*row, *[0] * (native_words.N_SHOWN_AFTER - len(row)), entry.n_shown]


def _place(held, entry):
    """Of a part whose place is a number (compiler/ops/rows.py)."""
    spec, axes, is_row = entry.attributes["spec"], entry.attributes["axes"], entry.op is row_op
    names, axis = [*(_SELECTED if is_row else _NAMES)], axes[0] if is_row else None
    held += [names, spec, axis]
    n = len(entry.operands) - _n_starts(entry)
    return table_of(held, [[n, 0 if is_row else id(spec), *map(id, names), id(axis)]], 5)[0]


def _has_many_starts(entry):
    op = entry.op if entry.change is None else entry.change.op
    return op in AT_KNOWN_PLACES and _n_starts(entry) > native_words.MOST_STARTS


def _n_starts(entry):
    return sum(start is None for start, _, _ in entry.attributes["spec"])


def is_simple(entry):
    """Whether native code knows what to do with the tensors that come in with an entry: each does once."""
    once = all(entry.operands.count(vid) == 1 for vid, _, _ in entry.fresh)
    return once and entry.op is not BACKWARD and entry.op is not GRADIENTS


def _change_entry(held, entry):
    """Of a change in place: nothing calls its op, `inplace_again` finds the record of it."""
    codes, row = _codes(entry), [0] * native_words.ENTRY_WORDS
    held.append(codes)
    row[native_words.ROOT] = -1
    row[1:6] = id(entry.attributes), id(entry.grad_enabled), len(codes), codes.ctypes.data, entry.vid
    row[native_words.HAS_NUMBERS] = any(c < 0 for c in entry.operands)
    row[native_words.CHANGE : native_words.PLACE] = _change(held, entry.change), *_fresh(held, entry)
    if entry.change.op in AT_KNOWN_PLACES:
        row[native_words.PLACE] = _place(held, entry)
    return row


def _fresh(held, entry):
    rows = [(vid, position, *_rest_of_fresh(held, entry, vid, key)) for vid, position, key in entry.fresh]
    return table_of(held, rows, native_words.FRESH_WORDS)


def _rest_of_fresh(held, entry, vid, key):
    argument = words_of_argument(held, key, None, True, True)
    return *argument, prod(key[0]) * key[1].itemsize, entry.turned.get(vid, -1)


def fresh_of_span(held, fresh):
    """What comes in with a span: (place among its arguments, entry, number, key) each, which native code knows of an
    entry alone too."""
    rows = [(vid, place, *_rest_of_fresh(held, entry, vid, key)) for place, entry, vid, key in fresh]
    return table_of(held, rows, native_words.FRESH_WORDS)


def _codes(entry):
    """The operands of an entry; of a tensor from outside that comes in with it, a code of its own."""
    codes = np.array(entry.operands, np.int64)
    for _, position, _ in entry.fresh:
        codes[position] = native_words.FRESH_CODE
    return codes


def _change(held, change):
    """Where the words of a change are."""
    numbers, group = (change.old, change.new), np.array(change.group, np.int64)
    held += [change, numbers, group]
    target = 0 if change.target is None else id(change.target)
    # What no version tells of, and what is no change to native code, Python compares.
    op = 0 if change.op is None or change.is_silent else id(AT_KNOWN_PLACES.get(change.op, change.op))
    is_made = native_words.AS_LEAF if change.is_leaf else change.is_made
    row = [op, *numbers, is_made, target, group.ctypes.data, len(group)]
    for number, meta in zip(numbers, (change.old_meta, change.meta)):
        row += [id(number), id(meta), id(meta.requires_grad)]
    row += [change.given, len(change.shown), *table_of(held, change.again, native_words.AGAIN_WORDS)]
    return table_of(held, [row], native_words.CHANGE_WORDS)[0]


def _backward_entry(held, entry):
    if not entry.goes_outside or any(number >= 0 for number in entry.operands[entry.attributes[0] :]):
        return ()
    codes = np.array(entry.operands[: entry.attributes[0]], np.int64)
    pairs = np.array(list(zip(entry.step.detail.wanted, entry.numbers)), np.int64)
    held += [codes, pairs]
    undo = 0 if entry.undo is None else id(entry.undo)
    row = [id(BACKWARD), id(entry.attributes[1]), id(entry.grad_enabled), len(codes), codes.ctypes.data]
    return [*row, 0, 0, 0, pairs.ctypes.data, len(pairs), undo]


def words_of_value(held, number, meta):
    """A number, also as an object, and what is known of the value."""
    held += [number, meta]
    return [number, id(number), id(meta), id(meta.requires_grad), meta.history]


def words_of_view(held, layout, meta, made):
    """The words of a view that is a result (usual_views.py: ViewLayout). made: what a segment makes together with it,
    perhaps what it is a view of."""
    shape, strides = np.array(layout.shape, np.int64), np.array(layout.strides, np.int64)
    held += [shape, strides]
    row = [*words_of_value(held, layout.number, meta), *words_of(layout.base, held), len(shape)]
    return [
        *row,
        shape.ctypes.data,
        strides.ctypes.data,
        layout.offset,
        WRITEABLE if layout.is_writeable else 0,
        layout.root in made,
        layout.above,
    ]


def words_of_output(held, value, word, output):
    """The words of an output of the program: of a value (number, meta), or of what is only saved (None)."""
    shape, dtype = output
    # Memory that nobody touches costs none: the second one is for those who keep what the call before has returned.
    dims, pool = np.array(shape, np.int64), [new_array(*output) if is_large(*output) else None for _ in range(2)]
    held += [dims, dtype, pool]
    words = [0] * 5 if value is None else words_of_value(held, *value)
    return [*words, word, id(dtype), len(shape), dims.ctypes.data, id(pool)]


class ProgramWords:
    """What native code must know of the programs of a UsualFrame. made: numbers of the values that segments make."""

    def __init__(self, frame, held, made):
        self.stable, self.metas, self.held = frame.expectation.known, frame.metas, held
        self.made = {vid: vid for vid in made}
        held.append(self.made)

    def fill(self, words, program, live):
        """The words of a program whose first outputs are these values. Without one they stay as they are."""
        t, held = native_words, self.held
        counter = new_counter() if program is None else program.counter
        words[t.PROGRAM_CALLS] = counter.buffer_info()[0]
        held += [program, counter]
        if program is None:
            return
        table, scalars = program.own_table(self.stable)
        held += [table, scalars]
        words[t.PROGRAM], words[t.TABLE], words[t.SCALARS] = program.address, table.ctypes.data, scalars.ctypes.data
        scalars_from = [(position, code == -3) for position, code in program.numbers]
        words[t.N_SCALARS] = fill_table(held, words, t.SCALARS_FROM, scalars_from, t.SCALAR_WORDS)
        self.fill_sizes(words, program, live)

    def fill_sizes(self, words, program, live):
        """Those of them that follow from the sizes of what it reads and writes. Returns the two tables."""
        t, held = native_words, self.held
        arena_words, words[t.ARENA_BYTES] = program.native_arena
        words[t.ARENA] = arena_words.ctypes.data
        changing = [k for k, vid in enumerate(program.inputs) if vid not in self.stable]
        rows = [self._changing(program, k) for k in changing]
        words[t.N_CHANGING] = fill_table(held, words, t.CHANGING, rows, t.CHANGING_WORDS)
        inputs, rows = held[-1], [*self._outputs(program, live)]
        words[t.N_OUTPUTS], words[t.N_LIVE] = fill_table(held, words, t.LIVE, rows, t.LIVE_WORDS), len(live)
        return inputs, held[-1]

    def _changing(self, program, k):
        number = program.inputs[k]
        made = id(self.made[number]) if number in self.made else 0
        return program.first_array + k, number, *words_of(program.places[k], self.held), made

    def _outputs(self, program, live):
        first = program.first_array + len(program.inputs)
        for k, output in enumerate(program.outputs):
            value = (live[k], self.metas[live[k]]) if k < len(live) else None
            yield words_of_output(self.held, value, first + k, output)
