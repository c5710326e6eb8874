"""Several outputs of a user's Function, as ops of a call (own_ops.py).

    a, b = F.apply(x)      mul  sin                 the ops of forward, which give what a and b are
                           F given (mul, sin, x)    zeros of as many elements as both have, and of the history of both
                           F output (mul, that)     a
                           F output (sin, that)     b

An op has one result, so the gradients of all outputs meet in one cotangent: each is put where it belongs, and taken out
again for the user's backward. That is given zeros for an output that nothing depends on, and of another it is given the
bits. So a gradient is put among zeros that are negative, which change nothing that they are added to, and behind the
elements stands which outputs had one. In a graph all that is seen: what was put there is taken as it is.
"""

from math import prod
from weakref import WeakKeyDictionary, ref

from ...compiler.graph import Value
from ...compiler.ops.arithmetic import add
from ...compiler.ops.comparison import gt, where
from ...compiler.ops.source import full
from ...compiler.ops.table import Meta, Op
from ...compiler.ops.view import cat, reshape, slice_
from ..eager.saved_hooks import with_history


def _size(shapes):
    """How many elements the cotangent of outputs of these shapes has."""
    return sum(map(prod, shapes)) + len(shapes)


def _filled(like, value, n):
    return like.apply_op(full, (value,), {"shape": (n,), "dtype": like.dtype})


def _put(x, shapes, index):
    sizes = list(map(prod, shapes))
    parts = [(-0.0, sum(sizes[:index])), None, (-0.0, sum(sizes[index + 1 :]))]
    parts += [(0.0, index), (1.0, 1), (0.0, len(shapes) - 1 - index)]
    given = [
        _filled(x, *part) if part else reshape(x, shape=(sizes[index],)) for part in parts if part is None or part[1]
    ]
    return cat(*given, axis=0)


def _taken(x, shapes, index):
    sizes = list(map(prod, shapes))
    start, n = sum(sizes[:index]), sum(sizes)
    part = reshape(slice_(x, spec=((start, 1, sizes[index]),)), shape=shapes[index])
    there = reshape(slice_(x, spec=((n + index, 1, 1),)), shape=())
    return where(gt(there, 0.0), part, 0.0)


put = Op(
    "output put",
    "composite",
    lambda operands, attributes, default_float: Meta((_size(attributes["shapes"]),), operands[0].dtype),
    decompose=_put,
    vjp=(lambda g, out, x, shapes, index: taken(g, shapes=shapes, index=index),),
    node_name="CatBackward0",
)
taken = Op(
    "output taken",
    "composite",
    lambda operands, attributes, default_float: Meta(attributes["shapes"][attributes["index"]], operands[0].dtype),
    decompose=_taken,
    vjp=(lambda g, out, x, shapes, index: put(g, shapes=shapes, index=index),),
    node_name="WhereBackward0",
)


def meta(metas):
    """What stands for all outputs."""
    return Meta((_size([shape for shape, _ in metas]),), metas[0][1])


class Several:
    """The ops of several outputs. metas: their shapes and type. saved: which of them backward asks for; asked: which
    operands besides. of_all: what `Op` is given of the op of all but for these. tape: own_ops.Tape."""

    def __init__(self, text, metas, saved, asked, tape, of_all):
        self.shapes, self.n = tuple([shape for shape, _ in metas]), len(metas)
        self.reads_outputs = any(self.n <= k < 2 * self.n for k in tape.inputs.values())
        extra = {"asks": (asked.union(saved), False), "asks_next": tuple(sorted(saved))} if tape.asked else None
        whole = Op(text, "composite", decompose=self._zeros, extra=extra, **of_all)
        outputs = [self._output(f"{text} output {k}", of_all["node_name"], k) for k in range(self.n)]
        self.ops = [whole, *outputs]

    def _zeros(self, *operands):
        return _filled(operands[0], 0.0, _size(self.shapes))

    def _output(self, text, node_name, index):
        return Op(
            text,
            "composite",
            lambda operands, attributes, default_float: Meta(operands[0].shape, operands[0].dtype),
            decompose=lambda given, whole: given,
            vjp=(None, lambda g, out, given, whole: put(g, shapes=self.shapes, index=index)),
            node_name=node_name,
            extra={"output": index},
        )

    def cotangents(self, whole):
        """Those of the outputs, of that of all."""
        shapes, seen = self.shapes, _seen(whole)
        if seen is None:
            return [taken(whole, shapes=shapes, index=k) for k in range(self.n)]
        missing = [k for k in range(self.n) if k not in seen]
        zeros = {k: whole.apply_op(full, (0.0,), {"shape": shapes[k], "dtype": whole.dtype}) for k in missing}
        return [seen[k] if k in seen else zeros[k] for k in range(self.n)]

    def values(self, whole, operands):
        """The outputs with their history, as far as backward reads them: the values that the call went on with."""
        if not self.reads_outputs:
            return operands[: self.n]
        known = _outputs_in_graph(whole) if isinstance(whole, Value) else _outputs_of_tensor(whole)
        found = []
        for k, (op, given) in enumerate(zip(self.ops[1:], operands)):
            value = known(k, op, given)
            found.append(op(given, whole) if value is None else value)
        return found


def _seen(value):
    """Which output has which cotangent, by its position; None if it cannot be seen, or one has several."""
    op = value.op if isinstance(value, Value) else None
    if op is put:
        return {value.attributes["index"]: value.operands[0]}
    if op is not add:
        return None
    parts = list(map(_seen, value.operands))
    if None in parts or not parts[0].keys().isdisjoint(parts[1]):
        return None
    return {**parts[0], **parts[1]}


def _outputs_in_graph(whole):
    """They follow what stands for all of them."""

    def known(index, op, given):
        place = whole.number + 1 + index
        value = whole.graph.values[place] if place < len(whole.graph.values) else None
        return value if value is not None and value.op is op and value.operands[1] is whole else None

    return known


_nodes = WeakKeyDictionary()  # node of what stands for all outputs -> {which output: weak reference to its node}


def is_output(op):
    """Whether its result is one of several outputs of a Function: its second operand stands for all of them."""
    return not isinstance(op, str) and "output" in op.extra


def note_node(op, made, operands):
    """An op of a call has been run again in eager mode (closed_nodes.py)."""
    if is_output(op) and made._node is not None and operands[1]._node is not None:
        _nodes.setdefault(operands[1]._node, {})[op.extra["output"]] = ref(made._node)


def _outputs_of_tensor(whole):
    """The same of a tensor: an open call knows its values, and nodes of eager mode have been noted."""
    frame = whole._frame
    nodes = _nodes.get(whole._node, {}) if frame is None else {}

    def in_call(index, op, given):
        vid = whole._vid + 1 + index
        value = frame.tensors[vid] if vid < len(frame.tensors) else None
        return value if value is not None and value._frame is frame and _op_of(frame, vid) is op else None

    def of_node(index, op, given):
        node = nodes[index]() if index in nodes else None
        return None if node is None else with_history(given, (node, 0))

    return of_node if frame is None else in_call


def _op_of(frame, vid):
    if frame.is_usual:
        return next((entry.op for entry in frame.entries[:-1] if entry.vid == vid), None)
    return frame.step_of(vid).op
