"""autograd.Function: ops whose forward and backward a user writes in Python."""

from functools import wraps

import numpy as np

from ..compiler.autodiff import conform
from .modes import state
from .node import BaseNode, Saved, _check_version, edge_of, named
from .tensor import Tensor


class FunctionContext:
    """What forward hands to backward."""

    def __init__(self):
        self._saved = ()
        self._dirty = ()
        self._non_differentiable = ()
        self.needs_input_grad = ()
        self.materialize_grads = True

    def save_for_backward(self, *tensors):
        self._saved = tuple(None if x is None else Saved(x) for x in tensors)

    def mark_dirty(self, *tensors):
        raise NotImplementedError("Function: mark_dirty (in-place changes of inputs) is not supported yet")

    def mark_non_differentiable(self, *tensors):
        self._non_differentiable = tensors

    def set_materialize_grads(self, value):
        self.materialize_grads = value

    @property
    def saved_tensors(self):
        if self._saved is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                "already been freed). Specify retain_graph=True if you need to backward through the graph a second "
                "time."
            )
        for s in self._saved:
            if s is not None:
                _check_version(s, "a custom Function")
        return tuple(None if s is None else s.tensor for s in self._saved)


class FunctionNode(BaseNode):
    """The node of one call of a Function."""

    __slots__ = ("function", "context", "metas", "input_metas", "outputs", "n_outputs")

    def __new__(cls, function, context, inputs, outputs, edges):
        return object.__new__(named(cls, f"{function.__name__}Backward"))

    def __init__(self, function, context, inputs, outputs, edges):
        super().__init__(edges)
        self.input_metas = [(x.shape, x.dtype) if isinstance(x, Tensor) else None for x in inputs]
        self.function = function
        self.context = context
        self.n_outputs = len(outputs)
        self.metas = [(x.shape, x.dtype) for x in outputs]
        self.outputs = [id(x) for x in outputs]

    def output_index(self, tensor):
        return self.outputs.index(id(tensor))

    def run(self, cotangent):
        return self.run_all([cotangent])

    def run_all(self, cotangents, **_):
        if self.context.materialize_grads:
            cotangents = [Tensor(_zeros(*meta)) if c is None else c for c, meta in zip(cotangents, self.metas)]
        results = self.function.backward(self.context, *cotangents)
        results = list(results) if isinstance(results, tuple) else [results]
        if len(results) != len(self.edges):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {len(self.edges)}, "
                f"got {len(results)})"
            )
        return [self._checked(k, g) if e is not None else None for k, (e, g) in enumerate(zip(self.edges, results))]

    def _checked(self, index, gradient):
        """The gradient in the shape and type of the input it belongs to."""
        if gradient is None:
            return None
        if not isinstance(gradient, Tensor):
            raise TypeError(f"{self.name()}: expected Variable or None (got {type(gradient).__name__})")
        shape, dtype = self.input_metas[index]
        lead = len(gradient.shape) - len(shape)
        if lead < 0 or any(a not in (1, b) for a, b in zip(shape, gradient.shape[lead:])):
            raise RuntimeError(
                f"Function {self.name()} returned an invalid gradient at index {index} - got {gradient.shape} but "
                f"expected shape compatible with {shape}"
            )
        return conform(gradient, shape, dtype)

    def release(self):
        if self.context._saved:
            self.context._saved = None


def _zeros(shape, dtype):
    return np.zeros(shape, dtype.numpy)


class Function:
    """Subclass it with static methods forward(ctx, *args) and backward(ctx, *grad_outputs); call `apply`."""

    @staticmethod
    def forward(*args, **kwargs):
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        raise NotImplementedError("You must implement the backward for your custom autograd.Function.")

    @classmethod
    def apply(cls, *args):
        """Run forward without recording its ops; one node stands for all of them."""
        context = FunctionContext()
        needed = tuple(isinstance(x, Tensor) and x.requires_grad for x in args)
        context.needs_input_grad = needed
        recorded = state.grad_enabled
        state.grad_enabled = False
        try:
            result = _forward(cls, context, args)
        finally:
            state.grad_enabled = recorded
        outputs = result if isinstance(result, tuple) else (result,)
        if recorded and any(needed):
            outputs = _connected(cls, context, args, outputs)
        return outputs if isinstance(result, tuple) else outputs[0]


def _forward(cls, context, args):
    setup = getattr(cls, "setup_context", None)
    if setup is None:
        return cls.forward(context, *args)
    result = cls.forward(*args)
    setup(context, args, result)
    return result


def _connected(cls, context, args, outputs):
    if state.frame is not None:
        state.frame.note("a custom autograd.Function: its backward is Python and runs on every call")
    outputs = tuple(_fresh(x, args) for x in outputs)
    edges = tuple(edge_of(x) if isinstance(x, Tensor) and x.requires_grad else None for x in args)
    node = FunctionNode(cls, context, args, outputs, edges)
    for x in outputs:
        if x.dtype.is_differentiable and not any(x is y for y in context._non_differentiable):
            if x._frame is not None:
                x.leave_call()
            x._node = node
            x._requires_grad = True
    return outputs


def _fresh(x, args):
    """An output that is one of the inputs becomes a tensor of its own."""
    return Tensor(x.array) if any(x is a for a in args) else x


def once_differentiable(backward):
    """Decorator of a Function's backward that is not differentiable itself."""

    @wraps(backward)
    def wrapper(ctx, *cotangents):
        recorded = state.grad_enabled
        state.grad_enabled = False
        try:
            results = backward(ctx, *cotangents)
        finally:
            state.grad_enabled = recorded
        edges = tuple(edge_of(c) for c in cotangents if isinstance(c, Tensor) and c.requires_grad)
        if not recorded or not edges:
            return results
        return tuple(_refusing(g, edges) for g in results) if isinstance(results, tuple) else _refusing(results, edges)

    return wrapper


class _Refusal(BaseNode):
    """Stands where the derivative of a gradient would be: it has none, and saying so is better than a zero."""

    __slots__ = ()

    def run(self, cotangent):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def _refusing(gradient, edges):
    if gradient is None or not gradient.dtype.is_differentiable:
        return gradient
    result = Tensor(gradient.array)
    result._requires_grad, result._node = True, _Refusal(edges)
    return result
