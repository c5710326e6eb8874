"""Complex numbers in memory, where both parts follow one another, and in registers, where each part has its own."""

from ..eager_forms import NUMBER, PAIR, STRIDED
from .builder import F64, Reg, Type


def given_pair(b, pointer, element, lanes, one, stride=None, _=None):
    """A function that gives the parts of an operand's vector from element j on; they are of this element type."""
    if one is None:
        return lambda j, mask: _load(b, pointer, j, element, lanes, mask)
    size = Type(element).element_bytes
    if one == STRIDED:
        t = Type(element, lanes)

        def load(j, mask):
            places = b.shl(apart(b, j, stride, lanes), b.const(1, Type("i64", lanes)))
            return tuple(b.gather(b.offset(pointer, k, size), places, t, mask) for k in range(2))

        return load
    if one in (NUMBER, PAIR):
        loaded = number_pair(b, pointer, element, lanes, one)
    else:
        loaded = tuple(b.splat(b.load(b.offset(pointer, k, size), Type(element)), lanes) for k in range(2))
    return lambda j, mask: loaded


def number_pair(b, pointer, element, lanes, one):
    """The parts of a NUMBER, one f64, or of a PAIR, two of them, in all lanes."""
    parts = [b.load(b.offset(pointer, k, 8), F64) for k in range(1 + (one == PAIR))]
    real, *imaginary = [b.splat(b.convert(part, element), lanes) for part in parts]
    return real, (imaginary or [b.const(0, real.type)])[0]


def _load(b, pointer, j, element, lanes, mask):
    t = Type(element, 2 * lanes)
    both = b.load(b.offset(pointer, j, 2 * t.element_bytes), t, _of_both(b, mask))
    return parted(b, both)


def parted(b, both):
    """The parts of complex numbers that lie in one vector."""
    n = both.type.lanes
    return tuple(b.shuffle(both, both, range(k, n, 2)) for k in range(2))


def joined(b, pair):
    """The reverse."""
    n = pair[0].type.lanes
    return b.shuffle(*pair, [k // 2 + n * (k % 2) for k in range(2 * n)])


def _of_both(b, mask):
    return None if mask is None else b.shuffle(mask, mask, [k // 2 for k in range(2 * mask.type.lanes)])


def store_pair(b, pair, pointer, j, mask, stride=None):
    """Store complex numbers from element j on; `stride`, a vector, says how many elements apart they are."""
    size, lanes = pair[0].type.element_bytes, pair[0].type.lanes
    if stride is None:
        b.store(joined(b, pair), b.offset(pointer, j, 2 * size), _of_both(b, mask))
        return
    places = b.shl(apart(b, j, stride, lanes), b.const(1, Type("i64", lanes)))
    for k, part in enumerate(pair):
        start = b.offset(pointer, k, size)
        if mask is not None:
            b.scatter(part, start, places, mask)
            continue
        for lane in range(lanes):
            b.store(b.extract(part, lane), b.offset(start, b.extract(places, lane), size))


def apart(b, j, stride, lanes):
    """How many elements from the first one those from j on are."""
    index = b.add(b.iota(Type("i64", lanes)), b.splat(j if isinstance(j, Reg) else b.i64(j), lanes))
    return b.mul(index, stride)
