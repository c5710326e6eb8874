"""The node of one call of a user's autograd.Function (function.py), and what its forward hands to its backward."""

import warnings
import weakref

import numpy as np

from ...compiler.autodiff import conform
from ..state.size import Size
from ..state.tensor import Tensor, dtype_of, tensor_of
from .cotangent_shapes import is_broadcast
from .node import BaseNode, Saved, edge_of, next_sequence, to_save
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


_new = object.__new__


class FunctionNode(BaseNode):
    """The node of one call of a Function."""

    __slots__ = ("function", "context", "metas", "input_metas", "outputs", "n_outputs", "views", "output_metas")
    is_python = True

    def __init__(self, function, context, inputs, outputs, edges):
        # Written out, as is much below: it runs for every call of a Function.
        self.edges, self.sequence = edges, next_sequence()
        self.hooks = self.pre_hooks = self.retained = None
        self.function, self.context, self.n_outputs = function, context, len(outputs)
        # Only what has an edge gets a gradient.
        self.input_metas = [None if e is None else meta_of(x) for x, e in zip(inputs, edges)]
        # `views` are the outputs that show the memory of an input.
        self.output_metas, self.outputs, self.views = metas, numbers, _ = [], {}, ()
        for k, x in enumerate(outputs):
            if not isinstance(x, Tensor):
                metas.append(None)
                continue
            metas.append(meta_of(x))
            numbers[id(x)] = k
            if x._base is not None and not is_in(x, context._dirty):
                self.views += (k,)
        self.metas = metas
        if not context._materialize_non_diff_grads:
            lacking = context._non_differentiable
            self.metas = [None if is_in(x, lacking) else meta for x, meta in zip(outputs, metas)]

    @staticmethod
    def like(other, context, outputs, edges):
        """The node of another call of the same Function, on inputs and with outputs of the same shapes and types; all
        outputs are tensors."""
        self = _new(other.__class__)
        self.edges, self.sequence, self.function, self.context = edges, next_sequence(), other.function, context
        self.hooks = self.pre_hooks = self.retained = None
        self.n_outputs, self.views, self.metas = other.n_outputs, other.views, other.metas
        self.input_metas, self.output_metas = other.input_metas, other.output_metas
        self.outputs = {id(x): k for k, x in enumerate(outputs)}
        return self

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
        results = rule_of(self.function)(context, *cotangents)
        if results.__class__ is not tuple and not isinstance(results, tuple):
            results = (results,)
        if len(results) > len(edges) and all(r is None for r in results[len(edges) :]):
            results = results[: len(edges)]
        if len(results) != len(edges):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {len(edges)}, "
                f"got {len(results)})"
            )
        found = []
        for k, gradient in enumerate(results):
            if edges[k] is None:
                gradient = None
            elif gradient.__class__ is not Tensor or meta_of(gradient) != self.input_metas[k]:
                gradient = self._checked(k, gradient)
            found.append(gradient)
        return found

    def _zeros(self, k):
        """The gradient of an output that nothing depends on; None if it stays missing."""
        return None if self.metas[k] is None else tensor_of(np.zeros(self.metas[k][0], self.metas[k][1].numpy))

    def _checked(self, index, gradient):
        """The gradient in the shape and type of the input it belongs to."""
        if gradient is None:
            return None
        if not isinstance(gradient, Tensor):
            raise TypeError(f"{self.name()}: expected Variable or None (got {type(gradient).__name__})")
        shape, dtype = Size(self.input_metas[index][0]), self.input_metas[index][1]
        given = gradient.shape
        if given == shape and gradient.dtype is dtype:
            return gradient
        if not is_broadcast(given, shape):
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


def meta_of(tensor):
    """(shape, type)"""
    data, meta = tensor._data, tensor._meta
    return (data.shape, dtype_of(data)) if data is not None else (meta.shape, meta.dtype)


def _access(saved, k):
    """Functions that read and write what is at a position."""
    return (lambda: saved[k]), (lambda value: saved.__setitem__(k, value))


def is_in(x, tensors):
    return bool(tensors) and id(x) in [id(y) for y in tensors]


def rule_of(function):
    """The function's backward, by either of its names."""
    backward, vjp = function.backward, function.vjp
    if vjp is no_rule:
        return backward
    if backward is no_rule:
        return vjp
    raise RuntimeError(
        "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one "
        "of them."
    )


def no_rule(ctx, *grad_outputs):
    """What stands for the backward of a Function that has none."""
    raise NotImplementedError(
        "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
        "backward mode AD."
    )
