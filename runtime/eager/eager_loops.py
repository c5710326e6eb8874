"""The loops that a step of an elementwise op takes (eager_steps.py): as few as there can be, and in which blocks. And
the steps of such ops on operands some of which are transposed, by kernels that turn them in registers."""

from math import prod

from ...compiler.dtypes import complex128
from ...compiler.eager_forms import COLUMNS, NUMBER, PAIR, PER_ROW, ROWS
from ...compiler.extent import is_open
from ..code import kernels
from .eager_words import ELEMENTWISE, MOST_LOOPS, MOST_TABLE

_FEW = 16  # turns of a row
_BLOCKS = (32, 64, 16, 48, 40, 50, 25, 24, 20)  # elements, the best ones first


def loops_over(operands, out):
    """[(extent, strides of the operands and of the result)] of as few loops as there can be, the innermost last."""
    strides = [spread(x, out.shape) for x in [*operands, out]]
    loops = []
    for n, steps in zip(reversed(out.shape), zip(*map(reversed, strides))):
        if n == 1:
            continue
        if loops and all(s == before * loops[-1][0] for s, before in zip(steps, loops[-1][1])):
            loops[-1] = (loops[-1][0] * n, loops[-1][1])
        else:
            loops.append((n, steps))
    if not loops:
        loops = [(1, (*[0 if x.is_number else 1 for x in operands], 1))]
    return loops[::-1]


def in_blocks(loops):
    """The loops in an order, and in blocks, in which few short rows are left and what has been read is still in the
    cache when its neighbours are wanted. It makes no difference to any element."""
    if len(loops) < 2:
        return loops
    (rows, by_row), (n, by_element) = loops[-2:]
    turned = any(x > 1 and y == 1 for x, y in zip(by_element[:-1], by_row[:-1]))
    # Where only the call knows how many there are, no block is known to divide them.
    if turned and not is_open(n) and n > _BLOCKS[0]:
        # Lines of the operand that is read across are shared by neighbouring rows.
        block = next((k for k in _BLOCKS if n % k == 0), None)
        if block is not None:
            blocks = (n // block, tuple([s * block for s in by_element]))
            return [*loops[:-2], blocks, (rows, by_row), (block, by_element)]
    if turned and not is_open(n) and not is_open(rows) and rows > _FEW and rows % _FEW == 0:
        # A line of the operand at a time, written across.
        blocks = (rows // _FEW, tuple([s * _FEW for s in by_row]))
        return [*loops[:-2], blocks, (n, by_element), (_FEW, by_row)]
    return _long_rows_last(loops)


def _long_rows_last(loops):
    """The same with another loop innermost, where that has a few turns only."""
    n = loops[-1][0]
    if is_open(n) or n >= _FEW:
        return loops
    longer = [k for k, (m, _) in enumerate(loops[:-1]) if not is_open(m) and m >= _FEW]
    if not longer:
        return loops
    best = max(longer, key=lambda k: (1 in loops[k][1], loops[k][0]))
    return [*loops[:best], *loops[best + 1 :], loops[best]]


def spread(x, shape):
    """Strides of a value that is broadcast to a shape."""
    return (*[0] * (len(shape) - len(x.strides)), *[0 if n == 1 else s for n, s in zip(x.shape, x.strides)])


# --- transposed operands --------------------------------------------------------------------------------------------
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
