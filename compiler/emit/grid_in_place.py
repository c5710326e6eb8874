"""Columns of products over grids that are read where they lie (compiler/grids.py), without a panel of copies.

A unit has two pieces, each of up to 64 bytes of adjacent columns: parts of rows of an image. The micro-kernel loads
both at the offset of every term, masked, whatever their alignment:

    for p in range(depth):       out[r, c] += a[rows[r] + terms_a[p]] * b[columns[c] + terms_b[p]]

Packing a panel pays where many rows read it. LeNet's first convolution has six, and took twice as long with it.
"""

from ..grids import DIMENSIONS, PIECE_BYTES
from ..target import PANEL_BYTES
from .builder import I32, I64, PTR, Builder, Reg, Type

_STRIP = [
    ("a", PTR), ("rows", PTR), ("terms_a", PTR), ("terms_b", PTR), ("first", PTR), ("second", PTR), ("n_first", I64),
    ("n_second", I64), ("results", PTR), ("tiles", I64), ("depth", I64),
]  # fmt: skip


def heights(target):
    """Of tiles: six rows, too, are one tile, because so few are what this is for."""
    return sorted({*target.tile_heights, 6}, reverse=True)


def emit_strips(module, stem, element):
    """{height: the address of a function for tiles below one another, of two vectors of columns}."""
    return {h: _emit_tiles(module, f"{stem}_in_place{h}", element, h) for h in heights(module.target)}


def _index(b, table, k):
    return b.convert(b.load(b.offset(table, k, 4), I32), "i64")


def emit_pieces(module, name, element, columns):
    """A function that finds the pieces of a unit: both offsets of each vector's first column, and how many it has.

    `columns` writes the offsets of columns from one on. The tables have a place for every column of a panel.
    """
    parameters = [("grid", PTR), ("panel", I64), ("n_columns", I64), ("per_row", I64), ("b", PTR), ("out", PTR)]
    b = Builder(module, name, [*parameters, ("runs", PTR)], linkage="internal")
    grid, panel, n_columns, per_row, of_b, of_out, runs = b.arguments
    size = Type(element).element_bytes
    piece, lanes = PIECE_BYTES // size, module.target.vector_bytes // size
    width = b.load(b.offset(grid, 2 + 3 * (DIMENSIONS - 1), 8), I64)
    n_pieces = b.mul(b.div(n_columns, width), per_row)
    for k in range(PANEL_BYTES // PIECE_BYTES):
        number = b.add(b.mul(panel, b.i64(PANEL_BYTES // PIECE_BYTES)), b.i64(k))
        own = b.intrinsic("smin", number, b.sub(n_pieces, b.i64(1)))
        at = b.mul(b.rem(own, per_row), b.i64(piece))
        start, length = b.add(b.mul(b.div(own, per_row), width), at), b.sub(width, at)
        length = b.select(b.cmp("lt", number, n_pieces), length, b.i64(0))
        for begin in range(0, piece, lanes):
            n = b.intrinsic("smin", b.intrinsic("smax", b.sub(length, b.i64(begin)), b.i64(0)), b.i64(lanes))
            first = b.select(b.cmp("lt", b.i64(0), n), b.add(start, b.i64(begin)), start)
            place = k * piece + begin
            b.call("void", columns, [grid, first, b.i64(1), b.offset(of_b, place, 4), b.offset(of_out, place, 4)])
            run = b.offset(runs, place // lanes, 8)
            b.store(b.convert(b.i64(place), "i32"), run)
            b.store(b.convert(n, "i32"), b.offset(run, 1, 4))
    b.finish()
    return name


def call_strips_in_place(b, strips, element, operands):
    """All rows of a unit, in strips of the tallest tile that still fits, two vectors of columns at a time."""
    a, source, rows_table, terms_a, terms_b, columns, runs, results, n_rows, depth = operands
    size, vector_bytes = Type(element).element_bytes, b.module.target.vector_bytes
    lanes = vector_bytes // size
    for k in range(0, PANEL_BYTES // vector_bytes, 2):
        starts = [b.offset(source, _index(b, columns, (k + v) * lanes), size) for v in range(2)]
        lengths = [_index(b, b.offset(runs, k + v, 8), 1) for v in range(2)]
        rest, now, there = n_rows, rows_table, b.offset(results, k * vector_bytes, 1)
        for height, strip in strips.items():
            last = height == min(strips)
            tiles = b.div(b.add(rest, b.i64(height - 1)) if last else rest, b.i64(height))
            b.call("void", strip, [a, now, terms_a, terms_b, *starts, *lengths, there, tiles, depth])
            done = b.mul(tiles, b.i64(height))
            rest, now, there = b.sub(rest, done), b.offset(now, done, 4), b.offset(there, done, PANEL_BYTES)


def _emit_tiles(module, name, element, height):
    b = Builder(module, name, _STRIP, linkage="internal")
    n_first, n_second = b.arguments[6:8]
    t = Type(element, module.target.vector_bytes // Type(element).element_bytes)
    whole = b.and_(*(b.cmp("eq", n, b.i64(t.lanes)) for n in (n_first, n_second)))
    # Without AVX-512 masks take two registers more than there are, and instructions of their own: with them LeNet's
    # convolutions, whose vectors are whole, took five times as long.
    with b.when(whole):
        _emit_rows(b, t, height, [None, None])
    with b.when(b.not_(whole)):
        _emit_rows(b, t, height, [b.lane_mask(0, n, t.lanes) for n in (n_first, n_second)])
    b.finish()
    return Reg(f"@{b.name}", PTR)


def _emit_rows(b, t, height, masks):
    a, rows, terms_a, terms_b, first, second, _, _, results, tiles, depth = b.arguments
    size, lanes = t.element_bytes, t.lanes
    with b.loop(0, tiles, 1, [rows, results]) as (_, tile):
        table, target = tile.values
        starts = [b.freeze(b.offset(a, _index(b, table, r), size)) for r in range(height)]
        with b.loop(0, depth, 1, [b.const(0, t)] * (2 * height)) as (p, step):
            of_a, of_b = _index(b, terms_a, p), _index(b, terms_b, p)
            columns = [b.load(b.offset(start, of_b, size), t, mask) for start, mask in zip((first, second), masks)]
            following = []
            for r in range(height):
                x = b.splat(b.load(b.offset(starts[r], of_a, size), Type(t.element)), lanes)
                following += [b.fma(x, y, z) for y, z in zip(columns, step.values[2 * r :])]
            step.next(following)
        for k, value in enumerate(step.results):
            row = b.offset(target, k // 2, PANEL_BYTES)
            b.store(value, b.offset(row, (k % 2) * lanes, size))
        tile.next([b.offset(table, height, 4), b.offset(target, height, PANEL_BYTES)])
