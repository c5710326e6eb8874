"""Products of matrices on a GPU: the chains of `gemm`, element by element, so that they have the bits of a CPU's.

    unit      8 rows by 32 columns of a result: a warp's; lane k has column k of them
    in it     for p in 0 .. k-1:   B[p, column] is read once, A[row, p], the same for all lanes, for each of the rows
                  acc[row] = fma(A[row, p], B[p, column], acc[row])

Lanes beyond the last column and rows beyond the last compute what that does, and store nothing. Where columns of B are
not neighbours in memory (a transposed operand) each lane reads a line of its own, which is slow.
"""

from dataclasses import dataclass
from math import prod

from .builder import Reg, Type
from .product import Product
from .warp import LaneType

_ROWS = 8


@dataclass(frozen=True, slots=True)
class WarpProduct:
    """A Product of `element`s, of operands that begin so many bytes into what holds them (`starts`)."""

    product: Product
    element: str
    starts: tuple

    @property
    def rows(self):
        """Of a unit."""
        return max(1, min(_ROWS, self.product.m))

    def tiles(self, lanes):
        """How many there are (of matrices, one below the other, side by side)."""
        p = self.product
        return prod(p.batch), -(-p.m // self.rows), -(-p.n // lanes)

    def units(self, lanes):
        return prod(self.tiles(lanes))

    def write(self, b):
        """Into a WarpBuilder whose arguments are left, right, result, the first unit and where to stop."""
        *pointers, first, stop = b.arguments
        lanes = b.module.target.warp
        _, below, beside = self.tiles(lanes)
        pointers = [b.offset(p, b.i64(start), 1) for p, start in zip(pointers, (*self.starts, 0))]
        with b.loop(first, stop, 1) as unit:
            rest = b.div(unit, b.i64(beside))
            column = b.mul(b.rem(unit, b.i64(beside)), b.i64(lanes))
            row = b.mul(b.rem(rest, b.i64(below)), b.i64(self.rows))
            self._tile(b, self._matrices(b, pointers, b.div(rest, b.i64(below))), row, column)
        b.finish()

    def _matrices(self, b, pointers, flat):
        """Where those of this number in the batch begin."""
        p, stride = self.product, prod(self.product.batch)
        for axis, extent in enumerate(p.batch):
            stride //= extent
            index = b.rem(b.div(flat, b.i64(stride)), b.i64(extent))
            pointers = [p.moved(b, x, index, steps[axis]) for x, steps in zip(pointers, p.steps)]
        return pointers

    def _tile(self, b, pointers, first_row, first_column):
        left, right, out = pointers
        p, lanes = self.product, b.module.target.warp
        of_lane, number = LaneType(self.element, lanes), Type(self.element)
        size = number.element_bytes
        own = b.add(first_column, b.lane64)
        column = b.intrinsic("smin", own, b.i64(p.n - 1))
        rows = [b.add(first_row, b.i64(k)) for k in range(self.rows)]
        starts = [p.moved(b, left, b.intrinsic("smin", row, b.i64(p.m - 1)), p.left[-2]) for row in rows]
        b_column = b.mul(column, b.i64(p.right[-1]))
        with b.loop(0, p.depth, 1, [b.const(0.0, of_lane)] * self.rows) as (term, state):
            from_b = b.gather(b.offset(right, b.mul(term, b.i64(p.right[-2])), size), b_column, of_lane)
            at = b.mul(term, b.i64(p.left[-1]))
            from_a = [b.splat(b.load(b.offset(start, at, size), number), lanes) for start in starts]
            state.next([b.fma(a, from_b, total) for a, total in zip(from_a, state.values)])
        is_there = b.cmp("lt", own, b.i64(p.n))
        for row, total in zip(rows, state.results):
            here = b.and_(is_there, b.cmp("lt", row, b.i64(p.m)))
            place = b.offset(out, b.mul(row, b.i64(p.n)), size)
            b.scatter(total, place, own, Reg(here.name, LaneType("i1", lanes)))
