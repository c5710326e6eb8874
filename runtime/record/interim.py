"""What stands for a program that is made in the background: its graph, computed op by op as eager mode does it."""

from itertools import chain, repeat
from operator import setitem

from ...compiler.graph import INPUT, SCALAR
from ..programs.description import Stretch
from ..programs.evaluate import evaluate
from ..state.aligned import new_array
from .build import uncompiled


class Interim:
    """Computes `needed` for one call. `meta` as of a Program, as far as a call asks; a backward that reads what a
    program has saved finds nothing here, so the call goes over to nodes."""

    is_interim = True

    def __init__(self, frame, needed):
        self.graph, self.inputs, self.numbers, self.meta = uncompiled(Stretch(frame), needed)
        self.n_live, self.error = len(needed.live), None

    def run(self, frame):
        """As Program.run: True if an op has failed; then nothing was written."""
        arrays, written = frame.memory(), []
        known = {v: arrays[vid] for v, vid in zip(self.graph.inputs(), self.inputs)}
        known.update((v, frame.numbers[k]) for v, (k, _) in zip(self.graph.scalars(), self.numbers))
        results = self.graph.outputs[: self.n_live], [new for _, new in self.graph.commits]
        try:
            self._compute(known, [*results[0], *results[1]])
        except Exception as error:
            self.error = error
            return True
        # Copies, because a view may show memory that the next line changes.
        outputs, new = ([_copied(known[v], v) for v in values] for values in results)
        outputs += [arrays[vid].copy() for vid in self.meta.get("before", ())]
        targets = [known[target] for target, _ in self.graph.commits]
        frame.written, frame.returned = outputs, written
        # In C as a whole: nothing can come between two changes, or between the last one and the note of them.
        written.extend(chain(filter(None, map(setitem, targets, repeat(...), new)), (0,)))
        return False

    def _compute(self, known, results):
        """All that these values need, into `known`, which lets go of what nobody reads any more."""
        order = _leading_to(results, known)
        last_uses = {o: v for v in order for o in v.operands}
        kept = {*results, *(target for target, _ in self.graph.commits)}
        for v in order:
            known[v] = self._evaluate(v, [known[o] for o in v.operands])
            for o in set(v.operands):
                if last_uses[o] is v and o not in kept:
                    del known[o]

    def _evaluate(self, value, operands):
        if value.op.name == "constant":
            return value.attributes["value"]
        types = value.op.compute_dtype and value.op.compute_dtype(value.operands, self.graph.default_float)[0]
        return evaluate(value.op, operands, value.attributes, types, value)


def _leading_to(results, known):
    """The values that are missing for some, in order."""
    missing, stack = set(), list(results)
    while stack:
        value = stack.pop()
        if value not in known and value not in missing:
            assert value.op not in (INPUT, SCALAR), value
            missing.add(value)
            stack.extend(value.operands)
    return sorted(missing, key=lambda value: value.number)


def _copied(x, value):
    array = new_array(value.shape, value.dtype.numpy)
    array[...] = x
    return array
