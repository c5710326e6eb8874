"""Tiles of products over grids, on a packed panel: rows of a by two vectors of columns, accumulators in registers.

`chosen`: a tile's terms are not all rows of the panel, but those that a table names, and rows of the results are not
neighbours; see grid_shared.py.
"""

from ..grids import GRID, SIZES
from ..target import PANEL_BYTES
from .builder import I1, I32, I64, PTR, Builder, Reg, Type

_STRIP = [
    ("a", PTR), ("rows", PTR), ("terms", PTR), ("places", PTR), ("panel", PTR), ("results", PTR), ("row_step", I64),
    ("tiles", I64), ("depth", I64), ("goes_on", I1),
]  # fmt: skip
_CHOSEN = ("places", "row_step")


def word(b, words, k):
    return b.load(b.offset(words, k, 8), I64)


def index(b, table, k):
    """An entry of a table, as an i64."""
    return b.convert(b.load(b.offset(table, k, 4), I32), "i64")


def grid_of(b, record, which):
    return b.offset(record, SIZES + which * GRID, 8)


def emit_strip_functions(module, stem, element, chosen=False):
    """{height: the addresses of functions for tiles below one another, of two vectors of columns and of one}."""
    heights = module.target.tile_heights
    return {h: [_emit_tiles(module, stem, element, h, vectors, chosen) for vectors in (2, 1)] for h in heights}


def call_strips(b, strips, element, operands, extent, chosen=None):
    """All rows of a panel, in strips of the tallest tile that still fits, two vectors of columns at a time.

    operands: a, the tables of rows and of terms, the panel, the results; extent: how many rows, columns and terms, and
    whether the sums go on. chosen: the table of the terms' rows of the panel, and how far apart rows of results are.
    """
    a, table, terms, panel, results = operands
    rows, columns, depth, goes_on = extent
    places, row_step = chosen or (None, b.i64(PANEL_BYTES))
    lanes, element_bytes = b.module.target.vector_bytes, Type(element).element_bytes
    with b.loop(0, b.mul(columns, b.i64(element_bytes)), 2 * lanes) as at:
        here, there = b.offset(panel, at, 1), b.offset(results, at, 1)
        rest, now = rows, table
        both = b.cmp("lt", b.add(at, b.i64(lanes)), b.mul(columns, b.i64(element_bytes)))
        for height, (wide, narrow) in strips.items():
            tiles = b.div(rest, b.i64(height))
            if height == min(strips):
                tiles = b.div(b.add(rest, b.i64(height - 1)), b.i64(height))
            strip = b.select(both, wide, narrow)
            given = [a, now, terms, places, here, there, row_step, tiles, depth, goes_on]
            b.call(
                "void", strip, given if chosen else [x for x, (name, _) in zip(given, _STRIP) if name not in _CHOSEN]
            )
            done = b.mul(tiles, b.i64(height))
            rest, now = b.sub(rest, done), b.offset(now, done, 4)
            there = b.offset(there, b.mul(done, row_step), 1)


def _emit_tiles(module, stem, element, height, vectors, chosen):
    parameters = [p for p in _STRIP if chosen or p[0] not in _CHOSEN]
    b = Builder(module, f"{stem}_strip{height}x{vectors}", parameters, linkage="internal")
    given = dict(zip((name for name, _ in parameters), b.arguments))
    a, terms, panel, row_step = given["a"], given["terms"], given["panel"], given.get("row_step", b.i64(PANEL_BYTES))
    t = Type(element, module.target.vector_bytes // Type(element).element_bytes)
    size, lanes = t.element_bytes, t.lanes
    with b.loop(0, given["tiles"], 1, [given["rows"], given["results"]]) as (k, tile):
        table, target = tile.values
        is_last = b.cmp("eq", b.add(k, b.i64(1)), given["tiles"])
        # What stands behind the table is anything, and asking for an address that there is not takes as long as a tile.
        ahead = b.select(is_last, table, b.offset(table, height, 4))
        starts = [b.freeze(b.offset(a, index(b, table, r), size)) for r in range(height)]
        lines = [b.offset(target, b.mul(row_step, b.i64(r)) if chosen else r * PANEL_BYTES, 1) for r in range(height)]
        stored = [b.offset(line, v * lanes, size) for line in lines for v in range(vectors)]
        initial = _begin_sums(b, t, stored, given["goes_on"])
        with b.loop(0, given["depth"], 1, [panel, *initial]) as (p, step):
            now, *sums = step.values
            term = index(b, terms, p)
            row = b.offset(panel, index(b, given["places"], p), PANEL_BYTES) if chosen else now
            columns = [b.load(b.offset(row, v * lanes, size), t) for v in range(vectors)]
            _fetch_ahead(b, a, ahead, term, p, height, size)
            following = []
            for r in range(height):
                x = b.splat(b.load(b.offset(starts[r], term, size), Type(element)), lanes)
                following += [b.fma(x, y, z) for y, z in zip(columns, sums[r * vectors :])]
            step.next([now if chosen else b.offset(now, PANEL_BYTES, 1), *following])
        for value, place in zip(step.results[1:], stored):
            b.store(value, place)
        tile.next([b.offset(table, height, 4), b.offset(target, b.mul(row_step, b.i64(height)), 1)])
    b.finish()
    return Reg(f"@{b.name}", PTR)


def _fetch_ahead(b, a, rows, term, p, height, size):
    """Ask for what the next tile reads of a, a row or two per term: rows that lie far apart are no stream that
    processors foresee."""
    for half in (0, height // 2) if height == 8 else (0,):
        row = index(b, rows, b.and_(b.add(p, b.i64(half)), b.i64(height - 1 if height & (height - 1) == 0 else 3)))
        b.prefetch(b.offset(a, b.add(row, term), size))


def _begin_sums(b, t, places, goes_on):
    """The accumulators of a tile: zeros, or the chains of the stretch of the sum before this one."""
    before, load, begun = b.block, b.label("goes_on"), b.label("begun")
    b.branch_if(goes_on, load, begun)
    b.start(load)
    stored = [b.load(place, t) for place in places]
    b.branch(begun)
    b.start(begun)
    return [b.phi(t, [(b.const(0, t), before), (chain, load)]) for chain in stored]
