"""Users' autograd.Functions as ops of a call: of those that are proved to do nothing but ops (own_functions.py of the
frontend), so that their backward does the same whenever it is asked.

What backward does is recorded once, beside the call, as a graph (`traced`). That is the derivative of an op, which
gives what forward has computed:

    out = F.apply(x, 0.5)      mul  clamp            the ops of forward, without a history
                               F given (clamp, x, saved ...)    out: its derivative for x is the graph

So gradients pass through steps, as those of any op do: a backward in a call is one step of it, and what a call returns
may go through Functions and be differentiated later, again and again. Of several outputs own_results.py has the ops.
"""

import hashlib

import numpy as np

from ...compiler.dtypes import bfloat16, float32, float64
from ...compiler.extent import Fixed, is_open
from ...compiler.graph import INPUT, SCALAR
from ...compiler.later import later
from ...compiler.ops.source import full
from ...compiler.ops.table import Meta, Op, OpError
from ...compiler.ops.view import connect, leaf
from ..eager.function_node import FunctionContext, is_in, meta_of, rule_of
from ..programs import recording
from ..programs.description import Stretch
from ..state.attributes import refusal, same_attributes
from ..state.modes import frame_hidden, state
from ..state.seen import Watch
from ..state.tensor import Tensor, _apply, tensor_of
from . import own_results
from .frame import Frame
from .frame_run import run

# Of one Function, and of one that differ in what forward keeps besides tensors alone: more are other numbers in each
# call, say, and each would have a path of its own.
_MOST_TRIED, _MOST_ALIKE = 128, 3
_TYPES = (float32, float64)
# What a backward is traced in besides: it must do the same wherever it is asked.
_SETTINGS = ((float32, None), (float64, None), (float32, bfloat16))
# What contexts have before users give them anything.
_FIRST = frozenset(("needs_input_grad", "_given", "_for_forward"))

_made, _MOST_MADE = {}, 256  # by name

_graph_of = later("runtime.record.build:graph_of")
_has_kernels = later("runtime.record.build:link_has_kernels")


class Differs(Exception):
    """A backward that is not the same ops, and no others, whenever it is asked."""


class Way:
    """What calls of a Function were like that the same backward belongs to.

    needed: which arguments get a gradient. others: of each output, None, or the shape and type of one without a
    gradient. places: of what forward has saved, None or which operand of the op it is; the outputs with a gradient are
    the first. metas: shapes and types of the operands. attributes: what else the context has. ops: what gives such
    outputs their history; None if nothing does.
    """

    __slots__ = ("ops", "needed", "others", "places", "metas", "attributes")

    def __init__(self, needed, others, places, metas, attributes):
        self.needed, self.others, self.places, self.metas, self.attributes = needed, others, places, metas, attributes
        self.ops = None

    @property
    def n_outputs(self):
        """How many have a gradient."""
        return self.others.count(None)

    def outputs(self, outputs, operands):
        """The outputs in the call in flight, with their history."""
        if len(self.ops) == 1:
            made = [_apply(self.ops[0], tuple(operands), {})]
        else:
            whole = _apply(self.ops[0], tuple(operands), {})
            made = [_apply(op, (given, whole), {}) for op, given in zip(self.ops[1:], operands)]
        made = iter(made)
        return tuple([next(made) if other is None else x for x, other in zip(outputs, self.others)])


class Ways:
    """The ways that one Function was called.

    known: lists of them, by what is needed, places, metas and which outputs have a gradient. proof: says whether all is
    as it was proved to be (`holds`), and what is read (`reads`: (rows, tensors) of forward and of backward).
    """

    __slots__ = ("function", "name", "proof", "known", "n_tried")

    def __init__(self, function, name, proof):
        self.function, self.name, self.proof = function, name, proof
        self.known, self.n_tried = {}, 0

    def reads(self):
        return self.proof.reads()

    def tensors(self):
        return [x for _, tensors in self.proof.reads() for x in tensors]

    def applied(self, frame, context, args, outputs):
        """What a call in flight goes on with in place of the outputs; None if these have to be those of a node."""
        if not _may_be_ops(frame, context, args, outputs):
            return None
        asked, operands = _asked(context, args, outputs)
        if asked is None:
            return None
        if not self.proof.holds():
            self.known = {}  # what is known may be of another backward
            return None
        key = asked.needed, asked.others, asked.places, asked.metas
        alike = self.known.get(key, ())
        way = next((way for way in alike if same_attributes(way.attributes, asked.attributes)), None)
        if way is None:
            way = self._new_way(asked, key, alike)
        return None if way is None or way.ops is None else way.outputs(outputs, operands)

    def _new_way(self, asked, key, alike):
        if self.n_tried >= _MOST_TRIED:
            return None
        self.n_tried += 1
        if len(alike) >= _MOST_ALIKE:
            # Numbers of the program's own, which nodes know as such.
            self.n_tried, self.known = _MOST_TRIED, {}
            return None
        try:
            asked.ops = _ops_of(self.function, self.name, asked)
        except Exception:
            asked.ops = None  # eager mode says what is wrong where it asks for the derivative
        self.known[key] = *alike, asked
        return asked


def _may_be_ops(frame, context, args, outputs):
    """Whether a Function's call is one of those that ops can stand for."""
    if state.forward is not None or state.level is not None or state.autocast is not None or state.function_modes:
        return False
    if context._for_forward or not (context.materialize_grads and context._materialize_non_diff_grads):
        return False
    if len(set(map(id, outputs))) < len(outputs) or not all(_may_be_output(frame, args, x) for x in outputs):
        return False
    others = {str(k): x for k, x in enumerate(args) if not isinstance(x, Tensor)}
    return not others or refusal(others) is None


def _may_be_output(frame, args, out):
    if out.__class__ is not Tensor or out._frame is not frame or out._data is not None or id(out) in frame.homes:
        return False
    return not out._requires_grad and out._node is None and out._base is None and not is_in(out, args)


def _asked(context, args, outputs):
    """(the Way that a call asks for, the operands of its op); (None, ()) if there can be none."""
    needed, lacking = context.needs_input_grad, context._non_differentiable
    has = [x._meta.dtype.is_differentiable and not is_in(x, lacking) for x in outputs]
    operands = [x for x, has_gradient in zip(outputs, has) if has_gradient]
    n_outputs = len(operands)
    operands += [x for x, needs in zip(args, needed) if needs]
    places = []
    for x in context._given:
        place = None if x is None else next((k for k, other in enumerate(operands) if other is x), -1)
        if place == -1:
            if not isinstance(x, Tensor) or x._requires_grad:
                return None, ()
            place = len(operands)
            operands.append(x)
        places.append(place)
    if any(x.__class__ is not Tensor and not _is_plain(x.__class__) for x in operands):
        return None, ()
    metas = tuple([(tuple(shape), dtype) for shape, dtype in map(meta_of, operands)])
    attributes = {name: value for name, value in vars(context).items() if name not in _FIRST}
    if attributes and refusal(attributes) is not None:
        return None, ()
    if any(dtype not in _TYPES for _, dtype in metas[: n_outputs + sum(needed)]):
        return None, ()
    if any(dtype.is_half or dtype.is_complex for _, dtype in metas) or len({d for _, d in metas[:n_outputs]}) != 1:
        return None, ()
    others = tuple([None if has_gradient else meta_of(x) for x, has_gradient in zip(outputs, has)])
    return Way(needed, others, tuple(places), metas, attributes), operands


def _is_plain(kind):
    """Whether it is one of weft's own classes of tensors."""
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


# --- the derivative ---------------------------------------------------------------------------------------------------
class _Context(FunctionContext):
    """That of a backward that is traced, and whether it has asked for what forward has saved."""

    _has_asked = False

    @property
    def saved_tensors(self):
        self._has_asked = True
        return self._given


class _Tape:
    """What a backward has done.

    graph: its ops. sources: of its inputs, first the cotangents, then the outputs, the inputs and what else was saved.
    numbers: those that its program is given. results: of the arguments that need one. asked: whether it has asked for
    what forward has saved.
    """

    def __init__(self, graph, sources, numbers, results, asked):
        self.graph, self.sources, self.numbers, self.results, self.asked = graph, sources, numbers, results, asked
        self.inputs = {v.number: k for v, k in zip(graph.inputs(), sources)}
        self.scalars = {v.number: x for v, x in zip(graph.scalars(), numbers)}

    def text(self):
        """All of it, without the settings that it was found in."""
        results = [v.number for v in self.results]
        numbers = [(type(x).__name__, repr(x)) for x in self.numbers]
        return f"{self.graph} {self.sources} {numbers} {results} {self.asked}"

    def gradient(self, index, given):
        """The gradient of one argument, of (*cotangents, *outputs, *others): tensors or values of a graph."""
        result, apply_op = self.results[index], given[0].apply_op
        values = {}
        for v in self._leading_to(result):
            if v.op is INPUT:
                values[v.number] = given[self.inputs[v.number]]
            elif v.op is SCALAR:
                values[v.number] = self.scalars[v.number]
            elif v.op.name == "constant":
                values[v.number] = v.attributes["value"]
            else:
                values[v.number] = apply_op(v.op, tuple([values[o.number] for o in v.operands]), v.attributes)
        return values[result.number]

    def _leading_to(self, result):
        wanted = {result.number}
        for v in reversed(self.graph.values[: result.number + 1]):
            if v.number in wanted:
                wanted.update(o.number for o in v.operands)
        return [self.graph.values[number] for number in sorted(wanted)]


def _ops_of(function, name, way):
    """The op that gives an output its history; of several that of all of them, and those of each."""
    tapes = [_traced(function, way, *setting) for setting in _SETTINGS]
    if any(tape.text() != tapes[0].text() for tape in tapes[1:]):
        raise Differs("it depends on a setting")
    tape, metas, n_outputs, n = tapes[0], way.metas, way.n_outputs, sum(way.needed)

    def infer(operands, attributes, default_float):
        found = [(x.shape, x.dtype) for x in operands]
        if any(is_open(size) for shape, _ in found for size in shape):
            raise Fixed("a backward of a user's Function is known for these sizes alone")
        if tuple([(tuple(shape), dtype) for shape, dtype in found]) != metas:
            raise OpError(f"{name}: other operands than before")
        return Meta(*metas[0]) if n_outputs == 1 else own_results.meta(metas[:n_outputs])

    def rule_for(index):
        if not n_outputs <= index < n_outputs + n:
            return None
        # Of its own values and not of what forward has given, which are constants: a second derivative goes through it.
        if n_outputs == 1:
            return lambda cotangent, out, given, *operands: tape.gradient(index - 1, (cotangent, out, *operands))
        return lambda cotangent, out, *operands: tape.gradient(
            index - n_outputs, (*several.cotangents(cotangent), *several.values(out, operands), *operands[n_outputs:])
        )

    # All of it, since programs are found on disk by the names of their ops; classes that are made anew share one, too.
    text = f"{name} {metas} {way.needed} {way.others} {way.places} {tape.text()}"
    text = f"{name} given {hashlib.sha256(text.encode()).hexdigest()}"
    if text in _made:
        return _made[text]
    saved = frozenset(k for k in way.places if k is not None and k < n_outputs)
    asked = frozenset(k for k in way.places if k is not None and k >= n_outputs)
    of_op = {"infer": infer, "vjp": rule_for, "node_name": f"{name}Backward"}
    if n_outputs == 1:
        of_op["decompose"] = lambda given, *operands: given
        of_op["extra"] = {"asks": (asked, bool(saved))} if tape.asked else None
        ops = [Op(text, "composite", **of_op)]
    else:
        several = own_results.Several(text, metas[:n_outputs], saved if tape.asked else (), asked, tape, of_op)
        ops = several.ops
    wanted = (*[False] * n_outputs, *(k < n for k in range(len(metas) - n_outputs)))
    if not _has_kernels(ops[0], tuple([Meta(*meta) for meta in metas]), wanted, {}, float32):
        raise Differs("an op of it has no kernel")
    if len(_made) >= _MOST_MADE:
        _made.pop(next(iter(_made)))
    _made[text] = ops
    return ops


def _traced(function, way, default_dtype, autocast):
    """The _Tape of a backward, run on tensors that stand for what it would be given: it must not look at numbers."""
    n_outputs, n_needed = way.n_outputs, sum(way.needed)
    metas = (*way.metas[:n_outputs], *way.metas)
    stand_ins = [tensor_of(np.zeros(shape, dtype.numpy)) for shape, dtype in metas]
    for x in stand_ins[n_outputs : 2 * n_outputs + n_needed]:
        x._requires_grad = True
    context, found = _Context(), []
    vars(context).update(way.attributes)
    context.needs_input_grad = way.needed
    context._given = tuple([None if k is None else stand_ins[k + n_outputs] for k in way.places])

    def asked():
        given = iter(stand_ins)
        cotangents = [next(given) if other is None else _zeros(*other) for other in way.others]
        results = rule_of(function)(context, *cotangents)
        results = results if isinstance(results, tuple) else (results,)
        if len(results) < len(way.needed) or any(r is not None for r in results[len(way.needed) :]):
            raise Differs("it gives another number of gradients")
        results = [r for r, needs in zip(results, way.needed) if needs]
        if any(r.__class__ is not Tensor for r in results):
            raise Differs("it gives no gradient")
        frame = state.frame
        numbers = [frame.identify(r) for r in results]
        if not isinstance(frame, Frame) or frame.flushed or frame.homes or frame.same or frame.eager_ops:
            raise Differs("it does more than ops")
        found.append((Stretch(frame), numbers, list(frame.numbers)))

    signature = ((), (), True, default_dtype)
    with frame_hidden(default_dtype):
        before = state.grad_enabled, state.autocast
        state.grad_enabled, state.autocast = True, autocast
        watch = Watch()
        try:
            with watch:
                run(Frame(recording.Recording("backward", signature, "backward")), asked, (), {}, stand_ins)
        finally:
            state.grad_enabled, state.autocast = before
            besides = watch.what_else()
            watch.take_back_draws()
    if besides is not None:
        raise Differs(besides)
    return _tape_of(*found[0], len(stand_ins), way.metas[n_outputs:], n_needed, context._has_asked)


def _zeros(shape, dtype):
    """What backward is given for an output without a gradient."""
    return _apply(full, (0,), {"shape": shape, "dtype": dtype})


def _tape_of(stretch, wanted, numbers, n_given, metas, n_needed, asked):
    for step in stretch.steps:
        plain = not isinstance(step.op, str) and step.op is not leaf and step.op is not connect
        if step.op is not recording.INPUT and not plain or plain and not step.grad_enabled:
            raise Differs("it does more than ops")
    builder = _graph_of(stretch)
    results = [builder.value(number) for number in wanted]
    if any(vid >= n_given for vid in builder.inputs):
        raise Differs("it reads a tensor that forward has not saved")
    for result, (shape, _) in zip(results, metas[:n_needed]):
        lead = len(result.shape) - len(shape)
        if not result.dtype.is_floating_point or lead < 0:
            raise Differs("a gradient is of another shape or type")
        if any(a != b and a != 1 for a, b in zip(shape, result.shape[lead:])):
            raise Differs("a gradient is of another shape")
    builder.graph.name, builder.graph.outputs = "backward", results
    given = [numbers[position] for position, _ in builder.numbers]
    return _Tape(builder.graph, list(builder.inputs), given, results, asked)
