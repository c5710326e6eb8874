"""How a reduction reads an operand that does not lie in order, without a copy (compiler/eager_across.py)."""

from math import prod
from typing import NamedTuple

from ...compiler.dtypes import float32, float64, int32, int64
from ...compiler.eager_forms import COLUMNS, ROWS
from ...compiler.extent import is_open
from .evaluate import runs

_OPS = ("sum", "mean", "prod", "amax", "amin")
_TYPES = (float32, float64, int32, int64)
_FEWEST = 4  # results side by side that are worth a vector
# Of more elements threads may share the work, and others wait for the interpreter's lock.
_MOST = 1 << 22


class Across(NamedTuple):
    """The order of the sums and what of it lies side by side; (number of results, elements of each) that a kernel takes
    at once; between two results, two elements and two places of the result, in elements; the loops around that: extent,
    and the steps of the operand and of the result."""

    order: str
    lies: str
    extents: tuple
    steps: tuple
    loops: list


def across(op, dtype, shape, strides, axes):
    """The Across of a reduction along some axes of an operand with these strides in elements; None if there is none."""
    parts = runs(axes)
    if op.name not in _OPS or dtype not in _TYPES or len(parts) != 1 or any(map(is_open, (*shape, *strides))):
        return None
    if not 0 < prod(shape) <= _MOST:
        return None
    ((first, count),) = parts
    reduced = _merged([(n, (s,)) for n, s in zip(shape[first : first + count], strides[first : first + count])])
    kept = [*range(first), *range(first + count, len(shape))]
    places = _row_major([shape[k] for k in kept])
    loops = _merged([(shape[k], (strides[k], place)) for k, place in zip(kept, places)])
    if len(reduced) != 1:
        return None
    ((n, (by_element, *_)),) = reduced
    side_by_side = [k for k, (size, steps) in enumerate(loops) if steps[0] == 1 and size >= _FEWEST]
    if not side_by_side and by_element != 1:
        return None
    lies, chosen = "kept" if side_by_side else "reduced", side_by_side or range(len(loops))
    n_results, (by_result, between) = loops.pop(max(chosen, key=lambda k: loops[k][0]))
    order = ROWS if prod(shape[first + count :]) == 1 else COLUMNS
    return Across(order, lies, (n_results, n), (by_result, by_element, between), loops)


def is_across(op, attributes, metas, layout):
    """Whether an op is such a reduction, with what follows on its results, of an operand with these strides."""
    if len(metas) != 1 or not layout or layout[0] is None or op.name not in _OPS:
        return False
    return across(op, metas[0].dtype, metas[0].shape, layout[0], attributes["axes"]) is not None


def _row_major(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return strides[::-1]


def _merged(loops):
    """Loops of an extent and strides, as few as there can be."""
    found = []
    for n, steps in loops:
        if n == 1:
            continue
        if found and all(before == step * n for before, step in zip(found[-1][1], steps)):
            found[-1] = (found[-1][0] * n, steps)
        else:
            found.append((n, steps))
    return found or [(1, (0, 0))]
