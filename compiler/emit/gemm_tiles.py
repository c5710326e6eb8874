"""Tiles of C, with their accumulators in registers, and the panels of B they read: what products are made of.

A strip is a function for tiles of one height below one another, on one panel; the tallest have strips for panels of
each width. `call_strips` does all rows of a panel. What the loops around them are stands in gemm.py.
"""

from dataclasses import dataclass

from ..target import LINE_BYTES, Target
from .builder import I1, I64, PTR, Builder, Reg, Type
from .gemm_pack import emit_pack
from .tails import store_some

_OPERANDS = [("a", PTR), ("a_row", I64), ("a_col", I64), ("b", PTR), ("b_row", I64), ("b_col", I64)]
_RESULT = [("c", PTR), ("c_row", I64), ("m", I64), ("n", I64), ("k", I64), ("scratch", PTR)]
PRODUCT = _OPERANDS + _RESULT  # the parameters of a product

FAR = 1 << 22  # bytes of a matrix that no level-2 cache holds
_STREAMS = 8  # rows of memory that are read side by side
_TURNED = 128  # terms of a stretch where A is transposed
_AHEAD = 4 * LINE_BYTES  # how far ahead rows of A are asked for
# The same where A is transposed, as in the gradient of a weight: every term is a line of its own then. Lines 2 KB apart
# share two of 64 sets of a level-1 cache, so what was asked for 64 terms ahead had gone before it was read: 512 x 1024
# times 1024 x 128 reached 171 Gflop/s of 240 so on Zen 5, and 203 with 4 terms; 8 and 16 gave 197 and 184.
_TERMS_AHEAD = 4


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the work is cut for an element type and a Target; see the drawing in gemm.py."""

    element: str
    target: Target

    @property
    def element_bytes(self):
        return Type(self.element).element_bytes

    @property
    def lanes(self):
        return self.target.vector_bytes // self.element_bytes

    @property
    def heights(self):
        """Rows of a tile, then of the remainders."""
        return self.target.tile_heights

    @property
    def panels(self):
        """Columns of the panels, widest first: two vectors, one, and 32 bytes, which take half the time of 64 where a
        processor halves 512-bit vectors (Zen 4). The few rows that fill no tile are two vectors wide everywhere: with
        so few accumulators they wait for each other's results, and the second vector takes no more time.

        Only C is masked, and a tile computes with whatever follows the columns of a panel that is narrower: masking the
        loads of B took 3 % of the time on Zen 4 and, with AVX2, longer than the sums.
        """
        return tuple(sorted({2 * self.lanes, self.lanes, LINE_BYTES // 2 // self.element_bytes}, reverse=True))

    def block_k_for(self, b, m, n, k, direct, a_row):
        """The longest stretch for a product of this shape; `direct`: whether B is read where it lies.

        Where A is transposed, every term is a cache line of its own, of which a tile takes a half: the next tile should
        find it in the cache. Lines that lie a multiple of a kilobyte apart share few sets of it. On Zen 5, Gflop/s of
        240 with stretches of 1024, 128 and 32 terms: 512 x 1024 x 64 (m x k x n) 198, 218, 186; 1024 x 1024 x 256 139,
        185, 159; 256 x 1024 x 1024 111, 155, 139; 784 x 128 x 512 223, 225, 198. Copying A instead, 96 rows at a time,
        gave 154, 188, 150 and 224.

        So few rows take as long as reading B does. If it comes from far away it should be read along its rows, which
        processors foresee, a few side by side: 4 x 4608 x 512 took 0.52 ms from memory, and 0.87 panel by panel.
        """
        is_low = b.and_(direct, b.cmp("le", m, b.i64(self.heights[1])))
        is_far = b.cmp("lt", b.i64(FAR // self.element_bytes), b.mul(k, n))
        usual = b.select(b.cmp("eq", a_row, b.i64(1)), b.i64(_TURNED), b.i64(self.block_k))
        return b.select(b.and_(is_low, is_far), b.i64(_STREAMS), usual)

    @property
    def block_k(self):
        """Longest stretch of the sum done at once. Where it is shorter, C is read and written more often: at 1024^3
        1024 gave 105 Gflop/s, 512 gave 99, 128 gave 92. A packed panel takes 128 KB, an eighth of a level-2 cache.
        """
        return self.target.block_bytes // self.element_bytes


@dataclass(frozen=True, slots=True)
class Tiles:
    """The functions that products are made of: `pack` copies a panel of B; `full`: columns of a panel -> the strip of
    the tallest tiles; `rest`: height -> the strip of lower ones, on the widest panels."""

    tiling: Tiling
    pack: str
    full: dict
    rest: dict

    def strips(self, full):
        return {self.tiling.heights[0]: full, **self.rest}


def emit_tiles(module, tiling, stem):
    """Define the Tiles of a module, under names that begin with `stem`: modules may be joined to one text."""
    pack = emit_pack(module, f"{stem}_pack", tiling.element, tiling.lanes)
    full = {columns: _emit_strip(module, tiling, stem, tiling.heights[0], columns) for columns in tiling.panels}
    rest = {height: _emit_strip(module, tiling, stem, height, tiling.panels[0]) for height in tiling.heights[1:]}
    return Tiles(tiling, pack, full, rest)


def choose_panel(b, tiling, strips, remaining):
    """Columns of the next panel, and the strip for its full tiles and its width: the narrowest that covers them.

    Where a vector and a narrow panel cover the rest they are taken: less work than two vectors.
    """
    columns, lanes, narrow = tiling.panels[0], tiling.lanes, tiling.panels[-1]
    width, strip = b.i64(lanes), strips[lanes]
    if narrow < lanes:
        is_narrow = b.cmp("le", remaining, b.i64(narrow))
        width, strip = b.select(is_narrow, b.i64(narrow), width), b.select(is_narrow, strips[narrow], strip)
    is_wide = b.cmp("lt", b.i64(max(columns - narrow, lanes)), remaining)
    width, strip = b.select(is_wide, b.i64(columns), width), b.select(is_wide, strips[columns], strip)
    return b.intrinsic("smin", remaining, width), width, strip


def call_strips(b, size, strips, left, panel, result, rows, extent):
    """All rows of one panel, in strips of the tallest tile that still fits; but 8 rows as 4 and 4, not as 6 and 2: two
    rows have too few accumulators to fill the time, and take as long as 4."""
    (a, a_row, a_col), (c, c_row) = left, result
    tallest, middle, lowest = strips
    for height, strip in strips.items():
        tiles = b.div(rows, b.i64(height))
        if height == tallest and tallest + lowest == 2 * middle:
            leaves_two = b.cmp("eq", b.div(b.sub(rows, b.mul(tiles, b.i64(height))), b.i64(lowest)), b.i64(1))
            tiles = b.sub(tiles, b.convert(b.and_(leaves_two, b.cmp("lt", b.i64(0), tiles)), "i64"))
        with b.when(b.cmp("lt", b.i64(0), tiles)):
            b.call("void", strip, [a, a_row, a_col, *panel, c, c_row, tiles, *extent])
        done = b.mul(tiles, b.i64(height))
        rows = b.sub(rows, done)
        a, c = b.offset(a, b.mul(done, a_row), size), b.offset(c, b.mul(done, c_row), size)
    # A last single row is both rows of a tile, which takes no longer: so few accumulators wait for their own results.
    with b.when(b.cmp("lt", b.i64(0), rows)):
        b.call("void", strip, [a, b.i64(0), a_col, *panel, c, b.i64(0), b.i64(1), *extent])


_STRIP = [
    ("a", PTR), ("a_row", I64), ("a_col", I64), ("b", PTR), ("b_row", I64), ("c", PTR), ("c_row", I64),
    ("tiles", I64), ("columns", I64), ("k", I64), ("continued", I1),
]  # fmt: skip


def _emit_strip(module, tiling, stem, height, columns):
    """A function for tiles of C below one another, `height` rows each; returns its address.

    They are as wide as the panels of `columns` columns; lanes past the last column are computed, and not stored.
    """
    lanes, vectors = min(columns, tiling.lanes), -(-columns // tiling.lanes)
    t = Type(tiling.element, lanes)
    size = t.element_bytes
    b = Builder(module, f"{stem}_strip{height}x{columns}", _STRIP, linkage="internal")
    a, a_row, a_col, b_panel, b_row, c, c_row, tiles, columns, k, continued = b.arguments
    masks = [b.lane_mask(b.i64(v * lanes), columns, lanes) for v in range(vectors)]
    full = b.cmp("eq", columns, b.i64(vectors * lanes))
    a_rows = [b.mul(a_row, b.i64(r)) for r in range(height)]
    turns = 1 << (height.bit_length() - 1)
    c_rows = [b.mul(c_row, b.i64(r)) for r in range(height)]
    with b.loop(0, tiles, 1, [a, c]) as (_, tile):
        a_tile, c_tile = tile.values
        places = [b.offset(b.offset(c_tile, row, size), v * lanes, size) for row in c_rows for v in range(vectors)]
        initial = _begin_sums(b, t, places, masks, continued)
        if tiling.target.blocks and tiling.target.blocks.asks_for_sums:
            # The sums of the next tile: without, 1024 x 1024 x 1024 took up to 3 % longer.
            for place in places[::vectors]:
                b.prefetch(b.offset(place, b.mul(c_row, b.i64(height)), size))
        ahead = b.mul(a_col, b.select(b.cmp("eq", a_col, b.i64(1)), b.i64(_AHEAD // size), b.i64(_TERMS_AHEAD)))
        with b.loop(0, k, 1, [a_tile, b_panel, *initial]) as (p, step):
            a_now, b_now, *sums = step.values
            # One row per term, each before its next line is needed. Processors lose long rows at the ends of pages:
            # 512 rows of 4608 from memory by 4 columns took 0.67 ms, and 0.51 so; nothing else takes longer.
            b.prefetch(b.offset(a_now, b.add(b.mul(b.and_(p, b.i64(turns - 1)), a_row), ahead), size))
            # Frozen, so that the code generator keeps the rows' distances in registers: left alone it steps from row
            # to row, in a chain of additions as long as the tile is high, and takes longer to find that out.
            a_here = b.freeze(a_now)
            b_vectors = [b.load(b.offset(b_now, v * lanes, size), t) for v in range(vectors)]
            following = []
            for r in range(height):
                x = b.splat(b.load(b.offset(a_here, a_rows[r], size), Type(t.element)), lanes)
                following += [b.fma(x, y, z) for y, z in zip(b_vectors, sums[r * vectors :])]
            step.next([b.offset(a_now, a_col, size), b.offset(b_now, b_row, size), *following])
        _store_tile(b, step.results[2:], places, masks, full, columns)
        tile.next([b.offset(x, b.mul(row, b.i64(height)), size) for x, row in ((a_tile, a_row), (c_tile, c_row))])
    b.finish()
    return Reg(f"@{b.name}", PTR)


def _begin_sums(b, t, places, masks, continued):
    """The accumulators of a tile: zeros, or the chains that an earlier block of the sum stored in C."""
    before, load, begun = b.block, b.label("continued"), b.label("begun")
    b.branch_if(continued, load, begun)
    b.start(load)
    stored = [b.load(place, t, masks[i % len(masks)]) for i, place in enumerate(places)]
    b.branch(begun)
    b.start(begun)
    return [b.phi(t, [(b.const(0, t), before), (chain, load)]) for chain in stored]


def _store_tile(b, sums, places, masks, full, columns):
    """Store the accumulators of a tile. Without AVX-512 a masked store may take as long as twenty others."""
    with b.when(full):
        for value, place in zip(sums, places):
            b.store(value, place)
    with b.when(b.not_(full)):
        if b.module.target.stores_masked_slowly:
            _store_some_columns(b, sums, places, len(masks), columns)
        else:
            for i, (value, place) in enumerate(zip(sums, places)):
                b.store(value, place, masks[i % len(masks)])


def _store_some_columns(b, sums, places, vectors, columns):
    """The vectors that are full, then of each row what is left."""
    lanes = sums[0].type.lanes
    rows, at = sums[vectors - 1 :: vectors], places[vectors - 1 :: vectors]
    if vectors == 2:
        is_second = b.cmp("le", b.i64(lanes), columns)
        with b.when(is_second):
            for value, place in zip(sums[::2], places[::2]):
                b.store(value, place)
        rows = [b.select(is_second, y, x) for x, y in zip(sums[::2], rows)]
        at = [b.select(is_second, y, x) for x, y in zip(places[::2], at)]
    store_some(b, rows, at, b.and_(columns, b.i64(lanes - 1)))
