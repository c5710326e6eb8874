"""Calls of routines inside a program: for all rows, or for a thread's part of them."""

from dataclasses import dataclass


class LibraryStep:
    """A step that calls a routine, or does the units of a Cut of it; `function`: the word of the routine."""

    __slots__ = ()

    @property
    def units(self):
        return self.cut and self.cut.units

    @property
    def words(self):
        return (self.function,)


@dataclass(frozen=True, slots=True)
class RoutineStep(LibraryStep):
    """`operands`: addresses of the arrays, whose rows have `row_bytes`, and of scratch memory; `sizes`: what the
    routine is told after the number of rows."""

    function: int
    row_bytes: tuple
    n_rows: int
    sizes: tuple
    cut: object
    operands: tuple

    @property
    def token(self):
        return self.function, self.row_bytes, self.n_rows, self.sizes, self.cut, self.operands[-1].scratch

    def emit(self, part, pointers):
        *arrays, scratch = pointers
        b, function = part.b, part.word(self.function)

        def call(first, count):
            moved = [b.offset(p, b.mul(first, b.i64(n)), 1) for p, n in zip(arrays, self.row_bytes)]
            b.call("void", function, [*moved, count, *map(b.i64, self.sizes), scratch])

        if self.cut is None:
            part.alone(lambda: call(b.i64(0), b.i64(self.n_rows)))
        else:
            part.some(self.units, lambda first, stop: call(first, b.sub(stop, first)))


@dataclass(frozen=True, slots=True)
class GridStep(LibraryStep):
    """Products over grids (grid_product.py): `grids` are the words that tell of them, which the module has under the
    name `table`; `n_units`: of all of them. `operands`: a, b, the result, scratch memory."""

    function: int
    table: str
    grids: tuple
    n_units: int
    cut: object
    operands: tuple

    @property
    def token(self):
        return self.function, self.table, self.cut, self.operands[-1].scratch

    def emit(self, part, pointers):
        *arrays, scratch = pointers
        b, function = part.b, part.word(self.function)
        table = b.module.constant_table(self.table, "i64", self.grids)

        def call(first, count):
            b.call("void", function, [*arrays, table, first, count, scratch])

        if self.cut is None:
            part.alone(lambda: call(b.i64(0), b.i64(self.n_units)))
        else:
            part.some(self.units, lambda first, stop: call(first, b.sub(stop, first)))


@dataclass(frozen=True, slots=True)
class UnitStep(LibraryStep):
    """A routine that is told which of its units of work to do. `operands` and `sizes` as above."""

    function: int
    n_units: object
    sizes: tuple
    cut: object
    operands: tuple

    @property
    def token(self):
        return self.function, self.n_units, self.sizes, self.cut, self.operands[-1].scratch

    def emit(self, part, pointers):
        *arrays, scratch = pointers
        b, function = part.b, part.word(self.function)

        def call(first, count):
            b.call("void", function, [*arrays, first, count, *map(b.i64, self.sizes), scratch])

        if self.cut is None:
            part.alone(lambda: call(b.i64(0), b.i64(self.n_units)))
        else:
            part.some(self.units, lambda first, stop: call(first, b.sub(stop, first)))
