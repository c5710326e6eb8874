"""From a recorded graph to LLVM IR text with a memory plan: the list of passes.

    graph -> decompose -> legalize -> simplify -> settle -> fuse -> schedule -> lower -> plan memory -> share -> emit

`compile_graph` is the driver; the passes are pure functions and never print.
"""

import json
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from math import prod

from .decompose import decompose
from .emit.builder import Module
from .emit.gemm import scratch_bytes
from .emit.program import ARRAY_DATA_OFFSET, FIRST_ARRAY_WORD, Program
from .fuse import fuse
from .legalize import legalize, settle
from .likeness import likeness
from .lower import Lowered, lower
from .memory import plan_memory, worker_bytes
from .movers import lower_copy, lower_mover
from .ops.comparison import element_of
from .parallel import share
from .rewrite import follow
from .schedule import schedule
from .simplify import simplify
from .teamwork import commits, works

__all__ = ["ARRAY_DATA_OFFSET", "FIRST_ARRAY_WORD", "Compiled", "KernelInfo", "Plan", "compile_graph"]


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """One call of a kernel: its function's name, the ops it computes, its domain, memory traffic and work (rough)."""

    name: str
    kind: str
    ops: tuple
    domain: tuple
    n_bytes: int
    n_flops: int

    def fields(self):
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**own, "ops": list(self.ops), "domain": list(self.domain)}


@dataclass(frozen=True, slots=True)
class Plan:
    """What the runtime and `explain` need to know about a program; kept in the disk cache beside its object code.

    `has_team`: whether threads share it; `worker_bytes`: scratch memory that each of them needs, beside the arena.
    `groups`: number of a value of the recorded graph -> index of the kernel that computes it, where it has one.
    """

    arena_bytes: int
    has_team: bool
    worker_bytes: int
    n_inputs: int
    n_outputs: int
    n_scalars: int
    kernels: tuple
    refusals: tuple
    groups: dict

    def to_json(self):
        return json.dumps(self.fields())

    def fields(self):
        """As a dict of what JSON gives back unchanged."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        groups = {str(k): v for k, v in self.groups.items()}
        return {**own, "kernels": [k.fields() for k in self.kernels], "refusals": list(self.refusals), "groups": groups}

    @classmethod
    def from_json(cls, text):
        given = json.loads(text)
        kernels = [
            KernelInfo(**{**k, "ops": tuple(k["ops"]), "domain": tuple(k["domain"])}) for k in given.pop("kernels")
        ]
        groups = {int(k): v for k, v in given.pop("groups").items()}
        return cls(**{**given, "kernels": tuple(kernels), "refusals": tuple(given["refusals"]), "groups": groups})


@dataclass(frozen=True, slots=True)
class Compiled:
    """LLVM IR with the entry `i64 @weft_program(ptr table)`, and its plan."""

    text: str
    plan: Plan


def compile_graph(graph, *, lanes_bytes=64, watch=None):
    """The program of a recorded graph. `watch(stage, text)` is called after every stage."""

    def show(stage, thing):
        if watch is not None:
            watch(stage, str(thing))

    show("graph", graph)
    graph.verify_results()
    primitive, first = decompose(graph)
    show("decomposed", primitive)
    legal, second = legalize(primitive)
    simple, third = simplify(legal)
    # Composites are decomposed before simplification so that what two of them share is computed once. Settling comes
    # last because it fixes views as they are, and simplification changes them.
    settled, fourth = settle(simple)
    show("simplified", settled)
    trace = follow(follow(follow(first, second), third), fourth)
    fusion = fuse(settled)
    show("fusion", fusion)
    order = schedule(fusion)
    steps = _lower_all(order, lanes_bytes)
    memory = plan_memory(order, [(s.group, s.written, s.read, s.scratch) for s in steps])
    team = share(works(order, steps, memory))
    steps = _cut_all(steps, team)
    show("loops", _Loops(steps, team))
    text, plan = _emit(trace, order, steps, memory, team)
    show("llvm", text)
    return Compiled(text, plan)


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One kernel call: a group (None for the copy of a commit), its loop nest (None for a product), its traffic, the
    bytes of each scratch, and its Cut if threads share it."""

    title: str
    group: object
    lowered: object
    written: list
    read: list
    scratch: list
    cut: object = None


@dataclass(frozen=True, slots=True, eq=False)
class _Loops:
    """The loop nests of a program, for the dump."""

    steps: list
    team: object

    def __str__(self):
        parts = []
        for k, s in enumerate(self.steps):
            wait = "all threads wait\n" if self.team and self.team.waits[k] else ""
            cut = f", {s.cut.units} units of {s.cut.unit} {s.cut.along}" if s.cut and not s.lowered else ""
            parts.append(f"{wait}{s.title}{cut}\n{s.lowered.kernel if s.lowered else ''}")
        return "\n".join(parts)


def _lower_all(order, lanes_bytes):
    graph, reads = order.fusion.graph, order.fusion.reads
    lowering = _Lowering(reads, order.stored, {v.number: k for k, v in enumerate(graph.scalars())}, lanes_bytes)
    steps = []
    for group in order.order:
        read = order.reads_of[group.number]
        written = [v for v in group.values if v in order.stored]
        lowered, scratch = None, []
        if group.kind == "bmm":
            (value,) = group.values
            # The matrix kernel is the runtime's: it may have wider vectors than this program.
            depth = value.operands[0].shape[-1]
            scratch = [max(scratch_bytes(element_of(value.dtype), depth, width) for width in (32, 64))]
        else:
            lowered = lowering.lowered(group)
            scratch = [what for kind, what in lowered.bindings if kind == "scratch"]
        steps.append(_Step(repr(group), group, lowered, written, read, scratch))
    for base, target in order.copies:
        lowered = lower_copy(base, target, lanes_bytes)
        steps.append(_Step(f"copy %{base.number} to %{target.number}", None, lowered, [], [base], []))
    return steps


class _Lowering:
    """The kernels of a program. Groups that are alike are lowered once and share their Kernel."""

    def __init__(self, reads, stored, slots, lanes_bytes):
        self.reads, self.stored, self.slots, self.lanes_bytes = reads, stored, slots, lanes_bytes
        self.known = {}

    def lowered(self, group):
        alike = likeness(group, self.reads, self.stored, self.slots)
        found = self.known.get(alike.key)
        if found is None:
            lowered = self.lower(group, alike)
            place = {number: k for k, number in enumerate(alike.numbers)}
            found = lowered.kernel, [(kind, place[x] if kind == "value" else x) for kind, x in lowered.bindings]
            self.known[alike.key] = found
        kernel, bindings = found
        numbers = alike.numbers
        bindings = tuple((kind, numbers[x] if kind == "value" else x) for kind, x in bindings)
        return Lowered(kernel, bindings, tuple(first for first, _ in alike.runs) or (0,))

    def lower(self, group, alike):
        if group.kind == "loop":
            lowered = lower(group, self.reads, self.stored, alike.scalars, self.lanes_bytes)
            counts = [count for _, count in alike.runs[:-1]]
            return replace(lowered, kernel=replace(lowered.kernel, scalars=(0, *accumulate(counts))))
        return lower_mover(group.values[0], self.reads.accesses, self.lanes_bytes)


def _cut_all(steps, team):
    """The steps with the cuts of a team. Steps with equal kernels and cuts still share their kernel."""
    if team is None:
        return steps
    known = {}
    return [_cut(step, cut, known) for step, cut in zip(steps, team.cuts)]


def _cut(step, cut, known):
    if cut is None or step.lowered is None:
        return replace(step, cut=cut)
    kernel = step.lowered.kernel
    key = id(kernel), cut
    if key not in known:
        known[key] = replace(kernel, cut=cut)
    return replace(step, cut=cut, lowered=replace(step.lowered, kernel=known[key]))


def _emit(trace, order, steps, memory, team):
    fusion, settled = order.fusion, order.fusion.graph
    module = Module()
    program = Program(module, len(settled.inputs()), team and (team.most, team.ahead_ns))
    first_commit = next((k for k, step in enumerate(steps) if commits(step, memory)), None)
    may_fail = any(step.lowered and step.lowered.kernel.checks for step in steps)
    kernels = []
    for k, step in enumerate(steps):
        if team and team.waits[k]:
            program.wait()
        if may_fail and k == first_commit:
            program.leave_if_failed()
        name = _call(program, memory, fusion.reads, step, k)
        kernels.append(_info(name, step, fusion.reads))
    program.finish()
    numbers = {v.number: k for k, s in enumerate(steps) if s.group for v in s.group.values}
    accesses = fusion.reads.accesses
    groups = {}
    for old, new in enumerate(trace):
        if new is not None and accesses[new.number].base.number in numbers:
            groups[old] = numbers[accesses[new.number].base.number]
    plan = Plan(
        memory.arena_bytes,
        team is not None,
        max((worker_bytes(s.scratch) for s in steps if s.cut), default=0),
        len(settled.inputs()),
        len(settled.outputs),
        len(settled.scalars()),
        tuple(kernels),
        tuple(str(r) for r in fusion.refusals),
        groups,
    )
    return str(module), plan


def _call(program, memory, reads, step, k):
    """Emit the call of a step; the function's name."""
    if step.lowered is None:
        (value,) = step.group.values
        operands = [reads.accesses[o.number] for o in value.operands]
        located = [(memory.place[a.base.number], a) for a in operands]
        program.call_product(*located, (memory.place[value.number], value), memory.scratch[k, 0], step.cut)
        return f"weft_gemm_{element_of(value.dtype)}"
    places, scratch = [], {}
    for position, (kind, what) in enumerate(step.lowered.bindings):
        if kind == "scratch":
            places.append(memory.scratch[k, len(scratch)])
            scratch[position] = what
        else:
            places.append(memory.place[what])
    return program.call_kernel(step.lowered.kernel, places, scratch, step.lowered.first_scalars)


def _info(name, step, reads):
    if step.group is None:
        (base,) = step.read
        return KernelInfo(name, "copy", ("copy",), base.shape, 2 * _n_bytes(base), 0)
    values = step.group.values
    n_bytes = sum(_n_bytes(v) for v in [*step.read, *step.written])
    flops = sum(_n_flops(v) for v in values)
    shapes = [v.operands[0].shape if v.op.kind == "reduction" else v.shape for v in values]
    domain = max(shapes, key=prod)
    return KernelInfo(name, step.group.kind, tuple(v.op.name for v in values), domain, n_bytes, flops)


def _n_bytes(value):
    return prod(value.shape) * value.dtype.size_bytes


def _n_flops(value):
    if value.op.name == "bmm":
        return 2 * prod(value.shape) * value.operands[0].shape[-1]
    if value.op.kind == "reduction":
        return prod(value.operands[0].shape)
    return prod(value.shape) if value.op.kind == "elementwise" else 0
