"""Products whose operands are cut to fit a level-2 cache, as targets say (Target.blocks).

    for some columns of B:                      as many as a stretch of them has `packed_bytes`
        for p in range(0, k, stretch):
            pack B[p ..., columns]              all its panels in one sweep along the rows
            for `rows` rows of A:
                turn A[rows, p ...]             if it is transposed, and that pays
                for each panel:                 a strip of tiles (gemm_tiles.py)

The rows, a stretch of 4 KB each, stay in the level-2 cache for all panels, and a panel is read 8 times from it or from
level 1: a step of a tile reads 64 bytes of B and 24 of A for 12 multiply-adds of vectors, which take 12 cycles.
A sum goes on through C, stretch by stretch, so cuts change no bit. C comes from far away each time: stretches of 256
terms in place of 1024 took 10 % longer at 1024^3, though their panels stay in the level-1 cache.

Where rows of A are turned, more columns are packed, so that they are turned less often (`packed_for_turned_bytes`): on
Zen 3, 256 to 1024 rows times as many columns, of 1024 terms, reached 78 to 86 Gflop/s of 104 before, now 85 to 90.
"""

from ..target import LEVEL1_BYTES, LINE_BYTES
from .builder import I1, Builder
from .gemm_pack import collide, emit_sweep, emit_turn
from .gemm_tiles import FAR, PRODUCT, call_strips

# Terms of sums that are few, and columns that make stretches of a row worth while.
_SHALLOW, _WIDE = 128, 1024


def scratch_bytes(tiling, n, k):
    """Bytes for the packed columns of B and the turned rows of A."""
    blocks, size, width = tiling.target.blocks, tiling.element_bytes, tiling.panels[0]
    deepest = max(8, -(-min(k, tiling.block_k) // 8) * 8)
    columns = min(-(-n // width) * width, blocks.columns)
    packed = min(max(blocks.packed_bytes, blocks.packed_for_turned_bytes), deepest * columns * size)
    turned = blocks.rows * (min(deepest * size, blocks.turned_bytes) + LINE_BYTES)
    return packed + turned


def emit_blocks(module, tiles, name, panels):
    """Define a product, with the parameters of `panels`, another one: it is called where blocks are of no use."""
    tiling = tiles.tiling
    tools = (
        emit_sweep(module, f"{name}_sweep", tiling.element, tiling.lanes),
        emit_turn(module, f"{name}_turn", tiling.element),
    )
    blocked = _emit_blocked(module, tiles, f"{name}_blocked", tools)
    b = Builder(module, name, PRODUCT)
    pays = _pays(b, tiling)
    with b.when(pays):
        b.call("void", blocked, b.arguments)
    with b.when(b.not_(pays)):
        b.call("void", panels, b.arguments)
    b.finish()
    return name


def _pays(b, tiling):
    """Whether a product is done in blocks.

    Few rows are best done panel by panel, and B is read where it lies if it is in the level-1 cache. But rows of B that
    collide are always packed, for more rows than one tile's.
    """
    b_row, b_col, m, n, k = (b.arguments[i] for i in (4, 5, 8, 9, 10))
    blocks, size = tiling.target.blocks, tiling.element_bytes
    in_rows = b.and_(b.cmp("eq", b_col, b.i64(1)), b.cmp("lt", b.i64(0), b_row))
    is_small = b.cmp("le", b.mul(b.mul(n, k), b.i64(size)), b.i64(blocks.small_bytes))
    must_pack = b.and_(in_rows, b.and_(_collide(b, b_row, size), b.not_(is_small)))
    most = b.select(must_pack, b.i64(blocks.few_colliding_rows), b.i64(blocks.few_rows))
    is_high = b.and_(b.cmp("lt", most, m), b.not_(b.and_(in_rows, is_small)))
    return b.or_(b.or_(is_high, _is_turned(b, tiling)), _is_shallow(b, tiling))


def _is_shallow(b, tiling):
    """Whether writing C takes longer than the sums: it is done row by row then, all columns of a few rows, and not a
    panel of all rows, each in a page of its own. 4096 x 4096 of 16 terms each reached 44 % of the peak of Zen 4, and 61
    so; of 64 terms 80 and 85, of 256 both 88."""
    m, n, k = b.arguments[8:11]
    blocks = tiling.target.blocks
    if blocks.shallow_rows == blocks.rows:
        return b.const(0, I1)
    is_far = b.cmp("lt", b.i64(FAR), b.mul(b.mul(m, n), b.i64(tiling.element_bytes)))
    is_wide = b.and_(b.cmp("le", b.i64(_WIDE), n), b.cmp("lt", b.i64(blocks.shallow_rows), m))
    return b.and_(b.and_(is_far, is_wide), b.cmp("le", k, b.i64(_SHALLOW)))


def _is_turned(b, tiling):
    """Whether rows of A are copied: those of a transposed matrix, every term of which is a line of its own, if these
    lines collide or are more than a level-1 cache has, and enough columns use them.
    """
    a_col, m, n, k = (b.arguments[i] for i in (2, 8, 9, 10))
    blocks = tiling.target.blocks
    least, some = blocks.turned_from_bytes, b.i64(tiling.target.few_columns)
    n_bytes = b.mul(b.mul(m, k), b.i64(tiling.element_bytes))
    collides = b.and_(_collide(b, a_col, tiling.element_bytes), b.cmp("lt", b.i64(tiling.heights[0]), m))
    collides = b.and_(collides, b.cmp("lt", b.i64(least // 4), n_bytes))
    is_deep = b.and_(b.cmp("ne", a_col, b.i64(1)), b.cmp("le", b.i64(LEVEL1_BYTES // LINE_BYTES), k))
    is_deep = b.and_(is_deep, b.and_(b.cmp("lt", b.i64(least), n_bytes), b.cmp("lt", some, m)))
    return b.and_(b.cmp("le", b.i64(blocks.turned_from_columns), n), b.or_(collides, is_deep))


def _collide(b, step, size):
    n_bytes = b.mul(step, b.i64(size))
    return b.and_(collide(b, n_bytes), b.cmp("lt", b.i64(LINE_BYTES), n_bytes))


def _emit_blocked(module, tiles, name, tools):
    tiling = tiles.tiling
    blocks, size, width = tiling.target.blocks, tiling.element_bytes, tiling.panels[0]
    sweep, turn = tools
    b = Builder(module, name, PRODUCT, linkage="internal")
    a, a_row, a_col, right, b_row, b_col, c, c_row, m, n, k, scratch = b.arguments
    is_turned = _is_turned(b, tiling)
    longest = b.select(is_turned, b.i64(blocks.turned_bytes // size), b.i64(tiling.block_k))
    deepest = b.and_(b.add(b.intrinsic("smin", k, longest), b.i64(7)), b.i64(-8))
    per_panel = b.mul(b.intrinsic("smax", deepest, b.i64(8)), b.i64(width * size))
    are_few = b.and_(b.cmp("le", m, b.i64(2 * blocks.rows)), b.cmp("eq", b_col, b.i64(1)))
    are_few = b.and_(are_few, b.not_(is_turned))
    widest = b.select(are_few, b.i64(blocks.columns_for_few // width), b.i64(blocks.columns // width))
    packed_bytes = b.select(is_turned, b.i64(blocks.packed_for_turned_bytes), b.i64(blocks.packed_bytes))
    most = b.intrinsic("smin", b.div(packed_bytes, per_panel), widest)
    some = b.mul(most, b.i64(width))
    n_panels = b.intrinsic("smin", most, b.div(b.add(n, b.i64(width - 1)), b.i64(width)))
    turned = b.offset(scratch, b.mul(n_panels, per_panel), 1)
    at_once = b.select(_is_shallow(b, tiling), b.i64(blocks.shallow_rows), b.i64(blocks.rows))
    # A line more than they are, or rows would collide.
    turned_row = b.add(deepest, b.i64(LINE_BYTES // size))
    with b.loop(0, n, some) as j:
        columns = b.intrinsic("smin", b.sub(n, j), some)
        # At least once, so that k == 0 stores zeros.
        with b.loop(0, b.intrinsic("smax", k, b.i64(1)), longest) as p:
            depth, goes_on = b.intrinsic("smin", b.sub(k, p), longest), b.cmp("lt", b.i64(0), p)
            here = b.offset(right, b.add(b.mul(p, b_row), b.mul(j, b_col)), size)
            _pack_columns(b, tiles, sweep, [here, b_row, b_col, scratch, columns, depth])
            with b.loop(0, m, at_once) as i:
                rows = b.intrinsic("smin", b.sub(m, i), at_once)
                left = b.offset(a, b.add(b.mul(i, a_row), b.mul(p, a_col)), size), a_row, a_col
                with b.when(is_turned):
                    b.call("void", turn, [*left, turned, turned_row, rows, depth])
                copied = turned, turned_row, b.i64(1)
                left = [b.select(is_turned, x, y) for x, y in zip(copied, left)]
                result = b.offset(c, b.add(b.mul(i, c_row), j), size), c_row
                _call_panels(b, tiles, left, scratch, result, rows, [columns, depth, goes_on])
    b.finish()
    return name


def _pack_columns(b, tiles, sweep, operands):
    """Columns of B as panels, one behind the other."""
    source, b_row, b_col, target, columns, depth = operands
    size, width = tiles.tiling.element_bytes, tiles.tiling.panels[0]
    in_rows = b.cmp("eq", b_col, b.i64(1))
    with b.when(in_rows):
        b.call("void", sweep, [source, b_row, target, columns, depth])
    with b.when(b.not_(in_rows)), b.loop(0, columns, width) as j:
        here, there = b.offset(source, b.mul(j, b_col), size), b.offset(target, b.mul(j, depth), size)
        its = b.intrinsic("smin", b.sub(columns, j), b.i64(width))
        b.call("void", tiles.pack, [here, b_row, b_col, there, its, depth])


def _call_panels(b, tiles, left, packed, result, rows, extent):
    """Some rows, all packed panels."""
    tiling = tiles.tiling
    size, width = tiling.element_bytes, tiling.panels[0]
    (c, c_row), (columns, depth, goes_on) = result, extent
    with b.loop(0, columns, width) as j:
        rest = b.sub(columns, j)
        strip = tiles.full[width]
        for narrower in tiling.panels[1:]:
            strip = b.select(b.cmp("le", rest, b.i64(narrower)), tiles.full[narrower], strip)
        panel = b.offset(packed, b.mul(j, depth), size), b.i64(width)
        its = [b.intrinsic("smin", rest, b.i64(width)), depth, goes_on]
        call_strips(b, size, tiles.strips(strip), left, panel, (b.offset(c, j, size), c_row), rows, its)
