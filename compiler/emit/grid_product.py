"""Products over grids (compiler/grids.py): convolutions whose windows are read while a panel is packed.

For every unit, a panel of columns by a chunk of rows:

    for p0 in range(0, depth, 1024):       a stretch of the sum
        pack                               the columns' elements, from where they lie, run by run of adjacent ones
        for height in 8, 4, 2:             tiles of rows by two vectors of columns: accumulators in registers
            for p in p0 ...                the micro-kernel: `height` broadcasts from where the rows lie
    write                                  the results to where they belong, run by run

Where few rows would read it there is no panel (grid_in_place.py); where several groups read much of one they share it
(grid_shared.py). Tiles are in grid_tiles.py.
Offsets of rows, columns and terms are written to tables first, so the inner loops know nothing of dimensions. Those of
rows and terms are kept from unit to unit of a group.
"""

from ..grids import BLOCK_DEPTH, DIMENSIONS, GROUP, HEAD, SHARED
from ..target import PANEL_BYTES
from .builder import I32, I64, PTR, Builder, Type
from .gemm_pack import load_transposed, pack_lanes
from .grid_in_place import call_strips_in_place, emit_pieces, emit_strips
from .grid_shared import emit_shared
from .grid_tiles import call_strips, emit_strip_functions, grid_of, index, word
from .tails import store_some

# Columns of a block that is transposed; fewer are copied one by one.
_LEAST_TURNED = 3
_GRID_PARAMETERS = [("grid", PTR), ("first", PTR), ("second", PTR)]
# Positions of what the head tells of the scratch memory.
_PANEL, _RESULTS, _ROWS_A, _ROWS_OUT, _TERMS_A, _TERMS_B, _COLUMNS_B, _COLUMNS_OUT, _READS, _WRITES = range(2, HEAD - 1)


def emit_grid_product(module, element):
    """Define `void @weft_grid_<element>(a, b, out, words, first, count, scratch)`: units first .. first + count - 1."""
    stem = f"weft_grid_{element}"
    tools = {
        "expand": _emit_expand(module, f"{stem}_expand"),
        "columns": _emit_columns(module, f"{stem}_columns"),
        "runs": _emit_runs(module, f"{stem}_runs"),
        "pack": _emit_move(module, f"{stem}_pack", element, packs=True),
        "write": _emit_move(module, f"{stem}_write", element, packs=False),
    }
    tools["pieces"] = emit_pieces(module, f"{stem}_pieces", element, tools["columns"])
    strips = emit_strip_functions(module, stem, element)
    strips_in_place = emit_strips(module, stem, element)
    shared = emit_shared(module, stem, element, tools | {"blank": _blank})
    parameters = [("a", PTR), ("b", PTR), ("out", PTR), ("words", PTR), ("first", I64), ("n", I64), ("scratch", PTR)]
    b = Builder(module, stem, parameters)
    words, first, n, scratch = b.arguments[3:]
    areas = [b.offset(scratch, word(b, words, k), 1) if k >= 2 else None for k in range(HEAD)]
    is_shared = b.cmp("eq", word(b, words, 1), b.i64(SHARED))
    with b.when(is_shared):
        b.call("void", shared, b.arguments)
    n = b.select(is_shared, b.i64(0), n)
    with b.loop(first, b.add(first, n), 1, [b.i64(-1)]) as (unit, state):
        group, own = _find(b, words, unit)
        record = b.offset(words, b.add(b.mul(group, b.i64(GROUP)), b.i64(HEAD)), 8)
        with b.when(b.cmp("ne", group, state.values[0])):
            _expand_group(b, tools["expand"], record, areas)
        is_in_place = b.cmp("ne", word(b, record, 5), b.i64(0))
        with b.when(is_in_place):
            _emit_unit_in_place(b, element, tools, strips_in_place, record, own, areas)
        with b.when(b.not_(is_in_place)):
            _emit_unit(b, element, tools, strips, record, own, areas)
        state.next([group])
    b.finish()


def _find(b, words, unit):
    """(the group of a unit, its number there)."""
    n_groups = word(b, words, 0)
    with b.loop(0, n_groups, 1, [b.i64(0), b.i64(0), unit]) as (k, state):
        start, group, own = state.values
        end = b.add(start, word(b, b.offset(words, b.add(b.mul(k, b.i64(GROUP)), b.i64(HEAD)), 8), 4))
        is_past = b.cmp("le", start, unit)
        state.next([end, b.select(is_past, k, group), b.select(is_past, b.sub(unit, start), own)])
    _, group, own = state.results
    together = b.cmp("ne", word(b, words, 1), b.i64(0))
    return b.select(together, b.rem(unit, n_groups), group), b.select(together, b.div(unit, n_groups), own)


def _expand_group(b, expand, record, areas):
    """The tables of rows and terms; the last row stands twice, because the lowest tile has two."""
    b.call("void", expand, [grid_of(b, record, 0), areas[_ROWS_A], areas[_ROWS_OUT]])
    b.call("void", expand, [grid_of(b, record, 2), areas[_TERMS_A], areas[_TERMS_B]])
    n = word(b, record, 0)
    for k in (_ROWS_A, _ROWS_OUT):
        last = b.load(b.offset(areas[k], b.sub(n, b.i64(1)), 4), I32)
        b.store(last, b.offset(areas[k], n, 4))


def _place(b, record, own, areas):
    """(number of the unit's panel, how many rows it has, their offsets in a and in the result)."""
    n_rows, chunk = word(b, record, 0), word(b, record, 3)
    n_chunks = b.div(b.add(n_rows, b.sub(chunk, b.i64(1))), chunk)
    i = b.mul(b.rem(own, n_chunks), chunk)
    tables = [b.offset(areas[k], i, 4) for k in (_ROWS_A, _ROWS_OUT)]
    return b.div(own, n_chunks), b.intrinsic("smin", b.sub(n_rows, i), chunk), *tables


def _emit_unit_in_place(b, element, tools, strips, record, own, areas):
    a, source, out = b.arguments[:3]
    n_columns, n_depth, per_row = (word(b, record, k) for k in (1, 2, 5))
    panel, rows, rows_a, rows_out = _place(b, record, own, areas)
    of_b, of_out, runs, results = (areas[k] for k in (_COLUMNS_B, _COLUMNS_OUT, _WRITES, _RESULTS))
    b.call("void", tools["pieces"], [grid_of(b, record, 1), panel, n_columns, per_row, of_b, of_out, runs])
    terms = [areas[_TERMS_A], areas[_TERMS_B]]
    call_strips_in_place(b, strips, element, [a, source, rows_a, *terms, of_b, runs, results, rows, n_depth])
    n_runs = b.i64(PANEL_BYTES // b.module.target.vector_bytes)
    # More columns than runs: those that are neighbours are moved together.
    moved = [results, out, runs, n_runs, of_out, rows_out, rows, b.i64(PANEL_BYTES), b.i64(1)]
    b.call("void", tools["write"], moved)


def _emit_unit(b, element, tools, strips, record, own, areas):
    a, source, out = b.arguments[:3]
    size, width = Type(element).element_bytes, PANEL_BYTES // Type(element).element_bytes
    n_columns, n_depth = word(b, record, 1), word(b, record, 2)
    number, rows, rows_a, rows_out = _place(b, record, own, areas)
    j = b.mul(number, b.i64(width))
    columns = b.intrinsic("smin", b.sub(n_columns, j), b.i64(width))
    tables = [areas[_COLUMNS_B], areas[_COLUMNS_OUT]]
    b.call("void", tools["columns"], [grid_of(b, record, 1), j, columns, *tables])
    by_two = b.cmp("eq", b.sub(index(b, tables[0], 1), index(b, tables[0], 0)), b.i64(2))
    step = b.select(b.and_(by_two, b.cmp("lt", b.i64(1), columns)), b.i64(2), b.i64(1))
    n_reads = b.call(I64, tools["runs"], [tables[0], columns, areas[_READS], step])
    n_writes = b.call(I64, tools["runs"], [tables[1], columns, areas[_WRITES], b.i64(1)])
    panel, results = areas[_PANEL], areas[_RESULTS]
    # At least once, so that a sum of nothing stores zeros.
    with b.loop(0, b.intrinsic("smax", n_depth, b.i64(1)), BLOCK_DEPTH) as p:
        depth, goes_on = b.intrinsic("smin", b.sub(n_depth, p), b.i64(BLOCK_DEPTH)), b.cmp("lt", b.i64(0), p)
        # Once: what is packed leaves the other columns as they are, and no later stretch is longer than the first.
        with b.when(b.and_(b.cmp("lt", columns, b.i64(width)), b.not_(goes_on))):
            _blank(b, element, panel, depth)
        terms_a, terms_b = b.offset(areas[_TERMS_A], p, 4), b.offset(areas[_TERMS_B], p, 4)
        b.call("void", tools["pack"], [source, panel, areas[_READS], n_reads, tables[0], terms_b, depth, columns, step])
        operands = [a, rows_a, terms_a, panel, results]
        call_strips(b, strips, element, operands, [rows, columns, depth, goes_on])
    moved = [results, out, areas[_WRITES], n_writes, tables[1], rows_out, rows, columns, b.i64(1)]
    b.call("void", tools["write"], moved)
    assert size * width == PANEL_BYTES


def _blank(b, element, panel, rows):
    """Zeros in a panel that is not filled: what the memory held before might be subnormal, which is slow."""
    t = Type(element, 32 // Type(element).element_bytes)
    with b.loop(0, b.mul(rows, b.i64(PANEL_BYTES // 32)), 1) as k:
        b.store(b.const(0, t), b.offset(panel, k, 32))


# --- tables -----------------------------------------------------------------------------------------------------------
def _emit_expand(module, name):
    """A function that writes both offsets of all numbers of a grid to tables of i32."""
    b = Builder(module, name, _GRID_PARAMETERS, linkage="internal")
    grid, first, second = b.arguments
    dimensions = [[word(b, grid, 2 + 3 * d + k) for k in range(3)] for d in range(DIMENSIONS)]

    def walk(d, x, y, at):
        """Writes what belongs to dimension d and those inside it; where the next entry is."""
        extent, by_x, by_y = dimensions[d]
        with b.loop(0, extent, 1, [x, y, at]) as (_, state):
            x, y, at = state.values
            if d + 1 < DIMENSIONS:
                following = walk(d + 1, x, y, at)
            else:
                for table, value in ((first, x), (second, y)):
                    b.store(b.convert(value, "i32"), b.offset(table, at, 4))
                following = b.add(at, b.i64(1))
            state.next([b.add(x, by_x), b.add(y, by_y), following])
        return state.results[2]

    walk(0, word(b, grid, 0), word(b, grid, 1), b.i64(0))
    b.finish()
    return name


def _emit_columns(module, name):
    """A function that writes both offsets of `count` numbers of a grid from `start` on."""
    parameters = [("grid", PTR), ("start", I64), ("n", I64), ("x", PTR), ("y", PTR)]
    b = Builder(module, name, parameters, linkage="internal")
    grid, start, n, first, second = b.arguments
    dimensions = [[word(b, grid, 2 + 3 * d + k) for k in range(3)] for d in range(DIMENSIONS)]
    begin, rest = [], start
    for extent, _, _ in reversed(dimensions[1:]):
        begin.append(b.rem(rest, extent))
        rest = b.div(rest, extent)
    with b.loop(0, n, 1, [rest, *reversed(begin)]) as (k, state):
        for which, table in ((0, first), (1, second)):
            value = word(b, grid, which)
            for own, strides in zip(state.values, dimensions):
                value = b.add(value, b.mul(own, strides[1 + which]))
            b.store(b.convert(value, "i32"), b.offset(table, k, 4))
        state.next(_following(b, state.values, [extent for extent, _, _ in dimensions]))
    b.finish()
    return name


def _following(b, indices, extents):
    """The next indices in row-major order."""
    result, carry = [], b.i64(1)
    for own, extent in reversed(list(zip(indices[1:], extents[1:]))):
        own = b.add(own, carry)
        wraps = b.cmp("eq", own, extent)
        result.append(b.select(wraps, b.i64(0), own))
        carry = b.convert(wraps, "i64")
    return [b.add(indices[0], carry), *reversed(result)]


def _emit_runs(module, name):
    """A function that finds runs of offsets a step apart, of a vector each at most: where they begin, their lengths."""
    parameters = [("table", PTR), ("n", I64), ("runs", PTR), ("step", I64)]
    b = Builder(module, name, parameters, result=I64, linkage="internal")
    table, n, runs, distance = b.arguments
    longest = module.target.vector_bytes // (8 if name.endswith("f64_runs") else 4)
    with b.loop(0, n, 1, [b.i64(0), b.i64(0), b.i64(-9)]) as (k, state):
        count, start, before = state.values
        here = index(b, table, k)
        is_new = b.or_(b.cmp("ne", here, b.add(before, distance)), b.cmp("eq", b.sub(k, start), b.i64(longest)))
        is_new = b.or_(is_new, b.cmp("eq", k, b.i64(0)))
        count, start = b.add(count, b.convert(is_new, "i64")), b.select(is_new, k, start)
        run = b.offset(runs, b.sub(count, b.i64(1)), 8)
        b.store(b.convert(start, "i32"), run)
        b.store(b.convert(b.sub(b.add(k, b.i64(1)), start), "i32"), b.offset(run, 1, 4))
        state.next([count, start, here])
    b.finish(state.results[0])
    return name


# --- from memory to a panel and back ----------------------------------------------------------------------------------
_MOVE = [
    ("source", PTR), ("target", PTR), ("runs", PTR), ("n_runs", I64), ("columns", PTR), ("offsets", PTR), ("n", I64),
    ("n_columns", I64), ("step", I64),
]  # fmt: skip


def _emit_move(module, name, element, packs):
    """A function that copies runs of columns: from memory to the rows of a panel, or from there to memory.

    Where no two columns are neighbours, rows may be: then square blocks are transposed in registers. A panel has room
    for a last block with fewer columns, of which the last is then there again: with its six columns copied one by one,
    the gradient of LeNet's first weight took half as long again (Zen 5: 522 us, and 343 so).
    """
    b = Builder(module, name, _MOVE, linkage="internal")
    source, target, runs, n_runs, columns, offsets, n, n_columns, step = b.arguments
    t = Type(element, module.target.vector_bytes // Type(element).element_bytes)
    size = t.element_bytes
    is_scattered = b.cmp("eq", n_runs, n_columns)
    side = b.i64(pack_lanes(element))
    room = b.add(n_columns, b.i64(pack_lanes(element) - _LEAST_TURNED if packs else 0))
    turned = b.select(is_scattered, b.mul(b.div(room, side), side), b.i64(0))
    with b.loop(0, turned, pack_lanes(element)) as column:
        _turn(b, element, packs, column)
    with b.loop(turned, n_runs, 1) as run:
        start, length = (index(b, b.offset(runs, run, 8), k) for k in range(2))
        far, near = b.mul(index(b, columns, start), b.i64(size)), b.mul(start, b.i64(size))
        memory = b.offset(source if packs else target, far, 1)
        panel = b.offset(target if packs else source, near, 1)
        is_single, is_near = b.cmp("eq", length, b.i64(1)), b.cmp("eq", step, b.i64(1))
        is_whole = b.and_(is_near, b.cmp("eq", length, b.i64(t.lanes)))
        is_part = b.not_(b.or_(is_single, is_whole))
        ways = [(is_single, 0, Type(element)), (is_whole, 0, t), (b.and_(is_part, is_near), 1, t)]
        if packs:
            ways.append((b.and_(is_part, b.not_(is_near)), 2, t))
        for is_wanted, apart, type in ways:
            with b.when(is_wanted):
                _move_run(b, packs, apart, type, memory, panel, length)
    b.finish()
    return name


def _move_run(b, packs, apart, t, memory, panel, length):
    """All rows of one run, whose elements are `apart` in memory (0: there is one, or a whole vector)."""
    offsets, n = b.arguments[5:7]
    mask = b.lane_mask(0, length, t.lanes) if apart else None
    if apart == 2:
        # Both vectors, without what follows the last element.
        reach = b.sub(b.add(length, length), b.i64(1))
        halves = [(k, b.lane_mask(k, reach, t.lanes)) for k in (0, t.lanes)]
    with b.loop(0, n, 1) as k:
        there, row = b.offset(memory, index(b, offsets, k), t.element_bytes), b.offset(panel, k, PANEL_BYTES)
        if apart == 2:
            parts = [b.load(b.offset(there, at, t.element_bytes), t, its) for at, its in halves]
            moved = b.shuffle(*parts, range(0, 2 * t.lanes, 2))
        else:
            moved = b.load(there if packs else row, t, mask)
        place = row if packs else there
        if apart == 1 and b.module.target.stores_masked_slowly:
            store_some(b, [moved], [place], length)
        else:
            b.store(moved, place, mask)


def _turn(b, element, packs, column):
    """As many columns from this one on as a square block has, all rows: block by block, transposed where its rows are
    neighbours in memory."""
    source, target, _, _, columns, offsets, n, n_columns = b.arguments[:8]
    side, t = pack_lanes(element), Type(element, pack_lanes(element))
    size = t.element_bytes
    memory, panel = (source, target) if packs else (target, source)
    last = b.sub(n_columns, b.i64(1))
    picks = [b.intrinsic("smin", b.add(column, b.i64(c)), last) for c in range(side)]
    lines = [b.offset(memory, index(b, columns, pick), size) for pick in picks]
    panel = b.offset(panel, column, size)
    whole = b.mul(b.div(n, b.i64(side)), b.i64(side))

    def single(k, line, c):
        there, row = b.offset(line, index(b, offsets, k), size), b.offset(b.offset(panel, k, PANEL_BYTES), c, size)
        here, where = (there, row) if packs else (row, there)
        b.store(b.load(here, Type(element)), where)

    with b.loop(0, whole, side) as k:
        distances = b.load(b.offset(offsets, k, 4), Type("i32", side))
        first = b.splat(b.load(b.offset(offsets, k, 4), I32), side)
        is_apart = b.any_lane(b.cmp("ne", b.sub(distances, first), b.iota(Type("i32", side))))
        rows = [b.offset(b.offset(panel, k, PANEL_BYTES), r, PANEL_BYTES) for r in range(side)]
        with b.when(b.not_(is_apart)):
            at = index(b, offsets, k)
            places = [b.offset(line, at, size) for line in lines]
            here, where = (places, rows) if packs else (rows, places)
            for vector, place in zip(load_transposed(b, t, here), where):
                b.store(vector, place)
        with b.when(is_apart), b.loop(k, b.add(k, b.i64(side)), 1) as one:
            for c, line in enumerate(lines):
                single(one, line, c)
    with b.loop(whole, n, 1) as one:
        for c, line in enumerate(lines):
            single(one, line, c)
