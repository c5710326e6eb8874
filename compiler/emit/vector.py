"""Statements of a sweep, one vector at a time: what emit/kernel.py calls for every vector of a row."""

from ..dtypes import SIZES
from ..extent import is_open
from ..loopnest import Accumulate, Apply, Extreme, Load, Position, Reduce, Store, Update
from ..ops.comparison import cast
from .builder import Reg
from .reduce import better_extreme
from .stored import widened_halves
from .types import Type

NEAR_BYTES = 1 << 18  # within a level-2 cache
_WIDENED = 4  # vectors of float16 that are looked at together
_MOST_APART = 4  # vectors that are loaded in place of one gather


def _is_near(indices, t):
    """Whether what is found at these indices is in a cache close by, mostly. Then loads one by one are faster than a
    gather, of which more are in flight while they wait for memory."""
    reach = [abs(i.stride) * i.size for i in indices if not is_open(i.stride) and not is_open(i.size)]
    return len(reach) == len(indices) and sum(reach) * t.element_bytes <= NEAR_BYTES


def is_small(stride):
    """Whether elements so far apart are loaded with what lies between them."""
    return not is_open(stride) and 1 < stride <= _MOST_APART


def transposed(b, vectors):
    """The columns of as many vectors as each of them has lanes. Before a step, blocks of 2 * distance rows and columns
    are in their place; it exchanges two quarters of each."""
    n = len(vectors)
    distance = n // 2
    while distance:
        before, vectors = vectors, list(vectors)
        for k in range(n):
            if k & distance:
                continue
            x, y = before[k], before[k + distance]
            vectors[k] = b.shuffle(x, y, [n + lane - distance if lane & distance else lane for lane in range(n)])
            low = [n + lane if lane & distance else lane + distance for lane in range(n)]
            vectors[k + distance] = b.shuffle(x, y, low)
        distance //= 2
    return vectors


class Vector:
    """One vector's work in a sweep: elements j .. j + lanes - 1, those in `mask`."""

    def __init__(self, emission, j, mask, vector, bases):
        self.emission, self.b = emission, emission.b
        self.j, self.mask, self.vector, self.bases = j, mask, vector, bases
        self.registers = {}

    def take(self, body, halves):
        """The statements of a sweep. `halves`: what halves_of says of them."""
        for s in body:
            if halves and s is halves[0][1]:
                self.widen(halves[:_WIDENED])
                halves = halves[_WIDENED:]
            elif getattr(s, "name", None) not in self.registers:
                STATEMENTS[type(s)](self, s)

    def widen(self, halves):
        for load, _ in halves:
            if load.name not in self.registers:
                self.load(load)
        found = widened_halves(self.b, [self.registers[load.name] for load, _ in halves])
        self.registers |= {cast.name: x for (_, cast), x in zip(halves, found)}

    def lookup(self, name):
        if name in self.registers:
            return self.registers[name]
        if name in self.emission.registers:
            return self.emission.registers[name]
        return self.emission.vectors[name][self.vector]

    def scaled(self, stride):
        """j * stride elements."""
        if not isinstance(self.j, int) and stride != 1:
            return self.b.mul(self.j, self.b.i64(stride))
        return self.j * stride if isinstance(self.j, int) else self.j

    def lane_offsets(self, stride):
        if is_open(stride):
            b, t = self.b, self.emission.type("i64")
            return b.mul(b.iota(t), b.const(stride, t))
        return self.b.iota(self.emission.type("i64"), stride)

    def full_mask(self):
        return self.mask if self.mask is not None else self.b.const(1, self.emission.type("i1"))

    def load(self, s):
        b, e = self.b, self.emission
        pointer, empty = self.bases[id(s)]
        element = e.elements[s.parameter]
        t = e.type(element)
        lanewise = [i for i in s.indices if i.name not in e.registers]
        if s.name in e.turned:
            x = b.load(e.turned[s.name], t, self.mask)
        elif empty:
            for i in lanewise:
                e.checked_index(self.lookup(i.name), i, self.mask)
            x = b.const(0, t)
        elif s.at.lane == 1 and not lanewise:
            x = b.load(b.offset(pointer, self.j, t.element_bytes), t, self.mask)
        elif s.at.lane == -1 and not lanewise and b.loads_neighbours:
            x = self.backwards(pointer, t)
        elif is_small(s.at.lane) and not lanewise and b.loads_neighbours:
            x = self.apart(b.offset(pointer, self.scaled(s.at.lane), t.element_bytes), t, s.at.lane)
        else:
            place = b.offset(pointer, self.scaled(s.at.lane), t.element_bytes) if s.at.lane else pointer
            offsets = self.lane_offsets(s.at.lane)
            for i in lanewise:
                index = e.checked_index(self.lookup(i.name), i, self.mask)
                offsets = b.add(offsets, b.mul(index, b.const(i.stride, index.type)))
            x = b.gather(place, offsets, t, self.mask if _is_near(lanewise, t) else self.full_mask())
        self.registers[s.name] = b.convert(x, s.element)

    def backwards(self, pointer, t):
        """Neighbours, the last one in the first lane: a load and a shuffle take a tenth of a gather."""
        b, lanes = self.b, range(t.lanes - 1, -1, -1)
        first = b.offset(b.offset(pointer, self.scaled(-1), t.element_bytes), 1 - t.lanes, t.element_bytes)
        mask = self.mask if self.mask is None else _picked(b, self.mask, lanes)
        x = b.load(first, t, mask)
        return b.shuffle(x, x, lanes)

    def apart(self, pointer, t, stride):
        """Elements a few places apart: all from the first to the last are loaded, and shuffled together. Pooling two by
        two took 2.4 times as long with a gather."""
        b, n, found = self.b, t.lanes, None
        for k in range(stride):
            lanes = [lane for lane in range(n) if lane * stride // n == k]
            x = b.load(b.offset(pointer, k * n, t.element_bytes), t, self.mask_apart(stride, k * n, n))
            picks = [n + lane * stride - k * n if lane in lanes else lane for lane in range(n)]
            found = b.shuffle(found or x, x, picks)
        return found

    def mask_apart(self, stride, first, n):
        """Which of n elements from this one on are read: up to the last one wanted, or those of the mask's lanes."""
        if self.mask is None:
            reach = (n - 1) * stride + 1 - first
            return None if reach >= n else self.b.first_lanes(reach, n)
        picks = [(first + k) // stride if (first + k) % stride == 0 else None for k in range(n)]
        return _picked(self.b, self.mask, picks)

    def position(self, s):
        b, e = self.b, self.emission
        first = b.add(self.bases[id(s)], b.i64(self.scaled(s.at.lane)))
        self.registers[s.name] = b.add(b.splat(first, e.lanes), self.lane_offsets(s.at.lane))

    def apply(self, s):
        operands = [self.lookup(k) for k in s.operands]
        self.registers[s.name] = self.emission.apply(s, operands, self.mask)

    def store(self, s):
        b, e = self.b, self.emission
        element = e.elements[s.parameter]
        pointer, _ = self.bases[id(s)]
        x = b.convert(self.lookup(s.value), element)
        size = SIZES[element]
        if s.at.lane == 1:
            e.streams.store(s, x, b.offset(pointer, self.j, size), self.mask)
        else:
            place = b.offset(pointer, self.scaled(s.at.lane), size)
            b.scatter(x, place, self.lane_offsets(s.at.lane), self.full_mask())

    def accumulate(self, s):
        e = self.emission
        column = e.columns[s.column]
        x = self.lookup(s.value)
        if not column.storage:
            slot = (s.column, self.vector)
            e.accumulators[slot] = column.op.lower.step(self.b, e.accumulators[slot], x)
            return
        b, element = self.b, e.elements[column.storage[0]]
        place = e.column_place(column, 0, self.j)
        before = b.convert(b.load(place, e.type(element), self.mask), column.element)
        b.store(b.convert(column.op.lower.step(b, before, x), element), place, self.mask)

    def update(self, s):
        b, element = self.b, self.emission.elements[s.parameter]
        pointer = self.bases[id(s)]
        if pointer is None:
            return
        place = b.offset(pointer, self.j, SIZES[element])
        x = self.lookup(s.value)
        if s.op is not None:
            before = b.convert(b.load(place, self.emission.type(element), self.mask), x.type.element)
            x = s.op.lower(b, before, x)
        b.store(b.convert(x, element), place, self.mask)

    def extreme(self, s):
        """Lane by lane over the elements, `stride` apart."""
        b, e = self.b, self.emission
        t = e.type(e.elements[s.parameter])
        place = b.offset(self.bases[id(s)], self.scaled(s.at.lane), t.element_bytes)

        def load(k):
            step = b.mul(k, b.i64(s.stride)) if isinstance(k, Reg) else k * s.stride
            at = b.offset(place, step, t.element_bytes)
            if s.at.lane == 1:
                return b.load(at, t, self.mask)
            return b.gather(at, self.lane_offsets(s.at.lane), t, self.mask)

        with b.loop(1, s.count, 1, [load(0), b.const(0, e.type("i64"))]) as (k, loop):
            best, position = loop.values
            x = load(k)
            better = better_extreme(b, s.predicate, x, best)
            loop.next([b.select(better, x, best), b.select(better, b.splat(k, e.lanes), position)])
        self.registers[s.name] = loop.results[1]

    def nothing(self, s):
        """A Reduce: the walk takes its operand."""


STATEMENTS = {
    Load: Vector.load,
    Position: Vector.position,
    Apply: Vector.apply,
    Store: Vector.store,
    Accumulate: Vector.accumulate,
    Update: Vector.update,
    Extreme: Vector.extreme,
    Reduce: Vector.nothing,
}


def halves_of(body):
    """(load, cast) of the float16 that are loaded side by side and become float32 before anything is written."""
    loads, found = {}, []
    for s in body:
        if isinstance(s, (Store, Update, Accumulate)):
            break
        if isinstance(s, Load) and s.element == "h16" and not is_open(s.at.lane) and s.at.lane == 1 and not s.indices:
            loads[s.name] = s
        elif isinstance(s, Apply) and s.op is cast and s.element == "f32" and s.operands[0] in loads:
            found.append((loads[s.operands[0]], s))
    return found


def _picked(b, mask, lanes):
    """The mask whose lane k is that of another one, by number; cleared where that is None. Of a constant it is one:
    LLVM, left to find that out from a shuffle, forgets about lanes that nobody looks at afterwards, takes them for set
    where vectors have no masks of their own (AVX2), and loads what lies behind an operand."""
    if mask.name.startswith("<"):
        bits = mask.name[1:-1].split(", ")
        return Reg(f"<{', '.join('i1 false' if k is None else bits[k] for k in lanes)}>", Type("i1", len(lanes)))
    n = mask.type.lanes
    return b.shuffle(mask, b.const(0, mask.type), [n if k is None else k for k in lanes])
