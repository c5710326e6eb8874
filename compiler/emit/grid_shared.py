"""Products over grids that share a panel (compiler/grids.py: Products.panel): the taps of a weight's gradient.

Every tap sums over the positions that it sees, which are most of them, so what is packed for one serves all:

    for every unit, a panel of columns by a chunk of rows:
        for p0 in range(0, depth, 1024):       a stretch of all terms
            pack                               those terms of the columns, whoever needs them
            for each tap:                      tiles of rows, over its terms in the stretch
        write                                  rows by taps at once, which are neighbours in the result

Results lie tap by tap for each row until then. Written tap by tap, elements of a result of 512 x 512 x 3 x 3 lay nine
apart, and took as long as the sums of a batch of 16 images of 2 x 2.
"""

from ..grids import BLOCK_DEPTH, GROUP, HEAD
from ..target import PANEL_BYTES
from .builder import I32, I64, PTR, Builder, Type
from .grid_tiles import call_strips, emit_strip_functions, grid_of, index, word

# Positions of what the head tells of the scratch memory, as in grid_product.py.
_PANEL, _RESULTS, _ROWS_A, _ROWS_OUT, _TERMS_A, _TERMS_B, _COLUMNS_B, _COLUMNS_OUT, _READS, _WRITES, _PLACES = range(
    2, HEAD
)
_SEARCH = 31  # halvings that find any offset of 32 bits


def emit_shared(module, stem, element, tools):
    """Define `void @STEM_shared(a, b, out, words, first, count, scratch)`: units of Products that share a panel."""
    strips = emit_strip_functions(module, f"{stem}_shared", element, chosen=True)
    find = _emit_find(module, f"{stem}_shared_find")
    parameters = [("a", PTR), ("b", PTR), ("out", PTR), ("words", PTR), ("first", I64), ("n", I64), ("scratch", PTR)]
    b = Builder(module, f"{stem}_shared", parameters, linkage="internal")
    a, source, out, words, first, n, scratch = b.arguments
    areas = [b.offset(scratch, word(b, words, k), 1) if k >= 2 else None for k in range(HEAD)]
    size, width = Type(element).element_bytes, PANEL_BYTES // Type(element).element_bytes
    n_taps = b.sub(word(b, words, 0), b.i64(1))
    whole = b.offset(words, b.i64(HEAD), 8)
    n_rows, n_columns, n_depth, chunk = (word(b, whole, k) for k in range(4))
    _expand(b, tools["expand"], words, whole, n_taps, areas)
    n_chunks = b.div(b.add(n_rows, b.sub(chunk, b.i64(1))), chunk)
    with b.loop(first, b.add(first, n), 1) as unit:
        i, j = b.mul(b.rem(unit, n_chunks), chunk), b.mul(b.div(unit, n_chunks), b.i64(width))
        rows = b.intrinsic("smin", b.sub(n_rows, i), chunk)
        columns = b.intrinsic("smin", b.sub(n_columns, j), b.i64(width))
        tables = [areas[_COLUMNS_B], areas[_COLUMNS_OUT]]
        b.call("void", tools["columns"], [grid_of(b, whole, 1), j, columns, *tables])
        n_reads = b.call(I64, tools["runs"], [tables[0], columns, areas[_READS], b.i64(1)])
        n_writes = b.call(I64, tools["runs"], [tables[1], columns, areas[_WRITES], b.i64(1)])
        with b.loop(0, b.intrinsic("smax", n_depth, b.i64(1)), BLOCK_DEPTH) as p:
            depth, goes_on = b.intrinsic("smin", b.sub(n_depth, p), b.i64(BLOCK_DEPTH)), b.cmp("lt", b.i64(0), p)
            with b.when(b.and_(b.cmp("lt", columns, b.i64(width)), b.not_(goes_on))):
                tools["blank"](b, element, areas[_PANEL], depth)
            terms = b.offset(areas[_TERMS_B], p, 4)
            operands = [source, areas[_PANEL], areas[_READS], n_reads, tables[0], terms, depth, columns, b.i64(1)]
            b.call("void", tools["pack"], operands)
            # Of a tap's terms, those whose row of the panel is in this stretch.
            stop = b.add(p, depth)
            with b.loop(0, n_taps, 1, [b.i64(0)]) as (tap, state):
                (at,) = state.values
                record = b.offset(whole, b.mul(b.add(tap, b.i64(1)), b.i64(GROUP)), 8)
                count, places = word(b, record, 2), b.offset(areas[_PLACES], at, 4)
                low, high = (b.call(I64, find, [places, count, x, n_depth]) for x in (p, stop))
                begin = b.add(at, low)
                its = [
                    b.offset(a, word(b, grid_of(b, record, 0), 0), size),
                    b.offset(areas[_ROWS_A], i, 4),
                    b.offset(areas[_TERMS_A], begin, 4),
                    b.offset(areas[_PANEL], b.sub(b.i64(0), p), PANEL_BYTES),
                    b.offset(areas[_RESULTS], tap, PANEL_BYTES),
                ]
                chosen = b.offset(areas[_PLACES], begin, 4), b.mul(n_taps, b.i64(PANEL_BYTES))
                call_strips(b, strips, element, its, [rows, columns, b.sub(high, low), goes_on], chosen)
                state.next([b.add(at, count)])
        rows_out = b.offset(areas[_ROWS_OUT], b.mul(i, n_taps), 4)
        results = [areas[_RESULTS], out, areas[_WRITES], n_writes, tables[1], rows_out, b.mul(rows, n_taps)]
        b.call("void", tools["write"], [*results, columns, b.i64(1)])
    b.finish()
    return b.name


def _expand(b, expand, words, whole, n_taps, areas):
    """The tables: of rows, of all terms, and of every tap's terms: where they are in a, and which row of the panel."""
    b.call("void", expand, [grid_of(b, whole, 0), areas[_ROWS_A], areas[_ROWS_OUT]])
    n_rows = word(b, whole, 0)
    # The last row stands twice, because the lowest tile has two.
    last = b.load(b.offset(areas[_ROWS_A], b.sub(n_rows, b.i64(1)), 4), I32)
    b.store(last, b.offset(areas[_ROWS_A], n_rows, 4))
    with b.loop(0, b.mul(n_rows, n_taps), 1) as k:
        b.store(b.convert(k, "i32"), b.offset(areas[_ROWS_OUT], k, 4))
    b.call("void", expand, [grid_of(b, whole, 2), areas[_TERMS_A], areas[_TERMS_B]])
    with b.loop(0, n_taps, 1, [b.i64(0)]) as (tap, state):
        (at,) = state.values
        record = b.offset(whole, b.mul(b.add(tap, b.i64(1)), b.i64(GROUP)), 8)
        tables = [b.offset(areas[k], at, 4) for k in (_TERMS_A, _PLACES)]
        b.call("void", expand, [grid_of(b, record, 2), *tables])
        state.next([b.add(at, word(b, record, 2))])


def _emit_find(module, name):
    """A function: how many of a table's n rising numbers are below a limit. At the ends it is known."""
    parameters = [("table", PTR), ("n", I64), ("limit", I64), ("all", I64)]
    b = Builder(module, name, parameters, result=I64, linkage="internal")
    table, n, limit, everything = b.arguments
    is_end = b.cmp("le", everything, limit)
    is_known = b.or_(is_end, b.cmp("le", limit, b.i64(0)))
    turns = b.select(is_known, b.i64(0), b.i64(_SEARCH))
    with b.loop(0, turns, 1, [b.select(is_end, n, b.i64(0)), b.i64(1 << (_SEARCH - 1))]) as (_, state):
        found, step = state.values
        there = b.add(found, step)
        # Where the table has ended, what is looked at does not matter.
        last = b.intrinsic("smax", b.sub(b.intrinsic("smin", there, n), b.i64(1)), b.i64(0))
        is_below = b.and_(b.cmp("le", there, n), b.cmp("lt", index(b, table, last), limit))
        state.next([b.select(is_below, there, found), b.div(step, b.i64(2))])
    b.finish(state.results[0])
    return name
