"""The loops that a step of an elementwise op takes (eager_steps.py): as few as there can be, and in which blocks."""

from ...compiler.extent import is_open

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
    """The loops, the innermost in blocks around which the one before turns, where that one is what moves an operand
    from element to element: then the lines that a block reads are still in the cache when their next elements are."""
    if len(loops) < 2:
        return loops
    (rows, by_row), (n, by_element) = loops[-2:]
    turned = any(x > 1 and y == 1 for x, y in zip(by_element[:-1], by_row[:-1]))
    # Where only the call knows how many there are, no block is known to divide them.
    block = next((k for k in _BLOCKS if n % k == 0), None) if turned and not is_open(n) and n > _BLOCKS[0] else None
    if block is None:
        return loops
    blocks = (n // block, tuple([s * block for s in by_element]))
    return [*loops[:-2], blocks, (rows, by_row), (block, by_element)]


def spread(x, shape):
    """Strides of a value that is broadcast to a shape."""
    return (*[0] * (len(shape) - len(x.strides)), *[0 if n == 1 else s for n, s in zip(x.shape, x.strides)])
