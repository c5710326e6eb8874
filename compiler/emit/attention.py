"""Attention without a matrix of all scores: some rows of the query at a time, all keys that they see.

    forward    for every block of rows:   S = q K^T;   P = exp(S - its rows' largest);   out = (P v) / its rows' sums
    gradient   for every block of rows:   S and P once more;   dP = g V^T;   dS = P (dP - rowsum(g out))
                                          dV += P^T g;   dQ = dS K;   dK += dS^T q

A block of scores stays in a level-2 cache: so many rows that they are SCORES, between the LEAST_ROWS that products
need and the MOST_ROWS that are worth it. The weights are computed again from q and k for the gradient, which needs of
the forward its result alone.

The order of all sums is defined, so bits are the same for any number of threads, any blocks, and any target. Products
are chains in the order of what is summed (gemm.py); those over rows of the query go on from block to block of a chunk
(attention_blocks.py), and who calls the routine adds the sums of chunks. The sum of a row's weights has 32 lanes,
closes a block every 2048 keys, and is halved at the end.

    q (n, T, E), k (n, S, E), v (n, S, V), mask (m, T or 1, S) of numbers to add -> (n, T, V)

Matrix i of the n sees matrix (i / repeat) % m of the mask. A row that sees nothing gets 0.
"""

from math import inf

from ..attention_blocks import block_rows
from ..extent import is_open
from ..target import AVX2, AVX512
from ..vmath.exponential import EXP_NORMAL, exp_of_reduced, reduce_by_log2
from ..vmath.pieces import times_pow2
from .builder import I64, PTR, Builder, Type
from .gemm import emit_products, panel_bytes
from .gemm_tiles import Tiling, call_strips, emit_tiles
from .reduce import BLOCK_ELEMENTS, VIRTUAL_LANES, combine_lanes

_LANES = VIRTUAL_LANES


# --- sizes, as the compiler knows them (numbers or extents) -----------------------------------------------------------
def forward_scratch(element, q, k, v):
    """Bytes of scratch memory for operands of these shapes."""
    size, rows = Type(element).element_bytes, block_rows(q[-2], k[-2])
    packed, block = _packed(k[-2]) * q[-1], rows * _stride(k[-2], size)
    return _products_scratch(element, k[-2], rows) + (packed + block + rows) * size + 3 * 64


def gradient_scratch(element, q, k, v):
    size, rows = Type(element).element_bytes, block_rows(q[-2], k[-2])
    packed, blocks = _packed(k[-2]) * (q[-1] + v[-1]), 2 * rows * _stride(k[-2], size)
    return _products_scratch(element, k[-2], rows) + (packed + blocks + rows) * size + 5 * 64


def _packed(n_keys):
    """Keys in whole panels."""
    return -(-n_keys // _LANES) * _LANES


def _stride(n_keys, size):
    """Elements from row to row of a block of scores: a cache line more than they are, or rows of 2^n bytes would lie in
    few sets of a cache."""
    return _packed(n_keys) + 64 // size


def _products_scratch(element, *depths):
    # The routine is the runtime's: it may have wider vectors than the program.
    deepest = depths[0] if is_open(depths[0]) else max(depths)
    return max(panel_bytes(element, deepest, target) for target in (AVX2, AVX512)) + 64


# --- routines ---------------------------------------------------------------------------------------------------------
_SHAPE = [("rows", I64), ("keys", I64), ("width", I64), ("value_width", I64), ("causal", I64), ("block", I64)]
_MASK = [("mask_row", I64), ("mask_repeat", I64), ("mask_count", I64)]


def emit_attention(masked):
    """A function that defines `void @weft_attention[_masked]_ELEMENT(q, k, v[, mask], out, first, count, rows, keys,
    width, value_width, causal, block, chunk[, mask_row, mask_repeat, mask_count], scratch)`: the units first ... of
    `chunk` rows of a matrix. `mask_row`: elements from row to row of the mask, 0 where it has one row."""

    def emit(module, element):
        name = f"weft_attention{'_masked' * masked}_{element}"
        products = _Products(module, element, name)
        operands = [(o, PTR) for o in ("q", "k", "v", *["mask"][:masked], "out")]
        parameters = [*operands, ("first", I64), ("count", I64), *_SHAPE, ("chunk", I64), *_MASK[: 3 * masked]]
        b = Builder(module, name, [*parameters, ("scratch", PTR)])
        _forward(_Block(b, products, element))
        b.finish()

    return emit


def emit_gradient(masked):
    """A function that defines `void @weft_attention_gradient[_masked]_ELEMENT(g, out, q, k, v[, mask], result, first,
    count, rows, keys, width, value_width, causal, block, parts, matrices, chunks[, mask_row, mask_repeat,
    mask_count], scratch)`: those of the cotangents of q, k and v that the bits of `parts` name, all matrices of one
    after all of the other. A matrix is `chunks` units, of as many rows of the query each; a unit has sums of its own
    over its rows, so that there are (matrices, chunks) cotangents of k and of v."""

    def emit(module, element):
        name = f"weft_attention_gradient{'_masked' * masked}_{element}"
        products = _Products(module, element, name)
        operands = [(o, PTR) for o in ("g", "out", "q", "k", "v", *["mask"][:masked], "result")]
        parameters = [*operands, ("first", I64), ("count", I64), *_SHAPE]
        parameters += [("parts", I64), ("matrices", I64), ("chunks", I64), *_MASK[: 3 * masked], ("scratch", PTR)]
        b = Builder(module, name, parameters)
        _gradient(_Block(b, products, element))
        b.finish()

    return emit


class _Products:
    """The products of a module: of matrices, the same with sums that go on from what is there, and of panels."""

    def __init__(self, module, element, stem):
        self.tiling = Tiling(element, module.target)
        self.tiles = emit_tiles(module, self.tiling, stem)
        self.new = emit_products(module, self.tiles, f"{stem}_product")
        self.onto = emit_products(module, self.tiles, f"{stem}_product_onto", onto=True)
        self.panel = self.tiling.panels[0]


# --- forward ----------------------------------------------------------------------------------------------------------
def _forward(at):
    b, chunk = at.b, at.chunk
    chunks = b.div(b.add(at.rows, b.sub(chunk, b.i64(1))), chunk)
    keys, scores, sums = at.scratch_for(at.packed(at.width), at.block_elements, at.block)
    with b.loop(at.first, b.add(at.first, at.count), 1) as unit:
        matrix, piece = b.div(unit, chunks), b.rem(unit, chunks)
        k, v = at.matrix(at.k, matrix, at.keys, at.width), at.matrix(at.v, matrix, at.keys, at.value_width)
        is_new = b.or_(b.cmp("eq", unit, at.first), b.cmp("eq", piece, b.i64(0)))
        with b.when(is_new):
            at.pack(k, at.width, keys)
        start = b.mul(piece, chunk)
        stop = b.intrinsic("smin", b.add(start, chunk), at.rows)
        with b.loop(start, stop, at.block) as row:
            n_rows = b.intrinsic("smin", at.block, b.sub(stop, row))
            here = at.rows_at(matrix, row)
            seen = at.seen(row, n_rows)
            at.times_packed(at.row(at.q, here, at.width), at.width, keys, scores, n_rows, seen)
            at.weights(scores, sums, matrix, row, n_rows, seen)
            out = at.row(at.out, here, at.value_width)
            at.product(at.new, (scores, at.stride, 1), (v, at.value_width), (out, at.value_width), n_rows, seen)
            with b.loop(0, n_rows, 1) as r:
                at.scale(at.row(out, r, at.value_width), at.number(sums, r))


# --- gradient ---------------------------------------------------------------------------------------------------------
def _gradient(at):
    b = at.b
    wanted = [b.cmp("ne", b.and_(at.parts, b.i64(bit)), b.i64(0)) for bit in (1, 2, 4)]
    of_q, of_k, of_v = wanted
    needs_scores = b.or_(of_q, of_k)
    keys, values, scores, slopes, sums = at.scratch_for(
        at.packed(at.width), at.packed(at.value_width), at.block_elements, at.block_elements, at.block
    )
    sizes = b.mul(at.rows, at.width), b.mul(at.keys, at.width), b.mul(at.keys, at.value_width)
    after_q = b.select(of_q, b.mul(at.matrices, sizes[0]), b.i64(0))
    after_k = b.add(after_q, b.select(of_k, b.mul(b.mul(at.matrices, at.chunks), sizes[1]), b.i64(0)))
    starts = [b.offset(at.result, n, at.size) for n in (b.i64(0), after_q, after_k)]
    length = b.div(b.add(at.rows, b.sub(at.chunks, b.i64(1))), at.chunks)
    with b.loop(at.first, b.add(at.first, at.count), 1) as unit:
        matrix, first_row = b.div(unit, at.chunks), b.mul(b.rem(unit, at.chunks), length)
        last_row = b.intrinsic("smin", b.add(first_row, length), at.rows)
        k, v = at.matrix(at.k, matrix, at.keys, at.width), at.matrix(at.v, matrix, at.keys, at.value_width)
        places = zip(starts, (matrix, unit, unit), sizes)
        dq, dk, dv = [b.offset(start, b.mul(number, n), at.size) for start, number, n in places]
        at.pack(k, at.width, keys)
        with b.when(needs_scores):
            at.pack(v, at.value_width, values)
        for is_wanted, place, n in ((of_k, dk, sizes[1]), (of_v, dv, sizes[2])):
            with b.when(is_wanted):
                at.clear(place, n)
        with b.loop(first_row, last_row, at.block) as row:
            n_rows = b.intrinsic("smin", at.block, b.sub(last_row, row))
            here, seen = at.rows_at(matrix, row), at.seen(row, n_rows)
            q, g = at.row(at.q, here, at.width), at.row(at.g, here, at.value_width)
            at.times_packed(q, at.width, keys, scores, n_rows, seen)
            at.weights(scores, sums, matrix, row, n_rows, seen)
            with b.when(needs_scores):
                at.times_packed(g, at.value_width, values, slopes, n_rows, seen)
            with b.loop(0, n_rows, 1) as r:
                at.slope(g, at.row(at.out, here, at.value_width), scores, slopes, sums, r, seen, needs_scores)
            with b.when(of_v):
                at.product(at.onto, (scores, 1, at.stride), (g, at.value_width), (dv, at.value_width), seen, n_rows)
            with b.when(of_q):
                target = at.row(dq, row, at.width), at.width
                at.product(at.new, (slopes, at.stride, 1), (k, at.width), target, n_rows, seen)
            with b.when(of_k):
                at.product(at.onto, (slopes, 1, at.stride), (q, at.width), (dk, at.width), seen, n_rows)


# --- a block of rows --------------------------------------------------------------------------------------------------
class _Block:
    """What forward and gradient do with a block of rows. Its attributes are the function's parameters, beside:
    `stride`: elements from row to row of a block of scores."""

    def __init__(self, b, products, element):
        self.b, self.products, self.element = b, products, Type(element)
        self.size, self.vector = self.element.element_bytes, Type(element, 64 // self.element.element_bytes)
        for register in b.arguments:
            setattr(self, register.name[1:], register)
        self.panels = b.div(b.add(self.keys, b.i64(_LANES - 1)), b.i64(_LANES))
        self.all_keys = b.mul(self.panels, b.i64(_LANES))
        self.stride = b.add(self.all_keys, b.i64(64 // self.size))
        self.block_elements = b.mul(self.block, self.stride)
        self.new, self.onto = products.new, products.onto

    # --- where things are ---------------------------------------------------------------------------------------------
    def scratch_for(self, *elements):
        """Places for so many elements each, after the scratch memory of products; from cache lines on."""
        b, found = self.b, []
        deepest = b.intrinsic("smax", self.keys, self.block)
        deepest = b.intrinsic("smin", deepest, b.i64(self.products.tiling.block_k))
        rows = b.and_(b.add(deepest, b.i64(7)), b.i64(-8))
        self.scratch = self.aligned(self.scratch)
        place = b.offset(self.scratch, b.mul(rows, b.i64(self.products.panel)), self.size)
        for n in elements:
            found.append(self.aligned(place))
            place = b.offset(found[-1], n, self.size)
        return found

    def aligned(self, place):
        b = self.b
        address = b.emit(I64, f"ptrtoint {place} to i64")
        return b.offset(place, b.and_(b.sub(b.i64(0), address), b.i64(63)), 1)

    def packed(self, width):
        return self.b.mul(self.all_keys, width)

    def matrix(self, base, matrix, rows, width):
        return self.b.offset(base, self.b.mul(matrix, self.b.mul(rows, width)), self.size)

    def rows_at(self, matrix, row):
        return self.b.add(self.b.mul(matrix, self.rows), row)

    def row(self, base, row, width):
        return self.b.offset(base, self.b.mul(row, width), self.size)

    def number(self, base, k):
        return self.b.load(self.b.offset(base, k, self.size), self.element)

    def seen(self, row, n_rows):
        """How many keys the rows from `row` on see."""
        b = self.b
        until = b.intrinsic("smin", b.add(row, n_rows), self.keys)
        return b.select(b.cmp("ne", self.causal, b.i64(0)), until, self.keys)

    # --- products -----------------------------------------------------------------------------------------------------
    def pack(self, source, width, target):
        """The rows of a matrix of keys or values as columns, panel by panel."""
        b, panel = self.b, self.products.panel
        with b.loop(0, self.keys, panel) as j:
            columns = b.intrinsic("smin", b.i64(panel), b.sub(self.keys, j))
            here = b.offset(source, b.mul(j, width), self.size)
            there = b.offset(target, b.mul(j, width), self.size)
            b.call("void", self.products.tiles.pack, [here, b.i64(1), width, there, columns, width])

    def times_packed(self, left, width, packed, scores, n_rows, seen):
        """scores = rows of `left` times the packed columns; also of columns after the last, to the end of a panel."""
        b, panel = self.b, self.products.panel
        strips = self.products.tiles.strips(self.products.tiles.full[panel])
        # A panel may be half as wide as what sums work on.
        with b.loop(0, seen, panel) as j:
            there = b.offset(packed, b.mul(j, width), self.size), b.i64(panel)
            result, extent = (
                (b.offset(scores, j, self.size), self.stride),
                [b.i64(panel), width, b.const(0, Type("i1"))],
            )
            call_strips(b, self.size, strips, (left, width, b.i64(1)), there, result, n_rows, extent)

    def product(self, function, left, right, result, m, k):
        b = self.b
        (x, x_row, x_column), (y, n), (z, z_row) = left, right, result
        operands = [x, b.i64(x_row), b.i64(x_column), y, n, b.i64(1)]
        b.call("void", function, [*operands, z, z_row, m, n, k, self.scratch])

    # --- rows of scores -----------------------------------------------------------------------------------------------
    def weights(self, scores, sums, matrix, row, n_rows, seen):
        """Scores become exp(score - the row's largest); `sums`: 1 by their sum, 0 for rows that see nothing."""
        b, v = self.b, self.vector
        wide = self.whole(seen)
        with b.loop(0, n_rows, 1) as r:
            line = self.row(scores, r, self.stride)
            if hasattr(self, "mask"):
                self.add_mask(line, matrix, b.add(row, r), seen)
            limit = b.select(b.cmp("ne", self.causal, b.i64(0)), b.add(b.add(row, r), b.i64(1)), seen)
            self.hide(line, b.intrinsic("smin", limit, seen), wide)
            largest = self.largest(line, wide)
            total = self.raised(line, wide, largest)
            is_blind = b.cmp("eq", total, b.const(0.0, v))
            share = b.select(is_blind, b.const(0.0, v), b.div(b.const(1.0, v), total))
            b.store(b.extract(share, 0), b.offset(sums, r, self.size))

    def whole(self, seen):
        """Up to a multiple of what sums work on at once."""
        return self.b.and_(self.b.add(seen, self.b.i64(_LANES - 1)), self.b.i64(-_LANES))

    def add_mask(self, line, matrix, row, seen):
        b, v = self.b, self.vector
        matrix = b.rem(b.div(matrix, self.mask_repeat), self.mask_count)
        rows = b.select(b.cmp("eq", self.mask_row, b.i64(0)), b.i64(1), self.rows)
        start = b.add(b.mul(matrix, b.mul(rows, self.keys)), b.mul(row, self.mask_row))
        mask = b.offset(self.mask, start, self.size)
        with b.loop(0, seen, v.lanes) as j:
            place, lanes = b.offset(line, j, self.size), b.lane_mask(j, seen, v.lanes)
            added = b.load(b.offset(mask, j, self.size), v, lanes)
            b.store(b.add(b.load(place, v, lanes), added), place, lanes)

    def hide(self, line, limit, wide):
        """What a row does not see: -inf from `limit` on."""
        b, v = self.b, self.vector
        with b.loop(limit, wide, v.lanes) as j:
            b.store(b.const(-inf, v), b.offset(line, j, self.size), b.lane_mask(j, wide, v.lanes))

    def vectors(self, place, j):
        """The vectors of one step of a sum, with their addresses."""
        b, v = self.b, self.vector
        places = [b.offset(b.offset(place, j, self.size), at, self.size) for at in range(0, _LANES, v.lanes)]
        return places, [b.load(p, v) for p in places]

    def largest(self, line, wide):
        """The largest number of a row, in every lane; what is NaN is passed over. 0 where all are -inf."""
        b, v = self.b, self.vector
        with b.loop(0, wide, _LANES, [b.const(-inf, v)] * (_LANES // v.lanes)) as (j, state):
            _, found = self.vectors(line, j)
            state.next([_larger(b, x, best) for x, best in zip(found, state.values)])
        found = combine_lanes(b, _larger, state.results)
        return b.select(b.cmp("eq", found, b.const(-inf, v)), b.const(0.0, v), found)

    def raised(self, line, wide, largest):
        """The row becomes exp(row - largest); the sum, in every lane."""
        b, v = self.b, self.vector
        n = _LANES // v.lanes
        zeros = [b.const(0.0, v)] * n
        with b.loop(0, wide, BLOCK_ELEMENTS, zeros) as (start, outer):
            stop = b.intrinsic("smin", b.add(start, b.i64(BLOCK_ELEMENTS)), wide)
            with b.loop(start, stop, _LANES, zeros) as (j, state):
                places, found = self.vectors(line, j)
                raised = [_exp_below(b, b.sub(x, largest)) for x in found]
                for x, place in zip(raised, places):
                    b.store(x, place)
                state.next([b.add(sum_, x) for sum_, x in zip(state.values, raised)])
            outer.next([b.add(total, x) for total, x in zip(outer.values, state.results)])
        return combine_lanes(b, Builder.add, outer.results)

    def scale(self, line, factor):
        """A row of the result times a number."""
        b, v = self.b, self.vector
        for j, lanes in self.pieces(self.value_width):
            place = b.offset(line, j, self.size)
            b.store(b.mul(b.load(place, v, lanes), b.splat(factor, v.lanes)), place, lanes)

    def slope(self, g, out, scores, slopes, sums, r, seen, needs_scores):
        """A row of scores becomes the weights P, one of dP becomes P (dP - rowsum(g out))."""
        b, v = self.b, self.vector
        share, wide = b.splat(self.number(sums, r), v.lanes), self.whole(seen)
        along = self.dot(self.row(g, r, self.value_width), self.row(out, r, self.value_width))
        line, slope_line = self.row(scores, r, self.stride), self.row(slopes, r, self.stride)
        with b.loop(0, wide, _LANES) as j:
            places, found = self.vectors(line, j)
            weights = [b.mul(x, share) for x in found]
            for place, weight in zip(places, weights):
                b.store(weight, place)
            with b.when(needs_scores):
                places, found = self.vectors(slope_line, j)
                for place, weight, x in zip(places, weights, found):
                    b.store(b.mul(weight, b.sub(x, along)), place)

    def dot(self, x, y):
        """The sum of the products of two rows of values, in every lane."""
        b, v = self.b, self.vector
        n = _LANES // v.lanes
        with b.loop(0, self.value_width, _LANES, [b.const(0.0, v)] * n) as (j, state):
            sums = []
            for k, total in enumerate(state.values):
                at = b.add(j, b.i64(k * v.lanes))
                lanes = b.lane_mask(at, self.value_width, v.lanes)
                pair = [b.load(b.offset(base, at, self.size), v, lanes) for base in (x, y)]
                sums.append(b.fma(*pair, total))
            state.next(sums)
        return combine_lanes(b, Builder.add, state.results)

    def clear(self, place, n):
        b, v = self.b, self.vector
        for j, lanes in self.pieces(n):
            b.store(b.const(0.0, v), b.offset(place, j, self.size), lanes)

    def pieces(self, n):
        """(where a vector begins, its mask) of n elements: None for whole ones, in a loop, then what is left."""
        b, lanes = self.b, self.vector.lanes
        whole = b.and_(n, b.i64(-lanes))
        with b.loop(0, whole, lanes) as j:
            yield j, None
        with b.when(b.cmp("lt", whole, n)):
            yield whole, b.lane_mask(whole, n, lanes)


def _larger(b, x, y):
    return b.select(b.cmp("gt", x, y), x, y)


def _exp_below(b, x):
    """e**x for x <= 0 within 1 ulp; 0 where it would not be a normal number, which is no weight beside 1. NaN stays."""
    reduced = reduce_by_log2(b, x)
    found = times_pow2(b, exp_of_reduced(b, reduced.r), reduced.n_bits)
    found = b.select(b.cmp("lt", x, b.const(-EXP_NORMAL[x.type.element], x.type)), b.const(0.0, x.type), found)
    return b.select(b.cmp("uno", x, x), x, found)
