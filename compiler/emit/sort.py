"""Sorting rows: positions in the order of the elements, by counting digits of eight bits from the lowest on.

A row becomes records of a key and a position. Keys are unsigned integers in the order of the elements: of floats, the
bits, all of them flipped below zero and the sign above; -0.0 is 0.0, and NaN is the largest. Every pass keeps the order
of equal digits, so equal elements keep theirs. A pass in which all digits are the same is left out. Short rows are
sorted by insertion.

Elements of 32 bits need one word for key and position, and four passes: 1 M floats take 1.5 ns per element and pass,
which is mostly the wait for the 256 lines that are written to.
"""

from .builder import I64, PTR, Builder, Reg, Type

# Counting takes about 1 us per row for its tables; insertion n * n / 4 steps of about 1 ns.
_FEW = 48
_BINS = 256


def emit_argsort(module, element):
    """Define `void @weft_argsort_ELEMENT(source, out, rows, n, descending, scratch)`: the
    positions (i64) that sort every row of (rows, n) elements, which lie in a row."""
    parameters = [("source", PTR), ("out", PTR), ("rows", I64), ("n", I64), ("descending", I64), ("scratch", PTR)]
    b = Builder(module, f"weft_argsort_{element}", parameters)
    source, out, rows, n, descending, scratch = b.arguments
    records = _Records(b, element, n, scratch)
    flips = b.sub(b.i64(0), descending)
    bins, places = b.alloca(I64, records.digits * _BINS), b.alloca(PTR, 2)
    few = b.cmp("lt", n, b.i64(_FEW + 1))
    with b.loop(0, rows, 1) as row:
        start = b.mul(row, n)
        elements = b.offset(source, start, records.element.element_bytes)
        positions = b.offset(out, start, 8)
        with b.when(few):
            _insert(b, records, elements, positions, flips)
        with b.when(b.not_(few)):
            _count_digits(b, records, elements, positions, flips, bins, places)
    b.finish()


def scratch_bytes(element, shape):
    """Of memory for a row."""
    return 4 * shape[-1] * Type(element).element_bytes


class _Records:
    """Key and position of every element of a row: in one word where keys have 32 bits, else in two."""

    def __init__(self, b, element, n, scratch):
        self.b, self.element, self.n = b, Type(element), n
        self.n_words = self.element.element_bytes // 4
        self.size = 8 * self.n_words
        self.digits = self.element.element_bytes
        self.shift = 0 if self.n_words == 2 else 32
        self.first, self.second = scratch, b.offset(scratch, b.mul(n, b.i64(self.size)), 1)

    def made(self, elements, k, flips):
        """The words of element k."""
        b, key = self.b, self.key(self.b.load(self.b.offset(elements, k, self.digits), self.element))
        if self.n_words == 2:
            return [b.xor(key, flips), k]
        key = b.shl(b.xor(b.emit(I64, f"zext {key} to i64"), b.and_(flips, b.i64(0xFFFFFFFF))), b.i64(32))
        return [b.or_(key, k)]

    def key(self, x):
        b, integer = self.b, Type("i32" if self.digits == 4 else "i64")
        sign = b.const(-(2 ** (8 * self.digits - 1)), integer)
        if not x.type.is_float:
            return b.xor(x, sign)
        bits = b.bitcast(b.add(x, b.const(0.0, x.type)), integer.element)
        below = b.ashr(bits, b.const(8 * self.digits - 1, integer))
        return b.select(b.cmp("uno", x, x), b.const(-1, integer), b.xor(bits, b.or_(below, sign)))

    def load(self, base, k):
        start = self.b.offset(base, k, self.size)
        return [self.b.load(self.b.offset(start, w, 8), I64) for w in range(self.n_words)]

    def store(self, words, base, k):
        start = self.b.offset(base, k, self.size)
        for w, word in enumerate(words):
            self.b.store(word, self.b.offset(start, w, 8))

    def digit(self, words, d):
        """The byte of the key at which pass d looks."""
        b = self.b
        moved = b.lshr(words[0], b.add(b.mul(b.i64(d), b.i64(8)), b.i64(self.shift)))
        return b.and_(moved, b.i64(_BINS - 1))

    def position(self, words):
        return words[1] if self.n_words == 2 else self.b.and_(words[0], self.b.i64(0xFFFFFFFF))

    def is_after(self, words, others):
        """Whether the first belongs behind the second, of which it came before."""
        return self.b.cmp("ult", others[0], words[0])


def _insert(b, records, elements, positions, flips):
    """Each element moves down as long as a larger one is before it."""
    with b.loop(0, records.n, 1) as k:
        words = records.made(elements, k, flips)
        ask, move, found = (b.label(s) for s in ("ask", "move", "found"))
        before = b.block
        b.branch(ask)
        b.start(ask)
        at = Reg(b.fresh("at"), I64)
        head = len(b.lines)
        one_down = b.sub(at, b.i64(1))
        b.branch_if(b.cmp("lt", b.i64(0), at), move, found)
        b.start(move)
        other = records.load(records.first, one_down)
        shift, stop = b.label("shift"), found
        b.branch_if(records.is_after(other, words), shift, stop)
        b.start(shift)
        records.store(other, records.first, at)
        b.branch(ask)
        b.lines.insert(head, f"  {at.name} = phi i64 [ {k.name}, %{before} ], [ {one_down.name}, %{shift} ]")
        b.start(found)
        records.store(words, records.first, at)
    _write(b, records, records.first, positions)


def _count_digits(b, records, elements, positions, flips, bins, places):
    """`bins`: room for how often each digit occurs in each pass; `places`: for where records are and where they go."""
    n = records.n
    with b.loop(0, records.digits * _BINS, 8) as k:
        b.store(b.const(0, Type("i64", 8)), b.offset(bins, k, 8))
    with b.loop(0, n, 1) as k:
        words = records.made(elements, k, flips)
        records.store(words, records.first, k)
        for d in range(records.digits):
            count = b.offset(bins, b.add(records.digit(words, d), b.i64(d * _BINS)), 8)
            b.store(b.add(b.load(count, I64), b.i64(1)), count)
    here, there = places, b.offset(places, 1, 8)
    b.store(records.first, here)
    b.store(records.second, there)
    with b.loop(0, records.digits, 1) as d:
        table = b.offset(bins, b.mul(d, b.i64(_BINS)), 8)
        source, target = b.load(here, PTR), b.load(there, PTR)
        first = records.digit(records.load(source, b.i64(0)), d)
        differ = b.cmp("ne", b.load(b.offset(table, first, 8), I64), n)
        with b.when(differ):
            _scatter(b, records, table, source, target, d)
            b.store(target, here)
            b.store(source, there)
    _write(b, records, b.load(here, PTR), positions)


def _scatter(b, records, table, source, target, d):
    """One pass: where each digit begins, then every record to the next place of its digit."""
    with b.loop(0, _BINS, 1, [b.i64(0)]) as (k, running):
        place = b.offset(table, k, 8)
        (total,) = running.values
        count = b.load(place, I64)
        b.store(total, place)
        running.next([b.add(total, count)])
    with b.loop(0, records.n, 1) as k:
        words = records.load(source, k)
        place = b.offset(table, records.digit(words, d), 8)
        at = b.load(place, I64)
        b.store(b.add(at, b.i64(1)), place)
        records.store(words, target, at)


def _write(b, records, sorted_records, positions):
    with b.loop(0, records.n, 1) as k:
        b.store(records.position(records.load(sorted_records, k)), b.offset(positions, k, 8))
