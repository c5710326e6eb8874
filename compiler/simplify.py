"""Fewer values, the same bits: constant folding, identities, common subexpressions, dead values.

Every rewrite holds for all operands, NaN, infinities and -0.0 included; one that does not, like x + 0.0 -> x (wrong for
-0.0) or a * b + a * c -> a * (b + c), is not here.

    cast(x) to its own type          -> x
    cast(full(c))                    -> full(c) of that type     for int -> float and float -> float, as NumPy converts
    x * 1, x / 1, x - 0.0            -> x
    x / c                            -> x * (1 / c)              c a power of two whose reciprocal is normal: exact
    neg(neg(x))                      -> x                        only the sign bit changes
    f(full(c) : f32[2, 3], x)        -> f(full(c) : f32[], x)    elementwise f: the shape comes from x
    f(expand(x : f32[]), y)          -> f(x, y)                  likewise
    f(permute(x), permute(y))        -> permute(f(x, y))         elementwise f, the same axes: one is read across
    reshape(reshape(x))              -> reshape(x)               likewise permute, expand
    reshape, permute, expand, slice that change nothing -> x
    slice(slice_scatter(x, part))    -> slice(part)              if it lies in the part, and slice(x) if it misses it
    class_index(x), in_range(x), one_hot_class(x) -> x           the check stays, beside the uses
    the same op on the same operands -> one of them
    a value nothing needs            -> nothing                  but ops that check their operands stay: they can fail
"""

import math
import struct

from . import dtypes
from .conversions import full, number_everywhere
from .extent import identical, is_open
from .graph import INPUT, SCALAR, Graph, Value
from .ops.table import TABLE
from .reads import can_fail
from .rewrite import Rewriter, follow
from .shapes import broadcast_shapes


def simplify(graph):
    """graph in legal form -> the same with the rewrites above applied once, front to back; and the trace."""
    folded, first = fold(graph)
    clean, second = remove_dead(folded)
    return clean, follow(first, second)


def fold(graph):
    """Identities and common subexpressions."""
    rewriter = Rewriter(graph, _SharingGraph(graph.name, graph.default_float))
    for value in graph.values:
        operands = rewriter.operands(value)
        if value.op.kind == "elementwise":
            operands = _without_broadcasts(rewriter.graph, value, operands)
        rule = _RULES.get(value.op.name)
        new = rule(rewriter.graph, value, operands) if rule else None
        if new is None and value.op.kind == "elementwise":
            new = _permuted(rewriter.graph, value, operands)
        rewriter[value] = rewriter.graph.copy_value(value, operands) if new is None else new
    return rewriter.finish()


class _SharingGraph(Graph):
    """A graph that holds every op on the same operands once, however it is appended."""

    def __init__(self, name, default_float):
        super().__init__(name, default_float)
        self.seen = {}

    def apply(self, op, operands, attributes):
        operands = tuple(x if isinstance(x, Value) else self.constant(x) for x in operands)
        key = _key(op, operands, attributes)
        if key not in self.seen:
            self.seen[key] = super().apply(op, operands, attributes)
        return self.seen[key]

    def constant(self, number):
        key = _key(TABLE["constant"], (), {"value": number})
        if key not in self.seen:
            self.seen[key] = super().constant(number)
        return self.seen[key]

    def copy_value(self, value, operands):
        if value.op in (INPUT, SCALAR):
            return super().copy_value(value, operands)
        key = _key(value.op, operands, value.attributes)
        if key not in self.seen:
            self.seen[key] = super().copy_value(value, operands)
        return self.seen[key]


def _key(op, operands, attributes):
    # repr tells 1, 1.0 and True apart, and 0.0 from -0.0; equality does not.
    text = repr(sorted(attributes.items())) if attributes else ""
    return (op.name, text, *(o.number for o in operands))


def remove_dead(graph):
    """Only what the results need, the signature, and ops that may fail."""
    rewriter = Rewriter(graph)
    needed = set(graph.results()) | {target for target, _ in graph.commits}
    for value in reversed(graph.values):
        if value in needed or can_fail(value):
            needed.add(value)
            needed.update(value.operands)
    for value in graph.values:
        if value in needed or value.op in (INPUT, SCALAR):
            rewriter.copy(value)
    return rewriter.finish()


def _without_broadcasts(graph, value, operands):
    """Operands of one element without the view that spreads them, as long as the others give the shape."""
    types = {o.dtype for o in operands if not o.weak and o.dtype is not dtypes.bool_}
    if len(operands) < 2 or len(types) > 1:
        # Where types still differ, one without dimensions counts less than one with dimensions.
        return operands
    small = [_one_element(graph, o) for o in operands]
    same_shape = broadcast_shapes(value.op.name, [s.shape for s in small]) == value.shape
    return tuple(small) if same_shape else operands


def _one_element(graph, value):
    if value.shape == ():
        return value
    if value.op.name == "full":
        return full(graph, value.operands[0], (), value.dtype)
    if value.op.name == "expand" and value.operands[0].shape == ():
        return value.operands[0]
    return value


def _permuted(graph, value, operands):
    """The op before the view, where that makes several transposed reads one: gradients of a weight from many steps."""
    views = [o for o in operands if o.shape]
    if len({o.number for o in views}) < 2 or any(
        o.op.name != "permute" or not identical(o.shape, value.shape) for o in views
    ):
        return None
    axes = views[0].attributes["axes"]
    if any(o.attributes["axes"] != axes for o in views):
        return None
    before = graph.apply(value.op, tuple(o.operands[0] if o.shape else o for o in operands), value.attributes)
    return graph.apply(views[0].op, (before,), {"axes": axes})


def constant_of(value):
    """The Python number a typed constant holds, or None."""
    if value.op.name == "full" and value.operands[0].op.name == "constant":
        return value.operands[0].attributes["value"]
    return None


def _is_number(value, number):
    c = constant_of(value)
    return c is not None and c == number and math.copysign(1, c) == math.copysign(1, number)


def _stands_for(x, value):
    """Whether x is of the value's shape and type; a Python number among typed operands is not."""
    return identical(x.shape, value.shape) and x.dtype is value.dtype and not x.weak


# --- rules: (graph, old value, new operands) -> new value, or None to keep the op ----------------------------------
def _cast(graph, value, operands):
    (x,) = operands
    if x.dtype is value.dtype and not x.weak:
        return x
    number = constant_of(x)
    if number is None or is_open(number) or not value.dtype.is_floating_point:
        return None
    if x.dtype.is_narrow:
        number = number_everywhere(x)
    if x.dtype is dtypes.float32:
        number = struct.unpack("<f", struct.pack("<f", number))[0] if abs(number) < 3.4e38 else None
    return None if number is None or x.shape else full(graph, float(number), (), value.dtype)


def _mul(graph, value, operands):
    for x, other in (operands, operands[::-1]):
        if _is_number(other, 1) and _stands_for(x, value):
            return x
    return None


def _div(graph, value, operands):
    x, divisor = operands
    if not _stands_for(x, value):
        return None
    if _is_number(divisor, 1):
        return x
    number = constant_of(divisor)
    if number and not is_open(number) and abs(math.frexp(number)[0]) == 0.5 and 2.0**-100 < abs(number) < 2.0**100:
        return graph.apply(TABLE["mul"], (x, full(graph, 1.0 / number, (), value.dtype)), {})
    return None


def _sub(graph, value, operands):
    x, other = operands
    return x if _is_number(other, 0) and _stands_for(x, value) else None


def _neg(graph, value, operands):
    (x,) = operands
    return x.operands[0] if x.op.name == "neg" else None


def _view(graph, value, operands):
    """One view instead of two of a kind, none instead of one that changes nothing."""
    (x,) = operands
    name, attributes = value.op.name, value.attributes
    while x.op.name == name and name in _COMPOSE:
        attributes = _COMPOSE[name](x.attributes, attributes)
        x = x.operands[0]
    if identical(x.shape, value.shape) and _changes_nothing(x, name, attributes):
        return x
    if x is operands[0]:
        return None
    return graph.apply(value.op, (x,), attributes)


def _slice(graph, value, operands):
    """A slice of the part that was put into an array, or of what was there before."""
    (x,), spec = operands, value.attributes["spec"]
    while x.op.name == "slice_scatter":
        found = _inside(x, spec)
        if found is None:
            break
        x, spec = found
    if x is operands[0]:
        return _view(graph, value, operands)
    part = graph.apply(value.op, (x,), {"spec": spec})
    return _view(graph, part, (x,)) or part


def _inside(scatter, spec):
    """(the operand that the slice `spec` lies in, the slice of it), or None if it lies in both."""
    base, part = scatter.operands
    starts = []
    for (start, step, length), (first, stride, count) in zip(spec, scatter.attributes["spec"]):
        if any(map(is_open, (start, length, first, count))) or (step, stride) != (1, 1):
            return None
        if start + length <= first or first + count <= start:
            return base, spec
        starts.append(start - first)
    wanted = tuple((start, 1, length) for start, (_, _, length) in zip(starts, spec))
    return (part, wanted) if all(s >= 0 and s + n <= d for (s, _, n), d in zip(wanted, part.shape)) else None


def _changes_nothing(x, name, attributes):
    if name == "permute":
        return attributes["axes"] == tuple(range(len(x.shape)))
    if name == "slice":
        return all(start == 0 and step == 1 for start, step, _ in attributes["spec"])
    return True


def _checked(graph, value, operands):
    graph.copy_value(value, operands)
    return operands[0]


_COMPOSE = {
    "reshape": lambda inner, outer: outer,
    "expand": lambda inner, outer: outer,
    "permute": lambda inner, outer: {"axes": tuple(inner["axes"][a] for a in outer["axes"])},
}
_RULES = {
    "cast": _cast,
    "class_index": _checked,
    "in_range": _checked,
    "one_hot_class": _checked,
    "mul": _mul,
    "div": _div,
    "sub": _sub,
    "neg": _neg,
    "reshape": _view,
    "permute": _view,
    "expand": _view,
    "slice": _slice,
}
