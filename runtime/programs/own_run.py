"""A program on a table of its own, for a caller that knows all it runs on but some arrays."""

import threading

from ...compiler.conventions import INTERRUPTED
from . import program as programs


def own_run(program, numbers, known, positions):
    """run(arrays): new outputs of the program, for the inputs at these positions.

    known: array by position, of the other inputs. `run` gives None where it cannot be done: an index was out of range,
    or somebody is at it already. The arrays must lie as the program's `places` say.
    """
    for k, array in known.items():
        program.places.require_one(k, array)
    own = program.with_own_table()
    own.fill_numbers(numbers)
    first, table = own.first_array, own.table
    for k, array in known.items():
        table[first + k] = id(array)
    slots = [first + k for k in positions]
    slots += range(first + len(own.inputs), len(table))
    function, (address,), counter = own.function, own.table_address, own.counter
    new_outputs, scratch = own.new_outputs, own.scratch
    lock = threading.Lock()
    take, release = lock.acquire, lock.release

    def run(arrays):
        if not take(False):
            return None
        try:
            outputs = new_outputs()
            held = scratch(), known, own  # alive until the program has run
            table[0] = held[0][0]
            for slot, address_of_array in zip(slots, map(id, arrays + outputs)):
                table[slot] = address_of_array
            counter[0] += 1
            code = function(address)
            while code == INTERRUPTED:  # nothing was written; the handler of the signal runs between these lines
                code = function(address)
        finally:
            release()
        return None if code else outputs

    return run


def are_watched():
    """Whether somebody wants to know what programs run on."""
    return bool(programs.captures)
