"""Programs that serve many sizes: batches of other lengths, sequences that grow.

The first shapes of a function are compiled for what they are. When a stretch of a recording comes that differs from one
before in nothing but numbers, and these are affine functions of one n, the program is compiled once more with n as an
extent known at run time (compiler/extent.py). It serves every n for which its guards hold; outside of them there may be
a few others.

    float32(200, 8) ... shape (1600,)      the text of a stretch
    float32(204, 8) ... shape (1632,)      another one
    float32(⟦1*n⟧, 8) ... shape (⟦8*n⟧,)   both, and many more: a Family

Where dimensions are said to change, or have changed in the arguments since other calls, one stretch is enough: what of
it depends on n is supposed (opening.py). There may be several extents then, n, m and k.

That two samples agree proves nothing about a third. Nothing has to be proved: every call is recorded with its own
shapes, and a program is used only if the Family's text for its n is the text of that recording, character for
character.
"""

import os
import re
import time
from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import NamedTuple

from ...compiler.extent import LEAST, Coincidence, Fixed, Scope, evaluate, filler, hold, is_open, remade
from ...compiler.later import imported
from ...compiler.ops import OWN
from ...compiler.plain import changed
from ...compiler.polynomial import affine_text, polynomial_text
from ..code import jit
from .background import NotReady
from .description import Stretch
from .opening import Formula, supposed
from .program import linked, load_code, load_program
from .recording import ValueMeta

_MAX_SAMPLES = 4
_MAX_FAMILIES = 4
_MAX_PROGRAMS = 8
_MAX_FORMS = 64
_MAX_EXACT = 256
# So many stretches are supposed to change with their arguments before one has: each step of a loop has another stretch.
_MAX_IN_VAIN = 2
_NUMBER, _AFFINE = r"-?\d+", r"-?\d+\*([a-z]+)(\+-?\d+)?"
_DIGITS = b"-0123456789"
_MARKED = "⟦([^⟧]*)⟧"


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
            family, numbers = form.family_of(text)
            # Two stretches show what one lets suppose, but not of several sizes that have changed at once.
            is_one = all(len(opening.numbers) == 1 for opening in openings)
            if family is None and is_one:
                family = form.adopt(stretch, text, describe)
            if family is None:
                found = self._load_supposed(form, stretch, text, describe, build, version, openings)
                if found is not None:
                    return found
            if family is None and not is_one:
                family = form.adopt(stretch, text, describe)
            return family and family.program(numbers or family.numbers_of(text), stretch, build, version)

    def _load_supposed(self, form, stretch, text, describe, build, version, openings):
        """That of a Family of a stretch alone, or None."""
        for opening in openings:
            family = self._suppose(form, stretch, text, describe, opening)
            if family is None:
                continue
            found = family.program(opening.numbers, stretch, build, version)
            if family.refusal is None:
                return found
            form.families.remove(family)
            form.closed.append(_places(opening))
            self._note(opening, family.refusal)
        return None

    def _suppose(self, form, stretch, text, describe, opening):
        """A Family of a stretch alone; None if it is of no use."""
        in_vain = sum(len(family.served) < 2 for family in self.supposed)
        if _places(opening) in form.closed or (not opening.is_said and in_vain >= _MAX_IN_VAIN):
            return None
        if min(opening.numbers.values()) < LEAST:
            return self._note(opening, f"sizes below {LEAST} are compiled for themselves")
        try:
            parts = supposed(stretch, opening)
            family = Family(parts, describe(opened(stretch, parts, Scope(opening.numbers))))
        except Exception as error:  # whatever a rule does that only ints can do
            return self._note(opening, reason_of(error))
        if family.numbers_of(text) != opening.numbers:
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
            family, numbers = self._form(text).family_of(text)
        return family is not None and any(hold(meta["guards"], numbers) for meta, _ in family.programs.get("", ()))

    def _form(self, text):
        key = hash(text.encode().translate(None, _DIGITS))
        form = self.forms[key] = self.forms.pop(key, None) or _Form()
        while len(self.forms) > _MAX_FORMS:
            del self.forms[next(iter(self.forms))]
        return form

    @property
    def refusals(self):
        """Why programs are compiled for each size."""
        return list(dict.fromkeys(f.refusal for form in self.forms.values() for f in form.families if f.refusal))


def _places(opening):
    """Which dimensions it is about."""
    return sorted((vid, *sorted(found)) for vid, found in opening.dimensions.items())


class _Form:
    """Stretches that differ in numbers only."""

    def __init__(self):
        self.samples, self.families = [], []
        self.closed = []  # places of which no program can be for several sizes, as far as one stretch tells

    def adopt(self, stretch, text, describe):
        """The Family of a stretch that has none with one before; or None, and it is kept as sample."""
        for other in self.samples if len(self.families) < _MAX_FAMILIES else ():
            family = _family(other, (stretch, text), describe)
            if family is not None:
                self.families.append(family)
                self.samples.remove(other)
                return family
        return self.remember(stretch, text)

    def family_of(self, text):
        """(a Family that has this text, the numbers of its extents), or (None, None). Of several extents none may be
        so small that it is compiled for: those of the others have a Family too."""
        for family in self.families:
            numbers = family.numbers_of(text)
            if numbers is not None and (len(numbers) == 1 or min(numbers.values()) >= LEAST):
                return family, numbers
        return None, None

    def remember(self, stretch, text):
        if all(text != known for _, known in self.samples) and self.family_of(text)[0] is None:
            self.samples = [*self.samples[1 - _MAX_SAMPLES :], (stretch, text)]


class Family:
    """Stretches whose numbers are polynomials in one n, or several extents, as `parts` has them; `text` is theirs, with
    these in place of the numbers. `refusal` says why no program serves several n, if none does. Fixed if the text does
    not tell the extents."""

    def __init__(self, parts, text):
        self.parts, self.text = parts, text
        self.programs = {}  # version -> the (Open, ManyTimes of machine code) of several ranges of n
        self.exact, self.refusal = [], None
        self.served = []  # which numbers, the first few
        # The text in turns: what is the same in all, and a polynomial.
        self.pieces = re.split(_MARKED, text)
        polynomials = dict.fromkeys(self.pieces[1::2])
        self.telling = {m[1]: p for p in reversed(polynomials) if (m := re.fullmatch(_AFFINE, p))}
        names = {name for p in polynomials for name in re.findall(r"[a-z]+", p)}
        if not names or names - self.telling.keys():
            raise Fixed("what was recorded does not tell the sizes that change")

    def numbers_of(self, text):
        """name -> number of the extents whose text this is, or None."""
        at, found, number_at = len(self.pieces[0]), {}, re.compile(_NUMBER).match
        if not text.startswith(self.pieces[0]):
            return None
        for polynomial, same in zip(self.pieces[1::2], self.pieces[2::2]):
            number = number_at(text, at)
            if number is None or found.setdefault(polynomial, number[0]) != number[0]:
                return None
            at = number.end()
            if not text.startswith(same, at):
                return None
            at += len(same)
        return self._told(found) if at == len(text) else None

    def _told(self, found):
        """The same, of the text of the number that each polynomial is."""
        numbers = {}
        for name, polynomial in sorted(self.telling.items()):
            constant = evaluate(polynomial, 0)
            numbers[name], rest = divmod(int(found[polynomial]) - constant, evaluate(polynomial, 1) - constant)
            if rest:
                return None
        is_all = all(str(evaluate(polynomial, numbers)) == number for polynomial, number in found.items())
        return numbers if is_all else None

    def opened(self, stretch, scope):
        """A stretch of the Family with extents of this scope."""
        return opened(stretch, self.parts, scope)

    def program(self, numbers, stretch, build, version):
        """The program for these numbers; None if one for them alone has to do."""
        began = time.perf_counter()
        known = self.code_for(numbers, stretch, build, version)
        if known is None:
            return None
        return program_of(OfMany(self, known, numbers), numbers, began)

    def code_for(self, numbers, stretch, build, version):
        """The (meta, machine code) of it."""
        if min(numbers.values()) < LEAST or numbers in self.exact or self.refusal is not None:
            return None
        if len(self.served) < 2 and numbers not in self.served:
            self.served.append(numbers)
        programs = self.programs.setdefault(version, [])
        known = next((p for p in programs if hold(p[0]["guards"], numbers)), None)
        while known is None and len(programs) < _MAX_PROGRAMS:
            # Those on disk may be for other numbers.
            made = self._made(numbers, stretch, build, f"{version} {len(programs)}")
            if made is None:
                return None
            programs.append((Open(made[0]), jit.ManyTimes(made[1])))
            known = programs[-1] if hold(programs[-1][0]["guards"], numbers) else None
        return known

    def _made(self, numbers, stretch, build, which):
        def build_open():
            scope = Scope(numbers)
            meta, ir = build(self.opened(stretch, scope))
            guards = [[text, comparison, answer] for (text, comparison), answer in scope.guards.items()]
            return texts_of({**meta, "guards": guards}), ir

        try:
            return load_code(f"program {which} for every n of\n{self.text}", build_open)
        except Coincidence:
            self._serves_not(numbers)
        except NotReady as error:
            error.opened = self.opened(stretch, Scope(numbers))
            raise
        except Exception as error:  # whatever a pass does that only ints can do
            self.refuse(numbers, reason_of(error))
        return None

    def _serves_not(self, numbers):
        self.exact = [*self.exact[1 - _MAX_EXACT :], numbers]

    def refuse(self, numbers, reason):
        if any(self.programs.values()):
            self._serves_not(numbers)
        else:
            self.refusal = reason


def reason_of(error):
    """What an error says, and where it comes from."""
    places = [f for f in imported("traceback").extract_tb(error.__traceback__) if not f.filename.endswith("extent.py")]
    said = str(error) if isinstance(error, Fixed) else f"{type(error).__name__}: {error}"
    return f"{said} (in {places[-1].name}, {os.path.basename(places[-1].filename)}:{places[-1].lineno})"


def _instance(meta, code, numbers, began):
    """The Program for one n, or one of several."""
    return linked(Instance(meta, numbers), code, began, n=said_of(numbers))


def program_of(of_many, numbers, began=None):
    """The Program for these numbers of what such a program is made of, which was asked for at this time."""
    made = _instance(*of_many.code, numbers, time.perf_counter() if began is None else began)
    made.of_many = of_many._replace(numbers=numbers)
    return made


class OfMany(NamedTuple):
    """Where a program for some sizes of many comes from: its Family, the (Open, ManyTimes) and which sizes."""

    family: object
    code: tuple
    numbers: dict

    @property
    def guards(self):
        return self.code[0]["guards"]


class Open(dict):
    """What is said of a program for many sizes, with texts in place of extents."""

    __slots__ = ("fillers",)

    def __init__(self, meta):
        super().__init__(meta)
        self.fillers = {}

    def filler(self, key):
        """A function that makes an entry for numbers, or None if it is the same for all."""
        if key not in self.fillers:
            self.fillers[key] = filler(self[key])
        return self.fillers[key]


class Instance(Mapping):
    """What is said of a program for these numbers; each entry is made when it is asked for, since most are for people
    who look at it."""

    __slots__ = ("_meta", "_numbers", "_made")

    def __init__(self, meta, numbers):
        self._meta, self._numbers, self._made = meta, numbers, {}

    def __getitem__(self, key):
        fill = self._meta.filler(key)
        if fill is None:
            return self._meta[key]
        if key not in self._made:
            self._made[key] = fill(self._numbers)
        return self._made[key]

    def __contains__(self, key):
        return key in self._meta

    def __iter__(self):
        return iter(self._meta)

    def __len__(self):
        return len(self._meta)


def said_of(numbers):
    """What stands as "n" in what is said of a program: the number of one extent, or those of several by name."""
    return next(iter(numbers.values())) if len(numbers) == 1 else numbers


def texts_of(thing):
    """Nested lists, tuples and dicts as JSON can hold them, with texts in place of extents."""
    if isinstance(thing, dict):
        return {k: texts_of(x) for k, x in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [texts_of(x) for x in thing]
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
        if min(x, y) < LEAST:
            return None
        parts = merged([parts_of(old), parts_of(new)], partial(affine, x, y))
        family = Family(parts, describe(opened(new, parts, Scope(y))))
    except (Unlike, Fixed):
        return None
    return family if family.numbers_of(old_text) == {"n": x} and family.numbers_of(new_text) == {"n": y} else None


def is_told_apart(old, new):
    """Whether a rule that is not weft's own would be given an extent: it may look at its digits."""
    return not isinstance(new.op, str) and new.op.name not in OWN and old.attributes != new.attributes


def affine(x, y, a, b):
    """The function of n that is a where n is x, and b where n is y: a multiple of n * n, such as the size of a square
    matrix, or else an affine one."""
    square, rest = divmod(a, x * x) if x else (0, 0)
    if square > 0 and not rest and b == square * y * y:
        return Formula(polynomial_text({("n", "n"): square}))
    factor, rest = divmod(b - a, y - x)
    if rest:
        raise Unlike
    return Formula(affine_text(factor, b - factor * y))


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
        return changed(last, shape=merged([x.shape for x in things], differ))
    if not isinstance(last, (list, tuple)):
        return last
    if any(len(x) != len(last) for x in things):
        raise Unlike
    items = [merged(x, differ) for x in zip(*things)]
    return remade(last, items)


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
    if isinstance(thing, Formula):
        return thing.at(scope.extents)
    if isinstance(thing, dict):
        return {k: in_scope(x, scope) for k, x in thing.items()}
    if isinstance(thing, ValueMeta):
        return changed(thing, shape=in_scope(thing.shape, scope))
    if not isinstance(thing, (list, tuple)):
        return thing
    items = [in_scope(x, scope) for x in thing]
    return remade(thing, items)
