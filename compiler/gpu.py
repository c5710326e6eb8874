"""Programs for a GPU: the passes of every program up to its loop nests, then one kernel of the GPU for each of them.

    graph -> ... -> schedule -> lower -> sums in blocks -> plan memory    as in pipeline.py
          -> one kernel per loop nest (emit/warp.py) or product (emit/warp_product.py), and the order of their launches

Threads of a CPU share a kernel by its cut (parallel.py), of which no two units touch the same; here warps do. A kernel
that cannot be cut is done by one warp. Launches wait for each other, as they do in one stream.

A check that fails stores 1 to a byte that all kernels know; those that change what outlives the program come after all
checks, and do nothing then.

What is neither (convolutions, factorizations, sorting, scans) has no kernel yet: NotForGpu says what it is.
"""

from dataclasses import dataclass, replace
from math import prod

from .dtypes import element_of
from .emit.builder import PTR
from .emit.kernel import pointers_of, write_kernel
from .emit.product import Product as ProductShape
from .emit.warp import NoWarpKernel, WarpBuilder, WarpModule
from .emit.warp_product import WarpProduct
from .extent import is_open
from .lowered import Loops, Product
from .pipeline import lower_all, planned, scheduled, sums_in_blocks
from .target import GPU, LINE_BYTES
from .teamwork import commits


class NotForGpu(Exception):
    """An op has no kernel for a GPU. `number`: of the first value of the recorded graph that needs it, or None."""

    def __init__(self, op, reason, number):
        super().__init__(f"{op} {reason}")
        self.op, self.reason, self.number = op, reason, number


@dataclass(frozen=True, slots=True)
class Operand:
    """What a kernel is given: `kind` "arena" or "scratch" (so many bytes into it), "input" or "output" (which of them),
    "numbers" (which of the run-time numbers is its first) or "failed" (the byte that says whether a check has)."""

    kind: str
    index: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel on `blocks` blocks of `threads` threads. `ops`: what it computes."""

    kernel: str
    blocks: int
    threads: int
    operands: tuple
    ops: tuple


@dataclass(frozen=True, slots=True)
class GpuProgram:
    """LLVM IR of all kernels, and their launches in order. Scratch memory is any memory that nobody else uses.
    `checks`: whether there is something that can fail, so that the byte is to be 0 before and looked at afterwards."""

    text: str
    launches: tuple
    arena_bytes: int
    scratch_bytes: int
    checks: bool


def compile_for_gpu(graph, *, target=GPU, name="weft"):
    """The GpuProgram of a recorded graph; `name`: what names of kernels begin with. Raises NotForGpu."""
    graph.verify_results()
    trace, order = scheduled(graph, target)
    steps = lower_all(order, target)
    for step in steps:
        _require_kernel(step, trace)
    memory, _ = planned(order, steps, target)
    steps = sums_in_blocks(
        steps,
        order.fusion.graph,
        target,
        lambda step: isinstance(step.lowered, Loops) and _gains_warps(step.lowered, memory, target),
    )
    memory, _ = planned(order, steps, target)
    checks = any(step.lowered.checks for step in steps)
    program = _Program(target, name, checks)
    for step in steps:
        try:
            program.add(step, memory)
        except NoWarpKernel as error:
            raise _refused(step, str(error), trace) from error
    return GpuProgram(str(program.module), tuple(program.launches), memory.arena_bytes, program.scratch_bytes, checks)


def _require_kernel(step, trace):
    reason = None
    if not isinstance(step.lowered, (Loops, Product)):
        reason = "is computed by a routine, and only loop nests and products of matrices have kernels for a GPU"
    elif any(is_open(v.shape[k]) for v in step.written for k in range(v.ndim)):
        reason = "has an extent that is known at run time only, which no kernel for a GPU takes"
    if reason is not None:
        raise _refused(step, reason, trace)


def _refused(step, reason, trace):
    values = step.group.values if step.group else step.read
    reached = {v.number for v in values}
    for v in values[0].graph.values:
        if any(o.number in reached for o in v.operands):
            reached.add(v.number)
    numbers = [k for k, new in enumerate(trace) if new is not None and new.number in reached]
    # What only checks is read by nobody: it stands before what it was made for.
    numbers += [k for k, new in enumerate(trace) if new is not None and new.number > values[0].number]
    return NotForGpu(" + ".join(dict.fromkeys(v.op.name for v in values)), reason, numbers[0] if numbers else None)


def _best_cut(lowered, memory, target):
    """The cut that has work for most warps, or None."""
    return max(lowered.cuts(target, memory, {}), key=lambda cut: cut.units, default=None)


def _gains_warps(lowered, memory, target):
    """Whether sums in blocks have work for more warps than the rows or columns of the kernel as it is."""
    cut = _best_cut(lowered, memory, target)
    pieces = [piece.kernel.body[-1] for piece in lowered.in_blocks({}, 0, target) if piece.kernel.has_blocks]
    return bool(pieces) and (cut is None or cut.units < max(loop.extent for loop in pieces))


class _Program:
    """The kernels and launches while they are collected."""

    def __init__(self, target, name, checks):
        self.target, self.name, self.checks = target, name, checks
        self.module = WarpModule(target)
        self.names, self.launches, self.scratch_bytes = {}, [], 0

    def add(self, step, memory):
        if isinstance(step.lowered, Product):
            self._add_product(step, memory)
        else:
            self._add_loops(step, memory)

    def _add_product(self, step, memory):
        x, y, value = step.lowered.left, step.lowered.right, step.lowered.value
        element, size = element_of(value.dtype), value.dtype.size_bytes
        shape = ProductShape(x.strides, y.strides, value.shape, x.shape[-1], size)
        product = WarpProduct(shape, element, (x.offset * size, y.offset * size))
        units = product.units(self.target.warp)
        if units == 0:
            return
        per_warp, blocks = self._shared(units)
        if product not in self.names:
            self.names[product] = f"{self.name}_k{len(self.names)}"
            b = WarpBuilder(self.module, self.names[product], [(name, PTR) for name in ("left", "right", "out")])
            b.share(units, per_warp)
            product.write(b)
        places = [memory.place[v.number] for v in (x.base, y.base, value)]
        self._launch(self.names[product], blocks, [Operand(p.kind, p.index) for p in places], step)

    def _shared(self, units):
        """(units of each warp, blocks)."""
        per_warp = -(-units // self.target.most_warps)
        warps = -(-units // per_warp)
        return per_warp, -(-warps // self.target.block_warps)

    def _launch(self, name, blocks, operands, step):
        ops = tuple(v.op.name for v in step.group.values) if step.group else ("copy",)
        threads = self.target.warp * self.target.block_warps
        self.launches.append(Launch(name, blocks, threads, tuple(operands), ops))

    def _add_loops(self, step, memory):
        lowered = step.lowered
        kernel = replace(lowered.kernel, cut=_best_cut(lowered, memory, self.target))
        units = kernel.cut.units if kernel.cut else 1
        if units == 0 or (step.written and all(prod(v.shape) == 0 for v in step.written)):
            return
        per_warp, blocks = self._shared(units)
        scratch = {k: _aligned(what) for k, (kind, what) in enumerate(lowered.bindings) if kind == "scratch"}
        is_guarded = self.checks and commits(lowered, memory)
        assert not (is_guarded and kernel.checks), "a kernel that changes what outlives the program, before all checks"
        name = self.kernel(kernel, units, per_warp, scratch, is_guarded)
        operands, taken = [], 0
        for k, (kind, what) in enumerate(lowered.bindings):
            if kind == "scratch":
                operands.append(Operand("scratch", taken))
                taken += scratch[k] * blocks * self.target.block_warps
            else:
                place = memory.place[what.number if kind == "partial" else what]
                operands.append(Operand(place.kind, place.index))
        operands += [Operand("numbers", slot) for slot in lowered.first_scalars]
        operands += [Operand("failed", 0)] if is_guarded or kernel.checks else []
        self.scratch_bytes = max(self.scratch_bytes, taken)
        self._launch(name, blocks, operands, step)

    def kernel(self, kernel, units, per_warp, scratch, is_guarded):
        key = str(kernel), per_warp, tuple(scratch.items()), is_guarded
        if key not in self.names:
            self.names[key] = f"{self.name}_k{len(self.names)}"
            may_fail = is_guarded or kernel.checks
            b = WarpBuilder(self.module, self.names[key], pointers_of(kernel), may_fail)
            if is_guarded:
                b.leave_if_failed()
            b.share(units, per_warp)
            for k, n_bytes in scratch.items():
                b.own(k, n_bytes)
            write_kernel(b, kernel)
        return self.names[key]


def joined(texts):
    """Texts of several programs, whose kernels have other names, as one: what is said for all is said once."""
    lines, common = [], {}
    for line in "\n".join(texts).split("\n"):
        if line.startswith(("declare ", "attributes ", "@")):
            common[line] = None
        else:
            lines.append(line)
    return "\n".join([*common, *lines])


def _aligned(n_bytes):
    return -(-n_bytes // LINE_BYTES) * LINE_BYTES
