"""Reductions in the one order that eager and compiled code share (compiler/ops/reduction.py says why and which).

Row reductions: element k goes to virtual lane k mod 32; the lanes are spread over 32 / `lanes` accumulator vectors.
Sums of floats close a block every 2048 elements. Column reductions: row after row, lane by lane; sums of floats close
a block every 128 rows. The code here is the same for extents known now (ints) and at run time (registers).
"""

from ..extent import is_open
from .builder import Reg

VIRTUAL_LANES = 32
BLOCK_ELEMENTS = 2048
BLOCK_ROWS = 128

_LIMITS = {
    "f32": (float("-inf"), float("inf")),
    "f64": (float("-inf"), float("inf")),
    "i64": (-(1 << 63), (1 << 63) - 1),
    "i32": (-(1 << 31), (1 << 31) - 1),
    "i8": (-(1 << 7), (1 << 7) - 1),
}


def identity(b, op, type):
    """The start value of a reduction: combining with it changes nothing."""
    if op.lower.identity is not None:
        return b.const(op.lower.identity, type)
    lowest, highest = _LIMITS[type.element]
    return b.const(lowest if op.extra["start"] == "lowest" else highest, type)


def is_compensated(op, type):
    return op.lower.compensated and type.is_float


def fold(b, total, error, block):
    """(total, error) after a block's sum: Knuth's two-sum; the error of an infinite or NaN total is dropped."""
    head = b.add(total, block)
    other = b.sub(head, total)
    lost = b.add(b.sub(total, b.sub(head, other)), b.sub(block, other))
    lost = b.select(b.cmp("uno", lost, lost), b.const(0, lost.type), lost)
    return head, b.add(error, lost)


def combine_lanes(b, step, vectors, count=None):
    """All virtual lanes by halving, in every lane of the result. Vectors that are None were never used; only the first
    `count` lanes of the last one were (None: all). step(b, x, y) combines two vectors."""
    vectors = list(vectors)
    while len(vectors) > 1:
        half = len(vectors) // 2
        pairs = zip(vectors[:half], vectors[half:])
        vectors = [x if y is None else step(b, x, y) for x, y in pairs]
    (x,) = vectors
    return b.combine(x, step, count)


def broadcast_lane(b, x):
    """Lane 0 in every lane."""
    return b.shuffle(x, x, [0] * x.type.lanes)


class _Sums:
    """The accumulators of one row reduction: `count` vectors, with totals and errors if blocks are closed."""

    def __init__(self, b, op, type, count, blocks):
        self.op, self.type, self.count, self.blocks = op, type, count, blocks
        start = identity(b, op, type)
        self.state = [start] * (count * (3 if blocks else 1))

    def step(self, b, vector, x):
        self.state[vector] = self.op.lower.step(b, self.state[vector], x)

    def rotate(self, by):
        """The accumulators take turns: each moves `by` places to the front."""
        by %= self.count
        self.state[: self.count] = self.state[by : self.count] + self.state[:by]

    def close_block(self, b):
        if not self.blocks:
            return
        n, start = self.count, identity(b, self.op, self.type)
        for k in range(n):
            self.state[n + k], self.state[2 * n + k] = fold(b, self.state[n + k], self.state[2 * n + k], self.state[k])
            self.state[k] = start

    def result(self, b):
        vectors = self.state[: self.count]
        if self.blocks:
            self.close_block(b)
            n = self.count
            vectors = [b.add(self.state[n + k], self.state[2 * n + k]) for k in range(n)]
        return self.combine(b, vectors)

    def lanes(self, b):
        """Of one block, what every lane holds: the elements of a reduction over blocks."""
        return self.state[: self.count]

    def combine(self, b, vectors, count=None):
        return combine_lanes(b, self.op.lower.step, vectors, count)


class _Extremes(_Sums):
    """amax or amin of floats: the same steps without the test for NaN, which is kept aside in one mask.

    A step then is one instruction, and the chain of steps a third as long.
    """

    def __init__(self, b, op, type, count, blocks):
        super().__init__(b, op, type, count, blocks)
        self.predicate = "gt" if op.extra["start"] == "lowest" else "lt"
        self.state.append(b.const(0, type.of("i1")))

    def step(self, b, vector, x):
        self.state[vector] = self.better(b, self.state[vector], x)
        self.state[-1] = b.or_(self.state[-1], b.cmp("uno", x, x))

    def lanes(self, b):
        return [b.select(self.state[-1], b.const(float("nan"), self.type), x) for x in self.state[: self.count]]

    def better(self, b, best, x):
        return b.select(b.cmp(self.predicate, best, x), best, x)

    def combine(self, b, vectors, count=None):
        best = combine_lanes(b, self.better, vectors, count)
        any_nan = b.splat(b.any_lane(self.state[-1]), self.type.lanes)
        return b.select(any_nan, b.const(float("nan"), self.type), best)


def _accumulators(b, op, type, count, blocks):
    kind = _Extremes if op.lower.identity is None and type.is_float else _Sums
    return kind(b, op, type, count, blocks and is_compensated(op, type))


def reduce_row(b, extent, lanes, reductions, body, *, rotated=False, closing=BLOCK_ELEMENTS):
    """Walk a row of `extent` elements (an int or an i64 register) in vectors of `lanes`.

    body(j, mask) emits one vector's work at element j (an int or a register) and returns one register per reduction,
    (op, type) pairs; lanes that the mask clears are taken as the identity. Returns the results, each in all lanes.
    Without reductions a plain vector loop remains.

    `rotated` (extent known): the loop's body is one vector, and the accumulators take turns from iteration to
    iteration; else the body is one vector per accumulator. The first is shorter, the second faster for short bodies.

    `closing`: after how many elements sums of floats close a block. Of the lanes of blocks, side by side, it is 32:
    they then give what the elements themselves give.
    """
    extent = b.i64(extent) if is_open(extent) else extent
    slots = VIRTUAL_LANES // lanes if reductions else 1
    unroll = 1 if rotated else slots
    static = not isinstance(extent, Reg)
    blocks = not static or extent > closing
    sums = [_accumulators(b, op, t, slots, blocks) for op, t in reductions]
    step = unroll * lanes
    whole = extent // step * step if static else b.sub(extent, b.and_(extent, b.i64(step - 1)))
    if blocks and any(s.blocks for s in sums):
        with _carrying(b, sums, 0, whole, closing) as start:
            for s in sums:
                s.close_block(b)
            stop = b.intrinsic("smin", b.add(start, b.i64(closing)), b.i64(whole))
            _walk(b, sums, start, stop, lanes, unroll, body)
        if not static or whole % closing == 0:
            _close_before_tail(b, sums, whole, closing)
    elif not static or whole:
        _walk(b, sums, 0, whole, lanes, unroll, body)
    if rotated:
        for s in sums:
            s.rotate(-(whole // lanes))
        slots -= whole // lanes % slots
    _tail(b, sums, whole, extent, lanes, slots, body)
    return [s.result(b) for s in sums]


def reduce_block(b, extent, block, start, lanes, reductions, body, *, rotated=False):
    """As reduce_row for the elements from `start`, a register, on: a block of that size, or what is left of the row.
    Returns for each reduction what every lane holds, as a list of vectors."""
    slots = VIRTUAL_LANES // lanes if reductions else 1
    sums = [_accumulators(b, op, t, slots, False) for op, t in reductions]
    stop = b.intrinsic("smin", b.add(start, b.i64(block)), b.i64(extent))
    step = slots * lanes
    whole = b.sub(stop, b.and_(stop, b.i64(step - 1)))
    _walk(b, sums, start, whole, lanes, 1 if rotated else slots, body)
    if is_open(extent) or extent % step:
        # As many vectors as there are accumulators, or none, so that all are in their places again.
        end = b.select(b.cmp("lt", whole, stop), b.add(whole, b.i64(step)), whole)
        with _carrying(b, sums, whole, end, lanes) as j:
            _vector(b, sums, j, b.lane_mask(j, extent, lanes), 0, body)
            for s in sums:
                s.rotate(1)
    return [s.lanes(b) for s in sums]


def _close_before_tail(b, sums, whole, closing):
    """The tail begins a block of its own where the whole vectors end with one."""
    if not isinstance(whole, Reg):
        for s in sums:
            s.close_block(b)
        return
    ends = b.cmp("eq", b.and_(whole, b.i64(closing - 1)), b.i64(0))
    for s in sums:
        before = list(s.state)
        s.close_block(b)
        mask = b.splat(ends, s.type.lanes)
        s.state = [x if x == y else b.select(mask, x, y) for x, y in zip(s.state, before)]


def _walk(b, sums, start, stop, lanes, unroll, body):
    if not isinstance(start, Reg) and not isinstance(stop, Reg) and stop - start == unroll * lanes:
        for k in range(unroll):
            _vector(b, sums, start + k * lanes, None, k, body)
        return
    with _carrying(b, sums, start, stop, unroll * lanes) as j:
        for k in range(unroll):
            _vector(b, sums, b.add(j, b.i64(k * lanes)) if k else j, None, k, body)
        for s in sums:
            if unroll < s.count:
                s.rotate(unroll)


def _tail(b, sums, whole, extent, lanes, slots, body):
    """The elements after the last whole step: full vectors, then a masked one; all masked if extents are registers."""
    first = sums[0].count - slots if sums else 0
    for k in range(slots):
        if isinstance(extent, Reg):
            j = b.add(whole, b.i64(k * lanes))
            _vector(b, sums, j, b.lane_mask(j, extent, lanes), first + k, body)
            continue
        j = whole + k * lanes
        if j < extent:
            mask = None if j + lanes <= extent else b.first_lanes(extent - j, lanes)
            _vector(b, sums, j, mask, first + k, body)


def _vector(b, sums, j, mask, k, body):
    for s, x in zip(sums, body(j, mask)):
        if mask is not None:
            x = b.select(mask, x, identity(b, s.op, s.type))
        s.step(b, k, x)


class _carrying:
    """with _carrying(b, sums, start, stop, step) as index: a loop that carries all accumulators."""

    def __init__(self, b, sums, start, stop, step):
        self.b, self.sums, self.bounds = b, sums, (start, stop, step)

    def __enter__(self):
        carried = [x for s in self.sums for x in s.state]
        self.loop = self.b.loop(*self.bounds, carried)
        entered = self.loop.__enter__()
        index, self.state = entered if carried else (entered, None)
        self._hand_out(self.state.values if carried else [])
        return index

    def __exit__(self, *error):
        if self.state is not None:
            self.state.next([x for s in self.sums for x in s.state])
        self.loop.__exit__(*error)
        self._hand_out(self.state.results if self.state is not None else [])

    def _hand_out(self, values):
        at = 0
        for s in self.sums:
            s.state = list(values[at : at + len(s.state)])
            at += len(s.state)


def unrolled_row(b, extent, lanes, reductions, body):
    """As reduce_row for a short row of known extent, without a loop: body(j, mask, vector number)."""
    count = -(-extent // lanes)
    slots = VIRTUAL_LANES // lanes if reductions else 1
    sums = [_accumulators(b, op, t, slots, False) for op, t in reductions]
    for v in range(count):
        rest = extent - v * lanes
        mask = None if rest >= lanes else b.first_lanes(rest, lanes)
        _vector(b, sums, v * lanes, mask, v % slots, lambda j, mask, v=v: body(j, mask, v))
    used = extent if count == 1 else None
    vectors = range(slots)
    return [s.combine(b, [s.state[k] if k < count else None for k in vectors], used) for s in sums]


def reduce_columns(b, extent, columns, body, closing=BLOCK_ROWS):
    """Take `extent` rows (an int or a register) into accumulators: columns are (op, type) pairs.

    body(row, state) returns the new accumulators. Returns the results. `closing`: after how many rows sums of floats
    close a block; of the sums of blocks, as rows, it is 1.
    """
    extent = b.i64(extent) if is_open(extent) else extent
    starts = [identity(b, op, t) for op, t in columns]
    if not isinstance(extent, Reg) and extent <= closing:
        return _rows(b, 0, extent, starts, body)
    compensated = [is_compensated(op, t) for op, t in columns]
    if not any(compensated):
        return _rows(b, 0, extent, starts, body)
    zeros = [b.const(0, t) for _, t in columns]
    with b.loop(0, extent, closing, [*starts, *zeros]) as (first, loop):
        totals, errors = loop.values[: len(columns)], loop.values[len(columns) :]
        begin = [s if c else t for s, t, c in zip(starts, totals, compensated)]
        if closing == 1:
            sums = body(first, begin)
        else:
            stop = b.intrinsic("smin", b.add(first, b.i64(closing)), b.i64(extent))
            sums = _rows(b, first, stop, begin, body)
        folded = [fold(b, *x) if c else (x[2], x[1]) for x, c in zip(zip(totals, errors, sums), compensated)]
        loop.next([f[0] for f in folded] + [f[1] for f in folded])
    totals, errors = loop.results[: len(columns)], loop.results[len(columns) :]
    return [b.add(t, e) if c else t for t, e, c in zip(totals, errors, compensated)]


def reduce_block_of_columns(b, first, stop, columns, body):
    """As reduce_columns for the rows of one block, given by registers."""
    return _rows(b, first, stop, [identity(b, op, t) for op, t in columns], body)


def _rows(b, first, stop, starts, body):
    if not starts:
        with b.loop(first, stop, 1) as row:
            body(row, [])
        return []
    with b.loop(first, stop, 1, starts) as (row, loop):
        loop.next(body(row, loop.values))
    return loop.results


# --- positions of extremes ------------------------------------------------------------------------------------------
def better_extreme(b, predicate, x, best):
    """Where x, a later element, replaces the best so far: it is beyond it, or the first NaN."""
    better = b.cmp(predicate, x, best)
    if x.type.is_float:
        better = b.or_(better, b.and_(b.cmp("uno", x, x), b.not_(b.cmp("uno", best, best))))
    return better


def first_extreme(b, predicate, best, position):
    """The position of the best lane, in every lane; among equal ones the lowest."""
    lanes = best.type.lanes
    distance = lanes // 2
    while distance:
        order = [(k + distance) % lanes for k in range(lanes)]
        other = b.shuffle(best, best, order), b.shuffle(position, position, order)
        best, position = _first_of_two(b, predicate, (best, position), other)
        distance //= 2
    return broadcast_lane(b, position)


def _first_of_two(b, predicate, one, other):
    """Lane by lane the better of two (extreme, position) pairs; among equal ones the lower position."""
    (best, position), (x, place) = one, other
    # Among equal lanes (NaN equals NaN here) the earlier position wins; a worse lane never does.
    better = better_extreme(b, predicate, x, best)
    worse = better_extreme(b, predicate, best, x)
    equal_but_earlier = b.and_(b.not_(b.or_(better, worse)), b.cmp("lt", place, position))
    better = b.or_(better, equal_but_earlier)
    return b.select(better, x, best), b.select(better, place, position)


# Every comparison waits for the one before it, so several go on at once in rows of many vectors.
_CHAINS, _MANY_VECTORS = 4, 16


def extreme_lanes(b, predicate, type, start, stop, load):
    """The first extremes of the elements from `start` to `stop` (ints or registers, at least one), as pairs of vectors
    (extreme, position): 32 lanes unless both are ints. load(j, mask) gives the elements from j on and where they are.
    """
    lanes, static = type.lanes, isinstance(start, int) and isinstance(stop, int)
    if not static:
        start, stop = b.i64(start), b.i64(stop)
    chains = 1 if static and stop - start < _MANY_VECTORS * lanes else _CHAINS
    step = chains * lanes
    take = _Extreme(b, predicate, type, stop, load)
    pairs = [take.first(start + k * lanes if static else b.add(start, b.i64(k * lanes))) for k in range(chains)]
    carried = [x for pair in pairs for x in pair]
    if static:
        whole = stop - (stop - start) % step
    else:
        whole = b.sub(b.i64(stop), b.rem(b.sub(b.i64(stop), b.i64(start)), b.i64(step)))
    with b.loop(start + step if static else b.add(start, b.i64(step)), whole, step, carried) as (j, loop):
        places = [b.add(j, b.i64(k * lanes)) if k else j for k in range(chains)]
        pairs = zip(loop.values[::2], loop.values[1::2])
        loop.next([x for pair, place in zip(pairs, places) for x in take.better(pair, place, None)])
    first, second, *others = loop.results
    if static:
        for j in range(max(whole, start + step), stop, lanes):
            first, second = take.better((first, second), j, take.mask(j))
    else:
        with b.loop(b.intrinsic("smax", whole, b.add(start, b.i64(step))), stop, lanes, [first, second]) as (j, loop):
            loop.next(take.better(loop.values, j, take.mask(j)))
        first, second = loop.results
    pairs = [(first, second), *zip(others[::2], others[1::2])]
    return _halved(b, predicate, pairs, VIRTUAL_LANES // lanes)


class _Extreme:
    """Steps towards the first extreme of a row, a vector at a time."""

    def __init__(self, b, predicate, type, stop, load):
        self.b, self.predicate, self.type, self.stop, self.load = b, predicate, type, stop, load

    def mask(self, j):
        """Which of the lanes from j on are there; None for all."""
        if isinstance(j, int) and isinstance(self.stop, int):
            rest = self.stop - j
            return None if rest >= self.type.lanes else self.b.first_lanes(rest, self.type.lanes)
        return self.b.lane_mask(j, self.stop, self.type.lanes)

    def first(self, j):
        b, mask = self.b, self.mask(j)
        x, here = self.load(j, mask)
        if mask is not None:
            # What is not there is never better than what comes before it.
            lowest, highest = _LIMITS[self.type.element]
            x = b.select(mask, x, b.const(lowest if self.predicate == "gt" else highest, self.type))
        return x, here

    def better(self, pair, j, mask):
        b, (best, position) = self.b, pair
        x, here = self.load(j, mask)
        wins = better_extreme(b, self.predicate, x, best)
        wins = wins if mask is None else b.and_(wins, mask)
        return b.select(wins, x, best), b.select(wins, here, position)


def _halved(b, predicate, pairs, count):
    """Pairs of vectors (extreme, position), compared with each other until there are so many."""
    while len(pairs) > count:
        half = len(pairs) // 2
        pairs = [_first_of_two(b, predicate, x, y) for x, y in zip(pairs[:half], pairs[half:])]
    return pairs


def extreme_of_lanes(b, predicate, pairs):
    """The position of the first extreme, in every lane."""
    ((best, position),) = _halved(b, predicate, pairs, 1)
    return first_extreme(b, predicate, best, position)
