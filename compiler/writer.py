"""Loop nests that ops write themselves: the vocabulary of `kernels/nest.py`. Operands are in memory."""

from .conversions import number_everywhere
from .dtypes import SIZES, element_of, memory_element
from .extent import is_open
from .loopnest import (
    Apply,
    At,
    Constant,
    Extreme,
    Index,
    Kernel,
    Load,
    Loop,
    Parameter,
    Store,
    Sweep,
    Update,
)
from .lowered import Loops
from .ops.table import TABLE
from .shapes import contiguous_strides, joint_runs

# Elements of a row that are copied one by one: vectors of them would be nearly empty, and gathers where they lie apart.
_FEW = 4


def lower_nest(value, write, accesses, target):
    """What an op of its own kernel is lowered to; write(writer) appends its loops."""
    writer = Writer(value, [accesses[o.number] for o in value.operands], target)
    write(writer)
    return writer.lowered()


def lower_copy(source, base, target):
    """A copy from a contiguous value into an input's own memory, which may be strided."""
    writer = Writer(base, [], target)
    # The source holds the input's elements in row-major order, perhaps under another shape.
    contiguous = contiguous_strides(base.shape)
    writer.copy(source, contiguous, 0, base.shape, base.strides or contiguous, 0)
    return writer.lowered()


class Writer:
    """The kernel being written: its result is `value`, its operands have `accesses`. A position is given by names of
    loops and a step for each."""

    def __init__(self, value, accesses, target):
        self.value, self.accesses, self.bindings = value, accesses, []
        elements = {element_of(value.dtype)} | {element_of(a.base.dtype) for a in accesses}
        self.lanes = target.lanes(elements)
        self.parameters, self.body = {}, []
        self.count = 0

    def lowered(self):
        kernel = Kernel(tuple(self.parameters.values()), self.lanes, tuple(self.body), self.checks)
        return Loops(kernel, tuple(self.bindings))

    @property
    def checks(self):
        return self.value.op.kernel is not None and self.value.op.kernel.can_fail(self.value)

    def fresh(self):
        self.count += 1
        return self.count - 1

    def memory(self, value):
        if value not in self.parameters:
            self.parameters[value] = Parameter(f"p{len(self.parameters)}", memory_element(value.dtype))
            self.bindings.append(("value", value.number))
        return self.parameters[value].name

    def scratch(self, count, dtype):
        """Memory for `count` elements of the kernel's own."""
        name, element = f"p{len(self.parameters)}", memory_element(dtype)
        self.parameters["scratch", name] = Parameter(name, element)
        self.bindings.append(("scratch", count * SIZES[element]))
        return name

    # --- loops --------------------------------------------------------------------------------------------------------
    def nest(self, dims, make_body):
        """Loops over dims (extents, outermost first) around the statements make_body(index names) gives."""
        names = [f"i{k}" for k in range(len(dims))]
        body = make_body(names)
        for name, extent in zip(reversed(names), reversed(dims)):
            body = [Loop(name, extent, tuple(body))]
        self.body += body

    def sweep(self, extent, *body):
        return Sweep(extent, body)

    def row(self, extent, *body):
        """Statements for every element of a row, which may have one only."""
        return [Sweep(extent, body)] if extent > 1 else list(body)

    def loop(self, index, extent, *body):
        return Loop(index, extent, body)

    # --- statements ---------------------------------------------------------------------------------------------------
    def load(self, k, names, steps, lane=0, start=0):
        """An element of operand k, or a vector of elements `lane` apart; `start` elements on."""
        access = self.accesses[k]
        at = At(access.offset + start, terms(names, steps), lane)
        return Load(self.fresh(), self.memory(access.base), at, element_of(access.base.dtype))

    def load_result(self, names, steps, lane=0, start=0):
        """What an earlier statement has stored."""
        at = At(start, terms(names, steps), lane)
        return Load(self.fresh(), self.memory(self.value), at, element_of(self.value.dtype))

    def constant(self, number, dtype):
        return Constant(self.fresh(), number, element_of(dtype))

    def store(self, names, steps, statement, lane=0, start=0):
        """The result of another statement into the op's result."""
        return Store(self.memory(self.value), At(start, terms(names, steps), lane), statement.name)

    def update(self, names, steps, where, stride, size, op, statement, lane=0):
        """Into the result where the index that `where` has loaded says, `stride` apart and less than `size`: op(what is
        there, the other statement's result), or that result if op is None."""
        target = Index(where.name, stride, size)
        return Update(self.memory(self.value), At(0, terms(names, steps), lane), target, op, statement.name)

    def first_extreme(self, k, names, steps, count, stride, predicate, lane=0):
        """The position of the first extreme of `count` elements of operand k."""
        access = self.accesses[k]
        at = At(access.offset, terms(names, steps), lane)
        return Extreme(self.fresh(), self.memory(access.base), at, count, stride, predicate)

    def apply(self, op, statements):
        """An op of the table on the results of other statements, and of their type."""
        return Apply(self.fresh(), op, tuple(s.name for s in statements), {}, statements[0].element)

    def convert(self, statement, dtype):
        """The result of another statement as this type."""
        element = element_of(dtype)
        return Apply(self.fresh(), TABLE["cast"], (statement.name,), {"dtype": dtype}, element)

    def load_scratch(self, name, dtype):
        """An element of scratch memory at the position of the sweep."""
        return Load(self.fresh(), name, At(0, (), 1), element_of(dtype))

    def store_scratch(self, name, statement):
        return Store(name, At(0, (), 1), statement.name)

    # --- copies -------------------------------------------------------------------------------------------------------
    def copy(self, source, strides, offset, shape, to_strides, to_offset):
        """Elements of `shape` from one place to another."""
        *outer, inner = joint_runs(shape, strides, to_strides)

        def body(names):
            return self.copied(source, [inner], offset, to_offset, [(n, *d[1:]) for n, d in zip(names, outer)])

        self.nest([d for d, _, _ in outer], body)

    def copied(self, source, dims, offset, to_offset, outer=()):
        """Statements that copy dims, (extent, step, step there) of each; outer: (index, step, step there) of the loops
        around them."""
        load, store = self.memory(source), self.memory(self.value)
        element, (*loops, (extent, step, to_step)) = element_of(source.dtype), dims
        around = [*outer, *((f"k{k}", *d[1:]) for k, d in enumerate(loops))]
        here, there = (terms([n for n, _, _ in around], [d[side] for d in around]) for side in (1, 2))

        def moved(k, lane, to_lane):
            name = self.fresh()
            at, to = At(offset + k * step, here, lane), At(to_offset + k * to_step, there, to_lane)
            return Load(name, load, at, element), Store(store, to, name)

        if not is_open(extent) and extent <= _FEW:
            body = [statement for k in range(extent) for statement in moved(k, 0, 0)]
        else:
            body = [Sweep(extent, moved(0, step, to_step))]
        for k, (count, _, _) in reversed(list(enumerate(loops))):
            body = [Loop(f"k{k}", count, tuple(body))]
        return body

    def fill(self, number, shape, to_strides, to_offset):
        """One number into all elements of `shape`."""
        store, element = self.memory(self.value), element_of(self.value.dtype)
        dims, name = joint_runs(shape, to_strides, to_strides), self.fresh()

        def body(names):
            *outer, (extent, _, to_step) = dims
            to = At(to_offset, terms(names, [s for _, _, s in outer]), to_step)
            return [Sweep(extent, (Store(store, to, name),))]

        self.body.append(Constant(name, number, element))
        self.nest([d for d, _, _ in dims[:-1]], body)

    def copy_operand(self, k, to_strides, to_offset):
        a, number = self.accesses[k], number_everywhere(self.accesses[k].base)
        if number is not None:
            self.fill(number, a.shape, to_strides, to_offset)
        else:
            self.copy(a.base, a.strides, a.offset, a.shape, to_strides, to_offset)


def terms(names, steps):
    return tuple((n, s) for n, s in zip(names, steps) if s)
