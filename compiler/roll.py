"""Loops in Python that a recording holds written out, as loops again: one op for many steps of equal form.

    %5 = matmul(x[0], w)                                    body {matmul(%0, %1), matmul(%2, ...), ...}
    ...                                                     %5 = rolled(x, w, h0) {count=200, body=...}
    %1203 = tanh(%1202)                    ->               stack(...): a part of %5

`roll` looks for ops that repeat. Steps are of equal form if each does the same ops, and reads, in the same places, what
the same step has made, what the step before has made, the same value in all steps, a row of an array that moves on
evenly (x[t], the result of step t of another loop), or a run-time number of its own. Steps at the ends that are not
are left as they are. What is rolled stands for the very ops that were there, in their order, so bits are the same.

A graph so written does not grow with the number of steps, and programs for many numbers can share one
(runtime/programs/loops.py).
"""

from dataclasses import dataclass
from math import prod

from .graph import INPUT, SCALAR, Graph
from .ops.rolled import ROLLED, Body, regions
from .ops.table import TABLE
from .ops.view import cat, reshape, slice_
from .periods import repeated
from .reads import can_fail

# Fewer steps than this are left as they are.
LEAST_STEPS = 3
# So many places of a short repetition are looked at for steps of equal form.
_MOST_TRIED = 8


@dataclass(frozen=True, slots=True)
class Rolled:
    """`graph`; `scalars`: of which run-time scalar of the old graph each of the new one's is the value."""

    graph: Graph
    scalars: list


def roll(graph):
    """graph in simple form -> Rolled, or None if nothing repeats."""
    if any(0 in v.shape for v in graph.values):
        return None
    found = _Search(graph)
    found.search()
    return _Writer(found).write() if found.loops else None


# --- what stands where ------------------------------------------------------------------------------------------------
def _row_of(value):
    """(array, axis, index) of which row of an array a value is, with or without the axis; None of others."""
    part = value
    if value.op is reshape and value.operands[0].op is slice_:
        part = value.operands[0]
    if part.op is not slice_:
        return None
    array, spec = part.operands[0], part.attributes["spec"]
    cut = [k for k, (one, d) in enumerate(zip(spec, array.shape)) if one != (0, 1, d)]
    if len(cut) != 1 or spec[cut[0]][2] != 1:
        return None
    without = (*array.shape[: cut[0]], *array.shape[cut[0] + 1 :])
    return (array, cut[0], spec[cut[0]][0]) if part is value or value.shape == without else None


def _has_new_axis(value, axis):
    """Whether it is its operand with one more dimension there."""
    if value.op is not reshape:
        return False
    old = value.operands[0].shape
    return value.shape == (*old[:axis], 1, *old[axis:])


@dataclass(eq=False, slots=True)
class _Loop:
    """Steps of equal form. `items`: first of their ops, ops of a step, steps; `reads`: per operand of a step's ops what
    it is (_Search.form), where the first step reads it; `moves`: how far it moves on in a step; `carried`: position of
    an op -> what stands for it before the first step. `outputs`: positions of the ops that others read, and whether
    they read more than the last step's."""

    start: int
    period: int
    count: int
    forms: dict
    moves: dict
    carried: dict
    outputs: dict = None

    def step(self, place):
        """(step, position in it) of an op, None of one that is not in the loop."""
        k, position = divmod(place - self.start, self.period)
        return (k, position) if 0 <= k < self.count else None


class _Search:
    """Finds the loops of a graph. `items`: its values but sources, rows, and what only gives them to a join."""

    def __init__(self, graph):
        self.graph = graph
        self.rows = {v.number: row for v in graph.values if v.op.kind == "view" and (row := _row_of(v)) is not None}
        self.of_joins = self._of_joins()
        self.items = [v for v in graph.values if self._is_item(v)]
        self.place = {v.number: k for k, v in enumerate(self.items)}
        self.loops = []

    def _of_joins(self):
        """Numbers of the values with one more axis, of which all uses are joins along it."""
        found = {}
        for v in self.graph.values:
            for o in v.operands:
                is_joined = v.op is cat and _has_new_axis(o, v.attributes["axis"])
                found[o.number] = is_joined and found.get(o.number, True)
        for v in self.graph.results():
            found[v.number] = False
        return {number for number, is_joined in found.items() if is_joined}

    def _is_item(self, v):
        return bool(v.operands) and v.number not in self.rows and v.number not in self.of_joins

    def search(self):
        known = {}
        tokens = [known.setdefault(_token(v), len(known)) for v in self.items]
        for start, period, count in repeated(tokens, LEAST_STEPS):
            loop = self.fitted(start, period, count)
            if loop is not None:
                self.loops.append(loop)
        self.find_outputs()

    # --- one loop -----------------------------------------------------------------------------------------------------
    def loop_of(self, value):
        """(loop, step, position) of an op in one; None of others."""
        place = self.place.get(value.number)
        for loop in self.loops if place is not None else ():
            found = loop.step(place)
            if found is not None:
                return loop, *found
        return None

    def fitted(self, start, period, count):
        """The _Loop of the longest run of these steps that are of equal form, or None."""
        if any(map(can_fail, self.items[start : start + period])):
            return None
        steps = [self._forms(k, start, period, count) for k in range(count)]
        # What is like its neighbours there is like most; of few steps the first and last may be of another form.
        for middle in dict.fromkeys((count // 2, count - 2, 1, *range(1, min(count - 1, _MOST_TRIED)))):
            found = self._around(min(middle, count - 2), steps, start, period)
            if found is not None:
                return found
        return None

    def _around(self, middle, steps, start, period):
        """The _Loop of the steps that are of equal form with two that follow each other."""
        moves = {slot: steps[middle + 1][slot][1] - form[1] for slot, form in steps[middle].items()}

        def forms(k):
            """Those of step k, if it is like the one in the middle."""
            away = k - middle
            return {s: (form[0], form[1] + moves[s] * away, form[2]) for s, form in steps[middle].items()}

        def fits(k):
            return steps[k] == forms(k)

        def first_values(k):
            return self._before(start + k * period, forms(k), steps[k])

        if not (fits(middle) and fits(middle + 1)) or any(form[0] == "other step" for form in steps[middle].values()):
            return None
        first, last = middle, middle + 1
        while first > 0 and fits(first) and first_values(first - 1) is not None:
            first -= 1
        while last + 1 < len(steps) and fits(last + 1):
            last += 1
        begin, carried = start + first * period, first_values(first)
        if carried is None or last + 1 - first < LEAST_STEPS:
            return None
        return _Loop(begin, period, last + 1 - first, forms(first), moves, carried)

    def _forms(self, k, start, period, count):
        """(position of an op, which operand) -> its form, in step k."""
        begin = start + k * period
        return {
            (j, n): self.form(o, k, start, period, count)
            for j in range(period)
            for n, o in enumerate(self.items[begin + j].operands)
        }

    def form(self, o, k, start, period, count):
        """(kind, number that may move on, what it is of) of an operand in step k."""
        place = self.place.get(o.number)
        if place is not None and start <= place < start + count * period:
            step, position = divmod(place - start, period)
            kind = {0: "this step", 1: "step before"}.get(k - step, "other step")
            return kind, 0, position
        if o.op is SCALAR:
            return "scalar", 0, o.dtype
        if o.number in self.rows:
            array, axis, index = self.rows[o.number]
            return "row", index, (array.number, axis, o.shape)
        found = self.loop_of(o)
        if found is not None:
            loop, step, position = found
            return "result", step, (self.loops.index(loop), position)
        return "same", 0, o.number

    def _before(self, begin, wanted, given):
        """position -> what stands for its result before a step, if that can be the first of a loop; else None."""
        found = {}
        for (j, n), form in wanted.items():
            o = self.items[begin + j].operands[n]
            if form[0] in ("step before", "row") and not self._is_made(o, begin):
                return None
            if form[0] != "step before":
                if given[j, n] != form:
                    return None
                continue
            like = self.items[begin + form[2]]
            if o.weak or (o.shape, o.dtype) != (like.shape, like.dtype) or found.setdefault(form[2], o) is not o:
                return None
        return found

    def _is_made(self, value, begin):
        """Whether it is there before an item."""
        while value.number in self.rows:
            value = self.rows[value.number][0]
        return self.place.get(value.number, -1) < begin

    # --- what others read ---------------------------------------------------------------------------------------------
    def find_outputs(self):
        """Leaves out the loops whose results are of several types, and all after them, which may read them."""
        for k, loop in enumerate(self.loops):
            loop.outputs = self._outputs(loop)
            types = {self.items[loop.start + j].dtype for j in loop.outputs}
            if len(types) != 1:
                del self.loops[k:]
                return

    def _outputs(self, loop):
        found = dict.fromkeys(loop.carried, False)
        inside = range(loop.start, loop.start + loop.period * loop.count)
        read = [o for v in self.graph.values if self.place.get(v.number, -1) not in inside for o in v.operands]
        for o in (*read, *self.graph.results()):
            place = self.place.get(o.number)
            step = None if place is None else loop.step(place)
            if step is not None:
                found[step[1]] = found.get(step[1], False) or step[0] != loop.count - 1
        return dict(sorted(found.items()))


def _token(v):
    attributes = repr(sorted(v.attributes.items())) if v.attributes else ""
    return v.op, attributes, v.shape, v.dtype, len(v.operands)


# --- the graph with loops ---------------------------------------------------------------------------------------------
class _Writer:
    """Writes the new graph."""

    def __init__(self, search):
        self.search, self.old = search, search.graph
        self.graph = Graph(self.old.name, self.old.default_float)
        self.new, self.made, self.slots, self.scalars = {}, {}, {}, []

    def write(self):
        inside = {
            place: loop
            for loop in self.search.loops
            for place in range(loop.start, loop.start + loop.period * loop.count)
        }
        self._sources(inside)
        for place, item in enumerate(self.search.items):
            loop = inside.get(place)
            if loop is None:
                self.new[item.number] = self._joined(item) if item.op is cat else self._copy(item)
            elif place == loop.start + loop.period * loop.count - 1:
                self.made[id(loop)] = self._rolled(loop)
        graph = self.graph
        graph.outputs = [self.value(v) for v in self.old.outputs]
        graph.commits = [(self.value(target), self.value(new)) for target, new in self.old.commits]
        return Rolled(graph, self.scalars)

    def _sources(self, inside):
        """Inputs in their order, and the scalars that no loop has for itself."""
        place = self.search.place
        read = {o.number for v in self.old.values if place.get(v.number, -1) not in inside for o in v.operands}
        self.slots = {v.number: k for k, v in enumerate(self.old.scalars())}
        kept = {v.number for v in self.old.results()} | read
        kept |= {o.number for loop in self.search.loops for o in loop.carried.values()}
        for v in self.old.values:
            if v.op is INPUT or (v.op is SCALAR and v.number in kept):
                self.new[v.number] = self.graph.copy_value(v, ())
                if v.op is SCALAR:
                    self.scalars.append(self.slots[v.number])

    def value(self, old):
        """The new value that stands for an old one."""
        if old.number not in self.new:
            found = self.search.loop_of(old)
            if found is None:
                self.new[old.number] = self._copy(old)
            else:
                loop, step, position = found
                self.new[old.number] = self._rows(loop, position, step, 1, old.shape)
        return self.new[old.number]

    def _copy(self, old):
        return self.graph.copy_value(old, tuple(map(self.value, old.operands)))

    def _rows(self, loop, position, step, count, shape):
        """Rows of some steps, under a shape."""
        rolled = self.made[id(loop)]
        start, size = regions(rolled.attributes)[list(loop.outputs).index(position)]
        if loop.outputs[position]:
            start += step * size
        part = self.graph.apply(TABLE["slice"], (rolled,), {"spec": ((start, 1, count * size),)})
        return self.graph.apply(TABLE["reshape"], (part,), {"shape": shape})

    def _rolled(self, loop):
        items = self.search.items
        operands, reads, scalars = {}, {}, []
        for slot, form in loop.forms.items():
            o = items[loop.start + slot[0]].operands[slot[1]]
            is_array = form[0] == "same" and (o.operands or o.op is INPUT)
            if is_array or form[0] in ("row", "result"):
                reads.setdefault((form, loop.moves[slot]), (self._read(form, loop.moves[slot], o, operands), o))
        carried = {j: (self._place(o, operands), o) for j, o in sorted(loop.carried.items())}
        body = Graph("step", self.old.default_float)
        given = {key: body.input(o.shape, o.dtype) for key, (_, o) in reads.items()}
        before = {j: body.input(o.shape, o.dtype) for j, (_, o) in carried.items()}
        made, constants = [], {}

        def operand(j, n, o):
            form = loop.forms[j, n]
            if form[0] == "this step":
                return made[form[2]]
            if form[0] == "step before":
                return before[form[2]]
            if form[0] == "scalar":
                scalars.append((j, n))
                return body.scalar(o.dtype)
            if (form, loop.moves[j, n]) in given:
                return given[form, loop.moves[j, n]]
            if o.number not in constants:
                constants[o.number] = body.copy_value(o, ())
            return constants[o.number]

        for j in range(loop.period):
            item = items[loop.start + j]
            made.append(body.copy_value(item, tuple(operand(j, n, o) for n, o in enumerate(item.operands))))
        body.outputs = [made[j] for j in loop.outputs]
        order = {j: k for k, j in enumerate(loop.outputs)}
        first_scalar = len(self.scalars)
        for k in range(loop.count):
            step = loop.start + k * loop.period
            self.scalars += [self.slots[items[step + j].operands[n].number] for j, n in scalars]
        attributes = {
            "body": Body(body),
            "count": loop.count,
            "reads": tuple(read for read, _ in reads.values()),
            "carried": tuple((place, 0, order[j]) for j, (place, _) in carried.items()),
            "kept": tuple(loop.outputs.values()),
            "scalars": first_scalar,
        }
        return self.graph.apply(ROLLED, tuple(operands), attributes)

    def _place(self, old, operands):
        """Which operand of the loop a value is."""
        return self._operand(self.value(old), operands)

    @staticmethod
    def _operand(new, operands):
        return operands.setdefault(new, len(operands))

    def _read(self, form, move, o, operands):
        """(operand, first element, elements further on in every step)"""
        if form[0] == "same":
            return self._place(o, operands), 0, 0
        if form[0] == "row":
            number, axis, _ = form[2]
            array = self.old.values[number]
            size = prod(array.shape) // array.shape[axis]
            return self._operand(self._in_front(array, axis), operands), form[1] * size, move * size
        loop = self.search.loops[form[2][0]]
        rolled = self.made[id(loop)]
        start, size = regions(rolled.attributes)[list(loop.outputs).index(form[2][1])]
        return self._operand(rolled, operands), start + form[1] * size, move * size

    def _in_front(self, array, axis):
        """The array with an axis in front of the others."""
        new = self.value(array)
        if axis == 0:
            return new
        if (array.number, axis) not in self.new:
            axes = (axis, *(d for d in range(len(array.shape)) if d != axis))
            self.new[array.number, axis] = self.graph.apply(TABLE["permute"], (new,), {"axes": axes})
        return self.new[array.number, axis]

    # --- joins --------------------------------------------------------------------------------------------------------
    def _joined(self, join):
        """A join, in which rows of steps that follow each other are one part."""
        axis, runs = join.attributes["axis"], []
        for o in join.operands:
            found = self.search.loop_of(o.operands[0] if o.number in self.search.of_joins else o)
            if found is not None and runs and runs[-1][1:] == [found[0], found[2], found[1] - runs[-1][4], runs[-1][4]]:
                runs[-1][4] += 1
            else:
                loop, step, position = found or (None, 0, 0)
                runs.append([o, loop, position, step, 1])
        parts = [self.value(o) if n == 1 else self._along(*run, n, o.shape, axis) for o, *run, n in runs]
        return parts[0] if len(parts) == 1 else self.graph.apply(join.op, tuple(parts), join.attributes)

    def _along(self, loop, position, step, count, shape, axis):
        """Rows of several steps, one after the other along an axis of theirs."""
        rows = self._rows(loop, position, step, count, (count, *shape))
        if axis:
            axes = (*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1))
            rows = self.graph.apply(TABLE["permute"], (rows,), {"axes": axes})
        shape = (*shape[:axis], count * shape[axis], *shape[axis + 1 :])
        return self.graph.apply(TABLE["reshape"], (rows,), {"shape": shape})
