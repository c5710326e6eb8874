"""Calls of routines inside a program: for all rows or units of their work, or for a thread's part of them."""

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


class _InUnits(LibraryStep):
    """A routine that is told which of its `n_units` units of work to do. `operands`: addresses of the arrays, and last
    of scratch memory. arguments(b, arrays, first, count): what it is given before the scratch memory."""

    __slots__ = ()

    def emit(self, part, pointers):
        *arrays, scratch = pointers
        b, function = part.b, part.word(self.function)

        def call(first, count):
            b.call("void", function, [*self.arguments(b, arrays, first, count), scratch])

        if self.cut is None:
            part.alone(lambda: call(b.i64(0), b.i64(self.n_units)))
        else:
            part.some(self.units, lambda first, stop: call(first, b.sub(stop, first)))


@dataclass(frozen=True, slots=True)
class RoutineStep(_InUnits):
    """Units are rows of the arrays, which have `row_bytes`; `sizes`: what the routine is told after their number."""

    function: int
    row_bytes: tuple
    n_units: object
    sizes: tuple
    cut: object
    operands: tuple

    @property
    def token(self):
        return self.function, self.row_bytes, self.n_units, self.sizes, self.cut, self.operands[-1].scratch

    def arguments(self, b, arrays, first, count):
        moved = [b.offset(p, b.mul(first, b.i64(n)), 1) for p, n in zip(arrays, self.row_bytes)]
        return [*moved, count, *map(b.i64, self.sizes)]


@dataclass(frozen=True, slots=True)
class GridStep(_InUnits):
    """Products over grids (grid_product.py): `grids` are the words that tell of them, which the module has under the
    name `table`. `operands`: a, b, the result, scratch memory."""

    function: int
    table: str
    grids: tuple
    n_units: object
    cut: object
    operands: tuple

    @property
    def token(self):
        return self.function, self.table, self.cut, self.operands[-1].scratch

    def arguments(self, b, arrays, first, count):
        return [*arrays, b.module.constant_table(self.table, "i64", self.grids), first, count]


@dataclass(frozen=True, slots=True)
class UnitStep(_InUnits):
    """Units are the routine's own; `sizes`: what it is told after their number."""

    function: int
    n_units: object
    sizes: tuple
    cut: object
    operands: tuple

    @property
    def token(self):
        return self.function, self.n_units, self.sizes, self.cut, self.operands[-1].scratch

    def arguments(self, b, arrays, first, count):
        return [*arrays, first, count, *map(b.i64, self.sizes)]
