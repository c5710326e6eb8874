"""What is read in parts only is computed in parts, where it is used.

    slice(f(a, b))             ->  f(slice(a), slice(b))       elementwise f, if all that reads it are such parts,
    reshape(slice(f(a, b)))    ->  f(reshape(slice(a)), ...)   which together are no more than the whole

The gates of a recurrent step are four parts of a sum, and that of its inputs is a part of the sum for all steps. The
whole of such a sum is a kernel of its own, which writes an array that other kernels read; a part is a line in the
kernel that reads it. Of an LSTM's 32 steps of 32 sequences, 64 to 128, forward and backward, 2.69 ms, products take
2.22 at the peak of the machine; the kernels that are gone took 0.08, and 0.06 of that is gained (the minima of
alternating runs: 2.80 and 2.74 ms). An element is computed from the same elements by the same op, so bits are the same.

A part has to end in loops that can take it in: what products, routines and results read is left whole.
"""

from math import inf, prod

from .extent import estimated, identical, is_open
from .graph import INPUT, SCALAR
from .ops.view import reshape, slice_
from .reads import can_fail
from .rewrite import Rewriter, follow
from .simplify import remove_dead

# Ops one before the other that are cut. Each is written once per part: long chains of them and many parts would make
# programs long in proportion to both.
_MOST_BEFORE = 4


def cut_first(graph):
    """A legal graph -> the same with ops after the slices of their results, and the trace."""
    whole = _cut(graph)
    if not whole:
        return graph, graph.values
    rewriter, cut = Rewriter(graph), set()
    for value in graph.values:
        if _is_part(value) and rewriter[value.operands[0]].number in cut:
            rewriter[value] = _of_part(rewriter.graph, value, rewriter[value.operands[0]], cut)
        else:
            rewriter.copy(value)
        if value.number in whole:
            cut.add(rewriter[value].number)
    parts, first = rewriter.finish()
    clean, second = remove_dead(parts)
    return clean, follow(first, second)


def _is_part(value):
    """Whether it is a slice, or one without dimensions of 1, or with more of them."""
    if value.op is reshape:
        before, after = value.operands[0].shape, value.shape
        return not any(map(is_open, before + after)) and [d for d in before if d > 1] == [d for d in after if d > 1]
    return value.op is slice_


def _of_part(graph, view, x, cut):
    """view(x) of an x that is computed in parts."""
    if x.number not in cut:
        return graph.apply(view.op, (x,), view.attributes)
    operands = tuple(_of_part(graph, view, o, cut) if o.shape else o for o in x.operands)
    part = graph.apply(x.op, operands, x.attributes)
    cut.add(part.number)
    return part


def _cut(graph):
    """Numbers of the values that are computed in parts.

    `demand`: how many elements the parts of a value have that loops read, and the whole if they read that; a part is
    computed once, however many read it. `depth`: how many ops like this stand between a value and the slices, 1 if none
    does.
    """
    demand, depth = [0] * len(graph.values), [0] * len(graph.values)
    for result in graph.results():
        demand[result.number] = inf
    cut = set()
    for value in reversed(graph.values):
        if value.op in (INPUT, SCALAR):
            continue
        here, reached = demand[value.number], depth[value.number]
        is_cut = 0 < reached <= _MOST_BEFORE and here <= _size(value) and _may_be_cut(value)
        if is_cut:
            cut.add(value.number)
        in_memory = set(value.op.kernel.in_memory(value)) if value.op.kernel.is_node else ()
        for k, operand in enumerate(value.operands):
            if _is_part(value):
                read, further = min(here, _size(value)) if here < inf else inf, max(reached, value.op is slice_)
            elif is_cut:
                read, further = here, reached + 1
            else:
                read, further = inf if k in in_memory or not value.op.kernel.is_loop else _size(operand), 0
            demand[operand.number] += read
            depth[operand.number] = max(depth[operand.number], further)
    return cut


def _may_be_cut(value):
    """Elementwise, of operands that are cut in the same way or are single numbers."""
    alike = all(not o.shape or identical(o.shape, value.shape) for o in value.operands)
    return value.op.kind == "elementwise" and alike and bool(value.operands) and not can_fail(value)


def _size(value):
    return estimated(prod(value.shape))
