"""What stands for a program that is made in the background: its graph, computed op by op as eager mode does it."""

from itertools import chain, repeat
from operator import setitem

from ...compiler.extent import Extent, remade
from ...compiler.graph import Graph, Value
from ..state.aligned import new_array
from .graph_values import computed, leading_to
from .interim_loops import is_loop, loop_computed


class Interim:
    """What build.uncompiled_forward or uncompiled_backward gives, run as a Program is. `meta` as far as a call asks."""

    is_interim, serves_many, rolled, of_many = True, False, None, None

    def __init__(self, graph, numbers, meta):
        self.graph, self.numbers, self.meta, self.error = graph, numbers, meta, None

    def call(self, arrays, numbers):
        """Computes on input arrays and all numbers of the call. Returns the output arrays."""
        return self._computed(arrays, numbers)[0]

    def run(self, frame):
        """For the flight of a call. True if an op has failed; then nothing was written."""
        memory, written = frame.memory(), []
        try:
            outputs, targets, new = self._computed([memory[v] for v in self.meta["inputs"]], frame.numbers)
        except Exception as error:
            self.error = error
            return True
        frame.written, frame.returned = outputs, written
        # In C as a whole: nothing can come between two changes, or between the last one and the note of them.
        written.extend(chain(filter(None, map(setitem, targets, repeat(...), new)), (0,)))
        return False

    def _computed(self, arrays, numbers):
        """(the outputs, arrays that are to be changed, what they are to hold)."""
        graph, known = self.graph, dict(zip(self.graph.inputs(), arrays))
        known.update((v, numbers[position]) for v, (position, _) in zip(graph.scalars(), self.numbers))
        changed = [new for _, new in graph.commits]
        self._compute(known, [*graph.outputs, *changed], [numbers[position] for position, _ in self.numbers])
        # Copies, because a view may show memory that is changed.
        outputs, new = ([_copied(known[v], v) for v in values] for values in (graph.outputs, changed))
        return outputs, [known[target] for target, _ in graph.commits], new

    def _compute(self, known, results, numbers):
        """All that these values need, into `known`, which lets go of what nobody reads any more."""
        order = leading_to(results, known)
        last_uses = {o: v for v in order for o in v.operands}
        kept = {*results, *(target for target, _ in self.graph.commits)}
        for v in order:
            known[v] = self._value(v, known, numbers)
            for o in set(v.operands):
                if last_uses[o] is v and o not in kept:
                    del known[o]

    def _value(self, v, known, numbers):
        if is_loop(v):
            return loop_computed(v, [known[o] for o in v.operands], numbers, self.graph.default_float)
        return computed(v, known, self.graph.default_float)


def with_numbers(graph):
    """The graph with numbers in place of extents: what they are in this call."""
    new = Graph(graph.name, graph.default_float)
    for v in graph.values:
        operands = tuple(new.values[o.number] for o in v.operands)
        attributes, shape, strides = map(_numbered, (v.attributes, v.shape, v.strides))
        Value(new, v.op, operands, attributes, shape, v.dtype, weak=v.weak, strides=strides)
    new.outputs = [new.values[v.number] for v in graph.outputs]
    new.commits = [(new.values[target.number], new.values[value.number]) for target, value in graph.commits]
    return new


def _numbered(thing):
    if isinstance(thing, Extent):
        return thing.number
    if isinstance(thing, dict):
        return {k: _numbered(x) for k, x in thing.items()}
    if isinstance(thing, (list, tuple)):
        return remade(thing, map(_numbered, thing))
    return thing


def _copied(x, value):
    array = new_array(value.shape, value.dtype.numpy)
    array[...] = x
    return array
