"""Everything implicit becomes explicit, so that the passes after this one see few forms.

    add(f32[3], i64[])       ->  add(f32[3], cast(i64[]))                         conversions are casts
    add(f32[2, 3], f32[3])   ->  add(f32[2, 3], expand(f32[3]))                   broadcasting is a view
    add(f32[3], 2)           ->  add(f32[3], full(2) : f32[])                     numbers have a type
    sum(x, axes=(0, 2))      ->  sum(sum(x, axes=(2,)), axes=(0,))                one run at a time, the last first
    sum over n = 1           ->  add(x, 0.0)      what one step from the start value gives: -0.0 becomes 0.0
    sum over n = 0           ->  full(0)
    amax of bool             ->  any;  amin of bool -> all
    any value without elements -> full(0)

Zero-dimensional operands of elementwise ops stay as they are: they broadcast without a view.
"""

from .access import settle_views
from .conversions import full
from .graph import INPUT, SCALAR
from .ops.table import TABLE
from .rewrite import Rewriter, follow
from .target import WIDEST


def legalize(graph):
    """graph of primitives -> graph in the forms above, and the trace."""
    rewriter = Rewriter(graph)
    for value in graph.values:
        if value.op in (INPUT, SCALAR):
            rewriter.copy(value)
        elif 0 in value.shape:
            rewriter[value] = full(rewriter.graph, 0, value.shape, value.dtype)
        else:
            new = value.op.kernel.convert(rewriter.graph, value, rewriter.operands(value))
            rewriter[value] = rewriter.copy(value) if new is None else new
    return rewriter.finish()


# --- the last step before fusion ------------------------------------------------------------------------------------
def settle(graph, target=WIDEST):
    """Copies where no strides can say a view, and one value of its own for every result.

    reshape(permute(x))  ->  reshape(clone(permute(x)))
    return %1, %1        ->  return %1, clone(%1)         also for inputs, numbers and views as results
    """
    settled, first = settle_views(graph, target)
    rewriter = Rewriter(settled)
    for value in settled.values:
        operands = list(rewriter.operands(value))
        stored = _in_rows if value.op.kernel.needs_row_major else _in_memory
        for k in value.op.kernel.in_memory(value):
            operands[k] = stored(rewriter.graph, operands[k])
        operands = tuple(operands)
        rewriter[value] = rewriter.graph.copy_value(value, operands)
    taken = set()
    new_graph = rewriter.graph
    new_graph.outputs = [_own_value(new_graph, rewriter[v], taken) for v in settled.outputs]
    new_graph.commits = [(rewriter[t], _own_value(new_graph, rewriter[v], taken)) for t, v in settled.commits]
    return new_graph, follow(first, rewriter.trace)


def _in_memory(graph, value):
    """value, or a copy of one that no memory holds."""
    base = value
    while base.op.kind == "view":
        base = base.operands[0]
    if base.op.kind != "source" or base.op is INPUT:
        return value
    return graph.apply(TABLE["clone"], (value,), {})


def _in_rows(graph, value):
    """value, or a copy of one that is not in memory, or not in row-major order."""
    base = value
    while "row-major" in base.op.traits:
        base = base.operands[0]
    is_stored = base.op is INPUT or base.op.kind not in ("view", "source")
    return value if is_stored and base.strides is None else graph.apply(TABLE["clone"], (value,), {})


def _own_value(graph, value, taken):
    """A value that is computed, in row-major order, for this result alone."""
    base = value
    while "row-major" in base.op.traits:
        base = base.operands[0]
    if base.op.kind in ("view", "source") or base in taken:
        clone = graph.apply(TABLE["clone"], (value,), {})
        taken.add(clone)
        return clone
    taken.add(base)
    return value
