"""Kernels of one reduction on operands that do not lie in order: read as they lie, in place of a copy that does.

What is added to what is the order of emit/reduce.py, whatever lies where in memory:

    order   ROWS        the reduced elements are those of rows: 32 virtual lanes, blocks of 2048
            COLUMNS     those of columns: one after the other, blocks of 128
    lies    "kept"      neighbours in memory are of different results: a vector is of so many results
            "reduced"   they are of one result. Of ROWS a vector is of so many lanes; of COLUMNS squares are turned in
                        registers, so that it is of so many results again
"""

from .dtypes import element_of
from .eager_forms import ROWS
from .eager_kernels import _lanes
from .emit.builder import I64, PTR, Builder, Module, Type
from .emit.reduce import (
    BLOCK_ELEMENTS,
    BLOCK_ROWS,
    VIRTUAL_LANES,
    fold,
    identity,
    is_compensated,
    reduce_columns,
    reduce_row,
)
from .emit.vector import transposed
from .target import WIDEST

_TOGETHER = 4  # vectors of results


def across_text(op, dtype, order, lies, target=WIDEST):
    """`void @weft_kernel(ptr table, i64 n)`: the table holds the addresses of the operand and of the results, then how
    many results there are, how many elements each is of, how many bytes apart the elements of two results are and
    those of one, and how many the results are. n is not looked at."""
    module = Module(target)
    b = Builder(module, "weft_kernel", [("table", PTR), ("n", I64)])
    table = b.arguments[0]
    x, out = (b.load(b.offset(table, k, 8), PTR) for k in range(2))
    words = [b.load(b.offset(table, 2 + k, 8), I64) for k in range(5)]
    kernel = _Kernel(b, op, element_of(dtype), x, out, *words)
    if order == ROWS:
        kernel.rows_as_they_lie() if lies == "reduced" else kernel.in_chunks(kernel.lanes_of_rows)
    else:
        kernel.in_chunks(
            kernel.turned_columns if lies == "reduced" else kernel.columns, 1 if lies == "reduced" else _TOGETHER
        )
    b.finish()
    return str(module)


class _Kernel:
    def __init__(self, b, op, element, x, out, n_results, n, by_result, by_element, between):
        self.b, self.op, self.x, self.out = b, op, x, out
        self.n_results, self.n = n_results, n
        self.by_result, self.by_element, self.between = by_result, by_element, between
        self.type = Type(element, _lanes(element, b.module.target))
        self.is_extreme = op.lower.identity is None and self.type.is_float
        self.blocks = is_compensated(op, self.type)
        self.bytes = self.type.lanes * self.type.element_bytes
        self.memory = self.block = None

    # --- rows ---------------------------------------------------------------------------------------------------------
    def rows_as_they_lie(self):
        b, t = self.b, self.type
        with b.loop(0, self.n_results, 1) as i:
            row = b.offset(self.x, b.mul(i, self.by_result), 1)
            load = lambda j, mask: [b.load(b.offset(row, j, t.element_bytes), t, mask)]  # noqa: E731
            (result,) = reduce_row(b, self.n, t.lanes, [(self.op, t)], load)
            b.store(b.extract(result, 0), b.offset(self.out, b.mul(i, self.between), 1))

    def lanes_of_rows(self, first, masks):
        """The 32 lanes are 32 vectors of results, or of _TOGETHER times as many, in memory."""
        b, t, n = self.b, self.type, len(masks)
        sums, totals, errors = self.memory
        start, zero = identity(b, self.op, t), b.const(0, t)
        place = lambda memory, lane, k: b.offset(memory, b.add(b.mul(lane, b.i64(n)), b.i64(k)), self.bytes)  # noqa: E731
        is_long = b.cmp("lt", b.i64(BLOCK_ELEMENTS), self.n)

        def fill(memory, value):
            with b.loop(0, VIRTUAL_LANES * n, 1) as k:
                b.store(value, b.offset(memory, k, self.bytes))

        def block(begin, stop):
            with b.loop(begin, stop, 1, [zero] * n) as (j, loop):
                lane, row = b.and_(j, b.i64(VIRTUAL_LANES - 1)), self._at(first, j)
                loaded = [b.load(b.offset(row, k, self.bytes), t, mask) for k, mask in enumerate(masks)]
                for k, v in enumerate(loaded):
                    there = place(sums, lane, k)
                    b.store(self._step(b.load(there, t), v), there)
                loop.next([self._or_nan(seen, v) for seen, v in zip(loop.values, loaded)])
            return loop.results

        fill(sums, start)
        if self.blocks:
            with b.when(is_long):
                fill(totals, zero)
                fill(errors, zero)
            with b.loop(0, self.n, BLOCK_ELEMENTS) as begin:
                block(begin, b.intrinsic("smin", b.add(begin, b.i64(BLOCK_ELEMENTS)), self.n))
                with b.when(is_long), b.loop(0, VIRTUAL_LANES * n, 1) as k:
                    *there, of_sum = (b.offset(m, k, self.bytes) for m in (totals, errors, sums))
                    folded = fold(b, *(b.load(p, t) for p in (*there, of_sum)))
                    for p, v in zip((*there, of_sum), (*folded, start)):
                        b.store(v, p)
            with b.when(is_long), b.loop(0, VIRTUAL_LANES * n, 1) as k:
                total, error = (b.load(b.offset(m, k, self.bytes), t) for m in (totals, errors))
                b.store(b.add(total, error), b.offset(sums, k, self.bytes))
            nans = [zero] * n
        else:
            nans = block(0, self.n)
        half = VIRTUAL_LANES // 2
        while half:
            with b.loop(0, half * n, 1) as k:
                x, y = (b.load(b.offset(sums, at, self.bytes), t) for at in (k, b.add(k, b.i64(half * n))))
                b.store(self._step(x, y), b.offset(sums, k, self.bytes))
            half //= 2
        return [self._with_nan(b.load(b.offset(sums, k, self.bytes), t), nans[k]) for k in range(n)]

    def _step(self, x, y):
        b = self.b
        if self.is_extreme:
            return b.select(b.cmp("gt" if self.op.extra["start"] == "lowest" else "lt", x, y), x, y)
        return self.op.lower.step(b, x, y)

    def _or_nan(self, seen, x):
        """NaN once there was one, where extremes are compared as if there were none (emit/reduce.py: _Extremes)."""
        return self.b.select(self.b.cmp("uno", x, x), x, seen) if self.is_extreme else seen

    def _with_nan(self, x, seen):
        b = self.b
        return b.select(b.cmp("uno", seen, seen), b.const(float("nan"), x.type), x) if self.is_extreme else x

    # --- columns ------------------------------------------------------------------------------------------------------
    def columns(self, first, masks):
        b, t = self.b, self.type

        def body(j, state):
            row = self._at(first, j)
            loaded = [b.load(b.offset(row, k, self.bytes), t, mask) for k, mask in enumerate(masks)]
            return [self.op.lower.step(b, s, v) for s, v in zip(state, loaded)]

        return reduce_columns(b, self.n, [(self.op, t)] * len(masks), body)

    def turned_columns(self, first, masks):
        b, t = self.b, self.type
        starts, last = [identity(b, self.op, t)] * len(masks), b.sub(self.n_results, b.i64(1))
        # Of results that are not there the last one is computed.
        places = [b.intrinsic("smin", b.add(first, b.i64(k)), last) for k in range(len(masks) * t.lanes)]
        rows = [b.offset(self.x, b.mul(place, self.by_result), 1) for place in places]

        def squares(j, state, count=None):
            """`state` after a vector of elements from j on, or after the first `count` of them."""
            mask, found = None if count is None else b.lane_mask(j, self.n, t.lanes), []
            for k, total in enumerate(state):
                mine = rows[k * t.lanes : (k + 1) * t.lanes]
                turned = transposed(b, [b.load(b.offset(row, j, t.element_bytes), t, mask) for row in mine])
                for r, v in enumerate(turned):
                    after = self.op.lower.step(b, total, v)
                    if count is not None:
                        after = b.select(b.splat(b.cmp("lt", b.i64(r), count), t.lanes), after, total)
                    total = after
                found.append(total)
            return found

        def block(begin, stop, state):
            whole = b.sub(stop, b.rem(b.sub(stop, begin), b.i64(t.lanes)))
            with b.loop(begin, whole, t.lanes, state) as (j, loop):
                loop.next(squares(j, loop.values))
            with b.loop(whole, stop, t.lanes, loop.results) as (j, loop):
                loop.next(squares(j, loop.values, b.sub(stop, j)))
            return loop.results

        if not self.blocks:
            return block(b.i64(0), self.n, starts)
        n, zeros = len(masks), [b.const(0, t)] * len(masks)
        with b.loop(0, self.n, BLOCK_ROWS, [*zeros, *zeros]) as (begin, loop):
            stop = b.intrinsic("smin", b.add(begin, b.i64(BLOCK_ROWS)), self.n)
            sums = block(begin, stop, starts)
            folded = [fold(b, *x) for x in zip(loop.values[:n], loop.values[n:], sums)]
            loop.next([f[0] for f in folded] + [f[1] for f in folded])
        return [b.add(total, error) for total, error in zip(loop.results[:n], loop.results[n:])]

    # --- results ------------------------------------------------------------------------------------------------------
    def in_chunks(self, compute, n_together=_TOGETHER):
        """compute(first, masks) gives the vectors of results from the first one on, one for each mask."""
        b, t = self.b, self.type
        wide, self.block = n_together * t.lanes, b.alloca(Type(t.element), t.lanes)
        if compute == self.lanes_of_rows:
            self.memory = [b.alloca(Type(t.element), VIRTUAL_LANES * wide) for _ in range(3)]
        whole = b.sub(self.n_results, b.rem(self.n_results, b.i64(wide)))
        with b.loop(0, whole, wide) as first:
            for k, v in enumerate(compute(first, [None] * n_together)):
                self._store(v, b.add(first, b.i64(k * t.lanes)), None)
        with b.loop(whole, self.n_results, t.lanes) as first:
            mask = b.lane_mask(first, self.n_results, t.lanes)
            (v,) = compute(first, [mask])
            self._store(v, first, mask)

    def _at(self, first, j):
        return self.b.offset(self.b.offset(self.x, first, self.type.element_bytes), self.b.mul(j, self.by_element), 1)

    def _store(self, v, first, mask):
        b, t = self.b, self.type
        place = b.offset(self.out, b.mul(first, self.between), 1)
        in_a_row = b.cmp("eq", self.between, b.i64(t.element_bytes))
        with b.when(in_a_row):
            b.store(v, place, mask)
        with b.when(b.cmp("ne", self.between, b.i64(t.element_bytes))):
            b.store(v, self.block)
            count = b.intrinsic("smin", b.sub(self.n_results, first), b.i64(t.lanes))
            with b.loop(0, count, 1) as k:
                one = b.load(b.offset(self.block, k, t.element_bytes), Type(t.element))
                b.store(one, b.offset(place, b.mul(k, self.between), 1))
