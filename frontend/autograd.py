"""weft.autograd: backward, grad, and Function, with PyTorch's rules and messages."""

import warnings
from itertools import chain

import numpy as np

from .compiler import dtypes
from .compiler.ops import source, view
from .compiler.ops.comparison import cast
from .creation import ones, tensor
from .graph import GradientEdge, unsafe_preserve_version_counter
from .public import of_module
from .reference import document
from .rows_at_once import of_all_but_last
from .runtime.eager import engine
from .runtime.eager.anomaly import detect_anomaly, set_detect_anomaly
from .runtime.eager.expected import Expected
from .runtime.eager.function import Function, once_differentiable
from .runtime.eager.function_node import FunctionContext, FunctionNode
from .runtime.eager.node import edge_of
from .runtime.eager.saved_hooks import SavedTensor
from .runtime.state.afterwards import begin, listeners, over
from .runtime.state.elsewhere import is_elsewhere, is_sample, samples_at_work
from .runtime.state.modes import enable_grad, inference_mode, no_grad, set_grad_enabled, state, watching
from .runtime.state.said import warn_once
from .runtime.state.tensor import Tensor, tensor_of
from .runtime.state.tracebacks import shorten

__all__ = [
    "Function",
    "FunctionContext",
    "FunctionCtx",
    "GradcheckError",  # noqa: F822  (paths.py: LATER)
    "SavedTensor",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",  # noqa: F822  (paths.py: LATER)
    "gradgradcheck",  # noqa: F822  (paths.py: LATER)
    "inference_mode",
    "is_multithreading_enabled",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]

FunctionCtx, BackwardCFunction, InplaceFunction = FunctionContext, FunctionNode, Function
_unsafe_preserve_version_counter = unsafe_preserve_version_counter
_PLAIN = dtypes.float32, dtypes.float64
__getattr__, __dir__ = of_module(__name__)


class set_multithreading_enabled:
    """Accepted: a backward pass runs in the thread that asks for it. At once, and until the end of the block if used in
    a `with`."""

    def __init__(self, mode):
        self.mode, self.before = bool(mode), state.multithreading
        state.multithreading = self.mode

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        state.multithreading = self.before


def is_multithreading_enabled():
    """What set_multithreading_enabled has said last in this thread; True at first."""
    return state.multithreading


class _ExecutionEngine:
    """PyTorch's object that runs backward passes, for what programs ask of it."""

    queue_callback = staticmethod(engine.queue_callback)


class _Variable:
    """PyTorch's old name for a tensor: Variable(x) is x, and every tensor is an instance of it."""

    _execution_engine = _ExecutionEngine()

    def __call__(self, data=None, requires_grad=False, volatile=None):
        result = tensor([]) if data is None else data.detach()
        result.requires_grad = requires_grad
        return result

    def __instancecheck__(self, x):
        return isinstance(x, Tensor)


Variable = _Variable()


def _as_tuple(given):
    """One tensor or edge, or what any iterable yields: a generator is walked here, and nowhere else."""
    if isinstance(given, (Tensor, GradientEdge)):
        return (given,)
    try:
        return tuple(given)
    except TypeError:
        if hasattr(given, "__iter__"):
            raise
        raise TypeError(f"expected a Tensor or a sequence of Tensors to differentiate, got {given!r}") from None


def _in_their_types(outputs, gradients):
    """The cotangents, each in its output's type: what flows along an edge has the type of what flowed the other way."""
    return tuple(_in_type_of(_expected(out), g) for out, g in zip(outputs, gradients)) + gradients[len(outputs) :]


def _in_type_of(out, gradient):
    if not isinstance(out, (Tensor, Expected)) or not isinstance(gradient, Tensor) or gradient.dtype is out.dtype:
        return gradient
    if gradient.dtype.is_complex and not out.dtype.is_complex:
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype: the gradient of an "
            f"output of type {out.dtype!r} cannot be {gradient.dtype!r}; pass .real"
        )
    return cast(gradient, dtype=out.dtype)


def _cotangents(outputs, gradients):
    """One cotangent per output, which have been checked; ones for scalars."""
    given = (None,) * len(outputs) if gradients is None else gradients
    return [_one(_expected(out)) if g is None else g for out, g in zip(outputs, given)]


def _expected(out):
    """What is asked of a cotangent by a tensor, or by the node of an edge."""
    if not isinstance(out, GradientEdge):
        return out
    known = out.node._input_metadata[out.output_nr]
    if known is None:
        raise RuntimeError(f"the shape of what {out.node.name()} has made is unknown: pass the tensor, not its edge")
    return known


def _is_one_real(array):
    """Whether a result of one element is in memory for which backward() needs no cotangent."""
    return array is not None and not array.shape and array.dtype.kind == "f"


def _one(out):
    """The cotangent of one element. Most backward passes begin with it: it is made without an op where it can be."""
    if out.__class__ is Tensor and out._data is None and is_elsewhere(out):
        return out.apply_op(source.full, (1,), {"shape": (), "dtype": out.dtype}).reshape(out.shape)
    if state.frame is None and not watching and out.dtype in _PLAIN:
        like = out if out.__class__ is not Tensor or out._data is None else out._data
        one = np.empty(like.shape, out.dtype.numpy)
        one.fill(1)
        return tensor_of(one)
    return ones(out.shape, dtype=out.dtype)


def _check_cotangents(outputs, gradients):
    if gradients is None:
        gradients = (None,) * len(outputs)
    if len(gradients) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(gradients)} gradients")
    for out, gradient in zip(outputs, gradients):
        _check_cotangent(_expected(out), gradient)


def _check_cotangent(out, gradient):
    if gradient is None and out.__class__ is Tensor and out._requires_grad and _is_one_real(out._data):
        return
    if not out.requires_grad:
        if samples_at_work:
            _refuse_samples((out,))
        raise RuntimeError(
            "element 0 of tensors does not require grad and does not have a grad_fn: nothing it was computed from has "
            "requires_grad=True, or it was computed under no_grad()"
        )
    if gradient is None and out.shape and out.numel() != 1:
        raise RuntimeError(
            f"grad can be implicitly created only for scalar outputs, this one has shape {out.shape}; "
            "pass a gradient of that shape, or reduce it first, for example with .sum()"
        )
    if gradient is None and out.dtype.is_complex:
        raise RuntimeError(
            f"grad can be implicitly created only for real scalar outputs but got {out.dtype!r}; pass a gradient, or "
            "make it real, for example with .abs()"
        )
    if gradient is not None and gradient.shape != out.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[0] has a shape of {gradient.shape} and output[0] has a shape of "
            f"{out.shape}."
        )


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """Add the gradients of `tensors` to the .grad of the leaves they depend on (or of `inputs` only).

    grad_tensors: cotangents, one per tensor; may be None for scalars. retain_graph: keep what backward needs (default:
    the value of create_graph). RuntimeError for a second backward through freed values, for outputs that are not
    scalars without a cotangent, and for tensors that do not require gradients.
    """
    began = begin() if listeners else None
    try:
        outputs = _as_tuple(tensors)
        if samples_at_work:
            _refuse_samples(outputs)
        if create_graph:
            warn_once(_KEEPS_GRAPH, stacklevel=2)
        if inputs is not None:
            inputs = _not_empty(_as_tuple(inputs), "backward")
        gradients = None if grad_tensors is None else _in_their_types(outputs, _as_tuple(grad_tensors))
        retain = create_graph if retain_graph is None else retain_graph
        frame = state.frame
        if frame is not None:
            if frame.backward_again(outputs, gradients, retain, create_graph, inputs):
                return
            if frame.can_differentiate(outputs, create_graph, inputs):
                _check_cotangents(outputs, gradients)
                frame.backward(outputs, gradients, retain)
                return
        elif not _are_edges(outputs) and _done_outside(outputs, gradients, retain, create_graph, inputs):
            return
        _check_cotangents(outputs, gradients)
        if inputs is None:
            engine.walk(outputs, gradients, None, _roots(outputs, gradients), None, retain, create_graph)
            return
        given = outputs, gradients, inputs, retain, create_graph
        engine.noted(*given, lambda: _accumulate_into(*given), accumulates=True)
    except Exception as error:
        shorten(error)
        raise
    finally:
        if began is not None:
            over(began)


_KEEPS_GRAPH = (
    "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient "
    "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you "
    "have to use this function, make sure to reset the .grad fields of your parameters to None after use to break the "
    "cycle."
)


def _accumulate_into(outputs, gradients, inputs, retain, create_graph):
    roots = _roots(outputs, gradients)()
    _check_inputs(inputs)
    _retain(inputs)
    if engine.open_calls(roots):
        roots = _roots(outputs, gradients)()
    within = engine.accumulating_into(roots, [_edge(x) for x in inputs])
    roots = [(edge, c) for edge, c in roots if id(edge[0]) in within]
    engine.run(roots, retain_graph=retain, create_graph=create_graph, within=within)


def _retain(inputs):
    """Those of the inputs of a backward pass that are no leaves get their .grad from their nodes."""
    for x in inputs:
        if isinstance(x, Tensor) and not x.is_leaf:
            x.retain_grad()


def _edge(x):
    """Where the gradient of a tensor goes, or of an edge that was asked for before."""
    return (x.node, x.output_nr) if isinstance(x, GradientEdge) else edge_of(x)


def _are_edges(*groups):
    return GradientEdge in map(type, chain(*groups))


def _roots(outputs, gradients):
    """A function that gives where a backward pass begins, with which cotangents, which have been checked."""
    return lambda: [(_edge(out), c) for out, c in zip(outputs, _cotangents(outputs, gradients))]


def _done_outside(outputs, *arguments):
    """Whether these are results of a compiled call, which has done their backward by itself."""
    call = outputs[0]._frame if outputs else None
    return call is not None and call.backward_outside(outputs, *arguments)


def _not_empty(inputs, function):
    if not inputs:
        raise RuntimeError(f"`inputs` argument to `{function}()` cannot be empty.")
    return inputs


def _check_inputs(inputs):
    for x in inputs:
        if not isinstance(x, GradientEdge) and not x.requires_grad:
            raise RuntimeError("One of the differentiated Tensors does not require grad")


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
):
    """The gradients of outputs with respect to inputs, as a tuple; no .grad changes.

    RuntimeError if an input does not influence the outputs, unless allow_unused (then None) or materialize_grads
    (then zeros). With is_grads_batched the first dimension of grad_outputs counts cotangents, and that of the gradients
    too; there is a backward pass for each.
    """
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
            "other parts of the graph, please use weft.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    if is_grads_batched:
        options = {"create_graph": create_graph, "allow_unused": allow_unused, "materialize_grads": materialize_grads}
        return _grads_of_rows(outputs, inputs, grad_outputs, retain_graph, options)
    began = begin() if listeners else None
    try:
        outputs, inputs = _as_tuple(outputs), _not_empty(_as_tuple(inputs), "grad")
        gradients = None if grad_outputs is None else _in_their_types(outputs, _as_tuple(grad_outputs))
        retain = (create_graph if retain_graph is None else retain_graph) or state.samples_follow
        if _are_edges(outputs, inputs):
            return _grad_along_edges(outputs, inputs, gradients, retain, create_graph, allow_unused, materialize_grads)
        frame = None if samples_at_work and _have_samples(outputs, gradients) else state.frame
        found = None if frame is None else frame.gradients_again(outputs, gradients, inputs, retain, create_graph)
        if found is not None:
            return _complete(list(found), inputs, allow_unused, materialize_grads, create_graph)
        _check_inputs(inputs)
        _check_cotangents(outputs, gradients)
        if frame is not None:
            found = frame.gradients(outputs, gradients, inputs, retain, create_graph)
        elif outputs and outputs[0]._frame is not None:
            found = outputs[0]._frame.gradients_outside(outputs, gradients, inputs, retain, create_graph)
        if found is None:
            wanted, roots = [edge_of(x) for x in inputs], _roots(outputs, gradients)
            if frame is state.frame:
                found = engine.walk(outputs, gradients, inputs, roots, wanted, retain, create_graph)
            else:
                found = engine.run(roots(), retain_graph=retain, create_graph=create_graph, wanted=wanted)
        return _complete(found, inputs, allow_unused, materialize_grads, create_graph)
    except Exception as error:
        shorten(error)
        raise
    finally:
        if began is not None:
            over(began)


def _refuse_samples(outputs):
    """Gradients of leaves are added to one after the other, which is done sample by sample."""
    for x in outputs:
        if isinstance(x, Tensor) and is_sample(x):
            x._meta.refuse()


def _have_samples(outputs, gradients):
    """Whether any of these is a tensor of one sample: a pass for these is none of a call's."""
    return any(isinstance(x, Tensor) and is_sample(x) for x in (*outputs, *(gradients or ())))


def _complete(found, inputs, allow_unused, materialize_grads, create_graph):
    for k, g in enumerate(found):
        if g is None and materialize_grads:
            if isinstance(inputs[k], GradientEdge):
                raise RuntimeError(
                    "materialize_grads cannot be used when the given input is a GradientEdge: its shape is unknown"
                )
            found[k] = inputs[k].new_zeros(inputs[k].shape, requires_grad=create_graph)
        elif g is None and not allow_unused:
            raise RuntimeError(
                f"One of the differentiated Tensors (number {k}{_shape_of(inputs[k])}) appears to not have been "
                "used in the graph. Set allow_unused=True if this is the desired behavior."
            )
    return tuple(found)


def _check_rows(outputs, cotangents):
    for k, (out, c) in enumerate(zip(outputs, cotangents)):
        if tuple(c.shape[1:]) != tuple(out.shape):
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                "dimension. The sizes of the remaining dimensions are expected to match the shape of corresponding "
                f"output, but a mismatch was detected: grad_output[{k}] has a shape of {c.shape} and output[{k}] has a "
                f"shape of {out.shape}."
            )


def _shape_of(x):
    return f", shape {x.shape}" if isinstance(x, Tensor) else ""


def _grad_along_edges(outputs, inputs, gradients, retain, create_graph, allow_unused, materialize_grads):
    """`grad` where an edge takes the place of a tensor."""
    _check_inputs(inputs)
    _check_cotangents(outputs, gradients)
    roots = _roots(outputs, gradients)()
    if state.frame is not None:
        state.frame.note("gradients of an edge")
    wanted = [_edge(x) for x in inputs]
    found = engine.run(roots, retain_graph=retain, create_graph=create_graph, wanted=wanted)
    return _complete(found, inputs, allow_unused, materialize_grads, create_graph)


def _grads_of_rows(outputs, inputs, grad_outputs, retain_graph, options):
    """`grad` for every row of the cotangents, stacked."""
    outputs, inputs = _as_tuple(outputs), _as_tuple(inputs)
    cotangents = () if grad_outputs is None else _as_tuple(grad_outputs)
    sizes = [c.shape[0] if isinstance(c, Tensor) and c.ndim else None for c in cotangents]
    if not sizes or None in sizes or len(set(sizes)) > 1 or sizes[0] == 0:
        raise RuntimeError(
            "grad: with is_grads_batched every one of grad_outputs must be a tensor whose first dimension counts "
            f"cotangents, the same number of them and at least one; they have {sizes}"
        )
    _check_rows(outputs, cotangents)
    rows, n = [], sizes[0]
    # The last one is a pass of its own: it says what stays of the graph.
    first = of_all_but_last(outputs, cotangents, n, lambda given: grad(outputs, inputs, given, True, **options))
    for k in range(0 if first is None else n - 1, n):
        retain = True if k + 1 < sizes[0] else retain_graph
        rows.append(grad(outputs, inputs, [c[k] for c in cotangents], retain, **options))
    columns = [None if column[0] is None else view.stack(*column, axis=0) for column in zip(*rows)]
    if first is None:
        return tuple(columns)
    return tuple([None if last is None else view.cat(x, last, axis=0) for x, last in zip(first, columns)])


document("autograd", __name__)
