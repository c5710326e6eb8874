"""Native steps of elementwise ops on operands some of which are transposed: by kernels that turn them in registers."""

from math import prod

from ...compiler.dtypes import complex128
from ...compiler.eager_forms import COLUMNS, NUMBER, PAIR, PER_ROW, ROWS
from ...compiler.extent import is_open
from ..code import kernels
from .eager_words import ELEMENTWISE, MOST_LOOPS, MOST_TABLE

_FEWEST = 4  # rows, or columns, that are worth turning


def steps_of_turned(builder, op, attributes, types, operands, out, loops):
    """Whether some operands of an elementwise op lie across the result, of whose kernel the builder has steps now.
    loops: those of loops_over."""
    found = None if complex128 in (*types, out.dtype) else _turned(operands, loops)
    if found is None or len(loops) - 2 > MOST_LOOPS or 2 * len(loops[0][1]) + 2 > MOST_TABLE:
        return False
    row, kinds = found
    (n_rows, by_row), (n_columns, by_column) = loops[row], loops[-1]
    values, outer = [*operands, out], [*loops[:row], *loops[row + 1 : -1]]
    steps = [by_column[k] if kind == COLUMNS else by_row[k] for k, kind in enumerate((*kinds, ROWS))]
    steps = [0 if x.is_number else s * x.dtype.size_bytes for s, x in zip(steps, values)]
    address = kernels.turned_address(op, types, out.dtype, attributes, kinds)
    size = n_rows * n_columns
    builder.append_in_loops(
        outer, values, kind=ELEMENTWISE, elementwise=address, strides=[n_rows, n_columns, *steps], size=size
    )
    return True


def _turned(operands, loops):
    """(the loop over rows, how each operand lies) where one of them lies across; else None."""
    *rest, (n_columns, by_column) = loops
    if not rest or is_open(prod(n for n, _ in loops)) or n_columns < _FEWEST or by_column[-1] != 1:
        return None
    for row, (n_rows, by_row) in enumerate(rest):
        if n_rows < _FEWEST:
            continue
        kinds = [_kind(x, r, c) for x, r, c in zip(operands, by_row, by_column)]
        if COLUMNS in kinds and None not in kinds and any(c > 1 for k, c in zip(kinds, by_column) if k == COLUMNS):
            return row, tuple(kinds)
    return None


def _kind(x, by_row, by_column):
    if x.is_number:
        return PAIR if x.dtype.is_complex else NUMBER
    if by_column == 1:
        return ROWS
    if by_row == 1:
        return COLUMNS
    return PER_ROW if by_column == 0 else None
