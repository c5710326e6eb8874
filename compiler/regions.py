"""What memory each thread touches in a step that is cut, and so where threads must wait for each other.

A `Touch` is a stretch of memory that a step reads or writes, and who does:

    CALLER        the calling thread alone
    ALL           every thread, everywhere in it
    MEMBERS       every thread, in a way that the order does not matter among those who touch it so
    Part(...)     every thread its own elements, which no other thread touches

Two steps that touch the same memory, one of them writing, must not overlap in time, unless each thread touches in both
the same elements. That is so if the parts are equal: threads get their units by number, so equal parts of equal size
are the same bytes for any number of threads. The forms below are therefore canonical: a matrix cut along its rows is
the same as a vector cut in pieces of whole rows.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from math import prod

from .access import collapse
from .dtypes import SIZES
from .emit.reduce import VIRTUAL_LANES
from .extent import is_open, may_be_less
from .loopnest import Extreme, Load, Loop, Store, StoreLanes, Sweep, Update

CALLER, ALL, MEMBERS = "caller", "all", "members"


@dataclass(frozen=True, slots=True)
class Part:
    """Thread by thread: `units` of `unit` steps of `step` bytes from `start`, `extent` steps in all; the same at every
    position of `others`, ((bytes apart, count), ...) from the inside out."""

    start: int
    step: int
    unit: int
    extent: int
    others: tuple

    @property
    def units(self):
        return -(-self.extent // self.unit)


def part(start, step, unit, extent, others, size):
    """The canonical Part of elements; start, step and the distances in `others` count elements of `size` bytes."""
    dims = sorted(((s, n) for s, n in others if n > 1 and s), reverse=True)
    merged = tuple((s, n) for n, s in reversed(collapse([n for _, n in dims], [s for s, _ in dims])))
    if merged == ((1, step),):
        # Whole rows are one run.
        return Part(start * size, size, unit * step, extent * step, ())
    return Part(start * size, step * size, unit, extent, tuple((s * size, n) for s, n in merged))


@dataclass(frozen=True, slots=True)
class Touch:
    """`place`: a Place, `n_bytes` from there; `writes`: else it only reads; `by`: CALLER, ALL or a Part."""

    place: object
    n_bytes: int
    writes: bool
    by: object

    def overlaps(self, other):
        if self.place.kind != other.place.kind:
            return False
        if self.place.kind != "arena":
            return self.place.index == other.place.index
        starts = self.place.index, other.place.index
        return may_be_less(starts[0], starts[1] + other.n_bytes) and may_be_less(starts[1], starts[0] + self.n_bytes)

    @property
    def is_open(self):
        """Whether only the call will tell where it is."""
        return is_open(self.place.index) or is_open(self.n_bytes)

    def conflicts(self, other):
        """Whether one thread's touch may come too early or too late for another's."""
        if not (self.writes or other.writes) or self.by in (CALLER, MEMBERS) and self.by == other.by:
            return False
        if not self.overlaps(other):
            return False
        return not (self.by == other.by and self.by is not ALL and self.place == other.place)


class Touched:
    """Touches, found by where they are: those of arrays by the array, those of the arena by where they start, if that
    is known."""

    def __init__(self):
        self.known, self.arrays, self.open = set(), {}, []
        self.starts, self.arena, self.longest = [], [], 0

    def add(self, touches):
        for touch in touches:
            if touch in self.known:
                continue
            self.known.add(touch)
            if touch.place.kind != "arena":
                self.arrays.setdefault(touch.place, []).append(touch)
                continue
            if touch.is_open:
                self.open.append(touch)
                continue
            k = bisect_left(self.starts, touch.place.index)
            self.starts.insert(k, touch.place.index)
            self.arena.insert(k, touch)
            self.longest = max(self.longest, touch.n_bytes)

    def conflicts(self, touches):
        """Whether one of some touches may come too early or too late for one of these."""
        return any(a.conflicts(b) for a in touches for b in self.near(a))

    def near(self, touch):
        if touch.place.kind != "arena":
            return self.arrays.get(touch.place, ())
        if touch.is_open:
            return self.arena + self.open
        first = bisect_left(self.starts, touch.place.index - self.longest)
        return self.open + self.arena[first : bisect_left(self.starts, touch.place.index + touch.n_bytes)]


# --- products ---------------------------------------------------------------------------------------------------------
def product_parts(cut, left, right, result):
    """Who touches the operands (Accesses) and the result (a value) of a product that is cut."""
    size = result.dtype.size_bytes
    *batch, m, n = result.shape
    depth = left.shape[-1]
    if cut.along == "matrices":
        owners = [_matrices(cut, a.shape, a.strides, a.offset, size) for a in (left, right)]
        return *owners, part(0, m * n, cut.unit, prod(batch), [(1, m * n)], size)
    if cut.along == "rows":
        across = _batches(left) + [(left.strides[-1], depth)]
        result_part = part(0, n, cut.unit, m, [(1, n), (m * n, prod(batch))], size)
        return _owned(left.offset, left.strides[-2], cut, m, across, size), ALL, result_part
    across = _batches(right) + [(right.strides[-2], depth)]
    result_part = part(0, 1, cut.unit, n, [(n, m * prod(batch))], size)
    return ALL, _owned(right.offset, right.strides[-1], cut, n, across, size), result_part


def _batches(access):
    return list(zip(access.strides[:-2], access.shape[:-2]))


def _matrices(cut, shape, strides, offset, size):
    batch = collapse(shape[:-2], strides[:-2])
    if len(batch) != 1:
        return ALL
    return _owned(offset, batch[0][1], cut, batch[0][0], list(zip(strides[-2:], shape[-2:])), size)


def _owned(start, step, cut, extent, others, size):
    """The part of a thread; ALL where all read the same elements, or some go backwards."""
    if step <= 0 or any(s < 0 for s, _ in others):
        return ALL
    return part(start, step, cut.unit, extent, others, size)


# --- kernels ----------------------------------------------------------------------------------------------------------
def kernel_parts(kernel, cut):
    """{(parameter's name, whether it is written): who touches it} for a kernel with this cut."""
    if cut not in kernel.parts:
        kernel.parts[cut] = _parts(kernel, cut)
    return kernel.parts[cut]


def _parts(kernel, cut):
    elements, found = {p.name: p.element for p in kernel.parameters}, {}
    for statement, loops, sweep in walk(kernel.body, (), None):
        for name, writes, at, extra in _uses(statement):
            size = SIZES[elements[name]]
            owner = _owner(cut, at, loops, sweep, extra, size)
            key = name, writes
            found[key] = owner if found.get(key, owner) == owner else ALL
    return found


def walk(body, loops, sweep):
    for s in body:
        if isinstance(s, Loop):
            yield from walk(s.body, (*loops, s), sweep)
        elif isinstance(s, Sweep):
            yield from walk(s.body, loops, s)
        else:
            yield s, loops, sweep


def _uses(s):
    """(parameter, whether it is written, position, further dimensions or None for anywhere) of a statement."""
    if isinstance(s, Load):
        yield s.parameter, False, s.at, None if s.indices else ()
    elif isinstance(s, Store):
        yield s.parameter, True, s.at, ()
    elif isinstance(s, StoreLanes):
        yield s.parameter, True, s.at, ((1, VIRTUAL_LANES),)
    elif isinstance(s, Update):
        yield s.parameter, True, s.at, ((s.index.stride, s.index.size),)
    elif isinstance(s, Extreme):
        yield s.parameter, False, s.at, ((s.stride, s.count),)
        if s.positions:
            yield s.positions, False, s.at, ((s.stride, s.count),)


def _owner(cut, at, loops, sweep, extra, size):
    if extra is None:
        return ALL
    blocked = [x for x in (*loops, sweep) if x and x.block]
    if blocked:
        return _owner_of_blocks(cut, at, loops, sweep, blocked[0], extra, size)
    extents = {loop.index: loop.extent for loop in loops}
    extents |= {name: count for loop in loops for name, _, count in loop.split}
    others = [(c, extents[name]) for name, c in at.terms] + list(extra)
    lanes = (at.lane, sweep.extent if sweep else 1)
    if cut.along == "columns":
        if sweep is None:
            return ALL  # one number, which every thread reads
        step, extent = lanes[0], lanes[1] // cut.rows
        others.append((step * extent, cut.rows))
    else:
        outermost = loops[0] if loops else None
        if outermost is None or outermost.split:
            return ALL
        step = sum(c for name, c in at.terms if name == outermost.index)
        extent = outermost.extent
        others = [(c, extents[name]) for name, c in at.terms if name != outermost.index] + [lanes, *extra]
    return _owned(at.constant, step, cut, extent, others, size)


def _owner_of_blocks(cut, at, loops, sweep, blocked, extra, size):
    """Whose an element is where every iteration of the outermost loop does one block of another loop, or of a sweep."""
    unit = cut.unit * blocked.block.size
    others = [(c, loop.extent) for name, c in at.terms for loop in loops if loop.index == name and loop is not blocked]
    if any(loop.split for loop in loops) or any(name == blocked.block.index for name, _ in at.terms):
        return ALL
    if blocked is sweep:
        step = at.lane
    else:
        step = sum(c for name, c in at.terms if name == blocked.index)
        others.append((at.lane, sweep.extent if sweep else 1))
    return _owned(at.constant, step, replace(cut, unit=unit), blocked.extent, others + list(extra), size)
