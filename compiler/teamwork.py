"""The steps of a program as `parallel` sees them: what each costs, how it may be cut, what memory it touches."""

from functools import partial
from math import prod

from .loopnest import SIZES, Store, Update, statements
from .memory import Place
from .parallel import Work, kernel_cost_ns, kernel_cuts, product_cost_ns, product_cut
from .regions import ALL, CALLER, Part, Touch, kernel_parts, product_parts

# Whether a check has failed counts as memory: checks write it, and what outlives a failed call is written after it is
# read.
_VERDICT = Place("verdict", 0)


def works(order, steps, memory):
    """A Work for every step of a schedule; steps have `group`, `lowered` and `scratch`."""
    return [_work(order, step, k, memory) for k, step in enumerate(steps)]


def commits(step, memory):
    """Whether the step writes to memory that outlives the call."""
    return step.lowered is not None and _commits(step.lowered, _stored(step.lowered), memory)


def _commits(lowered, stored, memory):
    return any(memory.place[number].kind == "input" for name, number in _values(lowered) if name in stored)


def _work(order, step, k, memory):
    always = [Touch(memory.scratch[k, n], size, True, CALLER) for n, size in enumerate(step.scratch)]
    if commits(step, memory):
        always.append(Touch(_VERDICT, 1, False, ALL))
    if step.lowered is None:
        (value,) = step.group.values
        operands = [order.fusion.reads.accesses[o.number] for o in value.operands]
        cut = product_cut(value, operands[0])
        touches = partial(_product_touches, value, operands, memory, always)
        return Work(product_cost_ns(value), lambda owners: [cut], touches)
    kernel = step.lowered.kernel
    if kernel.checks:
        always.append(Touch(_VERDICT, 1, True, CALLER))
    touches = partial(_kernel_touches, order.fusion.graph, step.lowered, memory, always)
    cuts = partial(_kernel_cuts, step.lowered, _aliases(step.lowered, memory), memory)
    return Work(kernel_cost_ns(kernel), cuts, touches)


# --- products ---------------------------------------------------------------------------------------------------------
def _product_touches(value, operands, memory, always, cut):
    owners = product_parts(cut, *operands, value) if cut else (CALLER,) * 3
    bases = (*(a.base for a in operands), value)
    return always + [_touch(b, memory, b is value, owner) for b, owner in zip(bases, owners)]


def _touch(value, memory, writes, owner):
    return Touch(memory.place[value.number], prod(value.shape) * value.dtype.size_bytes, writes, owner)


# --- kernels ----------------------------------------------------------------------------------------------------------
def _kernel_touches(graph, lowered, memory, always, cut):
    if cut is None:
        stored = _stored(lowered)
        owners = {(name, name in stored): CALLER for name, _ in _values(lowered)}
    else:
        owners = kernel_parts(lowered.kernel, cut)
    numbers = dict(_values(lowered))
    return always + [
        _touch(graph.values[numbers[name]], memory, writes, owner)
        for (name, writes), owner in owners.items()
        if name in numbers
    ]


def _kernel_cuts(lowered, aliases, memory, owners):
    elements = {p.name: p.element for p in lowered.kernel.parameters}
    wished = [(SIZES[elements[name]], owners.get(memory.place[number])) for name, number in _values(lowered)]
    return kernel_cuts(lowered.kernel, aliases, [(size, part) for size, part in wished if isinstance(part, Part)])


def _values(lowered):
    """(parameter's name, number of the value in it), without scratch."""
    return [(p.name, what) for p, (kind, what) in zip(lowered.kernel.parameters, lowered.bindings) if kind == "value"]


def _stored(lowered):
    return {s.parameter for s in statements(lowered.kernel.body) if isinstance(s, (Store, Update))}


def _aliases(lowered, memory):
    """Parameter -> the first parameter that points to the same memory: what a kernel replaces, and by what."""
    first = {}
    return {name: first.setdefault(memory.place[number], name) for name, number in _values(lowered)}
