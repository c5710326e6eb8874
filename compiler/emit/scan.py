"""Scans along rows: running sums, products, recurrences, and positions of running extremes.

Each value needs the one before, so what takes time is waiting: an addition of 4 cycles per element. Several rows, side
by side, wait together; extremes seldom change, and whole vectors are passed over. Floats run as float64 and are rounded
where they are stored.
"""

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

        def reach(b, running, x):
            key = _key(b, element, x, smallest)
            return b.not_(b.cmp("ult", key, b.splat(running[0], key.type.lanes)))

        _emit(module, f"weft_{stem}_{element}", element, 1, Type(element), begin, following, "i64", reach)

    return emit


def _key(b, element, x, smallest):
    """An unsigned integer: the larger, the more extreme."""
    return Keys(b, element, smallest).with_nan_last(x)


def _emit(module, name, element, n_operands, wide, begin, following, result, reach=None):
    """`begin` and `following` give what runs, whose last is the value to store. reach(b, running, vector), if that can
    be asked: which elements change it; rows then go one by one, and pass over vectors in which none does."""
    parameters = [*((f"x{k}", PTR) for k in range(n_operands)), ("out", PTR), ("rows", I64), ("n", I64)]
    b = Builder(module, name, [*parameters, ("scratch", PTR)])
    *operands, out, rows, n, _ = b.arguments
    size, result_size = Type(element).element_bytes, Type(result).element_bytes

    def over_vectors(place, target, running):
        """All whole vectors of one row: (the element after them, what runs there). Of a million random numbers 14 are
        the largest so far, so nearly all vectors store one position over and over: 0.5 ms in place of 1.5 on Zen 5.
        Of 4096 rows of 1024 it is 5.0 in place of 6.4, rising ones 6.3 in place of 5.5 with four side by side."""
        t = Type(element, module.target.vector_bytes // size)
        end = b.add(b.i64(1), b.and_(b.sub(n, b.i64(1)), b.i64(-t.lanes)))
        with b.loop(1, end, t.lanes, running) as (k, state):
            reached = b.any_lane(reach(b, state.values, b.load(b.offset(place, k, size), t)))
            with b.when(b.not_(reached)):
                same = b.splat(b.convert(state.values[-1], result), t.lanes)
                b.store(same, b.offset(target, k, result_size))
            stop = b.select(reached, b.add(k, b.i64(t.lanes)), k)
            with b.loop(k, stop, 1, state.values) as (one, inner):
                x = b.convert(b.load(b.offset(place, one, size), Type(element)), wide.element)
                new = following(b, inner.values, [x], one)
                b.store(b.convert(new[-1], result), b.offset(target, one, result_size))
                inner.next(new)
            state.next(inner.results)
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
        if reach is not None:
            start, flat = over_vectors(places[0][0], targets[0], flat)
        width = len(flat) // count
        with b.loop(start, n, 1, flat) as (k, state):
            rows_now = [state.values[r * width : (r + 1) * width] for r in range(count)]
            new = [following(b, values, loaded(r, k), k) for r, values in enumerate(rows_now)]
            for r, values in enumerate(new):
                store(r, k, values[-1])
            state.next([x for values in new for x in values])

    together = b.i64(0)
    if reach is None:
        together = b.mul(b.div(rows, b.i64(_SIDE_BY_SIDE)), b.i64(_SIDE_BY_SIDE))
        with b.loop(0, together, _SIDE_BY_SIDE) as row:
            sweep(row, _SIDE_BY_SIDE)
    with b.loop(together, rows, 1) as row:
        sweep(row, 1)
    b.finish()
