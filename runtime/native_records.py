"""The records of a usual call in words: what native code (native_text.py) reads in place of objects.

What words point to is held by the list `held`.
"""

import numpy as np

from . import native_text
from .places import Place, words_of
from .recording import BACKWARD, GRADIENTS, UPDATE


def table_of(held, rows, width):
    """(address of the rows as a table, how many there are)."""
    table = np.zeros((len(rows) + 1, width), np.int64)
    for k, row in enumerate(rows):
        row = tuple(row)
        table[k, : len(row)] = row
    held.append(table)
    return table.__array_interface__["data"][0], len(rows)  # table.ctypes would be in a cycle


def words_of_guard(held, kind, thing, container, size, pairs):
    pairs, _ = table_of(held, [map(id, pair) for pair in pairs], 2)
    return kind, _id(thing), _id(container), size, pairs, id(type(thing))


def _id(x):
    return 0 if x is None else id(x)


def words_of_argument(held, key, kind, is_read):
    if key is None:
        held.append(kind)
        return 0, id(kind)
    shape, dtype, flag, _, _ = key
    return *words_of(Place(shape, dtype, None, False), held), id(flag), 0, is_read


def words_of_entry(held, entry):
    """The words of an entry; none of one that Python compares."""
    if entry.op is None or entry.fresh:
        return ()
    if entry.op is BACKWARD:
        return _backward_entry(held, entry)
    if entry.change is not None:
        return _change_entry(held, entry)
    codes = np.array(entry.operands, np.int64)
    held.append(codes)
    row = [id(entry.op), id(entry.attributes), id(entry.grad_enabled), len(codes), codes.ctypes.data]
    if entry.op is GRADIENTS:
        n_outputs, retain_graph = entry.attributes
        row[1] = id(retain_graph)
        return [*row, entry.vid, 0, n_outputs]
    if entry.op is not UPDATE:
        root = -1 if entry.root is None else entry.root
        return [*row, entry.vid, any(c < 0 for c in entry.operands), 0, 0, 0, 0, root]
    rule, n_rows, n_numbers, flags = entry.attributes
    storages = np.array([id(s) for s in entry.update.storages], np.int64)
    views = np.array(entry.update.views, np.int64)
    held += [storages, views, flags]
    row[:2] = id(rule), id(flags)
    row += [0, n_numbers, len(codes) // n_rows, storages.ctypes.data, len(storages), 0, -1, 0, 0]
    return [*row, views.ctypes.data, len(views)]


def _change_entry(held, entry):
    """Of a change in place: nothing calls its op, `inplace_again` finds the record of it."""
    codes, row = np.array(entry.operands, np.int64), [0] * native_text.ENTRY_WORDS
    held.append(codes)
    row[1:6] = id(entry.attributes), id(entry.grad_enabled), len(codes), codes.ctypes.data, entry.vid
    row[native_text.HAS_NUMBERS] = any(c < 0 for c in entry.operands)
    row[native_text.CHANGE] = _change(held, entry.change)
    return row


def _change(held, change):
    """Where the words of a change are."""
    numbers, group = (change.old, change.new), np.array(change.group, np.int64)
    held += [change, numbers, group]
    target = 0 if change.target is None else id(change.target)
    row = [id(change.op), *numbers, change.is_made, target, group.ctypes.data, len(group)]
    for number, meta in zip(numbers, (change.old_meta, change.meta)):
        row += [id(number), id(meta), id(meta.requires_grad)]
    return table_of(held, [row], native_text.CHANGE_WORDS)[0]


def _backward_entry(held, entry):
    if entry.undo is None or any(number >= 0 for number in entry.operands[entry.attributes[0] :]):
        return ()
    codes = np.array(entry.operands[: entry.attributes[0]], np.int64)
    pairs = np.array(list(zip(entry.step.detail.wanted, entry.numbers)), np.int64)
    held += [codes, pairs]
    row = [id(BACKWARD), id(entry.attributes[1]), id(entry.grad_enabled), len(codes), codes.ctypes.data]
    return [*row, 0, 0, 0, pairs.ctypes.data, len(pairs), id(entry.undo)]


def words_of_output(held, value, word, output):
    """The words of an output of the program: of a value (number, meta), or of what is only saved (None)."""
    shape, dtype = output
    dims, pool = np.array(shape, np.int64), [None, None]
    held += [dims, dtype, pool]
    words = [0] * 5
    if value is not None:
        number, meta = value
        held += [number, meta]
        words = [number, id(number), id(meta), id(meta.requires_grad), meta.history]
    return [*words, word, id(dtype), len(shape), dims.ctypes.data, id(pool)]
