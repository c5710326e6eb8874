"""Factorizations of square matrices and the systems they solve: Cholesky, LU with row pivoting, triangles.

All matrices are in row-major order. Work goes through one function, which most of the time is in:

    minus(C, A, B)    C[i, j] = a chain over p ascending: c = fma(-A[i, p], B[p, j], c)

A factorization takes BLOCK rows (or columns) at a time: what all earlier ones contribute is one such product, then the
rows of the block follow one by one. Since every element is one chain over p, in order, bits depend neither on BLOCK nor
on the tiles of `minus`, nor on the target.

    Cholesky     of the rows i .. of U, where x = U^T U:    U[i:, i:] -= U[:i, i:]^T U[:i, i:], then row by row
    triangles    X[i:] -= T[i:, :i] X[:i], then row by row; from the last rows up for an upper triangle
    LU           of the columns j ..: pivots, then the rows of U beside them, then all that is right of and below them

They read each matrix once and write what they make of it to scratch memory or to the result, never to their operands.
Rows of scratch memory are PADDING elements longer, where rows of 2^n bytes would lie in few sets of a cache.
Sources: Golub and Van Loan, "Matrix Computations" (2013), 3.1, 3.4.1 and 4.2.
"""

from math import nan

from .builder import I1, I64, PTR, Builder, Type

BLOCK = 8
PADDING = 8


def scratch_elements(m, n):
    """For m by n matrices."""
    return m * (n + PADDING)


def cofactors_scratch(m, n):
    """Elements for them, of 4 bytes at least: two matrices, and the order of rows and columns."""
    return scratch_elements(m, n) + n * n + 4 * n


def emit_cholesky(module, element):
    """Define `void @weft_cholesky_ELEMENT(x, out, first, count, n, scratch)`: L with x = L L^T, of matrices first ...;
    of each the lower triangle is read. NaN everywhere for one that is not positive definite."""
    b, steps = _begin(module, "cholesky", element, ["x", "out"], ["n"])
    x, out, first, count, n, u = b.arguments
    size, stride = b.mul(n, n), steps.padded(n)
    with b.loop(first, b.add(first, count), 1) as matrix:
        source, target = steps.at(x, b.mul(matrix, size)), steps.at(out, b.mul(matrix, size))
        with b.loop(0, n, 1) as i, b.loop(0, b.add(i, b.i64(1)), 1) as j:
            steps.put(u, b.add(b.mul(j, stride), i), steps.get(source, b.add(b.mul(i, n), j)))
        is_good = _cholesky_rows(b, steps, u, n, stride)
        with b.loop(0, n, 1) as i:
            row, after = steps.at(target, b.mul(i, n)), b.add(i, b.i64(1))
            with b.loop(0, after, 1) as j:
                steps.put(row, j, steps.get(u, b.add(b.mul(j, stride), i)))
            steps.fill(steps.at(row, after), steps.number(0.0), b.sub(n, after))
        with b.when(b.not_(is_good)):
            steps.fill(target, steps.number(nan), size)
    b.finish()


def _cholesky_rows(b, steps, u, n, stride):
    """U in place of the upper triangle of a matrix. Whether all its pivots are positive; if not, numbers are wrong."""
    with b.loop(0, n, BLOCK, [b.const(1, I1)]) as (i0, outer):
        rows = b.intrinsic("smin", b.i64(BLOCK), b.sub(n, i0))
        corner, above = steps.at(u, b.add(b.mul(i0, stride), i0)), steps.at(u, i0)
        steps.minus((corner, stride), (above, 1, stride), (above, stride), rows, b.sub(n, i0), i0)
        with b.loop(0, rows, 1, [outer.values[0]]) as (r, inner):
            i = b.add(i0, r)
            row, length = steps.at(u, b.add(b.mul(i, stride), i)), b.sub(n, i)
            above = steps.at(u, b.add(b.mul(i0, stride), i))
            steps.minus((row, stride), (above, 1, stride), (above, stride), 1, length, r)
            pivot = steps.get(row, 0)
            root = b.sqrt(pivot)
            steps.put(row, 0, root)
            steps.divide(steps.at(row, 1), root, b.sub(length, b.i64(1)))
            # False for NaN too.
            inner.next([b.and_(inner.values[0], b.cmp("gt", pivot, steps.number(0.0)))])
        outer.next([inner.results[0]])
    return outer.results[0]


def emit_triangular(module, element):
    """Define `void @weft_triangular_ELEMENT(t, y, out, first, count, n, m, upper, unit, scratch)`: X with T X = y of
    matrices first ...: (n, n) and (n, m). `upper` tells which triangle of T is read; with `unit` its diagonal is not,
    and counts as ones."""
    b, steps = _begin(module, "triangular", element, ["t", "y", "out"], ["n", "m", "upper", "unit"])
    t, y, out, first, count, n, m, upper, unit, _ = b.arguments
    size = b.mul(n, m)
    with b.loop(first, b.add(first, count), 1) as matrix:
        triangle, x = steps.at(t, b.mul(matrix, b.mul(n, n))), steps.at(out, b.mul(matrix, size))
        steps.copy(x, steps.at(y, b.mul(matrix, size)), size)
        steps.substitute(triangle, n, x, n, m, b.cmp("ne", upper, b.i64(0)), b.cmp("ne", unit, b.i64(0)))
    b.finish()


def emit_solve(module, element):
    """Define `void @weft_solve_ELEMENT(a, y, out, first, count, n, m, scratch)`: X with A X = y of matrices first ...:
    (n, n) and (n, m). `out` has n * m + 1 elements for each: X and 1, or 0 after it if A is singular."""
    b, steps = _begin(module, "solve", element, ["a", "y", "out"], ["n", "m"])
    a, y, out, first, count, n, m, lu = b.arguments
    size = b.mul(n, m)
    with b.loop(first, b.add(first, count), 1) as matrix:
        x = steps.at(out, b.mul(matrix, b.add(size, b.i64(1))))
        steps.copy(x, steps.at(y, b.mul(matrix, size)), size)
        _, is_regular = _pivoted(b, steps, lu, steps.at(a, b.mul(matrix, b.mul(n, n))), n, (x, m))
        steps.put(x, size, b.select(is_regular, steps.number(1.0), steps.number(0.0)))
        steps.substitute(lu, steps.padded(n), x, n, m, b.const(0, I1), b.const(1, I1))
        steps.substitute(lu, steps.padded(n), x, n, m, b.const(1, I1), b.const(0, I1))
    b.finish()


def emit_lu(module, element):
    """Define `void @weft_lu_ELEMENT(a, out, first, count, m, n, pivoted, scratch)`: of matrices first ... L and U of
    P A = L U in one matrix, which row each of the min(m, n) steps exchanged with its own, counted from 1, and the order
    of the rows of P A, all as elements. Without `pivoted` no rows are exchanged. Where a pivot is 0, so is its column
    of L."""
    b, steps = _begin(module, "lu", element, ["a", "out"], ["m", "n", "pivoted"])
    a, out, first, count, m, n, pivoted, lu = b.arguments
    size, k, stride = b.mul(m, n), b.intrinsic("smin", m, n), steps.padded(n)
    with b.loop(first, b.add(first, count), 1) as matrix:
        source, target = steps.at(a, b.mul(matrix, size)), steps.at(out, b.mul(matrix, b.add(size, b.add(k, m))))
        exchanged, order = steps.at(target, size), steps.at(target, b.add(size, k))
        with b.loop(0, m, 1) as i:
            steps.copy(steps.at(lu, b.mul(i, stride)), steps.at(source, b.mul(i, n)), n)
            steps.put(order, i, b.convert(i, element))

        def chosen(j):
            found = b.select(b.cmp("ne", pivoted, b.i64(0)), _position_of_pivot(b, steps, lu, m, stride, j), j)
            steps.put(exchanged, j, b.convert(b.add(found, b.i64(1)), element))
            return found

        def exchange(i, j):
            steps.exchange(lu, stride, n, i, j)
            steps.exchange_numbers(order, i, j)

        _eliminated(b, steps, (lu, stride), (m, n, k), chosen, exchange)
        with b.loop(0, m, 1) as i:
            steps.copy(steps.at(target, b.mul(i, n)), steps.at(lu, b.mul(i, stride)), n)
    b.finish()


def emit_pivots(module, element):
    """Define `void @weft_pivots_ELEMENT(a, out, first, count, n, scratch)`: of matrices first ... n + 1 elements each,
    the diagonal of U and the sign of the permutation in A = P L U."""
    b, steps = _begin(module, "pivots", element, ["a", "out"], ["n"])
    a, out, first, count, n, lu = b.arguments
    with b.loop(first, b.add(first, count), 1) as matrix:
        sign, _ = _pivoted(b, steps, lu, steps.at(a, b.mul(matrix, b.mul(n, n))), n)
        target = steps.at(out, b.mul(matrix, b.add(n, b.i64(1))))
        with b.loop(0, n, 1) as i:
            steps.put(target, i, steps.get(lu, b.mul(i, b.add(steps.padded(n), b.i64(1)))))
        steps.put(target, n, sign)
    b.finish()


def emit_cofactors(module, element):
    """Define `void @weft_cofactors_ELEMENT(a, out, first, count, n, scratch)`: those of cofactors of matrices first
    ...: det(A) A^-T where A is regular, and right where it is not.

    With pivots chosen among all elements left, P A Q = L U, what is 0 comes last, and of a matrix of rank n - 1 at
    least only the last pivot e can be. The adjugate of U = [[V, u], [0, e]] needs no division by it:
    det(V) [[e V^-1, -V^-1 u], [0, 1]].
    """
    b, steps = _begin(module, "cofactors", element, ["a", "out"], ["n"])
    a, out, first, count, n, lu = b.arguments
    stride, size, last = steps.padded(n), b.mul(n, n), b.sub(n, b.i64(1))
    y = steps.at(lu, b.mul(n, stride))
    order = steps.at(y, size)
    with b.loop(first, b.add(first, count), 1) as matrix:
        with b.loop(0, n, 1) as i:
            source = steps.at(a, b.add(b.mul(matrix, size), b.mul(i, n)))
            steps.copy(steps.at(lu, b.mul(i, stride)), source, n)
        sign = _pivoted_twice(b, steps, lu, stride, n, order)
        steps.fill(y, steps.number(0.0), size)
        with b.loop(0, n, 1) as i:
            steps.put(y, b.mul(i, b.add(n, b.i64(1))), steps.number(1.0))
        steps.substitute(lu, stride, y, n, n, b.const(0, I1), b.const(1, I1))
        e, bottom = steps.get(lu, b.mul(last, b.add(stride, b.i64(1)))), steps.at(y, b.mul(last, n))
        with b.loop(0, last, 1, [sign]) as (i, product):
            row = steps.at(y, b.mul(i, n))
            steps.scale(row, e, n)
            beside = steps.at(lu, b.add(b.mul(i, stride), last))
            steps.minus((row, n), (beside, 0, 0), (bottom, n), 1, n, 1)
            product.next([b.mul(product.values[0], steps.get(lu, b.mul(i, b.add(stride, b.i64(1)))))])
        (determinant,) = product.results
        steps.substitute(lu, stride, y, last, n, b.const(1, I1), b.const(0, I1))
        is_zero = b.cmp("eq", determinant, steps.number(0.0))
        target = steps.at(out, b.mul(matrix, size))
        with b.loop(0, n, 1) as i, b.loop(0, n, 1) as j:
            x = b.mul(steps.get(y, b.add(b.mul(i, n), j)), determinant)
            place = b.add(b.mul(steps.get_position(order, j), n), steps.get_position(order, b.add(n, i)))
            steps.put(target, place, b.select(is_zero, steps.number(0.0), x))
    b.finish()


def _pivoted_twice(b, steps, lu, stride, n, order):
    """L and U in place of a matrix whose rows and columns are exchanged; `order`: which rows and then which columns
    there are now. Returns the sign of both permutations. Where all that is left is 0 it stays."""
    with b.loop(0, n, 1) as i:
        steps.put_position(order, i, i)
        steps.put_position(order, b.add(n, i), i)
    with b.loop(0, n, 1, [steps.number(1.0)]) as (k, outer):
        sign = outer.values[0]
        with b.loop(k, n, 1, [steps.number(-1.0), k, k]) as (i, rows):
            with b.loop(k, n, 1, rows.values) as (j, columns):
                size = b.abs(steps.get(lu, b.add(b.mul(i, stride), j)))
                is_larger = b.cmp("gt", size, columns.values[0])
                columns.next([b.select(is_larger, x, old) for x, old in zip((size, i, j), columns.values)])
            rows.next(columns.results)
        _, row, column = rows.results
        steps.exchange(lu, stride, n, row, k)
        with b.loop(0, n, 1) as i:
            steps.exchange_numbers(steps.at(lu, b.mul(i, stride)), column, k)
        steps.exchange_positions(order, row, k)
        steps.exchange_positions(order, b.add(n, column), b.add(n, k))
        moved = b.xor(b.cmp("ne", row, k), b.cmp("ne", column, k))
        outer.next([b.select(moved, b.neg(sign), sign)])
        _eliminate(b, steps, steps.at(lu, b.mul(k, b.add(stride, b.i64(1)))), stride, b.sub(b.sub(n, k), b.i64(1)))
    return outer.results[0]


def _eliminate(b, steps, pivot_at, stride, left, columns=None):
    """The multipliers under a pivot, and the `columns` of the `left` rows below it, if it is not 0. Whether it is."""
    is_zero = b.cmp("eq", steps.get(pivot_at, 0), steps.number(0.0))
    with b.when(b.not_(is_zero)):
        pivot = steps.get(pivot_at, 0)
        with b.loop(1, b.add(left, b.i64(1)), 1) as k:
            place = b.mul(k, stride)
            steps.put(pivot_at, place, b.div(steps.get(pivot_at, place), pivot))
        right, under = steps.at(pivot_at, 1), steps.at(pivot_at, stride)
        count = left if columns is None else columns
        steps.minus((steps.at(under, 1), stride), (under, stride, 1), (right, stride), left, count, 1)
    return is_zero


def _pivoted(b, steps, lu, source, n, beside=None):
    """L and U of a matrix, whose rows are exchanged, and those of `beside` (address, columns) with them.
    Returns the sign of the permutation, and whether no pivot is 0."""
    stride = steps.padded(n)
    with b.loop(0, n, 1) as i:
        steps.copy(steps.at(lu, b.mul(i, stride)), steps.at(source, b.mul(i, n)), n)

    def exchange(found, j):
        steps.exchange(lu, stride, n, found, j)
        if beside is not None:
            steps.exchange(beside[0], beside[1], beside[1], found, j)

    return _eliminated(
        b, steps, (lu, stride), (n, n, n), lambda j: _position_of_pivot(b, steps, lu, n, stride, j), exchange
    )


def _eliminated(b, steps, matrix, sizes, chosen, exchange):
    """L and U in place of a matrix (place, distance of rows) of `sizes` m, n and min(m, n). In step j the row
    chosen(j) comes to row j by exchange(found, j).
    Returns the sign of the permutation, and whether no pivot is 0."""
    (lu, stride), (m, n, k) = matrix, sizes
    with b.loop(0, k, BLOCK, [steps.number(1.0), b.const(1, I1)]) as (j0, outer):
        columns = b.intrinsic("smin", b.i64(BLOCK), b.sub(k, j0))
        with b.loop(0, columns, 1, outer.values) as (r, inner):
            sign, is_regular = inner.values
            j = b.add(j0, r)
            found = chosen(j)
            moved = b.cmp("ne", found, j)
            with b.when(moved):
                exchange(found, j)
            pivot_at, below = steps.at(lu, b.add(b.mul(j, stride), j)), b.sub(b.sub(m, j), b.i64(1))
            is_zero = _eliminate(b, steps, pivot_at, stride, below, b.sub(b.sub(columns, r), b.i64(1)))
            inner.next([b.select(moved, b.neg(sign), sign), b.and_(is_regular, b.not_(is_zero))])
        outer.next(inner.results)
        stop = b.add(j0, columns)
        corner, below, beyond = steps.at(lu, b.add(b.mul(j0, stride), j0)), b.sub(m, stop), b.sub(n, stop)
        right = steps.at(corner, columns), stride
        with b.loop(1, columns, 1) as r:
            left = steps.at(corner, b.mul(r, stride))
            steps.minus((steps.at(left, columns), stride), (left, stride, 1), right, 1, beyond, r)
        left = steps.at(corner, b.mul(columns, stride))
        steps.minus((steps.at(left, columns), stride), (left, stride, 1), right, below, beyond, columns)
    return outer.results


def _position_of_pivot(b, steps, lu, n, stride, j):
    """The row, from j on, whose element of column j is largest; the first of equals."""
    with b.loop(j, n, 1, [steps.number(-1.0), j]) as (i, state):
        size = b.abs(steps.get(lu, b.add(b.mul(i, stride), j)))
        is_larger = b.cmp("gt", size, state.values[0])
        state.next([b.select(is_larger, size, state.values[0]), b.select(is_larger, i, state.values[1])])
    return state.results[1]


# --- steps on rows ----------------------------------------------------------------------------------------------------
def _begin(module, stem, element, operands, sizes):
    """The Builder of a routine, and its steps."""
    name = f"weft_{stem}_{element}"
    steps_of = _functions(module, element, name)
    places = [*((o, PTR) for o in operands), ("first", I64), ("count", I64), *((s, I64) for s in sizes)]
    b = Builder(module, name, [*places, ("scratch", PTR)])
    return b, _Steps(b, element, steps_of)


class _Steps:
    """What a routine is made of; places are addresses, positions count elements."""

    def __init__(self, b, element, functions):
        self.b, self.element, self.functions = b, Type(element), functions
        self.size, self.lanes = self.element.element_bytes, _lanes(b.module, element)

    def number(self, value):
        return self.b.const(value, self.element)

    def at(self, place, k):
        return self.b.offset(place, k, self.size)

    def get(self, place, k):
        return self.b.load(self.at(place, k), self.element)

    def put(self, place, k, value):
        self.b.store(value, self.at(place, k))

    def _vectors(self, count, change):
        """change(position, mask) for all vectors of a row."""
        b, lanes = self.b, self.lanes
        with b.loop(0, count, lanes) as k:
            change(k, b.lane_mask(k, count, lanes))

    def get_position(self, place, k):
        return self.b.load(self.b.offset(place, k, 8), I64)

    def put_position(self, place, k, value):
        self.b.store(value, self.b.offset(place, k, 8))

    def exchange_numbers(self, place, i, j):
        x, y = self.get(place, i), self.get(place, j)
        self.put(place, i, y)
        self.put(place, j, x)

    def exchange_positions(self, place, i, j):
        x, y = self.get_position(place, i), self.get_position(place, j)
        self.put_position(place, i, y)
        self.put_position(place, j, x)

    def copy(self, target, source, count):
        b, vector = self.b, Type(self.element.element, self.lanes)
        self._vectors(count, lambda k, m: b.store(b.load(self.at(source, k), vector, m), self.at(target, k), m))

    def fill(self, target, number, count):
        value = self.b.splat(number, self.lanes)
        self._vectors(count, lambda k, m: self.b.store(value, self.at(target, k), m))

    def divide(self, row, number, count):
        b, vector = self.b, Type(self.element.element, self.lanes)
        by = b.splat(number, self.lanes)
        self._vectors(count, lambda k, m: b.store(b.div(b.load(self.at(row, k), vector, m), by), self.at(row, k), m))

    def scale(self, row, number, count):
        b, vector = self.b, Type(self.element.element, self.lanes)
        by = b.splat(number, self.lanes)
        self._vectors(count, lambda k, m: b.store(b.mul(b.load(self.at(row, k), vector, m), by), self.at(row, k), m))

    def exchange(self, matrix, stride, width, i, j):
        """Two rows."""
        b, vector = self.b, Type(self.element.element, self.lanes)
        one, other = self.at(matrix, b.mul(i, stride)), self.at(matrix, b.mul(j, stride))

        def swap(k, mask):
            x, y = (b.load(self.at(row, k), vector, mask) for row in (one, other))
            b.store(y, self.at(one, k), mask)
            b.store(x, self.at(other, k), mask)

        self._vectors(width, swap)

    def minus(self, c, a, right, m, n, k):
        """C -= A B: (place, distance of rows) of C and of B, (place, distance of rows, of columns) of A; m rows and n
        columns, k terms."""
        b = self.b
        a, a_row, a_column = a
        sizes = [b.i64(x) for x in (m, n, k)]
        b.call("void", self.functions["minus"], [*c, a, b.i64(a_row), b.i64(a_column), *right, *sizes])

    def substitute(self, triangle, stride, x, n, m, upper, unit):
        self.b.call("void", self.functions["substitute"], [triangle, stride, x, n, m, upper, unit])

    def padded(self, n):
        """The distance of rows in scratch memory."""
        b = self.b
        return b.select(b.cmp("eq", b.rem(n, b.i64(16)), b.i64(0)), b.add(n, b.i64(PADDING)), n)


def _lanes(module, element):
    return module.target.vector_bytes // Type(element).element_bytes


def _functions(module, element, stem):
    """The functions of a module that its routine calls: name -> symbol."""
    found = {"minus": _emit_minus(module, element, f"{stem}_minus")}
    found["substitute"] = _emit_substitute(module, element, f"{stem}_substitute", found)
    return found


_HEIGHTS = (4, 1)  # rows of the tiles of `minus`, which are two vectors wide


def _emit_minus(module, element, name):
    places = [("c", PTR), ("c_row", I64), ("a", PTR), ("a_row", I64), ("a_col", I64), ("b", PTR), ("b_row", I64)]
    b = Builder(module, name, [*places, ("m", I64), ("n", I64), ("k", I64)], linkage="internal")
    *_, m, n, _ = b.arguments
    lanes = _lanes(module, element)
    with b.loop(0, n, 2 * lanes) as j:
        masks = [b.lane_mask(b.add(j, b.i64(v * lanes)), n, lanes) for v in range(2)]
        row = b.i64(0)
        for height in _HEIGHTS:
            stop = b.add(row, b.mul(b.div(b.sub(m, row), b.i64(height)), b.i64(height)))
            is_narrow = b.cmp("le", b.sub(n, j), b.i64(lanes))
            for wanted, kept in ((is_narrow, masks[:1]), (b.not_(is_narrow), masks)):
                with b.when(wanted), b.loop(row, stop, height) as i:
                    _tile(b, element, i, j, height, kept)
            row = stop
    b.finish()
    return name


def _tile(b, element, i, j, height, masks):
    """Rows i .. i + height - 1 of C, and a vector of columns for each of the masks, from column j on."""
    c, c_row, a, a_row, a_col, right, b_row, _, _, k = b.arguments
    size, lanes = Type(element).element_bytes, _lanes(b.module, element)
    vector = Type(element, lanes)
    starts = [v * lanes * size for v in range(len(masks))]
    rows = [b.offset(c, b.add(b.mul(b.add(i, b.i64(r)), c_row), j), size) for r in range(height)]
    places = [(b.offset(row, start, 1), mask) for row in rows for start, mask in zip(starts, masks)]
    a_rows = [b.mul(b.add(i, b.i64(r)), a_row) for r in range(height)]
    sums = [b.load(place, vector, mask) for place, mask in places]
    with b.loop(0, k, 1, [a, b.offset(right, j, size), *sums]) as (_, state):
        a_now, b_now, *now = state.values
        a_here = b.freeze(a_now)
        terms = [b.load(b.offset(b_now, start, 1), vector, mask) for start, mask in zip(starts, masks)]
        following = []
        for r in range(height):
            factor = b.splat(b.neg(b.load(b.offset(a_here, a_rows[r], size), Type(element))), lanes)
            following += [b.fma(factor, y, z) for y, z in zip(terms, now[r * len(masks) :])]
        state.next([b.offset(a_now, a_col, size), b.offset(b_now, b_row, size), *following])
    for value, (place, mask) in zip(state.results[2:], places):
        b.store(value, place, mask)


def _emit_substitute(module, element, name, functions):
    """X in place of Y, where T X = Y."""
    places = [("t", PTR), ("stride", I64), ("x", PTR), ("n", I64), ("m", I64), ("upper", I1), ("unit", I1)]
    b = Builder(module, name, places, linkage="internal")
    t, stride, x, n, m, upper, unit = b.arguments
    steps = _Steps(b, element, functions)
    with b.loop(0, n, BLOCK) as done:
        rows = b.intrinsic("smin", b.i64(BLOCK), b.sub(n, done))
        i0 = b.select(upper, b.sub(b.sub(n, done), rows), done)
        # What is known: the rows before or after the block, then those of the block.
        known = b.select(upper, b.add(i0, rows), b.i64(0))
        target = steps.at(x, b.mul(i0, m)), m
        left = steps.at(t, b.add(b.mul(i0, stride), known)), stride, 1
        steps.minus(target, left, (steps.at(x, b.mul(known, m)), m), rows, m, done)
        with b.loop(0, rows, 1) as r:
            i = b.select(upper, b.sub(b.sub(b.add(i0, rows), r), b.i64(1)), b.add(i0, r))
            known = b.select(upper, b.add(i, b.i64(1)), i0)
            row = steps.at(x, b.mul(i, m))
            left = steps.at(t, b.add(b.mul(i, stride), known)), stride, 1
            steps.minus((row, m), left, (steps.at(x, b.mul(known, m)), m), 1, m, r)
            with b.when(b.not_(unit)):
                steps.divide(row, steps.get(t, b.mul(i, b.add(stride, b.i64(1)))), m)
    b.finish()
    return name
