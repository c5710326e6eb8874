"""Steps that stand for a loop in a graph, done one after the other on arrays, while no program does them."""

from math import prod

from ...compiler.decompose import decompose
from ...compiler.graph import Graph
from ...compiler.ops.rolled import ROLLED, regions
from ...compiler.ops.steps import STEPS
from ..state.aligned import new_array
from .graph_values import computed, leading_to


def is_loop(value):
    return value.op in (ROLLED, STEPS)


def loop_computed(value, operands, numbers, default_float):
    """The result of such a value, from the arrays of its operands and all run-time numbers of its graph."""
    if value.op is ROLLED:
        return _rolled(value, operands, numbers)
    return _counted(value, operands, default_float)


def _rolled(value, operands, numbers):
    """compiler/ops/rolled.py says what lies where."""
    attributes, body = value.attributes, value.attributes["body"].graph
    flat, result = [x.reshape(-1) for x in operands], new_array(value.shape, value.dtype.numpy)
    inputs, scalars, before = body.inputs(), body.scalars(), None
    n_reads, outputs = len(attributes["reads"]), list(zip(regions(attributes), attributes["kept"]))

    def part(operand, start, like):
        return flat[operand][start : start + prod(like.shape)].reshape(like.shape)

    for k in range(attributes["count"]):
        known = {v: part(o, at + k * move, v) for v, (o, at, move) in zip(inputs, attributes["reads"])}
        for v, (o, at, output) in zip(inputs[n_reads:], attributes["carried"]):
            known[v] = part(o, at, v) if before is None else before[output]
        first = attributes["scalars"] + k * len(scalars)
        known.update(zip(scalars, numbers[first : first + len(scalars)]))
        before = _outputs(body, known)
        for ((start, size), is_kept), x in zip(outputs, before):
            start += k * size * is_kept
            result[start : start + size] = x.reshape(-1)
    return result


def _counted(value, operands, default_float):
    """compiler/ops/steps.py says what follows what."""
    facts = value.attributes
    n = facts["n_sequences"]
    body = Graph("step", default_float)
    shapes = [x.shape[1:] if k < n else x.shape for k, x in enumerate(operands)]
    given = tuple(body.input(shape, o.dtype) for shape, o in zip(shapes, value.operands))
    body.outputs = [value.op.kernel.row_of(given, **facts)]
    body, _ = decompose(body)
    result, row = new_array(value.shape, value.dtype.numpy), operands[n]
    steps = range(value.shape[0])
    for t in reversed(steps) if facts["reverse"] else steps:
        known = dict(zip(body.inputs(), (*(x[t] for x in operands[:n]), row, *operands[n + 1 :])))
        (row,) = _outputs(body, known)
        result[t] = row
    return result


def _outputs(body, known):
    for v in leading_to(body.outputs, known):
        known[v] = computed(v, known, body.default_float)
    return [known[v] for v in body.outputs]
