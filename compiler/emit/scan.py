"""Scans along rows: running sums, products, recurrences, and positions of running extremes.

Each value needs the one before, so what takes time is waiting: an addition of 4 cycles per element. Several rows, side
by side, wait together; where most of the work of a step does not wait, vectors of a row are taken at once. Floats run
as float64 and are rounded where they are stored.
"""

import math

from .builder import F64, I64, PTR, Builder, Type
from .sort import Keys

# Rows that run side by side: they share the wait, and each has a register for what runs.
_SIDE_BY_SIDE = 4


def emit_running(stem, n_operands, step):
    """A function that defines `void @weft_STEM_ELEMENT(operands ..., out, rows, n, scratch)`: a row begins with the
    element of the last operand, and step(b, running, *elements) gives every other one from the one before."""

    def emit(module, element):
        wide = F64 if Type(element).is_float else Type(element)

        def begin(b, elements):
            return [elements[-1]]

        def following(b, running, elements, k):
            return [step(b, *running, *elements)]

        _emit(module, f"weft_{stem}_{element}", element, n_operands, wide, begin, following, element)

    return emit


def emit_extremes(stem, smallest):
    """A function that defines `void @weft_STEM_ELEMENT(source, out, rows, n, scratch)`: the positions (i64) of the
    largest elements so far, or the smallest: the last of equal ones. A NaN is the extreme from there on."""

    def emit(module, element):
        def begin(b, elements):
            return [_key(b, element, elements[0], smallest), b.i64(0)]

        def following(b, running, elements, k):
            best, position = running
            key = _key(b, element, elements[0], smallest)
            is_less = b.cmp("ult", key, best)
            return [b.select(is_less, best, key), b.select(is_less, position, k)]

        def several(b, running, x, k):
            """Of a million random numbers 14 are the largest so far: nearly all vectors store one position over and
            over. Where all of a vector are extremes, as in sorted rows, the positions are their own. Else its lanes
            find them in steps of 1, 2, 4 ... lanes, which wait for nothing but their own vector. 1 M rising numbers
            took 1.12 ms one after the other, 0.54 by such steps, 0.26 so (Zen 5)."""
            key, lanes = _key(b, element, x, smallest), x.type.lanes
            best, same = b.splat(running[0], lanes), b.splat(running[1], lanes)
            reached = b.any_lane(b.not_(b.cmp("ult", key, best)))
            own = b.add(b.iota(Type("i64", lanes)), b.splat(k, lanes))
            before, change, mixed, done = b.block, b.label("reached"), b.label("mixed"), b.label("passed")
            b.branch_if(reached, change, done)
            b.start(change)
            falls = b.any_lane(b.cmp("ult", key, _moved(b, key, 1, best)))
            risen = [own, b.extract(key, lanes - 1), b.extract(own, lanes - 1)]
            b.branch_if(falls, mixed, done)
            b.start(mixed)
            highest = b.intrinsic("umax", _up_to_here(b, key, _larger, b.const(0, key.type)), best)
            # Lanes count from 1, so that 0 says that none has reached the extreme.
            lane = b.add(b.iota(key.type), b.const(1, key.type))
            none = b.const(0, key.type)
            last = _up_to_here(b, b.select(b.cmp("eq", key, highest), lane, none), _larger, none)
            there = b.add(b.convert(last, "i64"), b.splat(b.sub(k, b.i64(1)), lanes))
            positions = b.select(b.cmp("eq", last, none), same, there)
            changed = [positions, b.extract(highest, lanes - 1), b.extract(positions, lanes - 1)]
            after = b.block
            b.branch(done)
            b.start(done)
            ways = zip((same, *running), risen, changed)
            stored, *running = [b.phi(old.type, [(old, before), (up, change), (new, after)]) for old, up, new in ways]
            return stored, running

        _emit(module, f"weft_{stem}_{element}", element, 1, Type(element), begin, following, "i64", several)

    return emit


def emit_log_of_sums(stem, exp, log1p):
    """A function that defines `void @weft_STEM_ELEMENT(source, out, rows, n, scratch)`: the logarithms of the running
    sums of exponentials. exp(b, x) and log1p(b, x) compute these.

    What runs is the largest element m, and the sum t of exp(x - m) over all others: m + log1p(t) is exact where one
    element outweighs the others. A new element adds d = exp(-|x - m|); if it is the largest, t d + d is the sum of
    those before, in its measure. So only t = t a + d waits for the element before, where a is d or 1; the functions
    are of whole vectors. Each element as log1p(exp()) of the one before waited for both: 62 ns, which 4 rows side by
    side shared.
    """

    def emit(module, element):
        def begin(b, elements):
            (x,) = elements
            return [_without_nan(b, x), _nothing(b, x), x]

        def following(b, running, elements, k):
            (x,), (largest, total, _) = elements, running
            factor, term = factors(b, x, largest)
            total = b.add(b.mul(total, factor), term)
            largest = _later_if_larger(b, largest, _without_nan(b, x))
            return [largest, total, b.add(largest, log1p(b, total))]

        def factors(b, x, largest):
            is_equal = b.cmp("eq", x, largest)
            distance = b.select(is_equal, b.const(0, x.type), b.sub(x, largest))
            term = exp(b, b.neg(b.intrinsic("fabs", distance)))
            return b.select(b.cmp("gt", x, largest), term, b.const(1, x.type)), term

        def several(b, running, x, k):
            x = b.convert(x, "f64")
            lanes = x.type.lanes
            first = b.splat(running[0], lanes)
            largest = _up_to_here(b, _without_nan(b, x), _later_if_larger, b.const(-math.inf, x.type))
            largest = _later_if_larger(b, first, largest)
            factor, term = factors(b, x, _moved(b, largest, 1, first))
            total, totals = running[1], term
            for lane in range(lanes):
                total = b.add(b.mul(total, b.extract(factor, lane)), b.extract(term, lane))
                totals = b.insert(totals, total, lane)
            result = b.add(largest, log1p(b, totals))
            return b.convert(result, element), [b.extract(largest, lanes - 1), total, b.extract(result, lanes - 1)]

        _emit(module, f"weft_{stem}_{element}", element, 1, F64, begin, following, element, several)

    return emit


def _without_nan(b, x):
    """A NaN makes the sum NaN, and is not the largest element."""
    return b.select(b.cmp("uno", x, x), b.const(-math.inf, x.type), x)


def _nothing(b, x):
    """The sum over no elements beside the first: 0, or NaN if that is NaN."""
    return b.select(b.cmp("uno", x, x), x, b.const(0, x.type))


def _later_if_larger(b, earlier, later):
    return b.select(b.cmp("gt", later, earlier), later, earlier)


def _larger(b, earlier, later):
    return b.intrinsic("umax", earlier, later)


def _up_to_here(b, x, combine, start):
    """Every lane with all lanes before it. `start` changes nothing."""
    step = 1
    while step < x.type.lanes:
        x = combine(b, _moved(b, x, step, start), x)
        step *= 2
    return x


def _moved(b, x, step, start):
    """Every lane `step` lanes further, after those of `start`."""
    lanes = x.type.lanes
    return b.shuffle(start, x, [*range(step), *range(lanes, 2 * lanes - step)])


def _key(b, element, x, smallest):
    """An unsigned integer: the larger, the more extreme."""
    return Keys(b, element, smallest).with_nan_last(x)


def _emit(module, name, element, n_operands, wide, begin, following, result, several=None):
    """`begin` and `following` give what runs, whose last is the value to store. several(b, running, vector, position),
    if there is such: (what to store for a vector of elements of the one operand, what runs after it)."""
    parameters = [*((f"x{k}", PTR) for k in range(n_operands)), ("out", PTR), ("rows", I64), ("n", I64)]
    b = Builder(module, name, [*parameters, ("scratch", PTR)])
    *operands, out, rows, n, _ = b.arguments
    size, result_size = Type(element).element_bytes, Type(result).element_bytes

    def over_vectors(place, target, running):
        """All whole vectors of one row: (the element after them, what runs there)."""
        t = Type(element, module.target.vector_bytes // wide.element_bytes)
        end = b.add(b.i64(1), b.and_(b.sub(n, b.i64(1)), b.i64(-t.lanes)))
        with b.loop(1, end, t.lanes, running) as (k, state):
            stored, new = several(b, state.values, b.load(b.offset(place, k, size), t), k)
            b.store(stored, b.offset(target, k, result_size))
            state.next(new)
        return end, state.results

    def sweep(first, count):
        """Rows first .. first + count - 1."""
        starts = [b.mul(b.add(first, b.i64(r)), n) for r in range(count)]
        places = [[b.offset(x, start, size) for x in operands] for start in starts]
        targets = [b.offset(out, start, result_size) for start in starts]

        def loaded(row, k):
            return [b.convert(b.load(b.offset(x, k, size), Type(element)), wide.element) for x in places[row]]

        def store(row, k, value):
            b.store(b.convert(value, result), b.offset(targets[row], k, result_size))

        running = [begin(b, loaded(r, b.i64(0))) for r in range(count)]
        for r, values in enumerate(running):
            store(r, b.i64(0), values[-1])
        flat, start = [x for values in running for x in values], b.i64(1)
        if several is not None:
            start, flat = over_vectors(places[0][0], targets[0], flat)
        width = len(flat) // count
        with b.loop(start, n, 1, flat) as (k, state):
            rows_now = [state.values[r * width : (r + 1) * width] for r in range(count)]
            new = [following(b, values, loaded(r, k), k) for r, values in enumerate(rows_now)]
            for r, values in enumerate(new):
                store(r, k, values[-1])
            state.next([x for values in new for x in values])

    together = b.i64(0)
    if several is None:
        together = b.mul(b.div(rows, b.i64(_SIDE_BY_SIDE)), b.i64(_SIDE_BY_SIDE))
        with b.loop(0, together, _SIDE_BY_SIDE) as row:
            sweep(row, _SIDE_BY_SIDE)
    with b.loop(together, rows, 1) as row:
        sweep(row, 1)
    b.finish()
