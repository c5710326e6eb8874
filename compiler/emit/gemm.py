"""Matrix multiplication for shapes and strides known only at run time, f32 and f64.

    name = emit_gemm(module, "f32")      # defines void @weft_gemm_f32(...) in the module

The contract: every element of C is one chain of fused multiply-adds, in the order of p,

    acc = 0.0;  for p in 0 .. k-1:  acc = fma(A[i, p], B[p, j], acc)

whatever the shape, the strides, the tile it falls in or the vector width. So a product has the same bits as the product
of its slices, in every layout, on any number of threads. Tiles never split the sum over p; where the loop over p is cut
into blocks, the accumulators go through C and the chain continues.

How the work is cut, from the outside in (one function each; NR = two vectors of columns):

    for p0 in range(0, k, BLOCK_K)             entry: a block of the sum, small enough to pack
        for j in range(0, n, NR)               entry: a panel of B, packed if its rows are not contiguous
            for rows in 8, 4, 2, 1             panel: as many tiles of each height as fit
                for i in range(0, m, rows)     strip: one tile of C = rows x NR accumulators in registers
                    for p in p0 ..             the micro-kernel: `rows` broadcasts of A times two vectors of B

A panel narrower than one vector, or half a vector, gets strips of that width, so that n = 10 does not pay for 32.
"""

from dataclasses import dataclass

from .builder import I1, I64, PTR, Builder, Reg, Type
from .gemm_pack import emit_pack

BLOCK_K = 512
"""Longest stretch of the sum done at once: a packed panel of 512 rows is 64 KB, well inside a level-2 cache."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """The register tile of a vector width: 16 accumulators where there are 32 registers, 12 where there are 16."""

    element: str
    vector_bytes: int

    @property
    def lanes(self):
        return self.vector_bytes // Type(self.element).element_bytes

    @property
    def columns(self):
        return 2 * self.lanes

    @property
    def heights(self):
        return (8, 4, 2, 1) if self.vector_bytes == 64 else (6, 4, 2, 1)

    @property
    def widths(self):
        """(lanes, vectors) of the strips, widest first."""
        return (self.lanes, 2), (self.lanes, 1), (self.lanes // 2, 1)


def scratch_bytes(element, m, n, k, vector_bytes=64):
    """Bytes of scratch a call needs, 64-byte aligned: one packed panel, its rows rounded up to a whole transpose."""
    tiling = Tiling(element, vector_bytes)
    rows = -(-min(k, BLOCK_K) // tiling.lanes) * tiling.lanes
    return rows * tiling.columns * Type(element).element_bytes


def emit_gemm(module, element, vector_bytes=64):
    """Define `void @weft_gemm_<element>(a, a_row, a_col, b, b_row, b_col, c, c_row, m, n, k, scratch)`; its name.

    C[i, j] = sum over p of A[i, p] * B[p, j]. Strides count elements and may be anything, zero and negative included;
    the columns of C are adjacent, and C overlaps neither operand. k == 0 stores zeros. `vector_bytes` is the widest
    vector the target has (64 with AVX-512, else 32); it changes speed only. Call it once per module and element.
    """
    tiling = Tiling(element, vector_bytes)
    pack = emit_pack(module, f"weft_gemm_{element}_pack", element, tiling.lanes, tiling.columns)
    panels = [_emit_panel(module, tiling, lanes, vectors) for lanes, vectors in tiling.widths]
    return _emit_entry(module, tiling, panels, pack)


def _emit_entry(module, tiling, panels, pack):
    operands = [("a", PTR), ("a_row", I64), ("a_col", I64), ("b", PTR), ("b_row", I64), ("b_col", I64)]
    result = [("c", PTR), ("c_row", I64), ("m", I64), ("n", I64), ("k", I64), ("scratch", PTR)]
    b = Builder(module, f"weft_gemm_{tiling.element}", operands + result)
    size = Type(tiling.element).element_bytes
    a, a_row, a_col, b_matrix, b_row, b_col, c, c_row, m, n, k, scratch = b.arguments
    direct = b.cmp("eq", b_col, b.i64(1))
    stride = b.select(direct, b_row, b.i64(tiling.columns))
    at_least_once = b.intrinsic("smax", k, b.i64(1))
    with b.loop(0, at_least_once, BLOCK_K) as p:
        depth = b.intrinsic("smin", b.sub(k, p), b.i64(BLOCK_K))
        continued = b.cmp("lt", b.i64(0), p)
        a_block = b.offset(a, b.mul(p, a_col), size)
        b_block = b.offset(b_matrix, b.mul(p, b_row), size)
        with b.loop(0, n, tiling.columns) as j:
            source = b.offset(b_block, b.mul(j, b_col), size)
            columns = b.intrinsic("smin", b.sub(n, j), b.i64(tiling.columns))
            with b.when(b.not_(direct)):
                b.call("void", pack, [source, b_row, b_col, scratch, columns, depth])
            panel = b.select(direct, source, scratch)
            c_panel = b.offset(c, j, size)
            target = _choose_panel(b, tiling, panels, columns)
            b.call("void", target, [a_block, a_row, a_col, panel, stride, c_panel, c_row, m, columns, depth, continued])
    b.finish()
    return b.name


def _choose_panel(b, tiling, panels, columns):
    """The narrowest panel function that covers `columns`."""
    target = Reg(f"@{panels[0]}", PTR)
    for (lanes, vectors), name in list(zip(tiling.widths, panels))[1:]:
        fits = b.cmp("le", columns, b.i64(lanes * vectors))
        target = b.select(fits, Reg(f"@{name}", PTR), target)
    return target


_PANEL = [
    ("a", PTR), ("a_row", I64), ("a_col", I64), ("b", PTR), ("b_row", I64), ("c", PTR), ("c_row", I64),
    ("count", I64), ("columns", I64), ("k", I64), ("continued", I1),
]  # fmt: skip


def _emit_panel(module, tiling, lanes, vectors):
    """A function for one panel of columns: all rows of C, in strips of the tallest tile that still fits."""
    strips = {h: _emit_strip(module, tiling.element, h, lanes, vectors) for h in tiling.heights}
    b = Builder(module, f"weft_gemm_{tiling.element}_panel{lanes * vectors}", _PANEL, linkage="internal")
    size = Type(tiling.element).element_bytes
    a, a_row, a_col, b_panel, b_row, c, c_row, rows, columns, k, continued = b.arguments
    for height, strip in strips.items():
        tiles = b.div(rows, b.i64(height))
        with b.when(b.cmp("lt", b.i64(0), tiles)):
            b.call("void", strip, [a, a_row, a_col, b_panel, b_row, c, c_row, tiles, columns, k, continued])
        done = b.mul(tiles, b.i64(height))
        rows = b.sub(rows, done)
        a = b.offset(a, b.mul(done, a_row), size)
        c = b.offset(c, b.mul(done, c_row), size)
    b.finish()
    return b.name


def _emit_strip(module, element, height, lanes, vectors):
    """A function for `count` tiles of C below one another, each `height` rows by `vectors` vectors, the last masked."""
    b = Builder(module, f"weft_gemm_{element}_strip{height}x{lanes * vectors}", _PANEL, linkage="internal")
    a, a_row, a_col, b_panel, b_row, c, c_row, tiles, columns, k, continued = b.arguments
    t = Type(element, lanes)
    size = t.element_bytes
    masks = [b.lane_mask(b.i64(v * lanes), columns, lanes) for v in range(vectors)]
    # Where no earlier block of the sum was stored, no lane of C is read and the accumulators start from zero.
    starts = [b.and_(mask, b.splat(continued, lanes)) for mask in masks]
    a_rows = [b.mul(a_row, b.i64(r)) for r in range(height)]
    c_rows = [b.mul(c_row, b.i64(r)) for r in range(height)]
    with b.loop(0, tiles, 1, [a, c]) as (_, tile):
        a_tile, c_tile = tile.values
        places = [b.offset(b.offset(c_tile, row, size), v * lanes, size) for row in c_rows for v in range(vectors)]
        initial = [b.load(place, t, starts[i % vectors]) for i, place in enumerate(places)]
        with b.loop(0, k, 1, [a_tile, b_panel, *initial]) as (_, step):
            a_now, b_now, *accumulators = step.values
            columns_now = [b.load(b.offset(b_now, v * lanes, size), t, masks[v]) for v in range(vectors)]
            following = []
            for r in range(height):
                x = b.splat(b.load(b.offset(a_now, a_rows[r], size), Type(element)), lanes)
                for v in range(vectors):
                    following.append(b.fma(x, columns_now[v], accumulators[r * vectors + v]))
            step.next([b.offset(a_now, a_col, size), b.offset(b_now, b_row, size), *following])
        for i, place in enumerate(places):
            b.store(step.results[2 + i], place, masks[i % vectors])
        down = b.mul(a_row, b.i64(height)), b.mul(c_row, b.i64(height))
        tile.next([b.offset(a_tile, down[0], size), b.offset(c_tile, down[1], size)])
    b.finish()
    return b.name
