"""Packing for the matrix multiplication kernels: a panel of B copied so that the tiles read it front to back.

Where its columns lie contiguous (`x @ w.T`), square blocks are loaded, transposed in registers and stored.
"""

from .builder import I64, PTR, Builder, Type


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
