"""Packing for the matrix multiplication kernels: a panel of columns copied so that its rows are contiguous.

The usual case is a transposed operand (`x @ w.T`): its columns are contiguous, so square blocks are loaded, transposed
in registers and stored. Any other stride is gathered.
"""

from .builder import I64, PTR, Builder, Type


def emit_pack(module, name, element, lanes, width):
    """Define `void @name(source, row, column, target, columns, rows)`; returns its name.

    target[p, j] = source[p * row + j * column] for p < rows, j < columns; target is row-major, `width` elements wide.
    Columns up to the next multiple of `lanes` are filled with copies of the last one, and rows up to the next multiple
    with anything: `target` has room for both.
    """
    parameters = [("source", PTR), ("row", I64), ("column", I64), ("target", PTR), ("columns", I64), ("rows", I64)]
    b = Builder(module, name, parameters, linkage="internal")
    source, row, column, target, columns, rows = b.arguments
    size = Type(element).element_bytes
    contiguous = b.cmp("eq", row, b.i64(1))
    last = b.sub(columns, b.i64(1))
    with b.loop(0, columns, lanes) as j:
        # Columns past the last repeat it: their products are never stored.
        picks = [b.intrinsic("smin", b.add(j, b.i64(r)), last) for r in range(lanes)]
        starts = [b.offset(source, b.mul(pick, column), size) for pick in picks]
        place = b.offset(target, j, size)
        with b.when(contiguous):
            _transpose_blocks(b, element, lanes, width, starts, place, rows)
        with b.when(b.not_(contiguous)):
            _copy_elements(b, element, width, starts, place, rows, row)
    b.finish()
    return name


def _transpose_blocks(b, element, lanes, width, starts, place, rows):
    """Columns that are contiguous, `lanes` of them: one square block after the other."""
    t = Type(element, lanes)
    with b.loop(0, rows, lanes) as p:
        mask = b.lane_mask(p, rows, lanes)
        block = [b.load(b.offset(start, p, t.element_bytes), t, mask) for start in starts]
        first = b.mul(p, b.i64(width))
        for r, vector in enumerate(transpose(b, block)):
            b.store(vector, b.offset(b.offset(place, first, t.element_bytes), r * width, t.element_bytes))


def _copy_elements(b, element, width, starts, place, rows, row):
    """Any strides: element by element."""
    t = Type(element)
    with b.loop(0, rows, 1) as p:
        here, there = b.mul(p, row), b.offset(place, b.mul(p, b.i64(width)), t.element_bytes)
        for r, start in enumerate(starts):
            b.store(b.load(b.offset(start, here, t.element_bytes), t), b.offset(there, r, t.element_bytes))


def transpose(b, rows):
    """The columns of a square block held as one vector per row.

    First inside 16-byte groups, by zipping pairs of rows; then the groups themselves, by unzipping pairs of rows. Every
    step is one shuffle of x86, and none crosses a 16-byte boundary before it must.
    """
    group = 16 // rows[0].type.element_bytes
    if len(rows) < group:
        group = len(rows)
    bands = [_zip_rows(b, rows[i : i + group], 1, group) for i in range(0, len(rows), group)]
    columns = [_unzip_rows(b, [band[c] for band in bands], group) for c in range(group)]
    return [columns[c][i] for i in range(len(bands)) for c in range(group)]


def _zip_rows(b, rows, step, group):
    """Transpose inside each 16-byte group: row c of the result holds element c of every row, group by group."""
    if len(rows) == 1:
        return rows
    lanes = rows[0].type.lanes
    halves = []
    for start in (0, group // 2):
        base = [g + start + e for g in range(0, lanes, group) for e in range(group // 2)]
        picks = [i + side for at in range(0, len(base), step) for side in (0, lanes) for i in base[at : at + step]]
        halves.append([b.shuffle(x, y, picks) for x, y in zip(rows[::2], rows[1::2])])
    return [row for half in halves for row in _zip_rows(b, half, 2 * step, group)]


def _unzip_rows(b, rows, group):
    """Transpose whole groups: row i of the result holds group i of every row."""
    if len(rows) == 1:
        return rows
    lanes = rows[0].type.lanes
    parts = []
    for start in (0, group):
        picks = [at + e for at in range(start, 2 * lanes, 2 * group) for e in range(group)]
        parts.append(_unzip_rows(b, [b.shuffle(x, y, picks) for x, y in zip(rows[::2], rows[1::2])], group))
    return [row for pair in zip(*parts) for row in pair]
