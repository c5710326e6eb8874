"""Open plans, for sizes that only the call tells: what native code is told of an op that comes with many sizes.

Calls that are alike but for numbers (runtime/eager/varied.py) have one Open: what has changed from call to call is an
extent (compiler/extent.py) with which shape rules, rules and steps (eager_steps.py) compute as with a number. What they
ask of it becomes a guard, as in a program that serves many sizes, and what they make of it a formula that native code
computes in each call (runtime/eager/eager_open.py). Nothing is supposed that a guard does not say.
"""

from collections import deque
from functools import partial

import numpy as np

from ...compiler.autodiff import has_rule
from ...compiler.extent import Scope, estimated
from ...compiler.ops.kinds import number_meta
from ...compiler.ops.table import Meta
from ...compiler.ops.view import data
from ...compiler.shapes import contiguous_strides
from ...compiler.translate.kinds import offset_of
from ..code import kernels
from ..code.packing import Packed, put_word
from ..eager.eager_matching import row_of
from ..eager.eager_planned import steps_of
from ..eager.eager_steps import NoSteps, seen_through
from ..eager.eager_words import (
    KEPT_AS_IT_IS,
    KEPT_AS_SHAPE,
    MIXED,
    MOST_SIZES,
    MOST_TOLD_APART,
    N_OPEN,
    OPEN_PLACES,
    SAVED,
    WRITEABLE,
    Attribute,
    NodeRow,
    Open,
    OpenOperand,
    Routine,
    Words,
)
from ..eager.needs import needs_of
from ..eager.node import class_of
from ..eager.open_nodes import Hole, OpenDerivative
from ..eager.plan import Plan, is_view_op
from ..eager.saved import Shape
from ..eager.varied import WAITING
from ..programs.array_program import decomposition
from ..programs.fused import spend
from ..programs.open_program import is_large, open_decomposition, open_primitive
from ..programs.rules import Rule
from ..state.tensor import dtype_of
from .eager_hash import open_hash
from .open_builder import Cells, OpenBuilder, operand, with_sizes
from .open_derivatives import OpenNodes
from .open_formulas import Tape
from .open_large import OpenProgram, strides_in_elements

SHIFT = 2  # of numbers that are no sizes: what is from 0 on stands as an extent, which is from 2 on
_RETIRED = 256
UNKNOWN_NODE, WITHOUT_NODE = Packed(NodeRow()), Packed(NodeRow(is_known=True))


class Call:
    """A call some of whose numbers change. `numbers` are these, as they stand before native code."""

    def __init__(self, op, arrays, attributes, default_dtype, varied):
        reader = _Reader(varied.changed)
        self.op, self.default_dtype, self.kinds = op, default_dtype, tuple([x.__class__ for x in arrays])
        self.item_bytes = [getattr(x, "itemsize", None) for x in arrays]
        self.metas, self.strides, self.operands = zip(*map(reader.operand, arrays))
        self.attributes = {name: reader.with_holes(value) for name, value in attributes.items()}
        self.numbers = [n for n, _ in reader.found]
        if not self.numbers or len(self.numbers) > MOST_SIZES:
            raise NoSteps("no size that changes, or many")

    def opened(self, numbers):
        """(scope, Plan) of such a call with other numbers, all of them as extents; the strides of its operands."""
        scope = Scope({f"u{k}": n for k, n in enumerate(numbers)})
        scope.takes_coincidences = True
        extents = [*scope.extents.values()]
        metas = tuple([m if m.weak else Meta(_filled(m.shape, extents), m.dtype) for m in self.metas])
        attributes = {name: _filled(value, extents) for name, value in self.attributes.items()}
        meta = self.op.infer(metas, attributes, self.default_dtype)
        plan = Plan(self.op, (), metas, meta, attributes, self.default_dtype)
        plan.kinds = self.kinds
        strides = [None if s is None else _filled(s, extents) for s in self.strides]
        layouts = [None if s is None else tuple([one * n for one in s]) for s, n in zip(strides, self.item_bytes)]
        return scope, plan, layouts


class _Reader:
    """Reads the numbers of a call in the order in which varied.py has listed them. found: those that change, as they
    stand before native code."""

    def __init__(self, changed):
        self.changed, self.at, self.found = changed, 0, []

    def number(self, x, shift, divisor=1):
        """x, or the Hole that stands for it."""
        at, self.at = self.at, self.at + 1
        if at not in self.changed:
            return x // divisor
        if x < 0 or x % divisor:
            raise NoSteps("a number below 0 that changes")
        x = x // divisor
        for k, (n, before) in enumerate(self.found):
            if n - before == x and (before == shift or before == 0):
                return Hole(k, before, False)
        self.found.append((x + shift, shift))
        return Hole(len(self.found) - 1, shift, True)

    def operand(self, x):
        if not isinstance(x, np.ndarray):
            kind = x.__class__
            return number_meta(x), None, OpenOperand(kind=kind, is_number=True, places=(), strides=())
        shape = [self.number(n, 0) for n in x.shape]
        layout = None
        if not x.flags.c_contiguous:
            if any(s % x.itemsize for s in x.strides):
                raise NoSteps("elements that lie in between")
            layout = [self.number(s, SHIFT, x.itemsize) for s in x.strides]
        facts = {"is_row_major": layout is None, "item_bytes": x.itemsize}
        facts |= {"places": _places(shape), "strides": _places(layout or ())}
        return Meta(shape, dtype_of(x)), layout, OpenOperand(kind=x.dtype, is_number=False, **facts)

    def with_holes(self, value):
        if value.__class__ is int:
            return self.number(value, SHIFT)
        if isinstance(value, tuple):
            return tuple([self.with_holes(x) for x in value])
        return value


def _places(numbers):
    return [x.place if x.__class__ is Hole and x.is_first else -1 for x in numbers]


def _filled(value, extents):
    if value.__class__ is Hole:
        return extents[value.place] - value.shift
    if isinstance(value, (tuple, list)):
        return tuple([_filled(x, extents) for x in value])
    return value


# --- one plan ---------------------------------------------------------------------------------------------------------
class OpenPlan:
    """What native code knows of an op on operands whose sizes only the call tells. numbers: those of the call that it
    is made from; numbers_at: where programs find the numbers among the operands."""

    def __init__(self, op, arrays, attributes, default_dtype, varied, numbers_at):
        self.call = call = Call(op, arrays, attributes, default_dtype, varied)
        self.scope, self.plan, self.layouts = call.opened(call.numbers)
        plan, self.cells, self.builder, self.held, self.varied = self.plan, Cells(), None, [], varied
        self.numbers_at, self.program = numbers_at, None
        found = self.decompose()
        facts = self.view(arrays, attributes) or self.computed(found)
        operands = [operand(*one, self.builder) for one in zip(plan.metas, plan.kinds, self.layouts)]
        routine = Routine(
            op=op,
            default_dtype=default_dtype,
            operands=operands,
            node_attributes={},
            dtype=plan.meta.dtype.numpy,
            ndim=len(plan.meta.shape),
            shape=self.cells.address_of(plan.meta.shape),
            is_floating=plan.is_floating,
            nodes=[WITHOUT_NODE.address] + [UNKNOWN_NODE.address] * ((1 << MOST_TOLD_APART) - 1),
            **facts,
        )
        self.hash = open_hash(op, plan.metas, plan.kinds, self.layouts, attributes)
        holes = [Attribute(name=name, value=value) for name, value in call.attributes.items()]
        known = Open(hash=self.hash, operands=call.operands, attributes=holes, routine=routine)
        written = () if self.program is None else self.program.written
        self.packed = with_sizes(known, Tape(self.scope.extents), self.scope, self.cells, self.builder, written)
        self.routine_at, self.rows = self.packed.address_of(routine), set()

    def decompose(self):
        """Its OpenSteps; of a view None."""
        plan = self.plan
        op, metas, meta = plan.op, plan.metas, plan.meta
        if op is data or any(m.dtype.is_complex for m in (*metas, meta)):
            raise NoSteps("a tensor's own memory, or complex numbers")
        if is_view_op(op):
            plan.shows = "operand"
        elif op.kind == "composite" and op.evaluate is None:
            return open_decomposition(op, metas, meta, plan.attributes, plan.default_dtype)
        elif is_large(op, metas, meta):
            return open_primitive(op, metas, plan.attributes, plan.default_dtype)
        return None

    def computed(self, found):
        """The facts of what computes elements: a program of large operands, and where steps would need much memory for
        what is in between."""
        if found is not None and found.needs_program:
            return self.of_program(found)
        plan = self.plan
        plan.program = found and found.program
        try:
            return self.steps()
        except NoSteps:
            if plan.shows is not None or plan.op.kind in ("view", "source", "library"):
                raise
            found = found or open_primitive(plan.op, plan.metas, plan.attributes, plan.default_dtype)
            # What Python computes of small operands is counted nowhere else.
            spend(self.rule.kind, WAITING * sum(map(estimated, found.sizes)))
            return self.of_program(found)

    @property
    def rule(self):
        plan = self.plan
        return Rule(plan.op, plan.metas, plan.meta, plan.attributes, plan.default_dtype, None)

    def of_program(self, steps):
        strides = strides_in_elements(self.layouts, self.plan.metas)
        self.program = OpenProgram(self.rule, strides, self.scope, steps, self.numbers_at)
        return self.program.facts

    def steps(self):
        if self.plan.shows is not None and self.plan.op.kind == "composite":
            raise NoSteps("a view that has to copy")
        self.builder, (steps, fixed) = steps_of(self.plan, self.layouts, OpenBuilder)
        return {"steps": steps, "fixed": fixed}

    def view(self, arrays, attributes):
        """The facts of a view; None of other ops, and of a view that has to copy."""
        plan = self.plan
        if plan.shows is None:
            return None
        if len(arrays) > 1:
            raise NoSteps("a view at computed places")
        x, found = arrays[0], shown_now(plan.op, arrays[0], attributes)
        if not np.may_share_memory(found, x):
            return None
        layout = [s // x.itemsize for s in self.layouts[0]] if self.layouts[0] is not None else None
        shown = seen_through(plan.op, plan.attributes, plan.metas[0], layout, plan.meta)
        if shown is None:
            raise NoSteps("a view that copies where it need not")
        strides, offset = [s * x.itemsize for s in shown.strides], shown.offset
        if layout is None:
            # Of a dimension of one element NumPy says what it would be if there were more.
            whole = contiguous_strides(plan.meta.shape)
            strides = [
                w * x.itemsize if n.__class__ is int and n == 1 else s
                for s, w, n in zip(strides, whole, plan.meta.shape)
            ]
        if tuple(map(estimated, strides)) != found.strides:
            raise NoSteps("a view whose strides are NumPy's own")
        if kernels.address_of(found) - kernels.address_of(x) != estimated(offset):
            raise NoSteps("a view that begins elsewhere")
        flags = WRITEABLE if found.flags.writeable or not x.flags.writeable else 0
        return {"is_view": True, "view": self.cells.view(plan.meta, strides, offset, flags)}

    # --- nodes --------------------------------------------------------------------------------------------------------
    def add_row(self, requires):
        """A node is made where these operands require gradients; or none, if no gradient flows to them. Returns whether
        that is new."""
        plan, n = self.plan, len(self.plan.metas)
        at = row_of(requires, n)
        if requires in self.rows or not requires or not plan.is_floating or n > MOST_TOLD_APART and at == MIXED:
            return False
        self.rows.add(requires)
        wanted = tuple([bool(requires >> k & 1) and has_rule(plan.op, k) for k in range(n)])
        row, derivative = WITHOUT_NODE, None
        if True in wanted:
            of_nodes = row_of_nodes(plan, wanted, self.scope)
            make = OpenNodes(self.call, wanted, of_nodes, self.numbers_at).native
            refused = partial(self._leave_to_python, requires)
            derivative, row = OpenDerivative(make, refused), Packed(of_nodes)
            self.held += [row, derivative]
            put_word(self.packed.address + offset_of(Open, "derivatives") + 8 * at, id(derivative))
        put_word(self.routine_at + offset_of(Routine, "nodes") + 8 * at, row.address)
        return True

    def _leave_to_python(self, requires):
        """Where these operands require gradients: there is no derivative but for exact sizes, of which Python makes
        plans."""
        self.varied.left_to_python.add(requires)
        at = row_of(requires, len(self.plan.metas))
        put_word(self.routine_at + offset_of(Routine, "nodes") + 8 * at, UNKNOWN_NODE.address)


def row_of_nodes(plan, differentiated, scope):
    """What nodes of such operands are."""
    operands = [1.0 if m.weak else Shape(m.shape, m.dtype) for m in plan.metas]
    n_guards = len(scope.guards)
    metas = [1.0 if m.weak else m for m in plan.metas]
    needed, reads_out = needs_of(plan.op, metas, plan.attributes, differentiated)
    kind = class_of(plan.op, plan.attributes, operands)
    if len(scope.guards) > n_guards:
        raise NoSteps("what a node keeps depends on sizes")
    kept = [SAVED if k in needed else KEPT_AS_IT_IS if m.weak else KEPT_AS_SHAPE for k, m in enumerate(plan.metas)]
    return NodeRow(
        is_known=True,
        makes_node=True,
        kind=kind,
        meta=Meta((), plan.meta.dtype),
        differentiated=list(map(int, differentiated)),
        kept=kept,
        shapes=[None] * len(kept),
        reads_out=reads_out,
        is_open=True,
        types=[m.dtype for m in plan.metas],
    )


def shown_now(op, x, attributes):
    """What a view of an array is now."""
    if op.kind == "view":
        return op.evaluate(x, **attributes)
    metas = (Meta(x.shape, dtype_of(x)),)
    meta = op.infer(metas, attributes, None)
    found = decomposition(op, metas, meta, attributes, None)
    if found is None:
        raise NoSteps("a view that is its operand")
    return found[0].function()(x)


# --- the table --------------------------------------------------------------------------------------------------------
class Table:
    """What native code looks into. at: where its words are."""

    def __init__(self, at):
        self.at, self.rows, self.retired = at, {}, deque(maxlen=_RETIRED)

    def put(self, plan):
        """In a free place, or in that of one that has stood there longest."""
        first = plan.hash & (N_OPEN - OPEN_PLACES)
        held = [self.rows[at] for at in range(first, first + OPEN_PLACES) if at in self.rows]
        if len(held) == OPEN_PLACES:
            self.retired.append(held.pop())
        for at, one in zip(range(first, first + OPEN_PLACES), [plan, *held]):
            self.rows[at] = one
            put_word(self.at + offset_of(Words, "open") + 8 * at, one.packed.address)


def made(table, op, arrays, attributes, default_dtype, requires, varied):
    """Native code knows a plan for such calls from now on, if there can be one."""
    if requires in varied.left_to_python or [known for known in varied.told if known.add_row(requires)]:
        return
    plan = OpenPlan(op, arrays, attributes, default_dtype, varied, table.at + offset_of(Words, "numbers"))
    plan.add_row(requires)
    varied.told.append(plan)
    table.put(plan)
