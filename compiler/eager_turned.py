"""Kernels of one op on matrices some of which are transposed: elementwise, for extents known only at run time.

What lies across is read in the order in which it lies, L vectors of L elements at a time, and turned in registers. Read
element by element, each of its cache lines would be fetched once for every element in it, and each element alone.

    ROWS       its elements of a row of the result follow one another
    COLUMNS    those of a column do: it is transposed
    PER_ROW    one element for all of a row
"""

from .dtypes import complex64, element_of
from .eager_forms import COLUMNS, NUMBER, PAIR, ROWS
from .eager_kernels import _lanes, _memory, _module_of, is_on_parts
from .emit.builder import I64, PTR, Builder, Type
from .emit.pairs import joined, number_pair, parted
from .emit.vector import transposed

# Columns lie on pages of their own. Of several operands those of all columns are more than a processor has at hand, and
# would be looked up again for every row of tiles; of one that costs less than to take rows in pieces.
_COLUMNS_TOGETHER, _ALL = 64, 1 << 62


def turned_text(op, dtypes, out_dtype, attributes, kinds, target):
    """`void @weft_kernel(ptr table, i64 n)`: op on matrices, into one whose rows lie as ROWS.

    The table holds the addresses of the operands, which have the types `dtypes` and lie as `kinds` say (or are one
    NUMBER, an f64), then of the result; then how many rows and columns there are; then, for each address, how many
    bytes apart rows are, or, of COLUMNS, columns. n is not looked at."""
    module = _module_of([op], target)
    b = Builder(module, "weft_kernel", [("table", PTR), ("n", I64)])
    kernel = _Kernel(b, op, dtypes, out_dtype, attributes, kinds)
    n_rows, n_columns = kernel.extents
    in_tiles = [b.sub(n, b.rem(n, b.i64(kernel.lanes))) for n in (n_rows, n_columns)]

    def tiles(i, rows, row_mask, first, stop):
        with b.loop(first, stop, kernel.lanes) as j:
            kernel.tile(i, j, rows, kernel.lanes, row_mask, None)

    def last_tile(i, rows, row_mask):
        kernel.tile(i, j, rows, b.sub(n_columns, j), row_mask, b.lane_mask(j, n_columns, kernel.lanes))

    def all_rows(do):
        with b.loop(0, in_tiles[0], kernel.lanes) as i:
            do(i, kernel.lanes, None)
        with b.when(b.cmp("lt", in_tiles[0], n_rows)):
            i = in_tiles[0]
            do(i, b.sub(n_rows, i), b.lane_mask(i, n_rows, kernel.lanes))

    together = _COLUMNS_TOGETHER if kinds.count(COLUMNS) > 1 else _ALL
    with b.loop(0, in_tiles[1], together) as first:
        stop = b.intrinsic("smin", b.add(first, b.i64(together)), in_tiles[1])
        all_rows(lambda *rows: tiles(*rows, first, stop))
    with b.when(b.cmp("lt", in_tiles[1], n_columns)):
        j = in_tiles[1]
        all_rows(last_tile)
    b.finish()
    return str(module)


def _moved_as(dtype):
    """The element that is turned: of a complex number both parts together."""
    return "i64" if dtype is complex64 else _memory(element_of(dtype))


class _Kernel:
    """Tiles of `lanes` rows and columns."""

    def __init__(self, b, op, dtypes, out_dtype, attributes, kinds):
        self.b, self.op, self.attributes, self.kinds = b, op, attributes, kinds
        self.dtypes = dtypes
        self.lower = op.on_complex.lower if is_on_parts(op, dtypes, attributes) else op.lower
        self.elements = [element_of(d.to_real()) for d in dtypes]
        *self.memory, self.result = [_moved_as(d) for d in (*dtypes, out_dtype)]
        self.lanes = min(_lanes(e, b.module.target) for e in (*self.memory, self.result))
        table, n = b.arguments[0], len(kinds)
        self.pointers = [b.load(b.offset(table, k, 8), PTR) for k in range(n + 1)]
        words = [b.load(b.offset(table, n + 1 + k, 8), I64) for k in range(n + 3)]
        self.extents, self.steps = words[:2], words[2:]
        self.numbers = [self._number(k, kind) if kind in (NUMBER, PAIR) else None for k, kind in enumerate(kinds)]
        # Where all that is read lies across, the result is turned in place of each of them.
        self.turns_result = {COLUMNS} <= {*kinds} <= {COLUMNS, NUMBER, PAIR}
        turned = ["result"] if self.turns_result else [k for k, kind in enumerate(kinds) if kind == COLUMNS]
        self.blocks = {k: b.alloca(Type(self._memory_of(k)), self.lanes * self.lanes) for k in turned}

    def _memory_of(self, k):
        return self.result if k == "result" else self.memory[k]

    def _number(self, k, kind):
        b, element = self.b, self.elements[k]
        if self.dtypes[k].is_complex:
            return number_pair(b, self.pointers[k], element, self.lanes, kind)
        return b.splat(b.convert(b.load(self.pointers[k], Type("f64")), element), self.lanes)

    def _vector(self, k):
        return Type(self._memory_of(k), self.lanes)

    def tile(self, i, j, rows, columns, row_mask, column_mask):
        (self._turning_result if self.turns_result else self._turning_operands)(
            i, j, rows, columns, row_mask, column_mask
        )

    def _apply(self, operands):
        """What has been computed, as it is moved."""
        b, values = self.b, []
        for x, d, element in zip(operands, self.dtypes, self.elements):
            if x.__class__ is tuple or not d.is_complex:
                values.append(x if x.__class__ is tuple else b.convert(x, element))
            else:
                parts = Type(element, 2 * self.lanes)
                values.append(parted(b, b.emit(parts, f"bitcast {x} to {parts}")))
        found = self.lower(b, *values, **self.attributes)
        if found.__class__ is tuple:
            whole = Type(self.result, self.lanes)
            return b.emit(whole, f"bitcast {joined(b, found)} to {whole}")
        return b.convert(found, self.result)

    def _at(self, k, outer, inner):
        """The address of an element: so many steps on, and then so many elements."""
        b = self.b
        pointer = b.offset(self.pointers[k], b.mul(outer, self.steps[k]), 1)
        return b.offset(pointer, inner, Type(self.result if k == len(self.kinds) else self._memory_of(k)).element_bytes)

    def _in_block(self, k, index):
        return self.b.offset(self.blocks[k], index, self.lanes * Type(self._memory_of(k)).element_bytes)

    def _turning_operands(self, i, j, rows, columns, row_mask, column_mask):
        b, lanes = self.b, self.lanes
        for k in self.blocks:
            found = []
            for c in range(lanes):
                # Of columns that are not there the last one is read.
                column = c if isinstance(columns, int) else b.intrinsic("smin", b.i64(c), b.sub(columns, b.i64(1)))
                found.append(b.load(self._at(k, b.add(j, b.i64(column)), i), self._vector(k), row_mask))
            for r, vector in enumerate(transposed(b, found)):
                b.store(vector, self._in_block(k, r))

        def given(k, kind, row):
            if kind in (NUMBER, PAIR):
                return self.numbers[k]
            if kind == COLUMNS:
                return b.load(self._in_block(k, row), self._vector(k))
            if kind == ROWS:
                return b.load(self._at(k, b.add(i, row), j), self._vector(k), column_mask)
            return b.splat(b.load(self._at(k, b.add(i, row), 0), Type(self._memory_of(k))), lanes)

        with b.loop(0, rows, 1) as row:
            result = self._apply([given(k, kind, row) for k, kind in enumerate(self.kinds)])
            b.store(result, self._at(len(self.kinds), b.add(i, row), j), column_mask)

    def _turning_result(self, i, j, rows, columns, row_mask, column_mask):
        b, lanes, out = self.b, self.lanes, len(self.kinds)

        def given(k, kind, column):
            if kind in (NUMBER, PAIR):
                return self.numbers[k]
            return b.load(self._at(k, b.add(j, column), i), self._vector(k), row_mask)

        with b.loop(0, columns, 1) as column:
            result = self._apply([given(k, kind, column) for k, kind in enumerate(self.kinds)])
            b.store(result, self._in_block("result", column))
        t = self._vector("result")
        found = transposed(b, [b.load(self._in_block("result", c), t) for c in range(lanes)])
        if isinstance(rows, int):
            for r, vector in enumerate(found):
                b.store(vector, self._at(out, b.add(i, b.i64(r)), j), column_mask)
            return
        for r, vector in enumerate(found):
            b.store(vector, self._in_block("result", r))
        with b.loop(0, rows, 1) as row:
            b.store(b.load(self._in_block("result", row), t), self._at(out, b.add(i, row), j), column_mask)
