"""From a recorded graph to LLVM IR text with a memory plan: the list of passes.

    graph -> decompose -> join parts -> widen -> legalize -> simplify -> cut first -> settle -> fuse, and again with
    what other groups compute again -> schedule -> lower -> sums in blocks -> plan memory -> share -> emit

`compile_graph` is the driver; the passes are pure functions and never print.
"""

from dataclasses import dataclass, fields, replace
from functools import partial, reduce
from itertools import accumulate
from math import prod

from .again import compute_again
from .cut_first import cut_first
from .decompose import decompose
from .emit.builder import Module
from .emit.interrupt import LOOK_EVERY, MOST_LOOKS
from .emit.program import ARRAY_DATA_OFFSET, FIRST_SYMBOL_WORD, Program
from .emit.unlocked import LET_GO_FROM
from .extent import estimated, scope_of, upper
from .fuse import fuse
from .graph import Graph
from .join_parts import join_parts
from .joined import joins_in_place
from .legalize import legalize, settle
from .likeness import likeness
from .loopnest import Apply, Reduce, statements
from .lower import lower
from .lowered import GridCall, Loops, PanelProduct, Product, RoutineCall, UnitCall
from .memory import plan_memory, worker_bytes
from .parallel import estimate_for_large, share
from .plain import changed
from .rewrite import follow
from .schedule import schedule
from .simplify import simplify
from .stepwise import RolledCall, StepBody, StepsCall
from .target import WIDEST
from .teamwork import commits, works
from .widen import widen
from .writer import lower_copy, lower_nest

__all__ = ["ARRAY_DATA_OFFSET", "FIRST_SYMBOL_WORD", "Compiled", "KernelInfo", "Plan", "compile_graph"]


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """One call of a kernel: its function's name, the ops it computes, its domain, memory traffic and work (rough).

    `element`: the type of what it computes; `estimated_ns`: for how long one thread is thought to need it, by which
    threads are given their parts.
    """

    name: str
    kind: str
    ops: tuple
    domain: tuple
    n_bytes: int
    n_flops: int
    element: str
    estimated_ns: int

    def fields(self):
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**own, "ops": list(self.ops), "domain": list(self.domain)}


@dataclass(frozen=True, slots=True)
class Plan:
    """What the runtime and `explain` need to know about a program; kept in the disk cache beside its object code.

    `has_team`: whether threads share it; `worker_bytes`: scratch memory that each of them needs, beside the arena.
    `extents`: texts of the extents known at run time, in the order of @extents.
    `symbols`: names of the routines it calls, in the order of their words in the table (emit/program.py).
    `writes`: which of the inputs it writes into.
    `groups`: number of a value of the recorded graph -> index of the kernel that computes it, where it has one.
    """

    arena_bytes: int
    has_team: bool
    worker_bytes: int
    n_inputs: int
    n_outputs: int
    n_scalars: int
    symbols: tuple
    writes: tuple
    extents: tuple
    kernels: tuple
    refusals: tuple
    groups: dict

    def fields(self):
        """As a dict of what JSON gives back unchanged."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        groups = {str(k): v for k, v in self.groups.items()}
        for name in ("symbols", "writes", "extents"):
            own[name] = list(own[name])
        return {**own, "kernels": [k.fields() for k in self.kernels], "refusals": list(self.refusals), "groups": groups}


@dataclass(frozen=True, slots=True)
class Compiled:
    """LLVM IR with the entry `i64 @weft_program(ptr table)`, and its plan."""

    text: str
    plan: Plan


def compile_graph(graph, *, target=WIDEST, watch=None, in_one=False, for_itself=False, for_team=False):
    """The program of a recorded graph. `watch(stage, text)` is called after every stage; `in_one`: without loops over
    steps, in one function, which takes long for long programs; `for_itself`: for one thread, and asking no interpreter
    whether it was interrupted; `for_team`: for threads, whether or not one alone is better, and asking none either."""

    def show(stage, thing):
        if watch is not None:
            watch(stage, str(thing))

    target = changed(target, large_ns=0) if for_team else target
    show("graph", graph)
    graph.verify_results()
    trace, order = scheduled(graph, target, show)
    whole = lower_all(order, target)
    plan_steps = _for_one if for_itself else _shared if for_team else _for_many
    steps, memory, work, team = plan_steps(order, whole, target)
    steps = _cut_all(steps, team)
    show("loops", _Loops(steps, team))
    costs = [0 if for_itself or for_team else w.cost for w in work]
    n_inputs, is_awaited = len(order.fusion.graph.inputs()), not (for_itself or for_team)
    program = Program(Module(target), n_inputs, team, is_awaited)
    text, plan = _emit(trace, order, steps, memory, program, costs, in_one)
    show("llvm", text)
    return Compiled(text, plan)


def scheduled(graph, target, show=lambda stage, thing: None):
    """(the trace to the settled graph, its Schedule)."""
    primitive, first = decompose(graph)
    show("decomposed", primitive)
    # Before legalizing, which cuts joins of very many parts.
    joined, joining = join_parts(primitive)
    wide, widening = widen(joined)
    legal, second = legalize(wide)
    simple, third = simplify(legal)
    # Composites are decomposed before simplification so that what two of them share is computed once. Settling comes
    # last because it fixes views as they are, and simplification changes them.
    parted, cutting = cut_first(simple)
    settled, fourth = settle(parted, target)
    show("simplified", settled)
    fusion, fifth = _fused(settled, target)
    show("fusion", fusion)
    return reduce(follow, (joining, widening, second, third, cutting, fourth, fifth), first), schedule(fusion)


def _fused(settled, target):
    """(the Fusion of a settled graph, or of one in which some values are computed again, and the trace to that)."""
    fusion = fuse(settled, target.sums_apart)
    found = compute_again(fusion)
    if found is not None:
        other = fuse(found[0], target.sums_apart)
        # Values stand elsewhere now, and other groups may have come of it.
        if len(other.groups) <= len(fusion.groups):
            return other, found[1]
    return fusion, settled.values


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A step of the program: its group (None for the copy of a commit), what it is lowered to, its traffic. `piece`:
    which of its group's, if threads share its sums (blocks.py)."""

    title: str
    group: object
    lowered: object
    written: list
    read: list
    piece: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Loops:
    """The steps of a program, for the dump."""

    steps: list
    team: object

    def __str__(self):
        parts = []
        for k, s in enumerate(self.steps):
            wait = "all threads wait\n" if self.team and self.team.waits[k] else ""
            text, cut = str(s.lowered), s.lowered.cut
            shared = f", {cut.units} units of {cut.unit} {cut.along}" if cut and not text else ""
            parts.append(f"{wait}{s.title}{shared}\n{text}")
        return "\n".join(parts)


def lower_all(order, target):
    graph, reads = order.fusion.graph, order.fusion.reads
    lowering = _Lowering(reads, order.stored, {v.number: k for k, v in enumerate(graph.scalars())}, target)
    steps, joined = [], joins_in_place(order)
    for group in order.order:
        if group.values[0].number in joined:
            continue
        written = [v for v in group.values if v in order.stored]
        lowered = group.values[0].op.kernel.lower(group, lowering)
        steps.append(_Step(repr(group), group, lowered, written, order.reads_of[group.number]))
    for source, base in order.copies:
        lowered = lower_copy(source, base, target)
        steps.append(_Step(f"copy %{source.number} to %{base.number}", None, lowered, [], [source]))
    return steps


def sums_in_blocks(steps, graph, target, is_wanted=lambda step: True):
    """The steps with those kernels in pieces whose sums threads share, of those steps for which that is wanted."""
    result, known, taken = [], {}, 0
    for step in steps:
        pieces = step.lowered.in_blocks(known, taken, target) if is_wanted(step) else [step.lowered]
        if len(pieces) == 1:
            result.append(step)
            continue
        for k, lowered in enumerate(pieces):
            result.append(_Step(step.title, step.group, lowered, *lowered.traffic(graph), k))
            taken += sum(kind == "partial" for kind, _ in lowered.bindings)
    return result


def _for_one(order, steps, target):
    """(the steps, where everything lies, the steps as Works, None) of a program for one thread."""
    memory, work = planned(order, steps, target)
    return steps, memory, work, None


def _for_many(order, whole, target):
    """The same for threads that share what pays, with their Team."""
    scope = scope_of(order.fusion.graph.inputs())
    if scope is None:
        return _shared(order, whole, target)
    # One program serves small calls and large ones. It is made for those that threads share, and tells when they do.
    estimate_for_large(planned(order, whole, target)[1], [s.lowered for s in whole], scope, target)
    with scope.equal_for_every_n():
        steps, memory, work, team = _shared(order, whole, target)
    return steps, memory, work, team and team.for_extent(scope)


def _shared(order, whole, target):
    steps = sums_in_blocks(whole, order.fusion.graph, target)
    memory, work = planned(order, steps, target)
    team = share(work, target)
    if team is not None or len(steps) == len(whole):
        return steps, memory, work, team
    memory, work = planned(order, whole, target)
    return whole, memory, work, share(work, target)


def planned(order, steps, target):
    """(where everything lies, the steps as threads may share them)."""
    memory = plan_memory(order, [(s.group, s.written, s.read, s.lowered.scratch) for s in steps])
    return memory, works(order, steps, memory, target)


class _Lowering:
    """What kernels are lowered with (kernels/kernel.py). Groups that are alike are lowered once and share the Kernel of
    their loops."""

    def __init__(self, reads, stored, slots, target):
        self.reads, self.stored, self.slots, self.target = reads, stored, slots, target
        self.known = {}

    def loop(self, group):
        def make(alike):
            lowered = lower(group, self.reads, self.stored, alike.scalars, self.target)
            counts = [count for _, count in alike.runs[:-1]]
            return replace(lowered, kernel=replace(lowered.kernel, scalars=(0, *accumulate(counts))))

        return self.shared(group, make)

    def nest(self, group, kernel):
        (value,) = group.values
        make = partial(lower_nest, value, kernel.write, self.reads.accesses, self.target)
        return self.shared(group, lambda alike: make())

    def product(self, value):
        return Product(value, *(self.reads.accesses[o.number] for o in value.operands), self.target)

    def panel_product(self, value):
        return PanelProduct(value, *(self.reads.accesses[o.number] for o in value.operands), self.target)

    def routine(self, value, kernel):
        return RoutineCall(value, self.bases(value), kernel)

    def grid_product(self, value, kernel):
        bases = [self.reads.accesses[value.operands[k].number].base for k in kernel.order]
        products = kernel.products_of(value.operands, value.shape, value.attributes, value.dtype.size_bytes)
        return GridCall(value, tuple(bases), products)

    def units(self, value, kernel):
        return UnitCall(value, self.bases(value), kernel)

    def steps(self, value, kernel):
        """A graph of one step, whose inputs are what it is given of each operand, is lowered like any other."""
        one, n_rows = Graph("one step"), value.attributes["n_sequences"]
        given = [one.input(o.shape[k < n_rows :], o.dtype) for k, o in enumerate(value.operands)]
        one.outputs = [kernel.row_of(given, **value.attributes)]
        return StepsCall(value, self.bases(value), self.one_step(one))

    def rolled(self, value):
        return RolledCall(value, self.bases(value), self.one_step(value.attributes["body"].graph))

    def one_step(self, graph):
        order = scheduled(graph, self.target)[1]
        steps = lower_all(order, self.target)
        memory, work = planned(order, steps, self.target)
        return StepBody(tuple(s.lowered for s in steps), memory, sum(w.cost for w in work))

    def bases(self, value):
        return tuple(self.reads.accesses[o.number].base for o in value.operands)

    def shared(self, group, make):
        """The Loops of a group: those of a group like it, on other values, or what make(Likeness) gives."""
        alike = likeness(group, self.reads, self.stored, self.slots)
        found = self.known.get(alike.key)
        if found is None:
            lowered = make(alike)
            place = {number: k for k, number in enumerate(alike.numbers)}
            found = lowered.kernel, [(kind, place[x] if kind == "value" else x) for kind, x in lowered.bindings]
            self.known[alike.key] = found
        kernel, bindings = found
        numbers = alike.numbers
        bindings = tuple((kind, numbers[x] if kind == "value" else x) for kind, x in bindings)
        return Loops(kernel, bindings, tuple(first for first, _ in alike.runs) or (0,))


def _cut_all(steps, team):
    """The steps with the cuts of a team."""
    if team is None:
        return steps
    known = {}
    return [
        step if cut is None else replace(step, lowered=step.lowered.with_cut(cut, known))
        for step, cut in zip(steps, team.cuts)
    ]


def _emit(trace, order, steps, memory, program, costs, in_one):
    settled, module = order.fusion.graph, program.module
    kernels = _emit_steps(order, steps, memory, program, costs)
    program.finish(in_one)
    text = str(module)
    plan = Plan(
        memory.arena_bytes,
        program.team is not None,
        reduce(upper, (worker_bytes(s.lowered.scratch) for s in steps if s.lowered.cut), 0),
        len(settled.inputs()),
        len(settled.outputs),
        len(settled.scalars()),
        tuple(program.symbols),
        _written(steps, memory),
        tuple(module.extents),
        tuple(kernels),
        tuple(str(r) for r in order.fusion.refusals),
        _kernels_of_values(trace, steps, order.fusion.reads.accesses),
    )
    return text, plan


def _emit_steps(order, steps, memory, program, costs):
    """Every step, with what stands between them; and what each of them is."""
    team = program.team
    first_commit = next((k for k, step in enumerate(steps) if commits(step.lowered, memory)), None)
    may_fail = any(step.lowered.checks for step in steps)
    kernels, unseen_ns, looks_left = [], 0, MOST_LOOKS - 1 - sum(team.waits if team else ())
    # A program for many sizes is short for some of them: it keeps the lock.
    lets_go = sum(costs[:first_commit]) >= LET_GO_FROM and scope_of(order.fusion.graph.inputs()) is None
    if lets_go:
        program.let_go_of_lock()
    for k, step in enumerate(steps):
        may_look = looks_left > 0 and (first_commit is None or k <= first_commit)
        if unseen_ns >= LOOK_EVERY and may_look:
            program.leave_if_interrupted()
            unseen_ns, looks_left = 0, looks_left - 1
        unseen_ns += costs[k]
        takes_lock = lets_go and k == first_commit
        if takes_lock:
            program.take_lock()
        if team and (team.waits[k] or takes_lock):
            program.wait()
        if may_fail and k == first_commit:
            program.leave_if_failed()
        scratch = [memory.scratch[k, n] for n in range(len(step.lowered.scratch))]
        kernels.append(_info(step.lowered.emit(program, memory, scratch), step, round(costs[k])))
        if costs[k] > LOOK_EVERY and k != first_commit and looks_left > 0 and may_look:
            program.in_turns(-int(-costs[k] // LOOK_EVERY))
    return kernels


def _kernels_of_values(trace, steps, accesses):
    """Which kernel computes what a value of the recorded graph has become."""
    numbers = {v.number: k for k, s in enumerate(steps) if s.group and not s.piece for v in s.group.values}
    groups = {}
    for old, new in enumerate(trace):
        if new is not None and accesses[new.number].base.number in numbers:
            groups[old] = numbers[accesses[new.number].base.number]
    return groups


def _written(steps, memory):
    """Positions of the inputs that are written into."""
    places = {memory.place[number] for step in steps for number in step.lowered.writes}
    return tuple(sorted(place.index for place in places if place.kind == "input"))


def _info(name, step, cost_ns):
    if step.group is None:
        (base,) = step.read
        return KernelInfo(name, "copy", ("copy",), base.shape, 2 * _n_bytes(base), 0, base.dtype.name, cost_ns)
    if step.piece:
        return _piece_info(name, step, cost_ns)
    values = step.group.values
    n_bytes = sum(_n_bytes(v) for v in [*step.read, *step.written])
    flops = sum(v.op.kernel.flops(v) for v in values)
    shapes = [v.operands[0].shape if v.op.kind == "reduction" else v.shape for v in values]
    domain = max(shapes, key=prod)
    ops, element = tuple(v.op.name for v in values), max(values, key=lambda v: v.dtype.size_bytes).dtype.name
    return KernelInfo(name, step.group.kind, ops, domain, n_bytes, flops, element, cost_ns)


def _piece_info(name, step, cost_ns):
    """Of what goes on with a kernel that threads share: the flops are told of its first piece."""
    body = list(statements(step.lowered.kernel.body))
    ops = tuple(s.op.name for s in body if isinstance(s, (Apply, Reduce)))
    largest = max([*step.read, *step.written], key=lambda v: estimated(prod(v.shape)))
    n_bytes = sum(_n_bytes(v) for v in [*step.read, *step.written])
    return KernelInfo(name, "loop", ops or ("sum",), largest.shape, n_bytes, 0, largest.dtype.name, cost_ns)


def _n_bytes(value):
    return prod(value.shape) * value.dtype.size_bytes
