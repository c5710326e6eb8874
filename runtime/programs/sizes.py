"""Programs that serve many sizes: batches of other lengths, sequences that grow.

The first shapes of a function are compiled for what they are. When a stretch of a recording comes that differs from one
before in nothing but numbers, and these are affine functions of one n, the program is compiled once more with n as an
extent known at run time (compiler/extent.py). It serves every n for which its guards hold; outside of them there may be
a few others.

    float32(200, 8) ... shape (1600,)      the text of a stretch
    float32(204, 8) ... shape (1632,)      another one
    float32(⟦1*n⟧, 8) ... shape (⟦8*n⟧,)   both, and many more: a Family

Where a dimension is said to change, or has changed in the arguments since another call, one stretch is enough: what of
it depends on n is supposed (opening.py).

That two samples agree proves nothing about a third. Nothing has to be proved: every call is recorded with its own
shapes, and a program is used only if the Family's text for its n is the text of that recording, character for
character.
"""

import os
import re
import time
import traceback
from copy import copy
from dataclasses import replace
from functools import partial

from ...compiler.extent import LEAST, Coincidence, Fixed, Scope, evaluate, filled, hold, is_open
from ...compiler.ops import OWN
from ..code import jit
from .background import NotReady
from .description import Stretch
from .opening import Affine, Multilinear, supposed
from .program import linked, load_code, load_program
from .recording import ValueMeta

_MAX_SAMPLES = 4
_MAX_FAMILIES = 4
_MAX_PROGRAMS = 8
_MAX_FORMS = 64
# So many stretches are supposed to change with their arguments before one has: each step of a loop has another stretch.
_MAX_IN_VAIN = 2
_NUMBER = re.compile(r"-?\d+")
_MARKED = re.compile("⟦([^⟧]*)⟧")


class Sizes:
    """What a compiled function has learned of its stretches with other shapes: form of the text -> _Form."""

    def __init__(self, loops=None):
        self.forms = {}
        self.has_backward_refused = False
        self.supposed = []  # Families of one stretch whose arguments had changed
        self.not_open = {}  # why what was said to change is not known at run time
        self.loops = loops  # loops.py: the same of loops whose number of steps changes, if that is wanted

    def load(self, stretch, describe, build, is_differentiated, openings=()):
        """The program of a stretch, which describe(stretch) names and build(stretch) makes. `openings`: what of it may
        be supposed to change (opening.py), the likeliest first."""
        if is_differentiated and self.has_backward_refused:
            return self.load_exact(stretch, describe, build)
        found = self.load_open(stretch, describe, build, openings=openings)
        return found or load_program(describe(stretch), lambda: build(stretch))

    def load_backward(self, stretch, describe, build, version, openings=()):
        """The same of what reads what a program for several sizes has saved; None if nothing can."""
        found = self.load_open(stretch, describe, build, version, openings)
        # From now on forwards are compiled for their own sizes.
        self.has_backward_refused |= found is None
        return found

    def load_open(self, stretch, describe, build, version="", openings=()):
        """That of several sizes, or None. `version`: what else it depends on."""
        with jit.compiling:
            text = describe(stretch)
            form = self._form(text)
            n = form.adopt(stretch, text, describe)
            for opening in openings if n is None and not form.is_closed else ():
                family = self._suppose(form, stretch, text, describe, opening)
                if family is not None:
                    found = family.program(opening.n, stretch, build, version)
                    if family.refusal is None:
                        return found
                    form.families.remove(family)
                    form.is_closed = True
                    self._note(opening, family.refusal)
            return form.program(text, stretch, build, version)

    def _suppose(self, form, stretch, text, describe, opening):
        """A Family of a stretch alone; None if it is of no use."""
        if not opening.is_said and sum(len(family.served) < 2 for family in self.supposed) >= _MAX_IN_VAIN:
            return None
        if opening.n < LEAST:
            return self._note(opening, f"sizes below {LEAST} are compiled for themselves")
        try:
            parts = supposed(stretch, opening)
            family = Family(parts, describe(opened(stretch, parts, Scope(opening.n))))
        except Exception as error:  # whatever a rule does that only ints can do
            return self._note(opening, reason_of(error))
        if filled(family.text, opening.n) != text:
            return self._note(opening, "what was recorded says more than shapes do")
        form.families.append(family)
        if not opening.is_said:
            self.supposed.append(family)
        return family

    def _note(self, opening, reason):
        if opening.is_said:
            self.not_open[reason] = None

    def load_exact(self, stretch, describe, build):
        """That of these sizes alone."""
        self.remember(stretch, describe)
        return load_program(describe(stretch), lambda: build(stretch))

    def remember(self, stretch, describe):
        """A stretch that has a program of its own: another one may come that differs in numbers only."""
        with jit.compiling:
            text = describe(stretch)
            self._form(text).remember(stretch, text)

    def has_program(self, text):
        """Whether a program for several sizes is there already."""
        with jit.compiling:
            family, n = self._form(text).family_of(text)
        return family is not None and any(hold(meta["guards"], n) for meta, _ in family.programs.get("", ()))

    def _form(self, text):
        key = hash(_NUMBER.sub("#", text))
        form = self.forms[key] = self.forms.pop(key, None) or _Form()
        while len(self.forms) > _MAX_FORMS:
            del self.forms[next(iter(self.forms))]
        return form

    @property
    def refusals(self):
        """Why programs are compiled for each size."""
        return list(dict.fromkeys(f.refusal for form in self.forms.values() for f in form.families if f.refusal))


class _Form:
    """Stretches that differ in numbers only."""

    def __init__(self):
        self.samples, self.families = [], []
        self.is_closed = False  # whether no program can be for several sizes, as far as one stretch tells

    def adopt(self, stretch, text, describe):
        """The n of a stretch that belongs to a Family, perhaps since now; None of another, which is kept as sample."""
        _, n = self.family_of(text)
        if n is None:
            _, n = self.new_family((stretch, text), describe)
        if n is None:
            self.remember(stretch, text)
        return n

    def program(self, text, stretch, build, version):
        """A program for several sizes, or None."""
        family, n = self.family_of(text)
        return family and family.program(n, stretch, build, version)

    def family_of(self, text):
        """(a Family that has this text, its n), or (None, None)."""
        found = ((family, family.number_of(text)) for family in self.families)
        return next(((family, n) for family, n in found if n is not None), (None, None))

    def new_family(self, sample, describe):
        for other in self.samples if len(self.families) < _MAX_FAMILIES else ():
            family = _family(other, sample, describe)
            if family is not None:
                self.families.append(family)
                self.samples.remove(other)
                return family, family.number_of(sample[1])
        return None, None

    def remember(self, stretch, text):
        if all(text != known for _, known in self.samples) and self.family_of(text)[0] is None:
            self.samples = [*self.samples[1 - _MAX_SAMPLES :], (stretch, text)]


class Family:
    """Stretches whose numbers are affine functions of one n, as `parts` has them; `text` is theirs, with these in place
    of the numbers. `refusal` says why no program serves several n, if none does."""

    def __init__(self, parts, text):
        self.parts, self.text = parts, text
        self.programs = {}  # version -> the (meta, machine code) of several ranges of n
        self.exact, self.refusal = set(), None
        self.served = set()  # which n, the first few
        first = _MARKED.search(text)
        self.start, polynomial = first.start(), first[1]
        self.constant = evaluate(polynomial, 0)
        self.factor = evaluate(polynomial, 1) - self.constant

    def number_of(self, text):
        """The n whose text this is, or None."""
        found = _NUMBER.match(text, self.start)
        if found is None:
            return None
        n, rest = divmod(int(found[0]) - self.constant, self.factor)
        return n if not rest and filled(self.text, n) == text else None

    def opened(self, stretch, scope):
        """A stretch of the Family with extents of this scope."""
        return opened(stretch, self.parts, scope)

    def program(self, n, stretch, build, version):
        """The program for this n; None if one for n alone has to do."""
        began = time.perf_counter()
        known = self.code_for(n, stretch, build, version)
        return known and _instance(*known, n, began)

    def code_for(self, n, stretch, build, version):
        """The (meta, machine code) of it."""
        if n < LEAST or n in self.exact or self.refusal is not None:
            return None
        if len(self.served) < 2:
            self.served.add(n)
        programs = self.programs.setdefault(version, [])
        known = next((p for p in programs if hold(p[0]["guards"], n)), None)
        while known is None and len(programs) < _MAX_PROGRAMS:
            # Those on disk may be for other n.
            made = self._made(n, stretch, build, f"{version} {len(programs)}")
            if made is None:
                return None
            programs.append(made)
            known = made if hold(made[0]["guards"], n) else None
        return known

    def _made(self, n, stretch, build, which):
        def build_open():
            scope = Scope(n)
            meta, ir = build(self.opened(stretch, scope))
            guards = [[text, comparison, answer] for (text, comparison), answer in scope.guards.items()]
            return _in_texts({**meta, "guards": guards}), ir

        try:
            return load_code(f"program {which} for every n of\n{self.text}", build_open)
        except Coincidence:
            self.exact.add(n)
        except NotReady:
            raise
        except Exception as error:  # whatever a pass does that only ints can do
            self.refuse(n, reason_of(error))
        return None

    def refuse(self, n, reason):
        if any(self.programs.values()):
            self.exact.add(n)
        else:
            self.refusal = reason


def reason_of(error):
    """What an error says, and where it comes from."""
    places = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.endswith("extent.py")]
    said = str(error) if isinstance(error, Fixed) else f"{type(error).__name__}: {error}"
    return f"{said} (in {places[-1].name}, {os.path.basename(places[-1].filename)}:{places[-1].lineno})"


def _instance(meta, code, n, began):
    """The Program for one n."""
    meta = {**filled({k: x for k, x in meta.items() if k != "guards"}, n), "n": n}
    return linked(meta, code, began)


def _in_texts(thing):
    """Nested lists, tuples and dicts as JSON can hold them, with texts in place of extents."""
    if isinstance(thing, dict):
        return {k: _in_texts(x) for k, x in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [_in_texts(x) for x in thing]
    return str(thing) if is_open(thing) else thing


# --- two samples ------------------------------------------------------------------------------------------------------
class Unlike(Exception):
    """Two stretches differ in more than numbers, or not as one n would have it."""


class _OpenStretch(Stretch):
    """A stretch with extents in place of numbers."""

    __slots__ = ("open_steps", "makers")

    @property
    def steps(self):
        return self.open_steps

    def step_of(self, vid):
        return self.makers[vid]


def _family(first, second, describe):
    """The Family of two (stretch, text), or None."""
    (old, old_text), (new, new_text) = first, second
    found = []
    try:
        merged([old.metas, new.metas], lambda *pair: found.append(pair))
        # No shape is another one: numbers alone say which of several things an op does.
        if not found or any(map(is_told_apart, old.steps, new.steps)):
            return None
        x, y = min(found, key=lambda pair: abs(pair[0] - pair[1]))
        parts = merged([parts_of(old), parts_of(new)], partial(affine, x, y))
        family = Family(parts, describe(opened(new, parts, Scope(y))))
    except Unlike:
        return None
    return family if filled(family.text, x) == old_text and filled(family.text, y) == new_text else None


def is_told_apart(old, new):
    """Whether a rule that is not weft's own would be given an extent: it may look at its digits."""
    return not isinstance(new.op, str) and new.op.name not in OWN and old.attributes != new.attributes


def affine(x, y, a, b):
    """The function of n that is a where n is x, and b where n is y: a multiple of n * n, such as the size of a square
    matrix, or else an affine one."""
    square, rest = divmod(a, x * x) if x else (0, 0)
    if square > 0 and not rest and b == square * y * y:
        return Multilinear(((("n", "n"), square),))
    factor, rest = divmod(b - a, y - x)
    if rest:
        raise Unlike
    return Affine(factor, b - factor * y)


def parts_of(stretch):
    """Where a stretch has numbers that depend on shapes."""
    return stretch.metas, stretch.strides, [step.attributes for step in stretch.steps]


def merged(things, differ):
    """The last of some nested containers, with differ(x, y, ...) in place of every number for which they have several.
    What is no number and no container is the last one's: the text tells whether it is the same."""
    last = things[-1]
    if any(type(x) is not type(last) for x in things):
        raise Unlike
    if type(last) is int:
        return last if all(x == last for x in things) else differ(*things)
    if isinstance(last, dict):
        if any(x.keys() != last.keys() for x in things):
            raise Unlike
        return {k: merged([x[k] for x in things], differ) for k in last}
    if isinstance(last, ValueMeta):
        return replace(last, shape=merged([x.shape for x in things], differ))
    if not isinstance(last, (list, tuple)):
        return last
    if any(len(x) != len(last) for x in things):
        raise Unlike
    items = [merged(x, differ) for x in zip(*things)]
    return type(last)(*items) if hasattr(last, "_fields") else type(last)(items)


def opened(stretch, parts, scope):
    """A stretch of a Family with extents of this scope."""
    metas, strides, attributes = in_scope(parts, scope)
    made = object.__new__(_OpenStretch)
    for name in Stretch.__slots__:
        setattr(made, name, getattr(stretch, name))
    made.metas, made.strides, made.open_steps = metas, strides, list(map(copy, stretch.steps))
    for step, own in zip(made.open_steps, attributes):
        step.attributes = own
    made.makers = {step.first + k: step for step in made.open_steps for k in range(len(step.metas))}
    return made


def in_scope(thing, scope):
    if isinstance(thing, Affine):
        return scope.affine(thing.factor, thing.constant)
    if isinstance(thing, Multilinear):
        return scope.polynomial(thing.terms)
    if isinstance(thing, dict):
        return {k: in_scope(x, scope) for k, x in thing.items()}
    if isinstance(thing, ValueMeta):
        return replace(thing, shape=in_scope(thing.shape, scope))
    if not isinstance(thing, (list, tuple)):
        return thing
    items = [in_scope(x, scope) for x in thing]
    return type(thing)(*items) if hasattr(thing, "_fields") else type(thing)(items)
