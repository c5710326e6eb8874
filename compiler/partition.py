"""What a forward program saves for its backward program: a minimum cut of the joint graph.

Nodes are the forward values the backward depends on; cutting one means: this value is in memory when the backward
starts, and what follows from it is computed again. A cut costs the bytes that are moved (saved: written and read;
an input or result that the caller keeps anyway: read; an input that may be changed: copied). Products, reductions and
scattered reads are never computed twice. Method: networkx.minimum_cut with Boykov and Kolmogorov's algorithm.
"""

from dataclasses import dataclass
from math import inf, prod

import networkx
from networkx.algorithms.flow import boykov_kolmogorov

from .graph import INPUT, SCALAR, Graph
from .ops.arithmetic import add

_RECOMPUTED_KINDS = ("elementwise", "view", "source")


@dataclass(frozen=True, slots=True)
class Split:
    """Two graphs. `forward.outputs` ends with the saved values. `sources` says where the backward's inputs come from,
    in order: ("saved", k), ("output", k), ("input", number of the joint input) or ("cotangent", k); `scalars` likewise
    gives the joint graph's scalar for each of the backward's."""

    forward: Graph
    backward: Graph
    n_saved: int
    sources: tuple
    scalars: tuple


def split(joint, n_forward, n_cotangents, readable, kept=()):
    """joint.outputs: the forward's results, then gradients. Its last n_cotangents inputs are the cotangents.

    readable: positions, among joint.inputs(), of the inputs that still hold their value when the backward runs.
    kept: positions, among the forward's results, of those that do.
    """
    inputs = joint.inputs()
    cotangents = inputs[len(inputs) - n_cotangents :]
    gradients = joint.outputs[n_forward:]
    dependent = _descendants(joint, cotangents)
    boundary = _boundary(joint, gradients, dependent)
    free = {v.number for k, v in enumerate(inputs) if k in readable}
    results = {joint.outputs[k].number: k for k in reversed(kept) if joint.outputs[k].op is not INPUT}
    cut = _minimum_cut(joint, boundary, free | results.keys())
    saved = [v for v in joint.values if v.number in cut and v.number not in free and v.number not in results]
    results = {number: k for number, k in results.items() if number in cut}
    forward = _forward(joint, joint.outputs[:n_forward] + saved, cotangents)
    backward, sources, scalars = _backward(joint, gradients, saved, results, cotangents)
    return Split(forward, backward, len(saved), sources, scalars)


def without(parts, absent):
    """The backward for fewer cotangents: a Split that lacks those numbered in `absent`, and the positions of the
    gradients that are left; None if it cannot be told.

    Every rule is linear in its one cotangent, so what depends on an absent one only is absent too. Contributions of
    different cotangents meet in sums of two, where the other one is left.
    """
    old = parts.backward
    known = dict(zip((v.number for v in old.inputs()), parts.sources))
    gone = {n for n, (kind, k) in known.items() if kind == "cotangent" and k in absent}
    present = _descendants(old, [v for v in old.inputs() if known[v.number][0] == "cotangent" and v.number not in gone])
    instead = {}
    for value in old.values:
        left = [o for o in value.operands if o.number not in gone]
        if len(left) == len(value.operands):
            continue
        if not any(o.number in present for o in left):
            gone.add(value.number)
        elif value.op is add:
            instead[value.number] = left[0]
        else:
            return None
    kept = [k for k, v in enumerate(old.outputs) if v.number not in gone]
    return _restricted(parts, instead, [old.outputs[k] for k in kept], known), kept


def _restricted(parts, instead, gradients, known):
    """The backward of these gradients alone, with sums of two replaced by what is left of them."""
    old, values = parts.backward, {}
    graph = Graph(old.name, old.default_float)

    def left_of(value):
        while value.number in instead:
            value = instead[value.number]
        return value

    needed, stack = set(), [left_of(v) for v in gradients]
    while stack:
        value = stack.pop()
        if value.number not in needed:
            needed.add(value.number)
            stack.extend(left_of(o) for o in value.operands)
    for number in sorted(needed):
        value = old.values[number]
        values[number] = graph.copy_value(value, tuple(values[left_of(o).number] for o in value.operands))
    graph.outputs = [values[left_of(v).number] for v in gradients]
    sources = tuple(known[v.number] for v in old.inputs() if v.number in needed)
    scalars = tuple(k for k, v in zip(parts.scalars, old.scalars()) if v.number in needed)
    return Split(parts.forward, graph, parts.n_saved, sources, scalars)


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
    size = prod(value.shape) * value.dtype.size_bytes
    if value.number in free:
        return size + 1
    return (3 if value.op is INPUT else 2) * size + 8


def _minimum_cut(graph, boundary, free):
    """Numbers of the values to have in memory. Values that need no memory (numbers, sources) are never cut."""
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
    for number in sorted(_needed(old, results, values)):
        value = old.values[number]
        values[number] = graph.copy_value(value, tuple(values[o.number] for o in value.operands))
    return values


def _forward(joint, results, cotangents):
    graph = Graph(joint.name, joint.default_float)
    skipped = {v.number for v in cotangents}
    values = {}
    for v in joint.values:
        if v.op in (INPUT, SCALAR) and v.number not in skipped:
            values[v.number] = graph.copy_value(v, ())
    _copy_needed(joint, graph, values, [*results, *(new for _, new in joint.commits)])
    graph.outputs = [values[v.number] for v in results]
    graph.commits = [(values[target.number], values[new.number]) for target, new in joint.commits]
    return graph


def _backward(joint, gradients, saved, results, cotangents):
    graph = Graph(f"{joint.name}_backward", joint.default_float)
    values, sources, scalars = {}, [], []
    for k, v in enumerate(saved):
        values[v.number] = graph.input(v.shape, v.dtype)
        sources.append(("saved", k))
    for number, k in results.items():
        values[number] = graph.input(joint.values[number].shape, joint.values[number].dtype)
        sources.append(("output", k))
    for k, v in enumerate(cotangents):
        values[v.number] = graph.copy_value(v, ())
        sources.append(("cotangent", k))
    needed = _needed(joint, gradients, values)
    for k, v in enumerate(joint.inputs()):
        if v.number in needed and v.number not in values:
            values[v.number] = graph.copy_value(v, ())
            sources.append(("input", k))
    for k, v in enumerate(joint.scalars()):
        if v.number in needed:
            values[v.number] = graph.copy_value(v, ())
            scalars.append(k)
    _copy_needed(joint, graph, values, gradients)
    graph.outputs = [values[v.number] for v in gradients]
    return graph, tuple(sources), tuple(scalars)


def _needed(joint, results, given):
    """Numbers of the values that the results need and `given` does not hold."""
    needed, stack = set(), [v.number for v in results]
    while stack:
        number = stack.pop()
        if number in needed or number in given:
            continue
        needed.add(number)
        stack.extend(o.number for o in joint.values[number].operands)
    return needed
