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

from math import prod

from . import dtypes
from .access import settle_views
from .graph import INPUT, SCALAR
from .ops.reduction import Combine
from .ops.table import TABLE
from .rewrite import Rewriter, follow

# The code generator takes long for functions of thousands of pointers: joining 2000 numbers took 4 s.
_MOST_PARTS = 64


def legalize(graph):
    """graph of primitives -> graph in the forms above, and the trace."""
    rewriter = Rewriter(graph)
    for value in graph.values:
        if value.op in (INPUT, SCALAR):
            rewriter.copy(value)
        elif 0 in value.shape:
            rewriter[value] = full(rewriter.graph, 0, value.shape, value.dtype)
        else:
            rule = _RULES.get(value.op.name) or _RULES.get(value.op.kind)
            new = rule(rewriter.graph, value, rewriter.operands(value)) if rule else None
            rewriter[value] = rewriter.copy(value) if new is None else new
    return rewriter.finish()


def full(graph, number, shape, dtype):
    """A typed constant."""
    return graph.apply(TABLE["full"], (number,), {"shape": tuple(shape), "dtype": dtype})


def convert(graph, value, dtype):
    """value as dtype; a Python number becomes a typed constant."""
    if value.op.name == "constant":
        return full(graph, value, (), dtype)
    if value.dtype is dtype and not value.weak:
        return value
    return graph.apply(TABLE["cast"], (value,), {"dtype": dtype})


def broadcast(graph, value, shape):
    if value.shape in (shape, ()):
        return value
    return graph.apply(TABLE["expand"], (value,), {"shape": shape})


def reshape(graph, value, shape):
    return value if value.shape == shape else graph.apply(TABLE["reshape"], (value,), {"shape": shape})


def _operand_types(graph, value):
    """The dtype of every operand, in the op's own words; for ops without a rule they stay as they are."""
    if value.op.compute_dtype is None:
        return [o.dtype for o in value.operands]
    return value.op.compute_dtype(value.operands, graph.default_float)[0]


def _elementwise(graph, value, operands):
    if value.op.name == "cast" and operands[0].op.name == "constant":
        return full(graph, operands[0], (), value.dtype)
    types = _operand_types(graph, value)
    if value.op.name == "cast":
        types = [operands[0].dtype]
    converted = [x if value.op.name == "cast" else convert(graph, x, d) for x, d in zip(operands, types)]
    return graph.apply(value.op, tuple(broadcast(graph, x, value.shape) for x in converted), value.attributes)


def _same_types(graph, value, operands):
    types = _operand_types(graph, value)
    return graph.apply(value.op, tuple(convert(graph, x, d) for x, d in zip(operands, types)), value.attributes)


def _join(graph, value, operands):
    """cat, without the parts that have no elements; of very many parts, of cats of some of them."""
    filled = [convert(graph, x, value.dtype) for x in operands if 0 not in x.shape]
    while len(filled) > _MOST_PARTS:
        filled = [_joined(graph, value, filled[k : k + _MOST_PARTS]) for k in range(0, len(filled), _MOST_PARTS)]
    return _joined(graph, value, filled)


def _joined(graph, value, parts):
    return parts[0] if len(parts) == 1 else graph.apply(value.op, tuple(parts), value.attributes)


def _update(graph, value, operands):
    """slice_scatter, scatter_add, index_add: x itself where there is nothing to put in."""
    return operands[0] if 0 in operands[-1].shape else _same_types(graph, value, operands)


def _full(graph, value, operands):
    """A computed number is converted and repeated; constants and run-time scalars stay with their source."""
    if operands[0].op.name == "constant":
        return None
    return graph.apply(TABLE["expand"], (convert(graph, operands[0], value.dtype),), {"shape": value.shape})


def _product(graph, value, operands):
    return full(graph, 0, value.shape, value.dtype) if 0 in operands[0].shape else _same_types(graph, value, operands)


def runs(axes):
    """Neighbouring axes together: (0, 1, 3) -> [(0, 2), (3, 1)], each (first axis, how many)."""
    result = []
    for a in axes:
        if result and sum(result[-1]) == a:
            result[-1] = (result[-1][0], result[-1][1] + 1)
        else:
            result.append((a, 1))
    return result


_OF_BOOL = {"amax": "any", "amin": "all"}


def _reduction(graph, value, operands):
    if not isinstance(value.op.lower, Combine):
        return graph.apply(value.op, operands, value.attributes)
    x = convert(graph, operands[0], _operand_types(graph, value)[0])
    op = value.op
    if x.dtype is dtypes.bool_:
        op = TABLE[_OF_BOOL.get(op.name, op.name)]
    for first, count in reversed(runs(value.attributes["axes"])):
        x = _one_run(graph, op, x, tuple(range(first, first + count)))
    return reshape(graph, x, value.shape)


def _one_run(graph, op, x, axes):
    kept = tuple(d for k, d in enumerate(x.shape) if k not in axes)
    n = prod(x.shape[a] for a in axes)
    if n == 0:
        return full(graph, op.lower.identity, kept, x.dtype)
    if n > 1:
        return graph.apply(op, (x,), {"axes": axes, "keepdim": False})
    if op.name == "sum" and x.dtype.is_floating_point:
        x = graph.apply(TABLE["add"], (x, full(graph, 0.0, (), x.dtype)), {})
    return reshape(graph, x, kept)


_RULES = {
    "elementwise": _elementwise,
    "reduction": _reduction,
    "full": _full,
    "cat": _join,
    "slice_scatter": _update,
    "scatter_add": _update,
    "index_add": _update,
    "index_put": _update,
    "bmm": _product,
    "gather": _same_types,
    "index_select": _same_types,
}


# --- the last step before fusion ------------------------------------------------------------------------------------
def settle(graph):
    """Copies where no strides can say a view, and one value of its own for every result.

    reshape(permute(x))  ->  reshape(clone(permute(x)))
    return %1, %1        ->  return %1, clone(%1)         also for inputs, numbers and views as results
    """
    settled, first = settle_views(graph)
    rewriter = Rewriter(settled)
    for value in settled.values:
        operands = rewriter.operands(value)
        if value.op.kind in ("contraction", "movement", "indexing") or value.op.name in ("argmax", "argmin"):
            operands = tuple(_in_memory(rewriter.graph, o) for o in operands)
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


def _own_value(graph, value, taken):
    """A value that is computed, in row-major order, for this result alone."""
    base = value
    while base.op.name == "reshape":
        base = base.operands[0]
    if base.op.kind in ("view", "source") or base in taken:
        clone = graph.apply(TABLE["clone"], (value,), {})
        taken.add(clone)
        return clone
    taken.add(base)
    return value
