"""Programs for many sizes from the first shapes on: what is supposed of a stretch when a dimension is said to change.

Two stretches show which of their numbers depend on n (sizes.py). Of one alone it has to be supposed. The dimensions
that change are n; the shape rules of the ops say what follows from that; and of the numbers that an op is given, such
as the shape of a reshape, those are taken for functions of n that are n, a multiple of it or next to it, if the shape
rule agrees.

    x float32(200, 8), of which dimension 0 changes:  reshape(x, (1600,))   1600 is 8 n
                                                      x[:-1]                 199 is n - 1
                                                      reshape(x, (200, 2, 4))

What is supposed wrongly costs a compilation and no bit: a program is used for another n only if the text of its stretch
is the supposed one, character for character.
"""

from dataclasses import replace
from math import inf
from typing import NamedTuple

from ...compiler.extent import Extent, Fixed, Scope, estimated, is_open
from ...compiler.ops import OWN
from ...compiler.ops.table import Meta
from .recording import ASSIGN, BACKWARD, GRADIENTS, INPUT, NUMBER_DTYPES, UPDATE


class Affine(NamedTuple):
    """Stands for factor * n + constant."""

    factor: int
    constant: int


class Multilinear(NamedTuple):
    """Stands for a polynomial in several extents: pairs (names, coefficient)."""

    terms: tuple


class Opening(NamedTuple):
    """Which dimensions of a call's first tensors are to be known at run time: n, as it is now, and number of a value ->
    {dimension: Affine}. `is_said`: the user says so; otherwise they have changed since another call."""

    n: int
    dimensions: dict
    is_said: bool


def supposed(stretch, opening):
    """(metas, strides, attributes of all steps) of a stretch, with Affines in place of what depends on n. Fixed if some
    op cannot follow."""
    try:
        return _Supposition(stretch, opening).parts()
    except Fixed:
        # Perhaps for a tensor that the call has made without an op, such as eye(n): it comes in as parameters do.
        return _Supposition(stretch, opening, with_made=True).parts()


class _Supposition:
    """What is supposed so far: shapes of values, with extents."""

    def __init__(self, stretch, opening, with_made=False):
        self.stretch, self.opening, self.n = stretch, opening, Scope(opening.n).n
        self.with_made = with_made
        self.shapes = [meta.shape for meta in stretch.metas]
        self.strides = dict(stretch.strides)

    def parts(self):
        attributes = [self.attributes_of(step) for step in self.stretch.steps]
        metas = tuple([replace(m, shape=_affine(s)) for m, s in zip(self.stretch.metas, self.shapes)])
        return metas, self.strides, attributes

    def attributes_of(self, step):
        """The attributes of a step, with Affines; what follows for the shapes of its results is noted."""
        if step.op is INPUT:
            return self._input(step)
        if step.op in (BACKWARD, GRADIENTS):
            self._like(step, step.detail.wanted)
        elif step.op == UPDATE:
            starts = range(0, len(step.operands), step.detail.row_length)
            self._like(step, [step.operands[start + k] for start in starts for k in step.detail.targets])
        elif step.op is not ASSIGN:
            return _affine(self._applied(step))
        return step.attributes

    def _like(self, step, vids):
        """Gradients are like what they are of, and what is updated stays what it is."""
        for offset, vid in enumerate(vids):
            self.shapes[step.first + offset] = self.shapes[vid]

    def _input(self, step):
        vid = step.first
        numbers, opened = self.shapes[vid], self.opening.dimensions.get(vid)
        if opened is None and self.with_made and not self.stretch.metas[vid].requires_grad:
            opened = {d: Affine(1, 0) for d, size in enumerate(numbers) if size == self.opening.n}
        if not opened:
            return step.attributes
        self.shapes[vid] = shape = tuple(self._number(opened.get(d), size) for d, size in enumerate(numbers))
        known, *facts, strides = step.attributes
        if self.strides.get(vid) is not None:
            self.strides[vid] = _affine(_strides(self.strides[vid], numbers, shape))
        if strides is not None:
            strides = _affine(_strides(strides, numbers, shape))
        return (_affine(shape), *facts, strides)

    def _number(self, affine, size):
        return size if affine is None else self.n * affine.factor + affine.constant

    def _applied(self, step):
        """The attributes of an op that agree with the shape of its result, which is noted."""
        operands = [self._operand(code) for code in step.operands]
        is_source = all(code < 0 for code in step.operands)
        if not is_source and not any(is_open(d) for x in operands for d in x.shape):
            return step.attributes
        if is_source or step.op.name not in OWN:
            # A rule that is not weft's own might look at the digits of an extent.
            ways = _WAYS[:1] if is_source and step.op.name in OWN else ()
        else:
            ways = _WAYS
        found = _best(step, self._tried(step, operands, ways))
        self.shapes[step.first] = found[1]
        return found[0]

    def _operand(self, code):
        if code < 0:
            return Meta((), NUMBER_DTYPES[code], True)
        return replace(self.stretch.metas[code], shape=self.shapes[code])

    def _tried(self, step, operands, ways):
        """(attributes, shape of the result) where the shape rule agrees, the likeliest first; last of all for the
        numbers as they are."""
        wanted = self.stretch.metas[step.first].shape
        for way, most in (*ways, (_exact, 0)):
            attributes = _replaced(step.attributes, self.n, way, most)
            try:
                shape = step.op.infer(operands, attributes, self.stretch.default_dtype).shape
            except Exception:  # whatever a rule says that is given what it cannot take
                continue
            if tuple(map(estimated, shape)) == wanted:
                yield attributes, shape


def _best(step, tried):
    """The first that leaves a result that depends on n; else the last but the numbers as they are, such as the last
    element of a row, which is the (n - 1)-th."""
    closed = []
    for attributes, shape in tried:
        if any(map(is_open, shape)):
            return attributes, shape
        closed.append((attributes, shape))
    if not closed:
        raise Fixed(f"{step.op.name} [{step.line}] takes no size that is known at run time")
    return closed[-2:][0]


# --- which numbers are functions of n ---------------------------------------------------------------------------------
def _exact(n, number):
    return n if number == n.number else None


def _multiple(n, number):
    factor, rest = divmod(number, n.number)
    return n * factor if factor > 0 and not rest else None


def _beside(n, number):
    if number in (n.number - 1, n.number + 1):
        return n + (number - n.number)
    return _multiple(n, number)


# (which numbers, how many of them). Of one alone the others have its value by chance, as 8 heads beside a batch of 8.
_WAYS = ((_exact, inf), (_exact, 1), (_multiple, inf), (_multiple, 1), (_beside, inf))


def _replaced(thing, n, way, most):
    """Attributes with way(n, number) in place of the first numbers, so many at most, for which it has something."""
    left = most

    def walk(x):
        nonlocal left
        if type(x) is not int:
            return _rebuilt(x, walk)
        found = way(n, x) if left else None
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
    return type(thing)(*items) if hasattr(thing, "_fields") else type(thing)(items)


def _affine(thing):
    """Nested containers with Affines in place of extents. Fixed if one is none: n * n is no function of that kind."""
    if not isinstance(thing, Extent):
        return _rebuilt(thing, _affine)
    if thing.terms.keys() - {("n",), ()}:
        raise Fixed(f"a size is {thing!r}, and programs know sizes a * n + b")
    return Affine(thing.terms.get(("n",), 0), thing.terms.get((), 0))


def _strides(strides, numbers, shape):
    """Strides of an array whose shape is `numbers` now, and `shape` in general: where a dimension lies right around the
    ones within it, its stride is their size."""
    found, size, general = list(strides), 1, 1
    for d in sorted(range(len(strides)), key=strides.__getitem__):
        if strides[d] == size:
            found[d] = general
        size, general = strides[d] * numbers[d], found[d] * shape[d]
    return tuple(found)
