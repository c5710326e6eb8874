"""Programs for any number of steps of a loop in Python, which a recording holds written out.

    for t in range(x.shape[0]):
        h = torch.tanh(x[t] @ w + h @ u)

Each length is another recording, and its first one has a program of its own: of the graph as it was recorded, or, where
writing out all steps would take long, with loops (compiler/roll.py). When a stretch comes that differs from one before
in how often it repeats itself, its graph, the backward included, is written with loops too.
Such graphs of different lengths differ in nothing but numbers, and what holds for stretches that differ in numbers
(sizes.py) holds for them: numbers that are affine functions of one n become extents known at run time, and the program
serves every n for which its guards hold and of whose graph the text is the known one, character for character.

So every length is recorded, differentiated and rolled up, and what is compiled is shared. Where graphs cannot be rolled
up, or differ in more than numbers, lengths have programs of their own, and `explain` says so.
"""

import time
from functools import partial
from typing import NamedTuple

from ...compiler.extent import Fixed, Scope, is_open
from ...compiler.graph import Graph, Value
from ...compiler.ops import OWN
from ...compiler.ops.rolled import ROLLED
from ...compiler.periods import repeated
from ..code import jit
from .program import linked, load_code
from .recording import INPUT
from .sizes import Family, Instance, Unlike, affine, in_scope, merged, said_of

LEAST_STEPS = 3
# So many stretches of one form may differ in more than numbers, one after the other, before no more are tried. How many
# forms are known, and Families of one form.
_MOST_TRIES, _MAX_FORMS, _MAX_FAMILIES = 4, 16, 4
# Where so many ops repeat others, loops are written as loops from the first length on: each op that is written out
# takes a millisecond to compile, and programs run as fast. Steps of nothing but these kinds of ops are written out:
# they are one kernel then, and what they hand on stays in registers.
_LONG, _FUSED = 400, {"elementwise", "view", "source"}


class Loops:
    """What a compiled function has learned of its stretches with loops: what repeats -> _Form."""

    def __init__(self):
        self.forms = {}

    def load(self, stretch, roll, is_differentiated, what=()):
        """The program of a stretch, if one for several lengths can be; else None. roll() gives its graph, and what is
        said of that (record/build_loops.py), or None. `what`: of several programs of a stretch, which."""
        with jit.compiling:
            steps = stretch.steps if is_differentiated else stretch.built
            key, counts, n_repeated = _form_of(steps, (is_differentiated, what))
            if not counts:
                return None
            form = self.forms[key] = self.forms.pop(key, None) or _Form()
            while len(self.forms) > _MAX_FORMS:
                del self.forms[next(iter(self.forms))]
            return form.load(counts, roll, n_repeated >= _LONG)

    def load_backward(self, stretch, rolled, what):
        """That of what reads what such a program has saved, which no other way to compile knows."""
        with jit.compiling:
            return self.load(stretch, lambda: rolled, True, what) or _exact(rolled)

    @property
    def refusals(self):
        """Why each number of steps has a program of its own."""
        return list(dict.fromkeys(form.refusal for form in self.forms.values() if form.refusal))


def _form_of(steps, what):
    """(a number for what steps do, without how often; how often they do what they repeat; how many of them do)"""
    tokens = [step.op if isinstance(step.op, str) else step.op.name for step in steps if step.op is not INPUT]
    parts, counts, at, n_repeated = [], [], 0, 0
    for start, period, count in repeated(tokens, LEAST_STEPS):
        n_repeated += period * count
        parts += [*tokens[at:start], tuple(tokens[start : start + period])]
        counts.append(count)
        at = start + period * count
    return hash((what, *parts, *tokens[at:])), tuple(counts), n_repeated


class _Form:
    """Stretches that differ in how often they repeat something. `sample`: (what rolls it up, how often it repeats what)
    of the last that had a program of its own; `n_tries`: of how many since then no Family could be made; `refusal`:
    why, while there is none."""

    def __init__(self):
        self.sample, self.families, self.n_tries, self.refusal, self.is_closed = None, [], 0, None, False

    def load(self, counts, roll, is_long):
        is_new = self.sample is None or self.sample[1] == counts
        if self.is_closed:
            return None
        if is_new and not self.families:
            self.sample = self.sample or (roll, counts)
            rolled = roll() if is_long else None
            return _exact(rolled) if rolled is not None and _has_kernels(rolled.graph) else None
        began = time.perf_counter()
        rolled = roll()
        if rolled is None:
            # Of few steps the first and the last may be all.
            return self.failed("what is repeated is not of equal form")
        found = self.known(rolled) or self.new_family(counts, rolled, roll)
        if found is None:
            return None
        family, numbers = found
        code = family.code_for(numbers, rolled.graph, rolled.build, rolled.version)
        if family.refusal is not None:
            return self.refuse(family.refusal)
        return code and _linked(rolled, *code, numbers, began)

    def known(self, rolled):
        """(a Family that has the graph, the numbers of its extents), or None."""
        text = text_of(rolled.graph)
        found = ((family, family.numbers_of(text)) for family in self.families)
        return next(((family, numbers) for family, numbers in found if numbers is not None), None)

    def new_family(self, counts, rolled, roll):
        """The same of a new one, made with the sample; if it cannot be, this is the next sample."""
        if self.n_tries >= _MOST_TRIES:
            return None
        other = self.sample and self.sample[0]()
        family = other and _family(other.graph, rolled.graph)
        if family is None:
            self.sample = roll, counts
            return self.failed("what is not repeated differs from length to length")
        self.sample, self.n_tries, self.refusal = None, 0, None
        self.families = [*self.families, family][-_MAX_FAMILIES:]
        return self.known(rolled)

    def failed(self, reason):
        """No program for several lengths serves this one; after some such there will be none."""
        self.n_tries += 1
        if self.families:
            return
        self.refusal = reason
        if self.n_tries >= _MOST_TRIES:
            self.refuse(reason)

    def refuse(self, reason):
        self.refusal, self.is_closed, self.sample, self.families = reason, True, None, []


def _has_kernels(graph):
    """Whether a step of a loop is more than a part of a kernel."""
    bodies = [v.attributes["body"].graph for v in graph.values if v.op is ROLLED]
    return any(v.op.kind not in _FUSED for body in bodies for v in body.values if v.operands)


def _linked(rolled, meta, code, numbers, began):
    """The Program of a stretch: what it reads has the numbers of this recording."""
    return _of_recording(rolled, Instance(meta, numbers), code, began, n=said_of(numbers))


def _exact(rolled):
    """That for these numbers alone."""
    began = time.perf_counter()
    meta, code = load_code(f"{rolled.version}, of\n{text_of(rolled.graph)}", lambda: rolled.build(rolled.graph))
    return _of_recording(rolled, meta, code, began)


def _of_recording(rolled, meta, code, began, **own):
    program = linked(meta, code, began, has_loops=True, **own, **rolled.own())
    if "cut" in meta:  # its backward will ask
        program.rolled = rolled
    return program


# --- graphs that differ in numbers ------------------------------------------------------------------------------------
class _Real(NamedTuple):
    """A float that is a whole number, such as the count that a mean divides by; it may be an extent."""

    number: object

    def __repr__(self):
        return f"{self.number!r}.0"


def text_of(graph):
    return f"{graph.default_float!r} {graph}"


def _parts_of(graph):
    return [[v.shape, {k: _part(x) for k, x in v.attributes.items()}, v.strides] for v in graph.values]


def _part(x):
    return _Real(int(x)) if type(x) is float and x.is_integer() and repr(_Real(int(x))) == repr(x) else x


class _GraphFamily(Family):
    """Graphs whose numbers are affine functions of one n."""

    def opened(self, graph, scope):
        return _opened(graph, _as_numbers(in_scope(self.parts, scope))).verify()


def _opened(graph, parts):
    """The graph with other numbers."""
    new = Graph(graph.name, graph.default_float)
    for v, (shape, attributes, strides) in zip(graph.values, parts):
        operands, dtype = tuple(new.values[o.number] for o in v.operands), v.dtype
        if v.op.name == "constant" and is_open(attributes["value"]):
            # A rule that makes it of an extent says of which type it is then.
            dtype = v.op.infer((), attributes, graph.default_float).dtype
        Value(new, v.op, operands, attributes, shape, dtype, weak=v.weak, strides=strides)
    new.outputs = [new.values[v.number] for v in graph.outputs]
    new.commits = [(new.values[target.number], new.values[value.number]) for target, value in graph.commits]
    return new


def _as_numbers(parts):
    """Parts with floats and extents in place of _Reals."""
    return [[shape, {k: _number(x) for k, x in attributes.items()}, strides] for shape, attributes, strides in parts]


def _number(x):
    return x if not isinstance(x, _Real) else x.number if is_open(x.number) else float(x.number)


def _family(first, second):
    """The _GraphFamily of two graphs, or None."""
    if len(first.values) != len(second.values):
        return None
    old, new, found = _parts_of(first), _parts_of(second), []
    try:
        merged([old, new], lambda *pair: found.append(pair))
        if not found or any(map(_is_told_apart, first.values, second.values)):
            return None
        x, y = min(found, key=lambda pair: abs(pair[0] - pair[1]))
        parts = merged([old, new], partial(affine, x, y))
        family = _GraphFamily(parts, text_of(_opened(second, in_scope(parts, Scope(y)))))
    except (Unlike, Fixed):
        return None
    is_both = family.numbers_of(text_of(first)) == {"n": x} and family.numbers_of(text_of(second)) == {"n": y}
    return family if is_both else None


def _is_told_apart(old, new):
    """Whether a rule that is not weft's own would be given an extent: it may look at its digits."""
    return old.op.name not in {*OWN, "rolled"} and old.attributes != new.attributes
