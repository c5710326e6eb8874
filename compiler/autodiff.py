"""Reverse-mode differentiation of graphs, and the derivative of composites that state none.

`backward` finds the active values (those between what is wanted and what is differentiated), then walks them once in
reverse recorded order. The eager engine processes nodes in the same order and adds contributions in the
same order, so both give the same bits.
"""

from .dtypes import float32
from .ops.arithmetic import add
from .ops.comparison import cast
from .ops.complex_numbers import conjugate
from .ops.reduction import sum_
from .ops.view import reshape


def conform(cotangent, shape, dtype):
    """Sum a cotangent over the axes its operand was broadcast along, and convert it to the operand's type."""
    given = cotangent.shape
    lead = len(given) - len(shape)
    if lead or given != shape:
        axes = tuple(k for k in range(len(given)) if k < lead or (shape[k - lead] == 1 and given[k] != 1))
        cotangent = sum_(cotangent, axes=axes, keepdim=False)
        if cotangent.shape != shape:
            cotangent = reshape(cotangent, shape=shape)
    if cotangent.dtype is not dtype:
        cotangent = cast(cotangent, dtype=dtype)
    return cotangent


def has_rule(op, index):
    """Whether the op has a derivative with respect to one operand."""
    if op.vjp == ():
        return op.kind == "composite"
    return op.vjp_rule(index) is not None


def vjp(op, index, cotangent, out, operands, attributes):
    """The cotangent of one operand, conformed; None if the op has no derivative there."""
    if "view" not in op.extra and op.kind != "view" and (cotangent.dtype.is_half or out.dtype.is_half):
        wide = [_in_float32(x) for x in (cotangent, out, *operands)]
        result = vjp(op, index, wide[0], wide[1], wide[2:], attributes)
        return None if result is None else cast(result, dtype=operands[index].dtype)
    if op.vjp == () and op.kind == "composite":
        result = _derived(op, index, cotangent, operands, attributes)
    else:
        result = _by_rule(op, index, cotangent, out, operands, attributes)
    if result is None:
        return None
    return conform(result, operands[index].shape, operands[index].dtype)


def _by_rule(op, index, cotangent, out, operands, attributes):
    rule = op.vjp_rule(index)
    if rule is None or not cotangent.dtype.is_complex or "conjugate" in op.traits:
        return None if rule is None else rule(cotangent, out, *operands, **attributes)
    # Rules say g f'(z); what is passed on is g conj(f'(z)) (ops/complex_numbers.py).
    return conjugate(rule(conjugate(cotangent), out, *operands, **attributes))


def _in_float32(x):
    """Rules on floats of 16 bits are computed in float32, as PyTorch's are."""
    if not hasattr(x, "dtype") or not x.dtype.is_half:
        return x
    return x.as_type(float32) if hasattr(x, "as_type") else cast(x, dtype=float32)


def backward(graph, outputs, cotangents, wanted, stopped=frozenset(), sums=()):
    """Append the gradients of sum(outputs * cotangents) to the graph.

    stopped: numbers of values recorded without gradients; nothing flows through them. sums: for each wanted value what
    has been added up for it before, or None. Returns one value per wanted value, None where the outputs do not depend
    on it.
    """
    active = _active(graph, outputs, wanted)
    collected = {v.number: s for v, s in zip(wanted, sums) if s is not None}
    for out, cotangent in zip(outputs, cotangents):
        _contribute(collected, out, cotangent)
    keep = {v.number for v in wanted}
    for number in sorted(active, reverse=True):
        value = graph.values[number]
        cotangent = collected.get(number)
        if cotangent is None or value.is_source or number in stopped:
            continue
        if number not in keep:
            del collected[number]
        for index, operand in enumerate(value.operands):
            if operand.number in active and operand.dtype.is_floating_point:
                part = vjp(value.op, index, cotangent, value, value.operands, value.attributes)
                if part is not None:
                    _contribute(collected, operand, part)
    return [collected.get(v.number) for v in wanted]


def _active(graph, outputs, wanted):
    """Numbers of the values on a path from a wanted value to an output, both ends included."""
    below, above = {v.number for v in wanted}, {v.number for v in outputs}
    for value in graph.values:
        if any(o.number in below for o in value.operands):
            below.add(value.number)
    for value in reversed(graph.values):
        if value.number in above:
            above.update(o.number for o in value.operands)
    return below & above


def _contribute(collected, value, part):
    before = collected.get(value.number)
    collected[value.number] = part if before is None else add(before, part)


# --- composites without a rule: differentiate the decomposition ------------------------------------------------------
class _Traced:
    """A tensor-like value together with the op that made it."""

    __slots__ = ("value", "op", "operands", "attributes", "tape")

    def __init__(self, value, tape, op=None, operands=(), attributes=None):
        self.value, self.tape, self.op, self.operands, self.attributes = value, tape, op, operands, attributes
        tape.append(self)

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)
    ndim = property(lambda self: len(self.value.shape))
    weak = property(lambda self: self.value.weak)

    def apply_op(self, op, operands, attributes):
        inner = [o.value if isinstance(o, _Traced) else o for o in operands]
        return _Traced(self.value.apply_op(op, tuple(inner), attributes), self.tape, op, operands, attributes)


def _derived(op, index, cotangent, operands, attributes):
    """Run the decomposition once more, on a tape, and sweep back. Common subexpressions vanish when compiled."""
    tape = []
    traced = [_Traced(o, tape) if hasattr(o, "apply_op") else o for o in operands]
    out = op.decompose(*traced, **attributes)
    collected = {id(out): cotangent}
    reached = {id(traced[index])}
    for entry in tape:
        if any(id(o) in reached for o in entry.operands):
            reached.add(id(entry))
    for entry in reversed(tape):
        if entry.op is None or id(entry) not in reached or id(entry) not in collected:
            continue
        inner = [o.value if isinstance(o, _Traced) else o for o in entry.operands]
        for k, o in enumerate(entry.operands):
            if id(o) in reached and o.dtype.is_differentiable:
                part = vjp(entry.op, k, collected[id(entry)], entry.value, inner, entry.attributes)
                if part is not None:
                    before = collected.get(id(o))
                    collected[id(o)] = part if before is None else add(before, part)
    found = collected.get(id(traced[index]))
    # Its entries hold it: without this, tensors that nobody has any more would live until the garbage collector comes.
    tape.clear()
    return found
