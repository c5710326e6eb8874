"""The loops that a step of an elementwise op takes (eager_steps.py): as few as there can be, and in which blocks."""

from ...compiler.extent import is_open

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
