"""autograd.Function: ops whose forward and backward a user writes in Python."""

import warnings
from functools import wraps
from inspect import signature
from types import FunctionType

from ...compiler.ops.view import permute
from ..state.elsewhere import is_elsewhere, used
from ..state.modes import state, watching
from ..state.tensor import Tensor, _apply, dtype_of, show, tensor_of
from .function_node import FunctionContext, FunctionNode, is_in, no_rule
from .node import BaseNode, edge_of, named, next_sequence, show_watchers
from .rebase import check_rebase, rebase


class _NodeClass:
    """An attribute of a Function: the class of its nodes."""

    def __get__(self, instance, function):
        return named(FunctionNode, f"{function.__name__}Backward")


class Facts:
    """What a class says of its forward, found once: whose facts these are, its name, the class of its nodes."""

    __slots__ = ("owner", "name", "forward", "setup", "node_class", "n_args", "ways")

    def __init__(self, cls):
        if _is_plain_method(cls, "forward"):
            raise RuntimeError(LEGACY)
        self.owner, self.name, self.forward = cls, cls.__name__, cls.forward
        self.setup, self.node_class = getattr(cls, "setup_context", None), cls._backward_cls
        self.n_args = _count_of(self.forward)
        self.ways = None  # own_ops.Ways, False if there are none, None as long as nobody has asked

    def are_of(self, cls):
        """Whether they still hold, and not of a class that this one is derived from."""
        if self.owner is not cls or self.name is not cls.__name__ or self.forward is not cls.forward:
            return False
        return self.setup is getattr(cls, "setup_context", None)

    @staticmethod
    def run(facts, context, args):
        """What forward gives."""
        if facts.setup is None:
            return facts.forward(context, *args)
        result = facts.forward(*args)
        facts.setup(context, args, result)
        return result


def _facts(cls):
    known = cls._weft_facts
    if known is None or not known.are_of(cls):
        known = cls._weft_facts = Facts(cls)
    return known


def _count_of(forward):
    """How many parameters a function has, if all are positional, and it says nothing else of its signature."""
    if forward.__class__ is not FunctionType or forward.__dict__ or forward.__code__.co_kwonlyargcount:
        return None
    return forward.__code__.co_argcount


class Function:
    """Subclass it with static methods forward(ctx, *args) and backward(ctx, *grad_outputs); call `apply`."""

    @staticmethod
    def forward(*args, **kwargs):
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    backward = vjp = staticmethod(no_rule)
    generate_vmap_rule = False
    _backward_cls = _NodeClass()
    _weft_facts = None

    def __init__(self, *args, **kwargs):
        warnings.warn(
            f"{self.__class__} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself: its apply(...).",
            DeprecationWarning,
            stacklevel=2,
        )

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
        facts, frame, place = _facts(cls), state.frame, None
        if frame is not None and not kwargs:
            if facts.ways is None:
                facts.ways = _ways_of(cls)
            if facts.ways:
                known = frame.function_again(facts.ways, args)
                if known is not None:
                    return known
                place = frame.place_of_function(facts.ways, args)
        if used:
            _refuse_samples(args)
        context = FunctionContext()
        if kwargs or facts.setup is not None:
            args = _with_defaults(cls, facts, args, kwargs)
        needed = tuple([isinstance(x, Tensor) and x._requires_grad for x in args])
        context.needs_input_grad = needed
        recorded, level = state.grad_enabled, state.forward
        state.grad_enabled = False
        if level is not None:
            state.forward = None
        try:
            result = (facts.run if place is None else place.run)(facts, context, args)
        finally:
            state.grad_enabled = recorded
            if level is not None:
                state.forward = level
        outputs = result if isinstance(result, tuple) else (result,)
        if context._dirty:
            _check_dirty(context, args, outputs)
        if level is not None:
            outputs = tuple([_fresh(x, args, context._dirty) for x in outputs])
        if recorded and True in needed:
            outputs = _connected(facts, context, args, outputs)
            if place is not None:
                place.ended(outputs, isinstance(result, tuple))
        if level is not None:
            level.give_function(cls, context, args, outputs)
        return outputs if isinstance(result, tuple) else outputs[0]


def _refuse_samples(args):
    """Of tensors of one sample each (runtime/batched) forward would compute what nobody outside could differentiate."""
    for x in args:
        if isinstance(x, Tensor) and is_elsewhere(x) and x._meta.gpu is None:
            x._meta.refuse()


LEGACY = (
    "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function "
    "with static forward method: class F(Function) with @staticmethod def forward(ctx, x), called as F.apply(x)."
)


def _with_defaults(cls, facts, args, kwargs):
    """The arguments of forward, those included that it has values for: setup_context sees them all."""
    if facts.setup is None:
        raise TypeError(f"{cls.__name__}.apply() takes no keyword arguments: a gradient belongs to a position")
    if not kwargs and facts.n_args == len(args):
        return args
    bound = signature(facts.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args


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


def _connected(facts, context, args, outputs):
    for x in (*args, *outputs):
        if x.__class__ is not Tensor and isinstance(x, Tensor) and not x.has_array:
            return x.connected(_connected, facts, context, args, outputs)
    frame = state.frame
    if frame is not None:
        found = _connected_in_call(frame, facts, context, args, outputs)
        if found is not None:
            return found
        state.frame.note(
            "a custom autograd.Function that changes its inputs, or returns what it has not computed itself"
        )
        state.frame.order_nodes()
    outputs = tuple([_fresh(x, args, context._dirty) for x in outputs])
    edges = tuple([edge_of(x) if isinstance(x, Tensor) else None for x in args])
    node = facts.node_class(facts.owner, context, args, outputs, edges)
    for k, x in enumerate(outputs):
        if not isinstance(x, Tensor):
            continue
        differentiable = x.dtype.is_differentiable and not is_in(x, context._non_differentiable)
        if is_in(x, context._dirty):
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


def _connected_in_call(frame, facts, context, args, outputs):
    """The outputs, as values of the call that have a history; None if they have to leave it."""
    if context._dirty or watching or frame.working:
        return None
    if facts.ways:
        made = facts.ways.applied(frame, context, args, outputs)
        if made is not None:
            return made
        frame = state.frame
    node = frame.connected_again(facts, context, args, outputs)
    if node is not None:
        context._save(node, outputs)
        return outputs
    given, lacking = [], context._non_differentiable
    for k, x in enumerate(outputs):
        if is_in(x, args):
            x = _shown_again(x)
            outputs = (*outputs[:k], x, *outputs[k + 1 :])
        if isinstance(x, Tensor) and _type_of(x).is_differentiable and not (lacking and is_in(x, lacking)):
            given.append((k, x))
    needed, inputs = [], []
    for x in args:
        if isinstance(x, Tensor) and x._requires_grad:
            needed.append(True)
            inputs.append(x)
        else:
            needed.append(None)
    node = facts.node_class(facts.owner, context, args, outputs, tuple(needed))
    if frame.connect_again(node, given, inputs, facts.name):
        frame.remember_connected(facts, context, args, outputs, given)
    else:
        frame = frame.recorded()
        if not frame.may_connect([x for _, x in given]):
            return None
        node.edges = tuple([edge_of(x) if needs else None for x, needs in zip(args, needed)])
        # Those that the edges lead to may have been made just now, and it comes after them.
        node.sequence = next_sequence()
        if not frame.connect_outputs(node, given, inputs, facts.name):
            return None
    context._save(node, outputs)
    return outputs


def _ways_of(function):
    return False


def set_ways(ways_of):
    """The frontend says of which Functions it is proved that they do nothing but ops: it gives their own_ops.Ways, or
    False."""
    global _ways_of
    _ways_of = ways_of


def _shown_again(tensor):
    """A view of all of a tensor, without a history of its own."""
    recorded, state.grad_enabled = state.grad_enabled, False
    try:
        return _apply(permute, (tensor,), {"axes": tuple(range(tensor.ndim))})
    finally:
        state.grad_enabled = recorded


def _type_of(tensor):
    return tensor._meta.dtype if tensor._data is None else dtype_of(tensor._data)


def _dirtied(x, edge):
    """An input that forward has changed in place: from now on its history, and that of its base, has the node."""
    if x._frame is not None:
        x.leave_call()
    check_rebase(x, edge is not None)
    rebase(x, edge)


def _fresh(x, args, dirty):
    """An output that is one of the inputs becomes a view of it, unless forward has changed it."""
    if not isinstance(x, Tensor) or not is_in(x, args) or is_in(x, dirty):
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
