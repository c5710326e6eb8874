"""Programs for many sizes from the first shapes on: what is supposed of a stretch when a dimension is said to change.

Two stretches show which of their numbers depend on n (sizes.py). Of one alone it has to be supposed. The dimensions
that change are n; the shape rules of the ops say what follows from that; and of the numbers that an op is given, such
as the shape of a reshape, those are taken for functions of n that are n, a multiple of it or next to it, if the shape
rule agrees.

    x float32(200, 8), of which dimension 0 changes:  reshape(x, (1600,))   1600 is 8 n
                                                      x[:-1]                 199 is n - 1
                                                      reshape(x, (200, 2, 4))

Several sizes may change at once, such as how many sequences there are and how long they are: then there is an n, an m
and a k, and a number may be a product of them.

What is supposed wrongly costs a compilation and no bit: a program is used for another n only if the text of its stretch
is the supposed one, character for character.
"""

from itertools import combinations_with_replacement, islice, permutations, product
from math import inf, prod
from typing import NamedTuple

from ...compiler.extent import Extent, Fixed, Scope, estimated, evaluate, is_open, remade
from ...compiler.ops import OWN
from ...compiler.ops.table import Meta
from ...compiler.plain import changed
from ...compiler.polynomial import polynomial_text
from .recording import ASSIGN, BACKWARD, GRADIENTS, INPUT, NUMBER_DTYPES, UPDATE


class Formula(NamedTuple):
    """Stands for a polynomial in the extents, given as text, such as "2*n+1"."""

    text: str

    def at(self, numbers):
        """What it is for these numbers, or extents, by name."""
        return evaluate(self.text, numbers)


class Opening(NamedTuple):
    """Which dimensions of a call's first tensors are to be known at run time: the extents as they are now, by name, and
    number of a value -> {dimension: Formula}. `is_said`: the user says so; otherwise they have changed since another
    call."""

    numbers: dict
    dimensions: dict
    is_said: bool


def supposed(stretch, opening):
    """(metas, strides, attributes of all steps) of a stretch, with Formulas in place of what depends on the extents.
    Fixed if some op cannot follow."""
    try:
        return _Supposition(stretch, opening).parts()
    except Fixed:
        pass
    try:
        # Perhaps for a tensor that the call has made without an op, such as eye(n): it comes in as parameters do.
        return _Supposition(stretch, opening, with_made=True).parts()
    except Fixed:
        # Or for one that an op has made of a number beside n, such as arange(n - 1), or of a multiple.
        return _Supposition(stretch, opening, with_made=True, with_beside=True).parts()


class _Supposition:
    """What is supposed so far: shapes of values, with extents."""

    def __init__(self, stretch, opening, with_made=False, with_beside=False):
        self.stretch, self.opening, self.extents = stretch, opening, Scope(opening.numbers).extents
        self.with_made, self.with_beside = with_made, with_beside
        self.shapes = [meta.shape for meta in stretch.metas]
        self.strides = dict(stretch.strides)

    def parts(self):
        attributes = [self.attributes_of(step) for step in self.stretch.steps]
        metas = tuple([changed(m, shape=_closed(s)) for m, s in zip(self.stretch.metas, self.shapes)])
        return metas, self.strides, attributes

    def attributes_of(self, step):
        """The attributes of a step, with Formulas; what follows for the shapes of its results is noted."""
        if step.op is INPUT:
            return self._input(step)
        if step.op in (BACKWARD, GRADIENTS):
            self._like(step, step.detail.wanted)
        elif step.op == UPDATE:
            starts = range(0, len(step.operands), step.detail.row_length)
            self._like(step, [step.operands[start + k] for start in starts for k in step.detail.targets])
        elif step.op is not ASSIGN:
            return _closed(self._applied(step))
        return step.attributes

    def _like(self, step, vids):
        """Gradients are like what they are of, and what is updated stays what it is."""
        for offset, vid in enumerate(vids):
            self.shapes[step.first + offset] = self.shapes[vid]

    def _input(self, step):
        vid = step.first
        numbers, opened = self.shapes[vid], self.opening.dimensions.get(vid)
        if opened is None and self.with_made and not self.stretch.metas[vid].requires_grad:
            by_number = {number: Formula(f"1*{name}") for name, number in reversed(self.opening.numbers.items())}
            opened = {d: by_number[size] for d, size in enumerate(numbers) if size in by_number}
        if not opened:
            return step.attributes
        self.shapes[vid] = shape = tuple(self._number(opened.get(d), size) for d, size in enumerate(numbers))
        known, *facts, strides = step.attributes
        if self.strides.get(vid) is not None:
            self.strides[vid] = _closed(_strides(self.strides[vid], numbers, shape))
        if strides is not None:
            strides = _closed(_strides(strides, numbers, shape))
        return (_closed(shape), *facts, strides)

    def _number(self, formula, size):
        return size if formula is None else formula.at(self.extents)

    def _applied(self, step):
        """The attributes of an op that agree with the shape of its result, which is noted."""
        operands = [self._operand(code) for code in step.operands]
        is_source = all(code < 0 for code in step.operands)
        if not is_source and not any(is_open(d) for x in operands for d in x.shape):
            return step.attributes
        if step.op.name not in OWN:
            ways = ()  # a rule that is not weft's own might look at the digits of an extent
        else:
            ways = _ways(list(self.extents.values()), operands)
            ways = islice(ways, 1) if is_source and not self.with_beside else ways
        names = _names([x.shape for x in operands])
        found = _best(step, self._tried(step, operands, ways), names or set(self.extents))
        self.shapes[step.first] = found[1]
        return found[0]

    def _operand(self, code):
        if code < 0:
            return Meta((), NUMBER_DTYPES[code], True)
        return changed(self.stretch.metas[code], shape=self.shapes[code])

    def _tried(self, step, operands, ways):
        """(attributes, shape of the result) where the shape rule agrees, the likeliest first; last of all for the
        numbers as they are."""
        wanted = self.stretch.metas[step.first].shape
        for way, bases, most in (*ways, (_exact, (), 0)):
            attributes = _replaced(step.attributes, bases, way, most)
            try:
                shape = step.op.infer(operands, attributes, self.stretch.default_dtype).shape
            except Exception:  # whatever a rule says that is given what it cannot take
                continue
            if tuple(map(estimated, shape)) == wanted:
                yield attributes, shape


def _best(step, tried, names):
    """The first whose result depends on all extents that the operands depend on; else that which has most of them in
    its result, or as an attribute: the last element of a row is the (n - 1)-th."""
    found = []
    for attributes, shape in tried:
        if names <= _names(shape):
            return attributes, shape
        found.append((attributes, shape))
    if not found:
        raise Fixed(f"{step.op.name} [{step.line}] takes no size that is known at run time")
    return max(found, key=lambda one: len(names & _names(one)))


def _names(thing):
    """The extents in nested containers, by name."""
    if is_open(thing):
        return {name for name in thing.scope.extents if any(name in u for term in thing.terms for u in term)}
    if isinstance(thing, dict):
        thing = thing.values()
    elif not isinstance(thing, (list, tuple)):
        return set()
    return set().union(*map(_names, thing))


# --- which numbers are functions of the extents -----------------------------------------------------------------------
def _exact(bases, number):
    return next((n for n in bases if number == n.number), None)


def _multiple(bases, number):
    found = _exact(bases, number)
    if found is not None:
        return found
    return next((n * (number // n.number) for n in bases if number > 0 and not number % n.number), None)


def _near(bases, number):
    found = _exact(bases, number)
    if found is not None:
        return found
    return next((n + (number - n.number) for n in bases if abs(number - n.number) == 1), None)


def _beside(bases, number):
    found = _near(bases, number)
    return _multiple(bases, number) if found is None else found


_FEW = inf, 1, 2, 3


def _ways(extents, operands):
    """(which numbers, what they are taken to be made of: the first that fits; how many of them), the likeliest first:
    the extents, then also sizes of the operands, and products of all these. Of the first few numbers the others have
    their value by chance, as 8 heads beside a batch of 8."""
    kinds = [(kind, most) for kind in (_exact, _near, _multiple, _beside) for most in _FEW]
    for (kind, most), order in product(kinds, permutations(extents)):
        yield kind, order, most
    sizes = list({str(d): d for d in (*extents, *(d for x in operands for d in x.shape if is_open(d)))}.values())
    products = [prod(pair) for pair in combinations_with_replacement(sizes, 2)]
    for (kind, most), order in product(kinds, ((*sizes, *products), (*reversed(products), *reversed(sizes)))):
        yield kind, order, most


def _replaced(thing, bases, way, most):
    """Attributes with way(bases, number) in place of the first numbers, so many at most, for which it has something."""
    left = most

    def walk(x):
        nonlocal left
        if type(x) is not int:
            return _rebuilt(x, walk)
        found = way(bases, x) if left else None
        left -= found is not None
        return x if found is None else found

    return walk(thing)


def _rebuilt(thing, walk):
    """A container with walk(x) in place of each of its things; what is no container is left as it is."""
    if isinstance(thing, dict):
        return {k: walk(x) for k, x in thing.items()}
    if not isinstance(thing, (list, tuple)):
        return thing
    items = [walk(x) for x in thing]
    return remade(thing, items)


def _closed(thing):
    """Nested containers with Formulas in place of extents."""
    return Formula(polynomial_text(thing.terms)) if isinstance(thing, Extent) else _rebuilt(thing, _closed)


def _strides(strides, numbers, shape):
    """Strides of an array whose shape is `numbers` now, and `shape` in general: where a dimension lies right around the
    ones within it, its stride is their size."""
    found, size, general = list(strides), 1, 1
    for d in sorted(range(len(strides)), key=strides.__getitem__):
        if strides[d] == size:
            found[d] = general
        size, general = strides[d] * numbers[d], found[d] * shape[d]
    return tuple(found)
