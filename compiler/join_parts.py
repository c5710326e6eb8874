"""Gradients of parts, added up one by one, become one join.

    add(add(slice_scatter(0, a, [0:2]), slice_scatter(0, b, [2:3])), c)   ->  add(c, cat(add(a, 0.0), add(b, 0.0)))

The gradient of `x[t]` for every t, or of the parts of a `chunk`, is a sum of arrays as large as x, each zero but for
one part: so much memory is written for every step. One of the summands may be any array (c), parts must not overlap,
and where none is there are zeros. Bits are the same: an element is a sum of its part, c and zeros, in which only the
order of the zeros changes, and they change nothing but -0.0 to 0.0, as adding one zero does.
"""

from dataclasses import dataclass

from .conversions import full
from .extent import identical
from .ops.arithmetic import add
from .ops.view import cat, slice_scatter
from .rewrite import Rewriter
from .simplify import constant_of


@dataclass(slots=True)
class _Sum:
    """Parts along one axis, (start, length, slice_scatter) each, and at most one other summand."""

    axis: int
    parts: list
    other: object = None


def join_parts(graph):
    """graph of primitives -> the same with sums of parts as joins, and the trace. What it replaces is left to die."""
    sums = _sums(graph)
    rewriter = Rewriter(graph)
    for value in graph.values:
        found = sums.get(value.number)
        if found is None:
            rewriter.copy(value)
        else:
            rewriter[value] = _joined(rewriter, value, found)
    return rewriter.finish()


def _sums(graph):
    """{number of an addition: its _Sum} of the last additions of all sums that can be joined."""
    uses = _uses(graph)
    sums = {}
    for value in graph.values:
        if value.op is not add or not value.dtype.is_floating_point:
            continue
        operands = [sums.get(o.number) if uses[o.number] == 1 else None for o in value.operands]
        operands = [_summand(o, value) if s is None else s for o, s in zip(value.operands, operands)]
        merged = None if None in operands else _merged(*operands)
        if merged:
            sums[value.number] = merged
            for operand in value.operands:
                if uses[operand.number] == 1:
                    sums.pop(operand.number, None)
    return {number: s for number, s in sums.items() if len(s.parts) > 1 and _apart(s.parts)}


def _uses(graph):
    """How often every value is an operand or a result."""
    uses = [0] * len(graph.values)
    for used in (*(v.operands for v in graph.values), graph.results(), [target for target, _ in graph.commits]):
        for value in used:
            uses[value.number] += 1
    return uses


def _summand(operand, value):
    """A sum of one; None if it has to be broadcast or converted."""
    if not identical(operand.shape, value.shape) or operand.dtype is not value.dtype or operand.weak:
        return None
    if operand.op is slice_scatter and constant_of(operand.operands[0]) == 0:
        moved = [
            (axis, start, length)
            for axis, ((start, step, length), size) in enumerate(zip(operand.attributes["spec"], operand.shape))
            if (start, step, length) != (0, 1, size)
        ]
        if len(moved) == 1 and operand.attributes["spec"][moved[0][0]][1] == 1:
            axis, start, length = moved[0]
            return _Sum(axis, [(start, length, operand)])
    return _Sum(-1, [], operand)


def _merged(left, right):
    """Both in one, which takes the longer list; None if they do not fit."""
    if left.other is not None and right.other is not None:
        return None
    if left.parts and right.parts and left.axis != right.axis:
        return None
    long, short = (left, right) if len(left.parts) >= len(right.parts) else (right, left)
    long.parts.extend(short.parts)
    return _Sum(long.axis, long.parts, left.other if right.other is None else right.other)


def _apart(parts):
    parts.sort(key=lambda part: part[0])
    return all(a[0] + a[1] <= b[0] for a, b in zip(parts, parts[1:]))


def _joined(rewriter, value, found):
    graph, axis, at = rewriter.graph, found.axis, 0
    pieces = []
    for start, length, scatter in found.parts:
        pieces += _zeros(graph, value, axis, start - at)
        pieces.append(add(rewriter[scatter.operands[1]], 0.0))
        at = start + length
    pieces += _zeros(graph, value, axis, value.shape[axis] - at)
    whole = cat(*pieces, axis=axis)
    return whole if found.other is None else add(rewriter[found.other], whole)


def _zeros(graph, value, axis, length):
    shape = (*value.shape[:axis], length, *value.shape[axis + 1 :])
    return [full(graph, 0.0, shape, value.dtype)] if length else []
