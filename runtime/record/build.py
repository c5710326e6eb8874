"""From recorded steps to graphs, and from graphs to IR text: what happens on a miss in the disk cache."""

import gc
import hashlib
from contextlib import contextmanager
from dataclasses import dataclass

from ...compiler import partition
from ...compiler.autodiff import backward, vjp
from ...compiler.decompose import decompose
from ...compiler.dtypes import without_kernels
from ...compiler.extent import Fixed
from ...compiler.graph import Graph
from ...compiler.ops.comparison import cast
from ...compiler.ops.source import full
from ...compiler.pipeline import compile_graph
from ...compiler.reads import may_fail
from ...compiler.simplify import simplify
from ..code.dump import watcher
from ..code.jit import kernel_target
from ..programs.background import is_here
from ..programs.places import described
from ..programs.recording import ASSIGN, BACKWARD, GRADIENTS, INPUT, NUMBER_DTYPES, UPDATE
from .frame_autograd import reach, read_before_changes, readable_values, saved_by_nodes, summed_leaves


class GraphBuilder:
    """A graph grown from the steps of a stretch (description.py).

    `inputs[k]` is the number of the value the graph's k-th input is; values in the same memory share one input.
    `numbers[k]` is the (position, kind) of its k-th scalar.
    """

    def __init__(self, stretch):
        self.stretch = stretch
        self.graph = Graph(stretch.name, stretch.default_dtype)
        self.values = {}
        self.inputs = []
        self.numbers = []
        self._scalars = {}
        self.stopped = set()

    def value(self, vid):
        found = self.values.get(vid)
        if found is None:
            found = self.values[vid] = self._input(vid)
        return found

    def _input(self, vid):
        # After an in-place change was written back, the new value lives in the memory of the old one.
        home = self.stretch.same.get(vid, vid)
        if home != vid:
            return self.value(home)
        meta, strides = self.stretch.metas[vid], self.stretch.strides[vid]
        self.inputs.append(vid)
        return self.graph.input(meta.shape, meta.dtype, strides)

    def number(self, position, code):
        found = self._scalars.get(position)
        if found is None:
            found = self._scalars[position] = self.graph.scalar(NUMBER_DTYPES[code])
            self.numbers.append((position, code))
        return found

    def add(self, step):
        if step.op in (INPUT, ASSIGN):
            return
        if step.op in (BACKWARD, GRADIENTS):
            self._backward(step)
        elif step.op == UPDATE:
            self._update(step)
        else:
            position, operands = step.first_number, []
            for k in step.operands:
                operands.append(self.value(k) if k >= 0 else self.number(position, k))
                position += k < 0
            self._define(step.first, self.graph.apply(step.op, operands, step.attributes))

    def _define(self, vid, value):
        meta = self.stretch.metas[vid]
        # Memory is made, or was made by others, for what was recorded: a program must not write anything else there.
        given, wanted = (value.shape, value.dtype), (meta.shape, meta.dtype)
        if given != wanted:
            raise AssertionError(f"value {vid} was recorded as {wanted}, and {value!r} is {given}")
        self.values[vid] = value
        if not meta.history:
            self.stopped.add(value.number)

    def _backward(self, step):
        n = step.detail.n_outputs
        outputs = [self.value(v) for v in step.operands[:n]]
        cotangents = [
            self.graph.apply(full, (1,), {"shape": out.shape, "dtype": out.dtype}) if k < 0 else self.value(k)
            for out, k in zip(outputs, step.operands[n : 2 * n])
        ]
        wanted = [self.value(v) for v in step.detail.wanted]
        for offset, gradient in enumerate(backward(self.graph, outputs, cotangents, wanted, frozenset(self.stopped))):
            assert gradient is not None, f"backward at {step.line}: input {step.detail.wanted[offset]} is not reached"
            self._define(step.first + offset, gradient)

    def _update(self, step):
        rule, flags = step.attributes.rule, step.attributes.flags
        detail, vid = step.detail, step.first
        numbers = [self.number(step.first_number + k, -3) for k in range(detail.n_numbers)]
        for start in range(0, len(step.operands), detail.row_length):
            row = [self.value(k) for k in step.operands[start : start + detail.row_length]]
            new = rule(*row, *numbers, **flags)
            for position in detail.targets:
                value, target = new[position], row[position]
                if value.dtype is not target.dtype:
                    value = self.graph.apply(cast, (value,), {"dtype": target.dtype})
                self._define(vid, value)
                vid += 1


def graph_of(stretch, differentiable=()):
    """The graph of the pending steps, or of the whole call if a backward reads earlier ones."""
    builder = GraphBuilder(stretch)
    for step in stretch.steps if differentiable else stretch.built:
        builder.add(step)
    return builder


def _finish(builder, needed):
    """Results of the graph, and (where earlier steps were rebuilt) their values taken from memory instead."""
    graph = builder.graph
    graph.outputs = [builder.value(v) for v in needed.live]
    graph.commits = [(builder.value(target), builder.value(new)) for target, new in needed.commits]


def _from_memory(builder, cotangents=()):
    """(the graph with values that an earlier flush left in memory as inputs, its inputs, its numbers). `cotangents`,
    the last inputs of the graph, stay the last and have no number."""
    stretch = builder.stretch
    in_memory = set(stretch.known)
    known = {value.number: vid for vid, value in builder.values.items() if vid in in_memory and not value.is_source}
    if not known:
        return builder.graph, builder.inputs, builder.numbers
    old, inputs, numbers = builder.graph, [], []
    new = Graph(old.name, old.default_float)
    place = {v.number: k for k, v in enumerate(old.inputs())}
    scalar_place = {v.number: k for k, v in enumerate(old.scalars())}
    values, made = {}, {}

    def input_of(v, vid):
        """One input for all that is in the same memory: what was written back is where the old value was."""
        home = stretch.same.get(vid, vid)
        if home not in made:
            made[home] = new.input(v.shape, v.dtype, stretch.strides[home])
            inputs.append(home)
        return made[home]

    for number in _needed_values(old, known, [*cotangents, *_checks(builder)]):
        v = old.values[number]
        if number in known:
            values[number] = input_of(v, known[number])
        elif place.get(number, len(builder.inputs)) < len(builder.inputs):
            values[number] = input_of(v, builder.inputs[place[number]])
        else:
            values[number] = new.copy_value(v, tuple(values[o.number] for o in v.operands))
            if number in scalar_place:
                numbers.append(builder.numbers[scalar_place[number]])
    new.outputs = [values[v.number] for v in old.outputs]
    new.commits = [(values[t.number], values[n.number]) for t, n in old.commits]
    return new, inputs, numbers


def _checks(builder):
    """The values of pending steps that may be an error, whether anybody needs them or not."""
    pending = builder.stretch.steps[builder.stretch.flushed :]
    return [v for vid, v in builder.values.items() if pending and vid >= pending[0].first and may_fail(v)]


def _needed_values(graph, known, others):
    """Numbers of the values that the results need, where `known` ones need nothing; and of others, with theirs."""
    targets = [t for t, _ in graph.commits]
    needed, stack = set(), [v.number for v in (*graph.results(), *targets, *others)]
    while stack:
        number = stack.pop()
        if number not in needed:
            needed.add(number)
            if number not in known:
                stack.extend(o.number for o in graph.values[number].operands)
    return sorted(needed)


def meta_of(graph, inputs, numbers, n_live, compiled, extra=None):
    outputs = [(list(v.shape), v.dtype.name) for v in graph.outputs]
    meta = {
        "inputs": list(inputs),
        "places": described(graph),
        "numbers": [list(n) for n in numbers],
        "outputs": outputs,
        "n_live": n_live,
        "arena": compiled.plan.arena_bytes,
        "has_team": compiled.plan.has_team,
        "worker_bytes": compiled.plan.worker_bytes,
        "symbols": list(compiled.plan.symbols),
        "writes": list(compiled.plan.writes),
        "plan": compiled.plan.fields(),
        "graph": str(graph),
        "extents": list(compiled.plan.extents),
    }
    return {**meta, **(extra or {})}


@contextmanager
def uncollected():
    """Building a program makes many objects, nearly all of which live until it ends. The collector would look at all of
    them again whenever there are a quarter more, which took a third of the time for long programs. In the background it
    goes on: what else the process does meanwhile needs it, and may turn it off."""
    if is_here():
        yield
        return
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def forward_graph(stretch, needed):
    """(graph, its inputs, its numbers) of the program for `needed`, if nothing of it is differentiated later."""
    builder = graph_of(stretch)
    _finish(builder, needed)
    return _from_memory(builder)


@uncollected()
def uncompiled_forward(stretch, needed):
    """What build_forward makes a program of: (graph of primitives, numbers of its scalars, meta as far as it goes)."""
    if needed.differentiable:
        joint, parts, extra = _split_forward(stretch, needed)
        return parts.forward, joint.numbers, {**extra, "inputs": joint.inputs}
    graph, inputs, numbers = forward_graph(stretch, needed)
    return decompose(graph)[0], numbers, {"inputs": inputs}


@uncollected()
def build_forward(stretch, needed):
    """(meta, IR text) of the program for `needed`."""
    if needed.differentiable:
        return _build_joint(stretch, needed)
    graph, inputs, numbers = forward_graph(stretch, needed)
    compiled = compile_graph(graph, target=kernel_target(), watch=watcher(graph.name))
    return meta_of(graph, inputs, numbers, len(needed.live), compiled), compiled.text


# --- a call whose results are differentiated later ------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Joint:
    """A forward and its gradients in one graph, simplified. The last inputs are the cotangents of `present` and what
    has been summed before for `continued`; `inputs` and `numbers` name the others, `reached` the leaves that get
    gradients."""

    graph: Graph
    n_forward: int
    n_cotangents: int
    inputs: list
    numbers: list
    reached: list
    readable: list
    kept: list

    def keys(self, table):
        """One key per value (partition.value_keys)."""
        cotangents = [("cotangent", k) for k in range(self.n_cotangents)]
        names = [*(("input", v) for v in self.inputs), *cotangents, *(("number", p) for p, _ in self.numbers)]
        return partition.value_keys(self.graph, names, table)


def joint_of(stretch, needed, present, continued):
    builder = graph_of(stretch, needed.differentiable)
    _finish(builder, needed)
    graph = builder.graph
    n_forward = len(graph.outputs)
    outputs = [builder.value(v) for v in present]
    leaves = reach(stretch, present)[1]
    wanted = [builder.value(v) for v in leaves]
    cotangents = [graph.input(out.shape, out.dtype) for out in outputs]
    sums = {v: graph.input(builder.value(v).shape, builder.value(v).dtype) for v in continued}
    before = [sums.get(v) for v in leaves]
    gradients = backward(graph, outputs, cotangents, wanted, frozenset(builder.stopped), before)
    reached = [vid for vid, g in zip(leaves, gradients) if g is not None]
    graph.outputs = graph.outputs + [g for g in gradients if g is not None]
    last = [*cotangents, *sums.values()]
    graph, inputs, numbers = _from_memory(builder, last)
    simple, _ = simplify(decompose(graph)[0])
    unchanged = readable_values(stretch, [*inputs, *needed.live], needed.differentiable)
    readable = [k for k, vid in enumerate(inputs) if vid in unchanged]
    kept = [k for k, vid in enumerate(needed.live) if vid in unchanged]
    return Joint(simple, n_forward, len(last), inputs, numbers, reached, readable, kept)


def split_of(joint, cut=None, copied=()):
    return partition.split(joint.graph, joint.n_forward, joint.n_cotangents, joint.readable, joint.kept, cut, copied)


def _digest(joint):
    return hashlib.sha256(str(joint.graph).encode()).hexdigest()


def _split_forward(stretch, needed):
    """(Joint, Split, what the node of the call asks of its program)."""
    joint = joint_of(stretch, needed, needed.differentiable, ())
    before = [v for v in read_before_changes(stretch, needed) if v in joint.inputs]
    parts = split_of(joint, copied=[joint.inputs.index(v) for v in before])
    kept = sorted(saved_by_nodes(stretch, [*needed.live, *stretch.known]) - stretch.externals)
    extra = {"reached": joint.reached, "kept": kept, "before": before, "backward_graph": str(parts.backward)}
    extra["summed"] = summed_leaves(stretch, needed.differentiable)
    extra["split"] = [_digest(joint), list(parts.cut)]
    return joint, parts, extra


def _build_joint(stretch, needed):
    joint, parts, extra = _split_forward(stretch, needed)
    compiled = compile_graph(parts.forward, target=kernel_target(), watch=watcher(parts.forward.name))
    return meta_of(parts.forward, joint.inputs, joint.numbers, len(needed.live), compiled, extra), compiled.text


@uncollected()
def build_backward(stretch, needed, present, continued, split=None):
    """(meta, IR text) of the program from saved values and cotangents to gradients.

    present: the results that got a cotangent. continued: the leaves whose gradient goes on from a sum of what came
    before. split: what the forward's meta says of its own, if that is not decided by the stretch alone. None if the
    values saved for all results are not enough.
    """
    found = uncompiled_backward(stretch, needed, present, continued, split)
    if found is None:
        return None
    graph, numbers, extra = found
    compiled = compile_graph(graph, target=kernel_target(), watch=watcher(graph.name))
    return {**meta_of(graph, [], numbers, len(graph.outputs), compiled), **extra}, compiled.text


@uncollected()
def uncompiled_backward(stretch, needed, present, continued, split=None):
    """What build_backward makes a program of, as uncompiled_forward gives it."""
    joint = joint_of(stretch, needed, needed.differentiable, ())
    if split is not None and split[0] != _digest(joint):
        raise Fixed("the forward was compiled in another form")
    parts = split_of(joint, split and frozenset(split[1]))
    graph, sources, scalars = parts.backward, parts.sources, parts.scalars
    if present != needed.differentiable or continued:
        other = joint_of(stretch, needed, present, continued)
        found = _backward_of(other, joint, parts)
        if found is None:
            return None
        joint, (graph, sources, scalars) = other, found
    sources = [source_of(kind, k, joint, needed, present, continued) for kind, k in sources]
    extra = {"inputs": list(range(len(sources))), "sources": sources, "reached": joint.reached}
    return graph, [joint.numbers[k] for k in scalars], extra


def _backward_of(other, joint, parts):
    """The backward of another joint graph from what the split of the usual one keeps in memory."""
    table = {}
    keys = joint.keys(table)
    given = {keys[number]: source for number, source in parts.given.items()}
    found = {number: given[key] for number, key in enumerate(other.keys(table)) if key in given}
    return partition.backward_from(other.graph, other.n_forward, other.n_cotangents, other.readable, found)


def source_of(kind, k, joint, needed, present, continued):
    """Where an input of the backward comes from: ("input", value), ("saved", k), ("cotangent", k) or ("sum", value)."""
    if kind == "cotangent" and k >= len(present):
        return ["sum", continued[k - len(present)]]
    if kind == "cotangent":
        return ["cotangent", needed.differentiable.index(present[k])]
    return [kind, k] if kind == "saved" else ["input", (joint.inputs if kind == "input" else needed.live)[k]]


# --- what eager mode does to large operands (fused.py) ----------------------------------------------------------------
def build_rules(rule, metas, attributes, strides):
    """(meta, IR text) of a Rule on what is given, in its order: the result of its op, or the cotangents of the
    differentiated operands; None if a step has no kernel. `strides`: of what is not in row-major order, by position.
    Inputs have their positions as numbers; only those that are read count."""
    graph = Graph(rule.op.name, rule.default_dtype)
    given = [
        graph.scalar(m.dtype) if m.weak else graph.input(m.shape, m.dtype, strides.get(k)) for k, m in enumerate(metas)
    ]
    if rule.differentiated is None:
        graph.outputs = [graph.apply(rule.op, tuple(given), attributes)]
    else:
        graph.outputs = _cotangents(rule, attributes, *given)
    graph, kept = pruned(graph)
    if not all(map(has_kernel, decompose(graph)[0].values)):
        return None
    places = {v.number: k for k, v in enumerate(given)}
    inputs = [places[number] for number in kept if not given[places[number]].weak]
    numbers = [(places[n], _CODES[given[places[n]].dtype]) for n in kept if given[places[n]].weak]
    compiled = compile_graph(graph, target=kernel_target(), watch=watcher(graph.name))
    return meta_of(graph, inputs, numbers, len(graph.outputs), compiled), compiled.text


_CODES = {dtype: code for code, dtype in NUMBER_DTYPES.items()}


def _cotangents(rule, attributes, cotangent, out, *operands):
    wanted = [k for k, differentiated in enumerate(rule.differentiated) if differentiated]
    found = [vjp(rule.op, k, cotangent, out, operands, attributes) for k in wanted]
    return [v for v in found if v is not None]


def link_has_kernels(link, metas, requires, attributes, default_dtype):
    """Whether programs can compute the cotangents of the operands of a link (linked.py) that want one."""
    graph = Graph(link.name, default_dtype)
    operands = tuple(graph.scalar(m.dtype) if m.weak else graph.input(m.shape, m.dtype) for m in metas)
    cotangent = graph.input(metas[0].shape, metas[0].dtype)
    for k in range(1, len(operands)):
        if requires[k]:
            vjp(link, k, cotangent, operands[0], operands, attributes)
    return all(map(has_kernel, decompose(graph)[0].values))


def pruned(graph):
    """(the graph without values that nothing needs, the numbers that its inputs and scalars had)."""
    pruned, values = Graph(graph.name, graph.default_float), {}
    needed = _needed_values(graph, (), ())
    for number in needed:
        v = graph.values[number]
        values[number] = pruned.copy_value(v, tuple(values[o.number] for o in v.operands))
    pruned.outputs = [values[v.number] for v in graph.outputs]
    given = {v.number for v in (*graph.inputs(), *graph.scalars())}
    return pruned, [number for number in needed if number in given]


def has_kernel(value):
    types = [o.dtype for o in (*value.operands, value)]
    check = value.op.extra.get("eager_only")
    return not without_kernels(types) and (check is None or check(types, value.attributes) is None)
