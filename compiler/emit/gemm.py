"""Matrix multiplication for shapes and strides known only at run time, f32 and f64.

    name = emit_gemm(module, "f32")      # defines void @weft_gemm_f32(...) in the module

The contract: every element of C is one chain of fused multiply-adds, in the order of p,

    acc = 0.0;  for p in 0 .. k-1:  acc = fma(A[i, p], B[p, j], acc)

whatever the shape, the strides, the tile it falls in or the vector width. So a product has the same bits as the product
of its slices, in every layout, on any number of threads. Tiles never split the sum over p; where the loop over p is cut
into blocks, the accumulators go through C and the chain continues.

How the work is cut, from the outside in:

    gemm     for p0 in range(0, k, block_k):           a stretch of the sum
                 for each panel of B:                  two vectors of columns; packed if its rows are not contiguous
                     for height in 8, 4, 2:            as many tiles of each height as fit
    strip                for each tile:                height x 2 vectors of accumulators in registers
                             for p in p0 ...           the micro-kernel: `height` broadcasts of A x two vectors of B

The last columns get panels of one vector or half a vector, so that n = 10 does not pay for 32. Larger products are cut
once more, to fit a level-2 cache (gemm_blocks.py). Products of one row or one column are computed here too, and
faster in `gemv`.
"""

from contextlib import contextmanager

from ..extent import is_open
from .builder import Builder
from .gemm_blocks import emit_blocks
from .gemm_blocks import scratch_bytes as blocks_bytes
from .gemm_tiles import PRODUCT, Tiling, call_strips, choose_panel, emit_tiles


def scratch_bytes(element, n, k, target):
    """Bytes of scratch a call needs, aligned to a cache line, for products of n columns at most, k terms each; either
    may be known at run time only."""
    if target.blocks:
        n, k = (1 << 30 if is_open(x) else x for x in (n, k))
        return blocks_bytes(Tiling(element, target), n, k)
    return panel_bytes(element, k, target)


def panel_bytes(element, k, target):
    """Of `emit_products`' functions: one packed panel of B, its rows rounded up to a block."""
    tiling = Tiling(element, target)
    deepest = tiling.block_k if is_open(k) else min(k, tiling.block_k)
    rows = -(-deepest // 8) * 8
    return rows * tiling.panels[0] * tiling.element_bytes


_LEAST_IN_PLACE = 24  # rows of a panel that is narrower than its tiles: packing fewer takes less than a pass over C


def emit_gemm(module, element, target):
    """Define `void @weft_gemm_<element>(a, a_row, a_col, b, b_row, b_col, c, c_row, m, n, k, scratch)`; its name.

    C[i, j] = sum over p of A[i, p] * B[p, j]. Strides count elements and may be anything, zero and negative included;
    the columns of C are adjacent, and C overlaps neither operand. k == 0 stores zeros. `scratch` has `scratch_bytes`.
    The target changes speed only. Call it once per module and element.
    """
    name = f"weft_gemm_{element}"
    tiles = emit_tiles(module, Tiling(element, target), name)
    if target.blocks:
        return emit_blocks(module, tiles, name, emit_products(module, tiles, f"{name}_panels", linkage="internal"))
    return emit_products(module, tiles, name)


def emit_products(module, tiles, name, onto=False, linkage=""):
    """Define `emit_gemm`'s function under a name. `onto`: its sums go on from what C holds, in place of zeros."""
    tiling, target, pack, full = tiles.tiling, tiles.tiling.target, tiles.pack, tiles.full
    b = Builder(module, name, PRODUCT, linkage=linkage)
    a, a_row, a_col, right, b_row, b_col, c, c_row, m, n, k, scratch = b.arguments
    size = tiling.element_bytes
    direct = b.and_(b.cmp("eq", b_col, b.i64(1)), b.cmp("lt", m, b.i64(target.rows_to_pack_for(tiling.element_bytes))))
    direct = b.and_(direct, b.cmp("lt", b.i64(0), b_row))
    only_full_tiles = b.cmp("eq", b.rem(m, b.i64(tiling.heights[0])), b.i64(0))
    n_panels = _count_panels(b, tiling, n)
    # At least once, so that k == 0 stores zeros.
    block_k = tiling.block_k_for(b, m, n, k, direct, a_row)
    with b.loop(0, b.intrinsic("smax", k, b.i64(1)), block_k) as p0:
        depth = b.intrinsic("smin", b.sub(k, p0), block_k)
        continued = b.cmp("le" if onto else "lt", b.i64(0), p0)
        with b.loop(0, n_panels, 1, [b.i64(0)]) as (_, panel):
            (j,) = panel.values
            columns, width, strip = choose_panel(b, tiling, full, b.sub(n, j))
            strips, result = tiles.strips(strip), (b.offset(c, j, size), c_row)
            source = b.offset(right, b.add(b.mul(p0, b_row), b.mul(j, b_col)), size)
            width = b.select(only_full_tiles, width, b.i64(tiling.panels[0]))
            in_place = b.select(direct, _rows_in_place(b, b.sub(width, columns), b.sub(k, p0), depth, b_row), b.i64(0))
            with _stretches(b, in_place, depth) as (begin, rows, is_packed):
                left = b.offset(a, b.mul(b.add(p0, begin), a_col), size), a_row, a_col
                here = b.offset(source, b.mul(begin, b_row), size)
                with b.when(is_packed):
                    b.call("void", pack, [here, b_row, b_col, scratch, columns, rows])
                there = b.select(is_packed, scratch, here), b.select(is_packed, b.i64(tiling.panels[0]), b_row)
                goes_on = b.or_(continued, b.cmp("lt", b.i64(0), begin))
                call_strips(b, size, strips, left, there, result, m, [columns, rows, goes_on])
            panel.next([b.add(j, columns)])
    b.finish()
    return b.name


def _rows_in_place(b, missing, rows, depth, b_row):
    """How many of the next `depth` rows of B, of `rows` to its end, are read where they lie, not packed.

    The tiles are `missing` columns wider than the panel, and compute with what follows it in memory, without storing
    it: the next rows. The last rows are packed, because for them it may be past the end of B. With few rows in all that
    is not worth a second pass over C.
    """
    step = b.intrinsic("smax", b_row, b.i64(1))
    last = b.div(b.add(missing, b.sub(step, b.i64(1))), step)
    readable = b.intrinsic("smin", depth, b.sub(rows, last))
    is_worth_it = b.cmp("le", b.i64(_LEAST_IN_PLACE), readable)
    return b.select(b.or_(is_worth_it, b.cmp("eq", missing, b.i64(0))), readable, b.i64(0))


@contextmanager
def _stretches(b, in_place, depth):
    """A loop over the rows of a panel that are read where they lie, then those that are packed: (first row, how many,
    whether they are packed). One of the two at least, even if there are no rows.
    """
    both = b.and_(b.cmp("lt", b.i64(0), in_place), b.cmp("lt", in_place, depth))
    with b.loop(0, b.add(b.convert(both, "i64"), b.i64(1)), 1, [b.i64(0)]) as (_, state):
        (begin,) = state.values
        is_packed = b.cmp("le", in_place, begin)
        end = b.select(is_packed, depth, in_place)
        yield begin, b.sub(end, begin), is_packed
        state.next([end])


def _count_panels(b, tiling, n):
    """How many panels `choose_panel` makes of n columns."""
    columns, lanes, narrow = tiling.panels[0], tiling.lanes, tiling.panels[-1]
    rest = b.and_(n, b.i64(columns - 1))
    two = b.and_(b.cmp("lt", b.i64(lanes), rest), b.cmp("le", rest, b.i64(columns - narrow)))
    whole = b.div(b.add(n, b.i64(columns - 1)), b.i64(columns))
    return b.add(whole, b.convert(two, "i64"))
