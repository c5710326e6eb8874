"""Stores of the first lanes of a vector where those of a mask are slow: in pieces of 2^n lanes, as many as there are.

    store_first    by a mask: constants are stored so
    store_some     so many lanes as a register says

On Zen 3 a store of 2 of 8 lanes takes 5.8 ns by a mask and 0.7 so.
"""


def store_first(b, value, place, mask):
    """Store the lanes of a mask that is a constant and has none behind the first that it clears; whether it is one."""
    count = _first(mask)
    if count is None:
        return False
    t, done = value.type, 0
    for width in _widths(2 * t.lanes):
        if width & count:
            b.store(_lanes(b, value, done, width), b.offset(place, done, t.element_bytes))
            done += width
    return True


def store_some(b, values, places, count):
    """Store the first `count` lanes, fewer than there are, of several vectors, each at its place."""
    t = values[0].type
    for width in _widths(t.lanes):
        is_there = b.cmp("ne", b.and_(count, b.i64(width)), b.i64(0))
        with b.when(is_there):
            for value, place in zip(values, places):
                b.store(_lanes(b, value, 0, width), place)
        if width > 1:
            values = [b.select(is_there, _lanes(b, x, width, width), _lanes(b, x, 0, width)) for x in values]
            places = [b.select(is_there, b.offset(place, width, t.element_bytes), place) for place in places]


def _widths(lanes):
    """The powers of two below this one, from the largest down."""
    return [1 << k for k in reversed(range(lanes.bit_length() - 1))]


def _lanes(b, x, first, count):
    if not x.type.lanes:
        return x
    return b.shuffle(x, x, range(first, first + count)) if count > 1 else b.extract(x, first)


def _first(mask):
    """How many lanes, or None."""
    if not mask.name.startswith("<"):
        return None
    bits = [bit.endswith("true") for bit in mask.name[1:-1].split(", ")]
    count = sum(bits)
    return count if all(bits[:count]) else None
