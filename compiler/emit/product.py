"""Products inside a program: calls of the matrix kernel for all matrices of a batch, or for a thread's part of them."""

from dataclasses import dataclass
from math import prod

from ..extent import estimated

# Bytes of a row that a turn of a long product has a multiple of: whole panels, however wide they are (gemm.py).
_TURN_BYTES = 128


@dataclass(frozen=True, slots=True)
class Product:
    """A batch of matrix products of known shapes and strides (in elements): (..., m, k) by (..., k, n). `size`: bytes
    of an element."""

    left: tuple
    right: tuple
    shape: tuple
    depth: int
    size: int

    @property
    def batch(self):
        return self.shape[:-2]

    @property
    def m(self):
        return self.shape[-2]

    @property
    def n(self):
        return self.shape[-1]

    @property
    def result_row(self):
        """How far apart the rows of the result are."""
        return self.n

    @property
    def steps(self):
        """How far apart the matrices of a batch are, per operand and dimension of the batch."""
        return self.left[:-2], self.right[:-2], _batch_strides(self.batch, self.m * self.n)

    def emit(self, b, pointers, function, scratch):
        """All products, whole."""
        self.batched(b, self.batch, self.steps, pointers, lambda *at: self.call(b, at, function, scratch))

    def emit_units(self, b, pointers, function, scratch, cut, first, stop, some=None):
        """The units first .. stop - 1 of a Cut; `some`: of their columns these (the first, how many)."""
        total = {"rows": self.m, "columns": self.n, "matrices": prod(self.batch)}[cut.along]
        start = b.mul(first, b.i64(cut.unit))
        count = b.sub(b.intrinsic("smin", b.mul(stop, b.i64(cut.unit)), b.i64(total)), start)
        if some is not None:
            pointers = self.from_column(b, pointers, some[0])
        if cut.along == "columns":
            self.columns(b, pointers, function, scratch, start, count)
        else:
            emit = {"rows": self.rows, "matrices": self.matrices}[cut.along]
            emit(b, pointers, function, scratch, start, count, some and some[1])

    # --- turns (interrupt.py) -----------------------------------------------------------------------------------------
    def turns_by_columns(self, cut, n_turns):
        """Whether each turn does some columns of all units of a Cut, and not some of the units whole.

        A call for few rows copies as many panels of the right operand as one for all of them: in turns of 64 rows,
        products of 4000 x 4000 matrices would take half as long again. Columns cost nothing but that the left operand
        is read once a turn. Where there are few columns, units are many rows or matrices.
        """
        if cut.along == "columns" or 1 in self.shape[-2:] or estimated(self.n) < 8 * self._turn:
            return False
        return cut.along == "rows" or estimated(cut.units) < 4 * n_turns

    @property
    def _turn(self):
        return _TURN_BYTES // self.size

    def columns_of(self, b, turn, n_turns):
        """(the first column, how many) of a turn."""
        turn_columns = self._turn
        blocks = b.i64(-(-self.n // turn_columns))
        edges = [b.div(b.mul(blocks, k), b.i64(n_turns)) for k in (turn, b.add(turn, b.i64(1)))]
        first, stop = (b.intrinsic("smin", b.mul(edge, b.i64(turn_columns)), b.i64(self.n)) for edge in edges)
        return first, b.sub(stop, first)

    def batched(self, b, batch, steps, pointers, call):
        """call(...) for every index of the batch dimensions."""
        if not batch:
            call(*pointers)
            return
        if batch[0] == 1:
            self.batched(b, batch[1:], [s[1:] for s in steps], pointers, call)
            return
        with b.loop(0, batch[0], 1) as i:
            moved = [self.moved(b, p, i, s[0]) for p, s in zip(pointers, steps)]
            self.batched(b, batch[1:], [s[1:] for s in steps], moved, call)

    def moved(self, b, pointer, index, step):
        return b.offset(pointer, b.mul(index, b.i64(step)), self.size)

    def call(self, b, pointers, function, scratch, m=None, n=None):
        left, right, out = pointers
        i64 = b.i64
        left_strides, right_strides = map(i64, self.left[-2:]), map(i64, self.right[-2:])
        operands = [left, *left_strides, right, *right_strides, out, i64(self.result_row)]
        m, n = i64(self.m if m is None else m), i64(self.n if n is None else n)
        b.call("void", function, [*operands, m, n, i64(self.depth), scratch])

    # --- some of it ---------------------------------------------------------------------------------------------------
    def rows(self, b, pointers, function, scratch, first, count, n=None):
        left, right, out = pointers
        at = [self.moved(b, left, first, self.left[-2]), right, self.moved(b, out, first, self.result_row)]
        self.batched(b, self.batch, self.steps, at, lambda *p: self.call(b, p, function, scratch, count, n))

    def columns(self, b, pointers, function, scratch, first, count):
        at = self.from_column(b, pointers, first)
        self.batched(b, self.batch, self.steps, at, lambda *p: self.call(b, p, function, scratch, n=count))

    def from_column(self, b, pointers, first):
        left, right, out = pointers
        return [left, self.moved(b, right, first, self.right[-1]), self.moved(b, out, first, 1)]

    def matrices(self, b, pointers, function, scratch, first, count, n=None):
        with b.loop(first, b.add(first, count), 1) as flat:
            at, stride = list(pointers), prod(self.batch)
            for axis, extent in enumerate(self.batch):
                stride //= extent
                index = b.rem(b.div(flat, b.i64(stride)), b.i64(extent))
                at = [self.moved(b, p, index, s[axis]) for p, s in zip(at, self.steps)]
            self.call(b, at, function, scratch, n=n)


@dataclass(frozen=True, slots=True)
class PanelProduct(Product):
    """A product of known shape whose right matrix lies in panels (ops/panels.py): a batch of products, whose results
    lie side by side. `shape`: (panels, m, columns of a panel)."""

    @property
    def columns_in_all(self):
        return self.batch[0] * self.n

    @property
    def steps(self):
        return (0,), self.right[:1], (self.n,)

    @property
    def result_row(self):
        return self.columns_in_all

    def emit_units(self, b, pointers, function, scratch, cut, first, stop, some=None):
        if cut.along == "rows":
            Product.emit_units(self, b, pointers, function, scratch, cut, first, stop)
            return
        # A unit may be less than a panel: the first and the last of a thread may be parts of one.
        width = b.i64(self.n)
        begin = b.mul(first, b.i64(cut.unit))
        end = b.intrinsic("smin", b.mul(stop, b.i64(cut.unit)), b.i64(self.columns_in_all))
        with b.loop(b.div(begin, width), b.div(b.add(end, b.i64(self.n - 1)), width), 1) as panel:
            at = b.mul(panel, width)
            column = b.intrinsic("smax", begin, at)
            columns = b.sub(b.intrinsic("smin", end, b.add(at, width)), column)
            left, right, out = pointers
            right = self.moved(b, self.moved(b, right, panel, self.right[0]), b.sub(column, at), 1)
            self.call(b, (left, right, self.moved(b, out, column, 1)), function, scratch, n=columns)

    def turns_by_columns(self, cut, n_turns):
        return False


def product_of(left, right, result, size):
    """The Product of operands with these Accesses."""
    if len(right.shape) == len(result.shape):
        return Product(left.strides, right.strides, result.shape, left.shape[-1], size)
    panels, _, columns = right.shape
    return PanelProduct(left.strides, right.strides, (panels, result.shape[0], columns), left.shape[-1], size)


def _batch_strides(batch, step):
    strides = []
    for d in reversed(batch):
        strides.append(step)
        step *= d
    return tuple(reversed(strides))
