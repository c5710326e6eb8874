"""What a forward program saves for its backward program: a minimum cut of the joint graph.

Nodes are the forward values the backward depends on; cutting one means: this value is in memory when the backward
starts, and what follows from it is computed again. A cut costs the bytes that are moved (saved: written and read;
an input or result that the caller keeps anyway: read; an input that may be changed: copied). Products, reductions and
scattered reads are never computed twice. Method: networkx.minimum_cut with Boykov and Kolmogorov's algorithm.
"""

from dataclasses import dataclass
from math import inf, prod

from .extent import estimated
from .graph import INPUT, SCALAR, Graph
from .later import expect_logging
from .reads import may_fail

_RECOMPUTED_KINDS = ("elementwise", "view", "source")


@dataclass(frozen=True, slots=True)
class Split:
    """Two graphs. `forward.outputs` ends with the saved values. `sources` says where the backward's inputs come from,
    in order: ("saved", k), ("output", k), ("input", number of the joint input) or ("cotangent", k); `scalars` likewise
    gives the joint graph's scalar for each of the backward's. `given`: the first two kinds by the joint's values.
    `cut`: the numbers of the joint's values that are in memory in between."""

    forward: Graph
    backward: Graph
    sources: tuple
    scalars: tuple
    given: dict
    cut: tuple


def split(joint, n_forward, n_cotangents, readable, kept=(), cut=None, copied=()):
    """joint.outputs: the forward's results, then gradients. Its last n_cotangents inputs are the cotangents.

    readable: positions, among joint.inputs(), of the inputs that still hold their value when the backward runs.
    kept: positions, among the forward's results, of those that do. cut: what was decided before, if it was.
    copied: positions of inputs that the forward gives copies of at its very end, which the backward does not read.
    """
    inputs = joint.inputs()
    cotangents = inputs[len(inputs) - n_cotangents :]
    gradients = joint.outputs[n_forward:]
    dependent = _descendants(joint, cotangents)
    boundary = _boundary(joint, gradients, dependent)
    free = {v.number for k, v in enumerate(inputs) if k in readable}
    results = {joint.outputs[k].number: k for k in reversed(kept) if joint.outputs[k].op is not INPUT}
    if cut is None:
        cut = _minimum_cut(joint, boundary, free | results.keys())
    saved = [v for v in joint.values if v.number in cut and v.number not in free and v.number not in results]
    given = {v.number: ("saved", k) for k, v in enumerate(saved)}
    given.update((number, ("output", k)) for number, k in results.items() if number in cut)
    checks = [v for v in joint.values if v.number not in dependent and may_fail(v)]
    forward = _forward(joint, joint.outputs[:n_forward] + saved + [inputs[k] for k in copied], checks, cotangents)
    ends = {v.number: ("cotangent", k) for k, v in enumerate(cotangents)}
    ends.update((v.number, ("input", k)) for k, v in enumerate(inputs[: len(inputs) - n_cotangents]))
    backward, sources, scalars = _backward(joint, gradients, {**ends, **given})
    return Split(forward, backward, sources, scalars, given, tuple(sorted(cut)))


def backward_from(joint, n_forward, n_cotangents, readable, given, all_scalars=False):
    """(backward graph, sources, scalars) of another joint graph over the same forward, where `given` says what is in
    memory: {number of a value: its source}. None if that is not enough. `all_scalars`: the graph takes all of them, in
    their order, because steps that stand for a loop name theirs by where it is among all.
    """
    inputs = joint.inputs()
    sources = dict(given)
    for k, v in enumerate(inputs[len(inputs) - n_cotangents :]):
        sources[v.number] = ("cotangent", k)
    for k, v in enumerate(inputs[: len(inputs) - n_cotangents]):
        if k in readable:
            sources.setdefault(v.number, ("input", k))
    gradients = joint.outputs[n_forward:]
    missing = [n for n in _needed(joint, gradients, sources) - sources.keys() if joint.values[n].op is INPUT]
    return None if missing else _backward(joint, gradients, sources, all_scalars)


def value_keys(graph, names, table):
    """One number per value, the same for equal computations in graphs that share `table`. names: of the inputs, then of
    the run-time numbers."""
    keys, names = [], iter(names)
    named = {v.number: name for v, name in zip([*graph.inputs(), *graph.scalars()], names)}
    for v in graph.values:
        text = named.get(v.number) or (v.op.name, repr(sorted(v.attributes.items())), v.dtype.name)
        keys.append(table.setdefault((text, *(keys[o.number] for o in v.operands)), len(table)))
    return keys


def _descendants(graph, starts):
    found = {v.number for v in starts}
    for v in graph.values:
        if any(o.number in found for o in v.operands):
            found.add(v.number)
    return found


def _boundary(graph, gradients, dependent):
    """Numbers of the forward values that the backward's ops read."""
    boundary, seen, stack = [], set(), [v.number for v in gradients]
    while stack:
        number = stack.pop()
        if number in seen:
            continue
        seen.add(number)
        if number not in dependent:
            boundary.append(number)
            continue
        stack.extend(o.number for o in graph.values[number].operands)
    return sorted(boundary)


def _cost(value, free):
    size = estimated(prod(value.shape)) * value.dtype.size_bytes
    if value.number in free:
        return size + 1
    return (3 if value.op is INPUT else 2) * size + 8


def _minimum_cut(graph, boundary, free):
    """Numbers of the values to have in memory. Values that need no memory (numbers, sources) are never cut."""
    # Imported here: it takes 0.1 s, and programs that no backward follows never need it.
    expect_logging()
    import networkx
    from networkx.algorithms.flow import boykov_kolmogorov

    network = networkx.DiGraph()
    network.add_nodes_from(("start", "end"))
    stack, seen = list(boundary), set()
    while stack:
        number = stack.pop()
        if number in seen:
            continue
        seen.add(number)
        value = graph.values[number]
        if value.op is SCALAR:
            continue
        network.add_edge((number, 0), (number, 1), capacity=_cost(value, free))
        if value.op is INPUT or value.op.kind not in _RECOMPUTED_KINDS:
            network.add_edge("start", (number, 0), capacity=inf)
            continue
        for operand in value.operands:
            if operand.op is not SCALAR:
                network.add_edge((operand.number, 1), (number, 0), capacity=inf)
                stack.append(operand.number)
    for number in boundary:
        if graph.values[number].op is not SCALAR:
            network.add_edge((number, 1), "end", capacity=inf)
    _, (reachable, _) = networkx.minimum_cut(network, "start", "end", flow_func=boykov_kolmogorov)
    return {n for n in seen if (n, 0) in reachable and (n, 1) not in reachable and (n, 0) in network}


def _copy_needed(old, graph, values, results):
    """Copy what the results need and `values` does not already give."""
    for number in sorted(_needed(old, results, values) - values.keys()):
        value = old.values[number]
        values[number] = graph.copy_value(value, tuple(values[o.number] for o in value.operands))
    return values


def _forward(joint, results, checks, cotangents):
    """checks: what is computed even if nobody needs it, because it may be an error."""
    graph = Graph(joint.name, joint.default_float)
    skipped = {v.number for v in cotangents}
    values = {}
    for v in joint.values:
        if v.op in (INPUT, SCALAR) and v.number not in skipped:
            values[v.number] = graph.copy_value(v, ())
    _copy_needed(joint, graph, values, [*results, *(new for _, new in joint.commits), *checks])
    graph.outputs = [values[v.number] for v in results]
    graph.commits = [(values[target.number], values[new.number]) for target, new in joint.commits]
    return graph


def _backward(joint, gradients, sources, all_scalars=False):
    """The graph of the gradients from values in memory: (graph, sources of its inputs, which scalars it takes)."""
    graph = Graph(f"{joint.name}_backward", joint.default_float)
    values, used, scalars = {}, [], []
    needed = _needed(joint, gradients, sources)
    order = ("saved", "output", "cotangent", "input")
    for number in sorted(sources, key=lambda n: (order.index(sources[n][0]), sources[n][1])):
        value = joint.values[number]
        if number in needed:
            # What the forward gives is row-major, a copy of an input with other strides too.
            strides = value.strides if sources[number][0] == "input" else None
            values[number] = graph.input(value.shape, value.dtype, strides)
            used.append(sources[number])
    for k, v in enumerate(joint.scalars()):
        if all_scalars or v.number in needed:
            values[v.number] = graph.copy_value(v, ())
            scalars.append(k)
    _copy_needed(joint, graph, values, gradients)
    graph.outputs = [values[v.number] for v in gradients]
    return graph, tuple(used), tuple(scalars)


def _needed(joint, results, given):
    """Numbers of the values that the results need, down to those that `given` holds."""
    needed, stack = set(), [v.number for v in results]
    while stack:
        number = stack.pop()
        if number not in needed:
            needed.add(number)
            if number not in given:
                stack.extend(o.number for o in joint.values[number].operands)
    return needed
