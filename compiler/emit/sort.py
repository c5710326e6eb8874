"""Sorting rows, and the first of their order.

A row becomes records of a key and a position. Keys are unsigned integers in the order of the elements: of floats, the
bits, all of them flipped below zero and the sign above; -0.0 is 0.0, and NaN is the largest. All of them flipped give
the other direction. Equal elements keep their order.

Records are sorted by counting digits of eight bits from the lowest on, where a pass in which all digits are the same is
left out; few of them by rank: how many belong before a record is where it goes, and every record is compared with all
others in vectors, without a branch. Elements of 32 bits need one word for key and position, and four passes: 1 M floats
take 1.5 ns per element and pass, which is mostly the wait for the 256 lines that are written to.

The first few of a short row are selected: the least record, k times, each of which is the largest from then on. For
other first k there is a buffer, which is sorted whenever it is full; its first k stay, and from then on only what
comes before the last of these goes into it. Of n elements in random order that are about k log(n / k), so what takes
time is comparing vectors of elements with one number.
"""

from functools import reduce

from .builder import I1, I64, PTR, Builder, Reg, Type

_BINS = 256
# So many are sorted by rank, records of one word and of two: counting takes about 1 us for its tables, ranks m * m / 8
# comparisons of vectors.
_FEW = {1: 160, 2: 128}
# Records that are ranked at a time: four vectors of words, so that a comparison does not wait for the one before. What
# is read beyond the last record is memory of ours too.
_RANKED = 32
# How many vectors are looked at together, of which mostly none has an element that comes in.
_LOOKED_AT = 4
# Rows of so many elements, of which so many are compared in all, are selected from: of 64 elements the first 5 take a
# sixth of the time of sorting.
_MOST_IN_ROW, MOST_SELECTED = 1 << 9, 1 << 11
# How many records beside the first k the buffer has room for, at least: more than a vector has lanes.
_LEAST_ROOM = 32


def emit_argsort(module, element):
    """Define `void @weft_argsort_ELEMENT(source, out, rows, n, descending, scratch)`: the positions (i64) that sort
    every row of (rows, n) elements, which lie in a row."""
    sort = _emit_sort(module, element)
    parameters = [("source", PTR), ("out", PTR), ("rows", I64), ("n", I64), ("descending", I64), ("scratch", PTR)]
    b = Builder(module, f"weft_argsort_{element}", parameters)
    source, out, rows, n, descending, scratch = b.arguments
    records = _Records(b, element)
    keys = Keys(b, element, descending)
    second = b.offset(scratch, b.mul(n, b.i64(records.size)), 1)
    with b.loop(0, rows, 1) as row:
        start = b.mul(row, n)
        elements = b.offset(source, start, keys.size)
        with b.loop(0, n, 1) as k:
            records.store(records.made(keys, elements, k), scratch, k)
        records.write(b.call(PTR, sort, [scratch, second, n]), b.offset(out, start, 8), n)
    b.finish()


def emit_top(module, element):
    """Define `void @weft_top_ELEMENT(source, out, rows, n, descending, k, scratch)`: the first k of those positions,
    for n of at least `buffer_length(k)`, or such as `selects` says."""
    sort = _emit_sort(module, element)
    parameters = [("source", PTR), ("out", PTR), ("rows", I64), ("n", I64), ("descending", I64), ("k", I64)]
    b = Builder(module, f"weft_top_{element}", [*parameters, ("scratch", PTR)])
    source, out, rows, n, descending, k, scratch = b.arguments
    buffer = _Buffer(b, element, Keys(b, element, descending), scratch, k, sort)
    lanes = module.target.lanes({element})
    others = rows
    if buffer.records.n_words == 1:
        few = b.and_(b.cmp("lt", n, b.i64(_MOST_IN_ROW + 1)), b.cmp("lt", b.mul(n, k), b.i64(MOST_SELECTED + 1)))
        with b.loop(0, b.select(few, rows, b.i64(0)), 1) as row:
            elements, found = b.offset(source, b.mul(row, n), buffer.keys.size), b.offset(out, b.mul(row, k), 8)
            _select(b, buffer.keys, elements, n, k, found, scratch, lanes)
        others = b.select(few, b.i64(0), rows)
    with b.loop(0, others, 1) as row:
        elements = b.offset(source, b.mul(row, n), buffer.keys.size)
        buffer.fill(elements)
        group = _LOOKED_AT * lanes
        rest = b.sub(n, b.rem(b.sub(n, buffer.length), b.i64(group)))
        groups = b.loop(buffer.length, rest, group)
        with groups as start, b.when(buffer.has_some(elements, start, lanes)), buffer.group(start, lanes) as at:
            buffer.look_at(elements, at, None, lanes)
        with b.loop(rest, n, lanes) as start:
            count = b.intrinsic("smin", b.i64(lanes), b.sub(n, start))
            buffer.look_at(elements, start, b.lane_mask(0, count, lanes), lanes)
        buffer.keep_first(elements)
        buffer.records.write(scratch, b.offset(out, b.mul(row, k), 8), k)
    b.finish()


def _select(b, keys, elements, n, k, found, scratch, lanes):
    """The positions of the first k of n elements. Records are signed numbers here, which vectors compare."""
    t, last = Type("i64", lanes), (1 << 63) - 1

    def records(x, j):
        key = b.emit(t, f"zext {keys.of(x)} to {t}")
        places = b.add(b.iota(t), b.splat(j, lanes))
        return b.xor(b.or_(b.shl(key, b.const(32, t)), places), b.const(-(1 << 63), t))

    with b.loop(0, n, lanes) as j:
        mask = b.lane_mask(j, n, lanes)
        x = b.load(b.offset(elements, j, keys.size), Type(keys.element.element, lanes), mask)
        b.store(b.select(mask, records(x, j), b.const(last, t)), b.offset(scratch, j, 8))
    with b.loop(0, k, 1) as at:
        with b.loop(0, n, lanes, [b.const(last, t)]) as (j, state):
            state.next([_lesser(b, b.load(b.offset(scratch, j, 8), t), state.values[0])])
        least = b.extract(b.combine(state.results[0], _lesser), 0)
        place = b.and_(least, b.i64(0xFFFFFFFF))
        b.store(place, b.offset(found, at, 8))
        b.store(b.i64(last), b.offset(scratch, place, 8))


def _lesser(b, x, y):
    return b.select(b.cmp("lt", x, y), x, y)


def selects(size_bytes, size, k):
    """Whether the first k of rows of so many elements are selected, whatever `buffer_length` says."""
    return size_bytes == 4 and size <= _MOST_IN_ROW and size * k <= MOST_SELECTED


def buffer_length(k):
    """How many records the buffer of the first k holds."""
    return k + max(k, _LEAST_ROOM)


def argsort_scratch(element, shape, attributes):
    return _scratch(element, shape[-1])


def top_scratch(element, shape, attributes):
    return _scratch(element, buffer_length(attributes["k"]) + _MOST_IN_ROW)


def _scratch(element, count):
    """Bytes of twice so many records, and of what is read beyond the last of them."""
    return (2 * count + _RANKED) * 2 * Type(element).element_bytes


class Keys:
    """Unsigned integers in the order that is asked for: of elements, or of vectors of them."""

    def __init__(self, b, element, descending):
        self.b, self.element, self.size = b, Type(element), Type(element).element_bytes
        self.integer = "i32" if self.size == 4 else "i64"
        self.flips = self._flips(descending)

    def of(self, x):
        b, t = self.b, x.type.of(self.integer)
        flips = b.splat(self.flips, t.lanes) if t.lanes else self.flips
        return b.xor(self._ascending(x, t), flips)

    def with_nan_last(self, x):
        """The same, but for NaN, whose key is the largest in either order."""
        b, t = self.b, x.type.of(self.integer)
        key = b.xor(self._bits(x, t), b.splat(self.flips, t.lanes) if t.lanes else self.flips)
        return b.select(b.cmp("uno", x, x), b.const(-1, t), key) if x.type.is_float else key

    def _ascending(self, x, t):
        key = self._bits(x, t)
        return self.b.select(self.b.cmp("uno", x, x), self.b.const(-1, t), key) if x.type.is_float else key

    def _bits(self, x, t):
        """The order of numbers; a NaN is anywhere."""
        b, sign = self.b, self.b.const(-(2 ** (8 * self.size - 1)), t)
        if not x.type.is_float:
            return b.xor(x, sign)
        bits = b.bitcast(b.add(x, b.const(0.0, x.type)), self.integer)
        below = b.ashr(bits, b.const(8 * self.size - 1, t))
        return b.xor(bits, b.or_(below, sign))

    def _flips(self, descending):
        """All bits if the order is the other one, which is known here or in a register."""
        if isinstance(descending, bool):
            return self.b.const(-descending, Type(self.integer))
        flips = self.b.sub(self.b.i64(0), descending)
        return self.b.emit(Type("i32"), f"trunc {flips} to i32") if self.size == 4 else flips

    def load(self, elements, k):
        return self.of(self.b.load(self.b.offset(elements, k, self.size), self.element))


class _Records:
    """Keys with their positions in memory: in one word, the key above, where keys have 32 bits; else in two."""

    def __init__(self, b, element):
        self.b = b
        self.digits = Type(element).element_bytes
        self.n_words = self.digits // 4
        self.size = 8 * self.n_words
        self.shift = 0 if self.n_words == 2 else 32

    def made(self, keys, elements, k):
        """The words of element k."""
        return self.words(keys.load(elements, k), k)

    def words(self, key, k):
        if self.n_words == 2:
            return [key, k]
        return [self.b.or_(self.b.shl(self.b.emit(I64, f"zext {key} to i64"), self.b.i64(32)), k)]

    def load(self, base, k):
        start = self.b.offset(base, k, self.size)
        return [self.b.load(self.b.offset(start, w, 8), I64) for w in range(self.n_words)]

    def store(self, words, base, k):
        start = self.b.offset(base, k, self.size)
        for w, word in enumerate(words):
            self.b.store(word, self.b.offset(start, w, 8))

    def position(self, words):
        return words[1] if self.n_words == 2 else self.b.and_(words[0], self.b.i64(0xFFFFFFFF))

    def digit(self, words, d):
        """The byte of the key at which pass d looks."""
        b = self.b
        moved = b.lshr(words[0], b.add(b.mul(b.i64(d), b.i64(8)), b.i64(self.shift)))
        return b.and_(moved, b.i64(_BINS - 1))

    def first_words(self, base, k, lanes):
        """Those of so many records from k on: what their order goes by. In one word, positions tell equal keys."""
        b, found = self.b, []
        for part in range(self.n_words):
            start = b.offset(b.offset(base, k, self.size), part * lanes, 8)
            found.append(b.load(start, Type("i64", lanes)))
        return found[0] if len(found) == 1 else b.shuffle(*found, range(0, 2 * lanes, 2))

    def copy(self, source, target, count):
        with self.b.loop(0, count, 1) as k:
            self.store(self.load(source, k), target, k)

    def write(self, base, positions, count):
        with self.b.loop(0, count, 1) as k:
            self.b.store(self.position(self.load(base, k)), self.b.offset(positions, k, 8))


# --- the first k ------------------------------------------------------------------------------------------------------
class _Buffer:
    """The records that may be among the first k of a row: how many, and the element that others must come before.

    That one is compared as it is, not by its key, so that a vector takes two instructions: what comes in is sorted by
    keys, so it may be more than what belongs there, where NaN is about. Elements and bound are flipped (numbers by
    their sign, integers in all bits) where the order is descending.
    """

    def __init__(self, b, element, keys, scratch, k, sort):
        self.b, self.keys, self.scratch, self.k, self.sort = b, keys, scratch, k, sort
        self.records = _Records(b, element)
        self.length = b.add(k, b.intrinsic("smax", k, b.i64(_LEAST_ROOM)))
        self.second = b.offset(scratch, b.mul(self.length, b.i64(self.records.size)), 1)
        self.count, self.bound = b.alloca(I64), b.alloca(keys.element)
        self.flips = keys.flips
        if keys.element.is_float:
            self.flips = b.and_(self.flips, b.const(-(2 ** (8 * keys.size - 1)), keys.flips.type))

    def fill(self, elements):
        """The first elements of a row, which come in whatever they are."""
        b, records = self.b, self.records
        with b.loop(0, self.length, 1) as j:
            records.store(records.made(self.keys, elements, j), self.scratch, j)
        b.store(self.length, self.count)
        self.keep_first(elements)

    def keep_first(self, elements):
        b, records = self.b, self.records
        found = b.call(PTR, self.sort, [self.scratch, self.second, b.load(self.count, I64)])
        with b.when(b.emit(I1, f"icmp ne {found}, {self.scratch.name}")):
            records.copy(found, self.scratch, self.k)
        b.store(self.k, self.count)
        last = records.load(self.scratch, b.sub(self.k, b.i64(1)))
        place = b.offset(elements, records.position(last), self.keys.size)
        b.store(self.flipped(b.load(place, self.keys.element)), self.bound)

    def flipped(self, x):
        b, keys = self.b, self.keys
        flips = b.splat(self.flips, x.type.lanes) if x.type.lanes else self.flips
        return b.bitcast(b.xor(b.bitcast(x, keys.integer), flips), keys.element.element)

    def hits(self, elements, start, mask, lanes):
        """Which of a vector of elements may come in."""
        b, keys = self.b, self.keys
        x = b.load(b.offset(elements, start, keys.size), Type(keys.element.element, lanes), mask)
        bound = b.splat(b.load(self.bound, keys.element), lanes)
        found = b.not_(b.cmp("ge", self.flipped(x), bound))
        return found if mask is None else b.and_(found, mask)

    def has_some(self, elements, start, lanes):
        """Whether any of the vectors that are looked at together has one."""
        b = self.b
        found = [self.hits(elements, b.add(start, b.i64(v * lanes)), None, lanes) for v in range(_LOOKED_AT)]
        return b.any_lane(reduce(b.or_, found))

    def group(self, start, lanes):
        """A loop over the vectors that are looked at together."""
        return self.b.loop(start, self.b.add(start, self.b.i64(_LOOKED_AT * lanes)), lanes)

    def look_at(self, elements, start, mask, lanes):
        b, keys = self.b, self.keys
        hits = self.hits(elements, start, mask, lanes)
        bits = b.emit(I64, f"zext {b.emit(Type(f'i{lanes}'), f'bitcast {hits} to i{lanes}')} to i64")
        ask, add, done = (b.label(s) for s in ("ask", "add", "done"))
        some, left = b.label("some"), Reg(b.fresh("left"), I64)
        b.branch_if(b.cmp("ne", bits, b.i64(0)), some, done)
        b.start(some)
        count = b.load(self.count, I64)
        b.branch(add)
        b.start(add)
        head, at = len(b.lines), Reg(b.fresh("at"), I64)
        k = b.add(start, self.first_bit(left))
        self.records.store(self.records.made(keys, elements, k), self.scratch, at)
        rest, following = b.and_(left, b.sub(left, b.i64(1))), b.add(at, b.i64(1))
        b.branch_if(b.cmp("ne", rest, b.i64(0)), add, ask)
        b.lines[head:head] = [
            f"  {left.name} = phi i64 [ {bits.name}, %{some} ], [ {rest.name}, %{add} ]",
            f"  {at.name} = phi i64 [ {count.name}, %{some} ], [ {following.name}, %{add} ]",
        ]
        b.start(ask)
        b.store(following, self.count)
        with b.when(b.cmp("lt", b.sub(self.length, b.i64(lanes)), following)):
            self.keep_first(elements)
        b.branch(done)
        b.start(done)

    def first_bit(self, bits):
        """The number of the lowest bit that is set."""
        b = self.b
        b.module.declare("llvm.cttz.i64", I64, [I64, I1])
        return b.emit(I64, f"call i64 @llvm.cttz.i64({bits}, i1 true)")


# --- sorting records --------------------------------------------------------------------------------------------------
def _emit_sort(module, element):
    """Define `ptr @sort_ELEMENT(first, second, m)`, which sorts the m records at `first` with the help of as much other
    memory, and returns where of the two they are; returns its name."""
    b = Builder(
        module, f"sort_{element}", [("first", PTR), ("second", PTR), ("m", I64)], result=PTR, linkage="internal"
    )
    first, second, m = b.arguments
    records = _Records(b, element)
    most = _FEW[records.n_words]
    bins, here, there = b.alloca(I64, records.digits * _BINS), b.alloca(PTR), b.alloca(PTR)
    ranks = b.alloca(I64, most + _RANKED)
    b.store(first, here)
    b.store(second, there)
    few = b.cmp("lt", m, b.i64(most + 1))
    with b.when(few):
        _rank(b, records, ranks, first, second, m)
        b.store(second, here)
    with b.when(b.not_(few)):
        _count_digits(b, records, bins, here, there, m)
    b.finish(b.load(here, PTR))
    return b.name


def _rank(b, records, ranks, source, target, m):
    """Each record to its rank: how many belong before it. `ranks`: room for those."""
    lanes = _RANKED // records.n_words
    with b.loop(0, m, lanes) as first:
        keys, places = records.first_words(source, first, lanes), b.iota(Type("i64", lanes))
        places = b.add(places, b.splat(first, lanes))
        with b.loop(0, m, 1, [b.const(0, keys.type)]) as (j, state):
            key = b.splat(records.load(source, j)[0], lanes)
            before = b.cmp("ult", key, keys)
            if records.n_words == 2:
                came_first = b.cmp("lt", b.splat(j, lanes), places)
                before = b.or_(before, b.and_(b.cmp("eq", key, keys), came_first))
            state.next([b.add(state.values[0], b.convert(before, "i64"))])
        b.store(state.results[0], b.offset(ranks, first, 8))
    with b.loop(0, m, 1) as k:
        records.store(records.load(source, k), target, b.load(b.offset(ranks, k, 8), I64))


def _count_digits(b, records, bins, here, there, m):
    """`bins`: room for how often each digit occurs in each pass; `here`, `there`: words that say where records are, and
    where they can go."""
    with b.loop(0, records.digits * _BINS, 8) as k:
        b.store(b.const(0, Type("i64", 8)), b.offset(bins, k, 8))
    given = b.load(here, PTR)
    with b.loop(0, m, 1) as k:
        words = records.load(given, k)
        for d in range(records.digits):
            count = b.offset(bins, b.add(records.digit(words, d), b.i64(d * _BINS)), 8)
            b.store(b.add(b.load(count, I64), b.i64(1)), count)
    with b.loop(0, records.digits, 1) as d:
        table = b.offset(bins, b.mul(d, b.i64(_BINS)), 8)
        source, target = b.load(here, PTR), b.load(there, PTR)
        first = records.digit(records.load(source, b.i64(0)), d)
        with b.when(b.cmp("ne", b.load(b.offset(table, first, 8), I64), m)):
            _scatter(b, records, table, source, target, d, m)
            b.store(target, here)
            b.store(source, there)


def _scatter(b, records, table, source, target, d, m):
    """One pass: where each digit begins, then every record to the next place of its digit."""
    with b.loop(0, _BINS, 1, [b.i64(0)]) as (k, running):
        place = b.offset(table, k, 8)
        (total,) = running.values
        count = b.load(place, I64)
        b.store(total, place)
        running.next([b.add(total, count)])
    with b.loop(0, m, 1) as k:
        words = records.load(source, k)
        place = b.offset(table, records.digit(words, d), 8)
        at = b.load(place, I64)
        b.store(b.add(at, b.i64(1)), place)
        records.store(words, target, at)
