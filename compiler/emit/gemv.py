"""Products of one row and a matrix: C[j] = sum over p of A[p] * B[p, j], the chains of `gemm`, for n columns of B.

    name = emit_gemv(module, "f32")      # defines void @weft_gemv_f32(...) in the module

Every element of B is used once, so memory sets the time, and B is read where it lies, in long stretches:

    rows        B has contiguous rows (`x.T @ r`): the vector fma takes a stretch of a row
        few     up to eight vectors of columns: C stays in registers while B is read from front to back
        many    four rows at once, so that C, in the level-1 cache, is read and written once for the four
    columns     B has contiguous columns (`x @ w`): lanes must be columns, because chains are not split, and so B is
                transposed in registers, 16 bytes of each column at a time
        wide    four groups of columns at once, 32 columns for f32: enough chains to hide the latency of the fma
        narrow  two groups or one, where there are fewer columns, or where so many would collide in the cache

f32, AVX-512 (Zen 4), GB/s, beside OpenBLAS, which adds in any order: `x.T @ r` of 10,000 x 100 (4 MB, in the level-3
cache) 93 against 69, `x @ w` 62 against 65. What limits the latter is the transposition, at 76 from the level-1 cache:
inserting, blending and permuting took the same time in all mixtures, and 64-byte vectors a tenth more; packing the
columns first, or copying them to where they do not collide, took 1.7 times as long.
"""

from ..target import LEVEL1_BYTES, LINE_BYTES
from .builder import I32, I64, PTR, Builder, Reg, Type
from .gemm_pack import QUAD_BYTES, collide, load_quads, pack_lanes
from .gemm_tiles import PRODUCT, Tiling

_STRETCH = [("a", PTR), ("a_col", I64), ("b", PTR), ("b_step", I64), ("c", PTR), ("n", I64), ("k", I64)]


def emit_gemv(module, element, target):
    """Define `void @weft_gemv_<element>`, with the parameters and the bits of `weft_gemm_<element>`; its name.

    Products of one row, or of one column stored without gaps, are computed here. Left to `weft_gemm_<element>` are all
    others, and a B with neither contiguous rows nor columns, or with very few columns. It is in a module of its own, so
    that a program without such products need not compile this one, and its address is a run-time value: call
    `void @weft_gemv_<element>_begin(gemm)` with it before anything else.
    """
    tiling = Tiling(element, target)
    by_rows, by_columns = _emit_rows(module, tiling), _emit_columns(module, tiling)
    gemm = _emit_begin(module, element)
    b = Builder(module, f"weft_gemv_{element}", PRODUCT)
    a, a_row, a_col, right, b_row, b_col, c, c_row, m, n, k, scratch = _along_a_row(b)
    is_row = b.cmp("eq", m, b.i64(1))
    rows = b.and_(is_row, b.cmp("eq", b_col, b.i64(1)))
    least_n, least_k = _least_for_columns(element)
    large = b.and_(b.cmp("le", b.i64(least_n), n), b.cmp("le", b.i64(least_k), k))
    columns = b.and_(b.and_(b.and_(is_row, b.cmp("eq", b_row, b.i64(1))), large), b.not_(rows))
    with b.when(rows):
        b.call("void", by_rows, [a, a_col, right, b_row, c, n, k])
    with b.when(columns):
        b.call("void", by_columns, [a, a_col, right, b_col, c, n, k])
    with b.when(b.not_(b.or_(rows, columns))):
        b.call("void", b.load(gemm, PTR), [a, a_row, a_col, right, b_row, b_col, c, c_row, m, n, k, scratch])
    b.finish()
    return b.name


def _along_a_row(b):
    """The arguments; for one column stored without gaps those of the transposed product, whose result is one row."""
    a, a_row, a_col, right, b_row, b_col, c, c_row, m, n, k, scratch = b.arguments
    is_column = b.and_(b.cmp("eq", n, b.i64(1)), b.cmp("eq", c_row, b.i64(1)))
    given, transposed = [a, a_row, a_col, right, b_row, b_col, m, n], [right, b_col, b_row, a, a_col, a_row, n, m]
    *operands, m, n = (b.select(is_column, y, x) for x, y in zip(given, transposed))
    return [*operands, c, c_row, m, n, k, scratch]


def _emit_begin(module, element):
    """Where the address of weft_gemm_<element> is kept, and the function that stores it there."""
    name = f"weft_gemv_{element}_gemm"
    module.globals[name] = f"@{name} = internal global ptr null"
    place = Reg(f"@{name}", PTR)
    b = Builder(module, f"weft_gemv_{element}_begin", [("gemm", PTR)])
    b.store(b.arguments[0], place)
    b.finish()
    return place


# --- contiguous rows of B ---------------------------------------------------------------------------------------------
_FEW = (2, 8)  # vectors of columns; one would take the same time as two, for each waits for its own result

_ROWS = 4  # rows of B added at once where C does not fit the registers

_CHUNK_BYTES = LEVEL1_BYTES // 8  # of C, read and written again and again: it stays in the level-1 cache


def _emit_rows(module, tiling):
    """Define `void @weft_gemv_<element>_rows(a, a_col, b, b_row, c, n, k)` for any n and k; its name.

    C[j] = sum over p of a[p * a_col] * b[p * b_row + j].
    """
    element, lanes = tiling.element, tiling.lanes
    few = {vectors: _emit_few(module, element, lanes, vectors) for vectors in _FEW}
    b = Builder(module, f"weft_gemv_{element}_rows", _STRETCH, linkage="internal")
    n = b.arguments[5]
    function = Reg(f"@{_emit_many(module, element, lanes, few[_FEW[0]])}", PTR)
    for vectors in reversed(_FEW):
        fits = b.cmp("le", n, b.i64(vectors * lanes))
        function = b.select(fits, Reg(f"@{few[vectors]}", PTR), function)
    b.call("void", function, b.arguments)
    b.finish()
    return b.name


def _emit_few(module, element, lanes, vectors):
    """Up to `vectors` vectors of columns, and more than the next smaller of _FEW: C in registers, B row by row."""
    b = Builder(module, f"weft_gemv_{element}_rows{vectors}", _STRETCH, linkage="internal")
    a, a_col, right, b_row, c, n, k = b.arguments
    t = Type(element, lanes)
    size = t.element_bytes
    sure = next((v for v in reversed(_FEW) if v < vectors), 0)
    masks = [None if v < sure else b.lane_mask(v * lanes, n, lanes) for v in range(vectors)]
    with b.loop(0, k, 1, [a, right, *[b.const(0, t)] * vectors]) as (_, state):
        x, row, *sums = state.values
        factor = b.splat(b.load(x, Type(element)), lanes)
        terms = [b.load(b.offset(row, v * lanes, size), t, mask) for v, mask in enumerate(masks)]
        sums = [b.fma(factor, term, total) for term, total in zip(terms, sums)]
        state.next([b.offset(x, a_col, size), b.offset(row, b_row, size), *sums])
    for v, (total, mask) in enumerate(zip(state.results[2:], masks)):
        b.store(total, b.offset(c, v * lanes, size), mask)
    b.finish()
    return b.name


def _emit_many(module, element, lanes, few):
    """Any number of columns, a chunk of C after the other: C += a[p] * B[p] for a few p at once.

    The columns that fill no vector are left to `few`.
    """
    b = Builder(module, f"weft_gemv_{element}_rows_many", _STRETCH, linkage="internal")
    a, a_col, right, b_row, c, n, k = b.arguments
    t = Type(element, lanes)
    size = t.element_bytes
    chunk = _CHUNK_BYTES // size
    n_whole, k_whole = b.and_(n, b.i64(-lanes)), b.sub(k, b.rem(k, b.i64(_ROWS)))
    with b.loop(0, n_whole, chunk) as j:
        target, columns = b.offset(c, j, size), b.intrinsic("smin", b.sub(n_whole, j), b.i64(chunk))
        with b.loop(0, columns, lanes) as at:
            b.store(b.const(0, t), b.offset(target, at, size))
        state = [a, b.offset(right, j, size)]
        for rows, height in ((k_whole, _ROWS), (b.sub(k, k_whole), 1)):
            with b.loop(0, rows, height, state) as (_, loop):
                loop.next(_add_rows(b, t, target, columns, loop.values, (a_col, b_row), height))
            state = loop.results
    with b.when(b.cmp("lt", n_whole, n)):
        rest = [b.offset(right, n_whole, size), b_row, b.offset(c, n_whole, size), b.sub(n, n_whole)]
        b.call("void", few, [a, a_col, *rest, k])
    b.finish()
    return b.name


def _add_rows(b, t, target, columns, start, steps, height):
    """target += a[p] * B[p] for `height` p; where a and B go on."""
    (x, row), (a_col, b_row), size = start, steps, t.element_bytes
    factors, rows = [], []
    for _ in range(height):
        factors.append(b.splat(b.load(x, Type(t.element)), t.lanes))
        rows.append(row)
        x, row = b.offset(x, a_col, size), b.offset(row, b_row, size)
    with b.loop(0, columns, t.lanes) as at:
        place = b.offset(target, at, size)
        total = b.load(place, t)
        for factor, its_row in zip(factors, rows):
            total = b.fma(factor, b.load(b.offset(its_row, at, size), t), total)
        b.store(total, place)
    return [x, row]


# --- contiguous columns of B ------------------------------------------------------------------------------------------
_WIDE = 4  # groups of columns at once

_AHEAD_BYTES = 2 * LINE_BYTES  # in a long column, how far ahead it is prefetched; 64 and 192 were slower

_LAG_BYTES = 2 * LINE_BYTES  # between the places of two groups that would otherwise collide: the next one prefetched

_CLOSE_BYTES = LEVEL1_BYTES // 2  # of a block of columns that fits the level-1 cache together with the next one

_BLOCK = [("a", PTR), ("a_col", I64), ("b", PTR), ("b_col", I64), ("c", PTR), ("k", I64), ("lag", I64)]


def _least_for_columns(element):
    """The smallest n and k that `_emit_columns` serves."""
    return pack_lanes(element), QUAD_BYTES // Type(element).element_bytes


def _emit_columns(module, tiling):
    """Define `void @weft_gemv_<element>_columns(a, a_col, b, b_col, c, n, k)` from `_least_for_columns` on; its name.

    C[j] = sum over p of a[p * a_col] * b[p + j * b_col]. The last block of columns is moved back until it is full:
    what is computed twice has the same bits.
    """
    t = Type(tiling.element, pack_lanes(tiling.element))
    finish = _emit_finish(module, t)
    wide, narrow = _emit_wide(module, t, finish), _emit_narrow(module, t, finish)
    b = Builder(module, f"weft_gemv_{t.element}_columns", _STRETCH, linkage="internal")
    _, _, _, b_col, _, n, _ = b.arguments
    colliding = collide(b, b.mul(b_col, b.i64(t.element_bytes)))
    takes_wide = b.and_(b.cmp("le", b.i64(_WIDE * t.lanes), n), b.not_(colliding))
    b.call("void", b.select(takes_wide, Reg(f"@{wide}", PTR), Reg(f"@{narrow}", PTR)), b.arguments)
    b.finish()
    return b.name


def _emit_wide(module, t, finish):
    """At least four groups of columns."""
    b = Builder(module, f"weft_gemv_{t.element}_columns_wide", _STRETCH, linkage="internal")
    a, a_col, right, b_col, c, n, k = b.arguments
    size, width = t.element_bytes, _WIDE * t.lanes
    whole = b.and_(k, b.i64(-QUAD_BYTES // size))
    steps = [b.mul(b_col, b.i64(r)) for r in range(t.lanes)]
    last = b.sub(n, b.i64(width))
    with b.loop(0, n, width) as j:
        j = b.intrinsic("smin", j, last)
        columns, target = b.offset(right, b.mul(j, b_col), size), b.offset(c, j, size)
        places = [b.offset(columns, b.mul(b_col, b.i64(g * t.lanes)), size) for g in range(_WIDE)]
        prefetch = _prefetcher(b, t, columns, b_col, steps)
        sums = _add_quads(b, t, [a], places, [b.const(0, t)] * _WIDE, whole, steps, prefetch)
        for g, total in enumerate(sums):
            b.store(total, b.offset(target, g * t.lanes, size))
        with b.when(b.cmp("lt", whole, k)):
            b.call("void", finish, [a, a_col, columns, b_col, target, b.i64(width), k])
    b.finish()
    return b.name


def _emit_narrow(module, t, finish):
    """Two groups of columns at once, or one. Where columns collide the two are kept apart: the first is brought ahead
    by `lag` before, and the second is brought up after."""
    two, one = _emit_block(module, t, 2), _emit_block(module, t, 1)
    b = Builder(module, f"weft_gemv_{t.element}_columns_narrow", _STRETCH, linkage="internal")
    a, a_col, right, b_col, c, n, k = b.arguments
    size, none = t.element_bytes, b.i64(0)
    whole = b.and_(k, b.i64(-QUAD_BYTES // size))
    takes_two = b.cmp("le", b.i64(2 * t.lanes), n)
    block = b.select(takes_two, Reg(f"@{two}", PTR), Reg(f"@{one}", PTR))
    width = b.select(takes_two, b.i64(2 * t.lanes), b.i64(t.lanes))
    apart = b.and_(takes_two, collide(b, b.mul(b_col, b.i64(size))))
    lag = b.select(apart, b.intrinsic("smin", whole, b.i64(_LAG_BYTES // size)), none)
    most = b.sub(whole, lag)
    with b.loop(0, n, width) as j:
        j = b.intrinsic("smin", j, b.sub(n, width))
        columns, target = b.offset(right, b.mul(j, b_col), size), b.offset(c, j, size)
        with b.loop(0, width, t.lanes) as at:
            b.store(b.const(0, t), b.offset(target, at, size))
        with b.when(apart):
            b.call("void", one, [a, a_col, columns, b_col, target, lag, none])
        b.call("void", block, [a, a_col, columns, b_col, target, most, lag])
        with b.when(apart):
            behind = b.offset(columns, b.add(b.mul(b_col, b.i64(t.lanes)), most), size)
            its = [b.offset(a, b.mul(a_col, most), size), a_col, behind, b_col, b.offset(target, t.lanes, size)]
            b.call("void", one, [*its, lag, none])
        with b.when(b.cmp("lt", whole, k)):
            b.call("void", finish, [a, a_col, columns, b_col, target, width, k])
    b.finish()
    return b.name


def _emit_block(module, t, groups):
    """A function that goes on with the chains of one group, or of two of which the first is `lag` elements ahead."""
    b = Builder(module, f"weft_gemv_{t.element}_columns{groups}", _BLOCK, linkage="internal")
    a, a_col, right, b_col, c, k, lag = b.arguments
    size = t.element_bytes
    steps = [b.mul(b_col, b.i64(r)) for r in range(t.lanes)]
    ahead = [b.offset(a, b.mul(a_col, lag), size), b.offset(right, lag, size)]
    factors, places = [ahead[0], a][:groups], [ahead[1], b.offset(right, b.mul(b_col, b.i64(t.lanes)), size)][:groups]
    targets = [b.offset(c, g * t.lanes, size) for g in range(groups)]
    sums = _add_quads(b, t, factors, places, [b.load(target, t) for target in targets], k, steps)
    for total, target in zip(sums, targets):
        b.store(total, target)
    b.finish()
    return b.name


def _add_quads(b, t, factors, places, sums, k, steps, prefetch=None):
    """k further terms, in whole quads, of the chains of all groups, which share the factors or have their own."""
    a_col, size, quad = b.arguments[1], t.element_bytes, QUAD_BYTES // t.element_bytes
    n_factors, groups = len(factors), len(places)
    with b.loop(0, k, quad, [*factors, *places, *sums]) as (p, state):
        factors, values = state.values[:n_factors], state.values[n_factors:]
        places, sums = values[:groups], values[groups:]
        if prefetch:
            prefetch(places[0], p)
        factors, loaded = zip(*(_load_factors(b, t, x, a_col, quad) for x in factors))
        following = []
        for g, (place, total) in enumerate(zip(places, sums)):
            for factor, row in zip(loaded[g % n_factors], load_quads(b, t, place, steps)):
                total = b.fma(factor, row, total)
            following.append(total)
        state.next([*factors, *(b.offset(place, quad, size) for place in places), *following])
    return state.results[-groups:]


def _load_factors(b, t, x, a_col, count):
    """Where a goes on, and its next elements, each in all lanes."""
    factors = []
    for _ in range(count):
        factors.append(b.splat(b.load(x, Type(t.element)), t.lanes))
        x = b.offset(x, a_col, t.element_bytes)
    return x, factors


def _emit_finish(module, t):
    """A function for the terms that fill no quad: the last quad of the columns without what was added before."""
    b = Builder(module, f"weft_gemv_{t.element}_columns_finish", _STRETCH, linkage="internal")
    a, a_col, right, b_col, c, n, k = b.arguments
    size, quad = t.element_bytes, QUAD_BYTES // t.element_bytes
    start, added = b.sub(k, b.i64(quad)), b.and_(k, b.i64(-quad))
    steps = [b.mul(b_col, b.i64(r)) for r in range(t.lanes)]
    _, factors = _load_factors(b, t, b.offset(a, b.mul(a_col, start), size), a_col, quad)
    with b.loop(0, n, t.lanes) as j:
        target = b.offset(c, j, size)
        total = b.load(target, t)
        place = b.offset(right, b.add(b.mul(j, b_col), start), size)
        for i, row in enumerate(load_quads(b, t, place, steps)):
            is_new = b.cmp("le", added, b.add(start, b.i64(i)))
            total = b.select(is_new, b.fma(factors[i], row, total), total)
        b.store(total, target)
    b.finish()
    return b.name


def _prefetcher(b, t, columns, b_col, steps):
    """A function that emits the prefetches of one step, as many lines as it reads.

    They are the next columns from front to back if those lie close together, else what follows in the columns at work,
    one group in turn. Without them `x @ w` of 10,000 x 100 reads 43 GB/s and of 512 x 784 57 instead of 65: so many
    streams, and so short, are too much for the hardware.
    """
    size = t.element_bytes
    group = b.mul(b_col, b.i64(t.lanes))
    close = b.cmp("ult", b.mul(group, b.i64(_WIDE * size)), b.i64(_CLOSE_BYTES))
    next_columns = b.offset(columns, b.mul(group, b.i64(_WIDE)), size)
    read, keep, data = (b.const(v, I32) for v in (0, 3, 1))
    b.module.declare("llvm.prefetch.p0", "void", [PTR, I32, I32, I32])

    def prefetch(place, p):
        with b.when(close):
            line = b.offset(next_columns, p, _WIDE * t.lanes * size)
            for i in range(t.lanes):
                b.call("void", "llvm.prefetch.p0", [b.offset(line, i, LINE_BYTES), read, keep, data])
        with b.when(b.not_(close)):
            turn = b.and_(b.ashr(p, b.i64((QUAD_BYTES // size).bit_length() - 1)), b.i64(_WIDE - 1))
            there = b.freeze(b.offset(b.offset(place, b.mul(turn, group), size), _AHEAD_BYTES, 1))
            for step in steps:
                b.call("void", "llvm.prefetch.p0", [b.offset(there, step, size), read, keep, data])

    return prefetch
