"""autograd.Function: ops whose forward and backward a user writes in Python."""

import warnings
import weakref
from functools import wraps
from inspect import signature
from types import FunctionType

import numpy as np

from ...compiler.autodiff import conform
from ...compiler.ops.view import detach
from ..state.modes import state, watching
from ..state.tensor import Tensor, _apply, show, tensor_of
from .node import BaseNode, Saved, edge_of, named, next_sequence, show_watchers, to_save
from .rebase import check_rebase, rebase
from .saved import check_version
from .saved_hooks import OUTPUT, Packed, SavedTensor, with_history, without_history


class FunctionContext:
    """What forward hands to backward."""

    # What most calls leave as it is is the class's: a context is made for every one of them.
    _given = _for_forward = _dirty = _non_differentiable = needs_input_grad = ()
    _saved = _node = None
    _in_jvp = False
    materialize_grads = _materialize_non_diff_grads = True

    def save_for_backward(self, *tensors):
        self._given = tensors

    def save_for_forward(self, *tensors):
        """What jvp finds in saved_tensors."""
        self._for_forward = tensors

    def mark_dirty(self, *tensors):
        """Say that forward has changed these inputs in place. It must return them."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors):
        self._non_differentiable = tensors

    def set_materialize_grads(self, value):
        self.materialize_grads = value

    @property
    def saved_tensors(self):
        if self._in_jvp:
            return self._for_forward
        if self._saved is None:
            if self._node is None:
                return self._given
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                "already been freed). Specify retain_graph=True if you need to backward through the graph a second "
                "time."
            )
        return tuple([None if s is None else self._restored(s) for s in self._saved])

    @property
    def saved_variables(self):
        """saved_tensors by the name it had."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    def _restored(self, saved):
        if saved.__class__ is Saved:
            check_version(saved, "a custom Function")
            return saved.tensor
        return saved.restored(self._node())

    def _save(self, node, outputs):
        """Keep what forward has saved, now that it is known which of it are the node's own outputs."""
        numbers = node.outputs
        self._node = weakref.ref(node)
        self._saved = [None if x is None else _kept(x, numbers.get(id(x))) for x in self._given]
        self._given = ()


class SavedOutput(Saved):
    """An output that its own node has saved: the values without the history, which would lead to the node again."""

    __slots__ = ("index",)

    def __init__(self, tensor, index):
        super().__init__(without_history(tensor))
        self.index = index

    def restored(self, node):
        check_version(self, "a custom Function")
        return with_history(self.tensor, (node, self.index))


def _kept(tensor, index):
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"save_for_backward can only save variables, but argument is of type {type(tensor).__name__}; keep other "
            "values as attributes of ctx"
        )
    # What a call in flight has not computed is there as it is: the call lets go of its nodes when it ends.
    is_alone = index is None or not tensor._requires_grad or (tensor._data is None and tensor._frame is not None)
    return Saved(to_save(tensor)) if is_alone else SavedOutput(tensor, index)


class FunctionNode(BaseNode):
    """The node of one call of a Function."""

    __slots__ = ("function", "context", "metas", "input_metas", "outputs", "n_outputs", "views", "output_metas")
    is_python = True

    def __new__(cls, function, context, inputs, outputs, edges):
        return object.__new__(named(cls, f"{function.__name__}Backward"))

    def __init__(self, function, context, inputs, outputs, edges):
        super().__init__(edges)
        self.function = function
        self.context = context
        self.n_outputs = len(outputs)
        # Only what has an edge gets a gradient.
        self.input_metas = [None if e is None else (x.shape, x.dtype) for x, e in zip(inputs, edges)]
        # `views` are the outputs that show the memory of an input.
        self.output_metas, self.outputs, self.views = [], {}, ()
        for k, x in enumerate(outputs):
            if not isinstance(x, Tensor):
                self.output_metas.append(None)
                continue
            self.output_metas.append((x.shape, x.dtype))
            self.outputs[id(x)] = k
            if x._base is not None and not _is_in(x, context._dirty):
                self.views += (k,)
        self.metas = self.output_metas
        if not context._materialize_non_diff_grads:
            lacking = context._non_differentiable
            self.metas = [None if _is_in(x, lacking) else meta for x, meta in zip(outputs, self.metas)]

    def __getattr__(self, name):
        # In PyTorch the node is the ctx that forward was given.
        if name.startswith("__") or name in FunctionNode.__slots__:
            raise AttributeError(name)
        return getattr(self.context, name)

    def output_index(self, tensor):
        return self.outputs[id(tensor)]

    def run(self, cotangent):
        return self.run_all([cotangent])

    def run_all(self, cotangents, **_):
        context, edges = self.context, self.edges
        if context.materialize_grads:
            cotangents = [self._zeros(k) if c is None else c for k, c in enumerate(cotangents)]
        results = _rule(self.function)(context, *cotangents)
        results = results if isinstance(results, tuple) else (results,)
        if len(results) > len(edges) and all(r is None for r in results[len(edges) :]):
            results = results[: len(edges)]
        if len(results) != len(edges):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {len(edges)}, "
                f"got {len(results)})"
            )
        return [None if e is None else self._checked(k, results[k]) for k, e in enumerate(edges)]

    def _zeros(self, k):
        """The gradient of an output that nothing depends on; None if it stays missing."""
        return None if self.metas[k] is None else tensor_of(np.zeros(self.metas[k][0], self.metas[k][1].numpy))

    def _checked(self, index, gradient):
        """The gradient in the shape and type of the input it belongs to."""
        if gradient is None:
            return None
        if not isinstance(gradient, Tensor):
            raise TypeError(f"{self.name()}: expected Variable or None (got {type(gradient).__name__})")
        shape, dtype = self.input_metas[index]
        given = gradient.shape
        if given == shape and gradient.dtype is dtype:
            return gradient
        lead = len(given) - len(shape)
        if lead < 0 or any(a not in (1, b) for a, b in zip(shape, given[lead:])):
            raise RuntimeError(
                f"Function {self.name()} returned an invalid gradient at index {index} - got {given} but "
                f"expected shape compatible with {shape}"
            )
        return conform(gradient, shape, dtype)

    @property
    def is_freed(self):
        return self.context._saved is None

    def release(self):
        if self.context._saved:
            self.context._saved = None

    def pack_saved(self, pack, unpack):
        """Put away what forward has saved (saved_hooks.py)."""
        saved = self.context._saved or ()
        for k, x in enumerate(saved):
            if x is not None:
                saved[k] = Packed(x.tensor, OUTPUT if isinstance(x, SavedOutput) else edge_of(x.tensor), pack, unpack)

    @property
    def _raw_saved_tensors(self):
        if self.context._saved is None:
            raise RuntimeError(
                "Trying to access saved tensors of this node after they have already been freed. Specify "
                "retain_graph=True if you need them after backward()."
            )
        return tuple([SavedTensor.of(self, *_access(self.context._saved, k)) for k in range(len(self.context._saved))])


def _access(saved, k):
    """Functions that read and write what is at a position."""
    return (lambda: saved[k]), (lambda value: saved.__setitem__(k, value))


def _is_in(x, tensors):
    return id(x) in map(id, tensors)


def _rule(function):
    """The function's backward, by either of its names."""
    backward, vjp = function.backward, function.vjp
    if vjp is Function.vjp:
        return backward
    if backward is Function.backward:
        return vjp
    raise RuntimeError(
        "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one "
        "of them."
    )


class _NodeClass:
    """An attribute of a Function: the class of its nodes."""

    def __get__(self, instance, function):
        return named(FunctionNode, f"{function.__name__}Backward")


class Function:
    """Subclass it with static methods forward(ctx, *args) and backward(ctx, *grad_outputs); call `apply`."""

    @staticmethod
    def forward(*args, **kwargs):
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    vjp = backward
    generate_vmap_rule = False
    _backward_cls = _NodeClass()

    @staticmethod
    def jvp(ctx, *grad_inputs):
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function.")

    @staticmethod
    def vmap(info, in_dims, *args):
        raise NotImplementedError("vmap calls forward and backward once for every sample; it asks for no rule")

    def __call__(self, *args, **kwargs):
        raise RuntimeError(LEGACY)

    @classmethod
    def apply(cls, *args, **kwargs):
        """Run forward without recording its ops; one node stands for all of them."""
        context = FunctionContext()
        args = _with_defaults(cls, args, kwargs)
        needed = tuple([isinstance(x, Tensor) and x.requires_grad for x in args])
        context.needs_input_grad = needed
        recorded, level = state.grad_enabled, state.forward
        state.grad_enabled, state.forward = False, None
        try:
            result = _forward(cls, context, args)
        finally:
            state.grad_enabled, state.forward = recorded, level
        outputs = result if isinstance(result, tuple) else (result,)
        if context._dirty:
            _check_dirty(context, args, outputs)
        if level is not None:
            outputs = tuple([_fresh(x, args, context._dirty) for x in outputs])
        if recorded and True in needed:
            outputs = _connected(cls, context, args, outputs)
        if level is not None:
            level.give_function(cls, context, args, outputs)
        return outputs if isinstance(result, tuple) else outputs[0]


LEGACY = (
    "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function "
    "with static forward method: class F(Function) with @staticmethod def forward(ctx, x), called as F.apply(x)."
)


def _with_defaults(cls, args, kwargs):
    """The arguments of forward, those included that it has values for: setup_context sees them all."""
    if getattr(cls, "setup_context", None) is None:
        if kwargs:
            raise TypeError(f"{cls.__name__}.apply() takes no keyword arguments: a gradient belongs to a position")
        return args
    if not kwargs and _takes_just(cls.forward, len(args)):
        return args
    bound = signature(cls.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args


def _takes_just(forward, n_args):
    """Whether a function has as many parameters, all positional, and says nothing else of its signature."""
    if forward.__class__ is not FunctionType or forward.__dict__:
        return False
    return forward.__code__.co_argcount == n_args and not forward.__code__.co_kwonlyargcount


def _forward(cls, context, args):
    if _is_plain_method(cls, "forward"):
        raise RuntimeError(LEGACY)
    setup = getattr(cls, "setup_context", None)
    if setup is None:
        return cls.forward(context, *args)
    result = cls.forward(*args)
    setup(context, args, result)
    return result


def _is_plain_method(cls, name):
    """Whether a class, or one it is derived from, defines a method that is not static."""
    for owner in cls.__mro__:
        method = owner.__dict__.get(name)
        if method is not None:
            return isinstance(method, FunctionType)
    return False


def _check_dirty(context, args, outputs):
    for x in context._dirty:
        if not isinstance(x, Tensor):
            raise TypeError(f"mark_dirty can only accept input tensors, but argument is of type {type(x).__name__}")
        if not any(x is y for y in args):
            warnings.warn(
                "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors should be given to "
                "ctx.mark_dirty(). If a Tensor is not an input, there is no need to pass it to mark_dirty().",
                stacklevel=3,
            )
        if not any(x is y for y in outputs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                "are modified inplace must all be outputs of the Function."
            )
        if x._base is not None and len(outputs) > 1 and state.grad_enabled:
            raise RuntimeError(
                "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot "
                "return more than one Tensor: its gradient is cut in two, for the view and for the rest of its base. "
                "Make sure that the input is not a view (x.clone()), or make two Functions: one that changes the input "
                "and returns it alone, one for the rest."
            )
        if state.grad_enabled and x._requires_grad and x.is_leaf:
            raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")


def _connected(cls, context, args, outputs):
    if state.frame is not None:
        found = _connected_in_call(state.frame, cls, context, args, outputs)
        if found is not None:
            return found
        state.frame.note(
            "a custom autograd.Function that changes its inputs, or returns what it has not computed itself"
        )
    outputs = tuple([_fresh(x, args, context._dirty) for x in outputs])
    edges = tuple([edge_of(x) if isinstance(x, Tensor) else None for x in args])
    node = FunctionNode(cls, context, args, outputs, edges)
    for k, x in enumerate(outputs):
        if not isinstance(x, Tensor):
            continue
        differentiable = x.dtype.is_differentiable and not _is_in(x, context._non_differentiable)
        if _is_in(x, context._dirty):
            _dirtied(x, (node, k) if differentiable else None)
        elif differentiable:
            if x._frame is not None:
                x.leave_call()
            x._node = node
            x._requires_grad = True
    context._save(node, outputs)
    if watching:
        show_watchers(node, outputs)
    return outputs


def _connected_in_call(frame, cls, context, args, outputs):
    """The outputs, as values of the call that have a history; None if they have to leave it."""
    if context._dirty or watching or frame.working:
        return None
    outputs = tuple([_apply(detach, (x,), {}) if _is_in(x, args) else x for x in outputs])
    given = [(k, x) for k, x in enumerate(outputs) if isinstance(x, Tensor) and x.dtype.is_differentiable]
    if context._non_differentiable:
        given = [(k, x) for k, x in given if not _is_in(x, context._non_differentiable)]
    needed = [isinstance(x, Tensor) and x._requires_grad for x in args]
    inputs = [x for x, needs in zip(args, needed) if needs]
    node = FunctionNode(cls, context, args, outputs, tuple([needs or None for needs in needed]))
    if not frame.connect_again(node, given, inputs, cls.__name__):
        frame = frame.recorded()
        if not frame.may_connect([x for _, x in given]):
            return None
        node.edges = tuple([edge_of(x) if needs else None for x, needs in zip(args, needed)])
        # Those that the edges lead to may have been made just now, and it comes after them.
        node.sequence = next_sequence()
        if not frame.connect_outputs(node, given, inputs, cls.__name__):
            return None
    context._save(node, outputs)
    return outputs


def _dirtied(x, edge):
    """An input that forward has changed in place: from now on its history, and that of its base, has the node."""
    if x._frame is not None:
        x.leave_call()
    check_rebase(x, edge is not None)
    rebase(x, edge)


def _fresh(x, args, dirty):
    """An output that is one of the inputs becomes a view of it, unless forward has changed it."""
    if not isinstance(x, Tensor) or not _is_in(x, args) or _is_in(x, dirty):
        return x
    array = x.array
    out = tensor_of(array)
    show(out, x, array)
    return out


class _Underivable(Function):
    """Passes on what another function has made: it has a history, and no derivative."""

    @staticmethod
    def forward(ctx, name, made, *tensors):
        ctx.name = name
        return made

    @staticmethod
    def backward(ctx, gradient):
        raise NotImplementedError(f"the derivative for '{ctx.name}' is not implemented.")


def without_derivative(name, made, *tensors):
    """What was made of these tensors, by a function whose derivative nobody knows: a backward pass that comes to it is
    an error, where a tensor without history would be a gradient of zero that nobody notices."""
    if not state.grad_enabled or not any(x._requires_grad for x in tensors):
        return made
    return _Underivable.apply(name, made, *tensors)


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
    result = tensor_of(gradient.array)
    result._requires_grad, result._node = True, _Refusal(edges)
    return result
