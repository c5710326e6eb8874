"""Packing for the matrix multiplication kernels: a panel of B copied so that the tiles read it front to back.

Where its columns lie contiguous (`x @ w.T`), square blocks are loaded, transposed in registers and stored.
"""

from ..target import LEVEL1_BYTES, LEVEL1_WAYS, LINE_BYTES
from .builder import I64, PTR, Builder, Type

QUAD_BYTES = 16  # what is read of a column at a time: shuffles inside 16 bytes are the cheapest


def pack_lanes(element):
    """The side of the square blocks that are transposed: 32 bytes. Twice that takes more shuffles per element."""
    return 32 // Type(element).element_bytes


def emit_pack(module, name, element, lanes):
    """Define `void @name(source, row, column, target, columns, rows)`; returns its name.

    target[p, j] = source[p * row + j * column] for p < rows, j < columns; the rows of target are contiguous, two
    vectors of `lanes` long. Up to a multiple of 32 bytes there are zeros or a column once more: lanes that are computed
    and never stored. What the memory held before might be subnormal, which slows some processors a hundred times.
    """
    parameters = [("source", PTR), ("row", I64), ("column", I64), ("target", PTR), ("columns", I64), ("rows", I64)]
    b = Builder(module, name, parameters, linkage="internal")
    source, row, column, target, columns, rows = b.arguments
    t, width = Type(element), 2 * lanes
    by_rows = b.cmp("eq", column, b.i64(1))
    with b.when(by_rows):
        _copy_rows(b, Type(element, lanes))
    by_columns = b.and_(b.cmp("eq", row, b.i64(1)), b.not_(by_rows))
    whole = b.and_(rows, b.i64(-pack_lanes(element)))
    with b.when(by_columns):
        _transpose_blocks(b, Type(element, pack_lanes(element)), width, whole)
    done = b.select(by_columns, whole, b.select(by_rows, rows, b.i64(0)))
    rest = (
        b.offset(source, b.mul(done, row), t.element_bytes),
        b.offset(target, b.mul(done, b.i64(width)), t.element_bytes),
    )
    _copy_elements(b, Type(element, lanes), rest, b.sub(rows, done))
    b.finish()
    return name


def _copy_rows(b, t):
    """Contiguous rows: two vectors at a time."""
    source, row, _, target, columns, rows = b.arguments
    masks = [b.lane_mask(v * t.lanes, columns, t.lanes) for v in range(2)]
    with b.loop(0, rows, 1, [source, target]) as (_, state):
        here, there = state.values
        for v, mask in enumerate(masks):
            at = v * t.lanes
            b.store(b.load(b.offset(here, at, t.element_bytes), t, mask), b.offset(there, at, t.element_bytes))
        state.next([b.offset(here, row, t.element_bytes), b.offset(there, 2 * t.lanes, t.element_bytes)])


def _transpose_blocks(b, t, width, rows):
    """Contiguous columns: one square block after the other; rows is a multiple of its side."""
    source, _, column, target, columns, _ = b.arguments
    size, lanes = t.element_bytes, t.lanes
    last = b.sub(columns, b.i64(1))
    with b.loop(0, columns, lanes) as j:
        # Columns past the last repeat it: their products are never stored.
        picks = [b.intrinsic("smin", b.add(j, b.i64(r)), last) for r in range(lanes)]
        starts = [b.offset(source, b.mul(pick, column), size) for pick in picks]
        with b.loop(0, rows, lanes, [b.offset(target, j, size)]) as (p, state):
            (place,) = state.values
            here = b.freeze(p)
            for r, vector in enumerate(load_transposed(b, t, [b.offset(start, here, size) for start in starts])):
                b.store(vector, b.offset(place, r * width, size))
            state.next([b.offset(place, lanes * width, size)])


def _copy_elements(b, t, places, rows):
    """Any strides, and the rows that do not fill a block: element by element, over zeros."""
    _, row, column, _, columns, _ = b.arguments
    size, width = t.element_bytes, 2 * t.lanes
    with b.loop(0, rows, 1, places) as (_, outer):
        start, there = outer.values
        for at in (0, t.lanes):
            b.store(b.const(0, t), b.offset(there, at, size))
        with b.loop(0, columns, 1, [start]) as (j, inner):
            (here,) = inner.values
            b.store(b.load(here, Type(t.element)), b.offset(there, j, size))
            inner.next([b.offset(here, column, size)])
        outer.next([b.offset(start, row, size), b.offset(there, width, size)])


def emit_sweep(module, name, element, lanes):
    """Define `void @name(source, row, target, columns, rows)`, which packs contiguous rows; returns its name.

    All panels of a row one after the other, because long pieces are what a processor foresees: panel by panel, 1024
    columns took 1.3 times as long from a level-3 cache, and twice from memory.
    """
    parameters = [("source", PTR), ("row", I64), ("target", PTR), ("columns", I64), ("rows", I64)]
    b = Builder(module, name, parameters, linkage="internal")
    source, row, target, columns, rows = b.arguments
    t, width = Type(element, lanes), 2 * lanes
    size = t.element_bytes
    whole = b.and_(columns, b.i64(-width))
    rest, step = b.sub(columns, whole), b.mul(rows, b.i64(width))
    masks = [b.lane_mask(v * lanes, rest, lanes) for v in range(2)]
    with b.loop(0, rows, 1, [source, target]) as (_, state):
        here, there = state.values
        with b.loop(0, whole, width, [there]) as (j, panel):
            _copy_vectors(b, t, b.offset(here, j, size), panel.values[0], [None, None])
            panel.next([b.offset(panel.values[0], step, size)])
        with b.when(b.cmp("lt", b.i64(0), rest)):
            _copy_vectors(b, t, b.offset(here, whole, size), panel.results[0], masks)
        state.next([b.offset(here, row, size), b.offset(there, width, size)])
    b.finish()
    return name


def _copy_vectors(b, t, source, target, masks):
    places = [k * t.lanes for k in range(len(masks))]
    loaded = [b.load(b.offset(source, at, t.element_bytes), t, mask) for at, mask in zip(places, masks)]
    for at, x in zip(places, loaded):
        b.store(x, b.offset(target, at, t.element_bytes))


def emit_turn(module, name, element):
    """Define `void @name(source, row, column, target, stride, rows, columns)`; returns its name.

    target[i * stride + p] = source[i * row + p * column] for i < rows, p < columns: rows become contiguous. Where
    columns were, pieces of them are turned in registers, all rows of some columns after the other: of these, lines lie
    next to each other.
    """
    parameters = [("source", PTR), ("row", I64), ("column", I64), ("target", PTR), ("stride", I64)]
    b = Builder(module, name, [*parameters, ("rows", I64), ("columns", I64)], linkage="internal")
    source, row, column, target, stride, rows, columns = b.arguments
    t = Type(element, pack_lanes(element))
    size, height = t.element_bytes, QUAD_BYTES // t.element_bytes
    by_columns = b.cmp("eq", row, b.i64(1))
    whole_rows = b.select(by_columns, b.and_(rows, b.i64(-height)), b.i64(0))
    whole_columns = b.and_(columns, b.i64(-t.lanes))
    steps = [b.mul(column, b.i64(p)) for p in range(t.lanes)]
    with b.loop(0, whole_columns, t.lanes) as p:
        here, there = b.offset(source, b.mul(p, column), size), b.offset(target, p, size)
        if module.target.asks_for_rows:
            # The next columns: where there are thousands, lines come from afar, and no processor foresees them. The 512
            # x 64 of 8192 terms took 7.5 ms with AVX2 (Zen 3), and 7.25 so.
            following = b.offset(here, b.mul(column, b.i64(t.lanes)), size)
            with b.loop(0, whole_rows, LINE_BYTES // size) as i:
                for step in steps:
                    b.prefetch(b.offset(following, b.add(i, step), size))
        with b.loop(0, whole_rows, height) as i:
            place = b.offset(there, b.mul(i, stride), size)
            for k, x in enumerate(load_quads(b, t, b.offset(here, i, size), steps)):
                b.store(x, b.offset(place, b.mul(stride, b.i64(k)), size))
    _turn_elements(b, element, (b.i64(0), whole_rows), (whole_columns, columns))
    _turn_elements(b, element, (whole_rows, rows), (b.i64(0), columns))
    b.finish()
    return name


def _turn_elements(b, element, rows, columns):
    """Any strides: element by element, of the rows and columns in these ranges."""
    source, row, column, target, stride, _, _ = b.arguments
    t = Type(element)
    with b.loop(*rows, 1) as i, b.loop(*columns, 1) as p:
        place = b.offset(source, b.add(b.mul(i, row), b.mul(p, column)), t.element_bytes)
        b.store(b.load(place, t), b.offset(target, b.add(b.mul(i, stride), p), t.element_bytes))


def load_transposed(b, t, columns):
    """The rows, one vector each, of a square block given by the addresses of its columns.

    First 16-byte groups are transposed in place, by zipping pairs of vectors; then the groups change places, by
    unzipping pairs. Each step is one shuffle of x86, and none crosses 16 bytes before it must. (Loading halves of
    vectors in place of the second part was as fast for f32 and slower for f64.)
    """
    group = 16 // t.element_bytes
    vectors = [b.load(column, t) for column in columns]
    bands = [zip_groups(b, vectors[at : at + group], 1, group) for at in range(0, t.lanes, group)]
    by_column = [_unzip(b, [band[c] for band in bands], group) for c in range(group)]
    return [vectors[i] for i in range(len(bands)) for vectors in by_column]


def zip_groups(b, vectors, step, group):
    """Transpose inside each group: vector c of the result holds element c of every vector, group by group."""
    if len(vectors) == 1:
        return vectors
    lanes = vectors[0].type.lanes
    halves = []
    for start in (0, group // 2):
        runs = [at + start + e for at in range(0, lanes, group) for e in range(0, group // 2, step)]
        picks = [side + run + e for run in runs for side in (0, lanes) for e in range(step)]
        halves.append([b.shuffle(x, y, picks) for x, y in zip(vectors[::2], vectors[1::2])])
    return [vector for half in halves for vector in zip_groups(b, half, 2 * step, group)]


def _unzip(b, vectors, group):
    """Transpose whole groups: vector i of the result holds group i of every vector."""
    if len(vectors) == 1:
        return vectors
    lanes = vectors[0].type.lanes
    parts = []
    for start in (0, group):
        picks = [at + e for at in range(start, 2 * lanes, 2 * group) for e in range(group)]
        parts.append(_unzip(b, [b.shuffle(x, y, picks) for x, y in zip(vectors[::2], vectors[1::2])], group))
    return [vector for pair in zip(*parts) for vector in pair]


def load_quads(b, t, place, steps):
    """16 bytes of each column of a group, as vectors of one element of each.

    The second half of a vector is inserted from memory, so that the shuffles that remain stay inside 16 bytes.
    """
    quad = Type(t.element, QUAD_BYTES // t.element_bytes)
    here = b.freeze(place)
    halves = [b.load(b.offset(here, step, t.element_bytes), quad) for step in steps]
    vectors = [b.shuffle(x, y, range(t.lanes)) for x, y in zip(halves, halves[quad.lanes :])]
    return zip_groups(b, vectors, 1, quad.lanes)


def collide(b, step):
    """Whether columns `step` bytes apart fall into the same few sets of a level-1 cache of 64 x 8 lines of 64 bytes.

    With 16 bytes to spare either way: at 4096 bytes four groups read 9 GB/s, two apart from each other 39.
    """
    near = b.and_(b.add(step, b.i64(16)), b.i64(LEVEL1_BYTES // LEVEL1_WAYS // 2 - 1))
    return b.cmp("le", near, b.i64(32))
