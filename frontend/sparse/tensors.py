r"""Tensors that keep some elements only: where these are, and their values, a tensor like any other.

    SparseTensor        by coordinates (COO)
      |  \--_indices--> ndarray (n_sparse, n_elements)
      |--_values--> Tensor (n_elements, *dense sizes) --_node--> ...
      `--is_coalesced: indices rise, so each is there once
    CompressedTensor    by rows or columns, of elements or blocks (CSR, CSC, BSR, BSC)
         \--_starts, _others--> ndarray, and values as above

Whatever autograd knows of such a tensor it knows of its values: they have the history, they are the leaf, and what
flows through the graph are their cotangents, dense ones of their shape. So every function here is written with
functions on values, and has its derivatives from them, to any order. An element that is not kept is a zero that stays
zero: it has no gradient (PyTorch's masked gradients).

Functions ask such a tensor by its `__torch_function__` (frontend/overriding.py), and answers.py says what they do.
"""

import numpy as np

from ..compiler.ops.table import Meta
from ..doors import open_doors
from ..overriding import off
from ..placement import sparse_coo
from ..runtime.eager.node import leaf_edge
from ..runtime.eager.sparse_cotangents import WrongLayout
from ..runtime.state.references import is_held
from ..runtime.state.size import Size
from ..runtime.state.tensor import Tensor, tensor_of
from ..watched_classes import opened
from . import coordinates

_new = object.__new__
# What autograd asks of a tensor: the class has properties in their place, but native code looks for these.
_KEPT = {name: vars(Tensor)[name] for name in ("_requires_grad", "_grad", "_node", "_accumulator")}
_INSTEAD = "; its values are x.values(), and x.to_dense() is a tensor with memory"

asked = {}  # layout -> {name of a function: what it does}; answers.py fills it


class Sparse(Tensor):
    """What sparse tensors of all layouts share."""

    __slots__ = ("_values_kept", "_shown_grad", "_is_shown")
    has_array = False
    is_cpu = True

    def _hold(self, values, shape):
        """Be a tensor of this shape with these values."""
        if not opened:
            open_doors()
        for name, initial in (("_requires_grad", False), ("_grad", None), ("_node", None), ("_accumulator", None)):
            _KEPT[name].__set__(self, initial)
        self._data = self._frame = self._storage = self._base = self._shown_grad = None
        self._vid, self._is_shown = -1, False
        self._meta = Meta(tuple(shape), values.dtype)
        self._values_kept = values

    def _with(self, values):
        """The same places with other values."""
        raise NotImplementedError

    # --- what functions do --------------------------------------------------------------------------------------------
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "name", None) or function.__name__
        layout = next(x.layout for x in _leaves(args, kwargs) if isinstance(x, Sparse))
        known = asked[layout].get(name)
        if known is not None:
            return known(*args, **(kwargs or {}))
        if function.__name__ in ("__get__", "__set__"):
            with off():
                return function(*args, **(kwargs or {}))
        raise NotImplementedError(_unknown(name, layout))

    @property
    def array(self):
        raise NotImplementedError(_unknown("an array of all elements", self.layout))

    def apply_op(self, op, operands, attributes):
        raise NotImplementedError(_unknown(op.name, self.layout))

    # --- what it is ---------------------------------------------------------------------------------------------------
    @property
    def shape(self):
        return Size(self._meta.shape)

    @property
    def dtype(self):
        return self._meta.dtype

    @property
    def ndim(self):
        return len(self._meta.shape)

    def size(self, dim=None):
        """The shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def __len__(self):
        if not self.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def _nnz(self):
        """How many elements are kept, or blocks, or dense parts."""
        return self._values_kept.shape[0]

    def values(self):
        """The elements that are kept, (n, *dense sizes), with their history."""
        return self._same_values()

    def _same_values(self):
        """The values for another tensor, which is no leaf where this one is, and may become one where this is none."""
        return alias(self._values_kept)

    def _values(self):
        """The same without a history, in whatever order they are kept."""
        return self._values_kept.detach()

    @property
    def data(self):
        """The same tensor without a history."""
        return self.detach()

    @data.setter
    def data(self, value):
        if type(value) is not type(self):
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor "
                f"type: {self.layout!r} and {value.layout!r}"
            )
        requires_grad = self.requires_grad
        self.become(value.detach())
        self._values_kept.requires_grad = requires_grad

    def detach(self):
        """The same places and values, without a history."""
        return self._with(self._values_kept.detach())

    def __hash__(self):
        return id(self)

    # --- autograd: what it knows of the values ------------------------------------------------------------------------
    @property
    def _requires_grad(self):
        return self._values_kept._requires_grad

    @property
    def requires_grad(self):
        return self._values_kept.requires_grad

    @requires_grad.setter
    def requires_grad(self, value):
        self._values_kept.requires_grad = value

    def requires_grad_(self, requires_grad=True):
        """Let operations on it be recorded, or no more."""
        self.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self):
        return self._values_kept.is_leaf

    @property
    def has_history(self):
        return self._values_kept.has_history

    @property
    def _node(self):
        return self._values_kept._node

    @property
    def grad_fn(self):
        return self._values_kept.grad_fn

    @property
    def _accumulator(self):
        end = leaf_edge(self._values_kept)[0]
        return lambda: end

    @property
    def _version(self):
        return self._values_kept._version

    @property
    def _grad(self):
        gradient = self._values_kept._grad
        if gradient is None:
            return None
        shown = self._shown_grad
        if shown is None or shown[0] is not gradient:
            shown = self._shown_grad = gradient, self.gradient_of(gradient)
            shown[1]._is_shown = True
        return shown[1]

    def gradient_of(self, values):
        """The gradient of this tensor whose values, element by element, are these."""
        return self._with(values)

    def require_own(self):
        """NotImplementedError before a change in place of what shows the gradient of a sparse tensor."""
        if self._is_shown:
            raise NotImplementedError(
                "the gradient of a sparse tensor is not changed in place: assign another one, x.grad = x.grad * 2"
            )

    @property
    def grad(self):
        return self._grad

    @grad.setter
    def grad(self, value):
        if value is not None and (not isinstance(value, Tensor) or value.shape != self.shape):
            raise RuntimeError(f"grad: assigned grad must be a tensor of shape {tuple(self.shape)}, or None")
        self._values_kept.grad = None if value is None else self.values_of(value)

    def values_of(self, other):
        """The values of another tensor of this shape at the places that are kept here."""
        raise NotImplementedError

    def _hook_on(self, register, hook):
        """A hook on the values sees their gradient as one of this tensor."""

        def on_values(gradient):
            replaced = hook(None if gradient is None else self.gradient_of(gradient))
            if replaced is None:
                return None
            if not replaced.has_array and replaced.sparse_dim() != self.sparse_dim():
                raise WrongLayout(
                    f"grad is sparse tensor, but has incorrect sparse_dim {replaced.sparse_dim()}, expected "
                    f"{self.sparse_dim()}"
                )
            return self.values_of(replaced)

        return register(on_values)

    def register_hook(self, hook):
        """hook(grad) is called with the complete gradient of this tensor; a tensor it returns replaces it."""
        return self._hook_on(self._values_kept.register_hook, hook)

    def register_post_accumulate_grad_hook(self, hook):
        """hook(tensor) is called after a leaf's .grad was accumulated."""
        return self._values_kept.register_post_accumulate_grad_hook(lambda _: hook(self))

    def retain_grad(self):
        """Keep .grad of a tensor that is not a leaf."""
        self._values_kept.retain_grad()

    @property
    def retains_grad(self):
        return self._values_kept.retains_grad

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        """The gradients of everything this was computed from, for a gradient of its shape."""
        cotangent = None if gradient is None else self.values_of(gradient)
        self._values_kept.backward(cotangent, retain_graph, create_graph, inputs)

    # --- copies -------------------------------------------------------------------------------------------------------
    def clone(self, *, memory_format=None):
        """A copy, with a history."""
        return self._with(self._values_kept.clone())

    def __copy__(self):
        return self.detach().requires_grad_(self.requires_grad)

    def __deepcopy__(self, memo):
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol"
            )
        made = memo[id(self)] = self._with(self._values_kept.detach().clone())
        made.requires_grad = self.requires_grad
        if self._grad is not None:
            made.grad = self._grad.clone()
        return made


def alias(values):
    """Another tensor of the same memory and history."""
    return values.view_as(values) if values.requires_grad else values.detach()


def _leaves(args, kwargs):
    for x in (*args, *(kwargs or {}).values()):
        if isinstance(x, (list, tuple)):
            yield from _leaves(x, None)
        else:
            yield x


def _unknown(name, layout):
    return f"{name}: not there for tensors of layout {layout!r}{_INSTEAD}"


class SparseTensor(Sparse):
    """A tensor by coordinates. Made by `weft.sparse_coo_tensor`, `x.to_sparse()`, and sparse gradients."""

    __slots__ = ("_indices_kept", "_is_rising")
    is_sparse = True
    layout = sparse_coo

    @classmethod
    def of(cls, indices, values, shape, is_coalesced=False):
        """indices: an array (n_sparse, n) of int64 that nobody else changes; values: a tensor (n, *dense sizes)."""
        self = _new(cls)
        self._hold(values, shape)
        self._indices_kept = indices
        self._is_rising = is_coalesced or indices.shape[1] < 2
        return self

    def _with(self, values):
        return SparseTensor.of(self._indices_kept, values, self._meta.shape, self._is_rising)

    def gradient_of(self, values):
        """The gradient of this tensor whose values, element by element, are these: of elements of one place it has the
        first, since the derivative with respect to the sum is that with respect to each."""
        if self._is_rising:
            return self._with(values)
        places = coordinates.flat(self._indices_kept, self.sparse_sizes)
        _, first = np.unique(places, return_index=True)
        indices = np.ascontiguousarray(self._indices_kept[:, first])
        return SparseTensor.of(indices, values.index_select(0, tensor_of(first)), self._meta.shape, True)

    def become(self, other):
        """Be the same as another tensor of the shape: what changes in place do."""
        self.require_own()
        self._meta = other._meta
        self._values_kept, self._shown_grad = other._values_kept, None
        self._indices_kept, self._is_rising = other._indices_kept, other._is_rising
        return self

    # --- its parts ----------------------------------------------------------------------------------------------------
    @property
    def sparse_sizes(self):
        return self._meta.shape[: self._indices_kept.shape[0]]

    @property
    def dense_sizes(self):
        return self._meta.shape[self._indices_kept.shape[0] :]

    def sparse_dim(self):
        """How many of the first dimensions have indices."""
        return self._indices_kept.shape[0]

    def dense_dim(self):
        """How many of the last dimensions are whole in every value."""
        return self.ndim - self.sparse_dim()

    def is_coalesced(self):
        """Whether every place is there once, in row-major order, as coalesce() leaves it."""
        return self._is_rising

    def _indices(self):
        """Where the elements are, (n_sparse, n), in whatever order they are kept."""
        return tensor_of(self._indices_kept)

    def indices(self):
        """Where the elements are, (n_sparse, n), in row-major order. RuntimeError before coalesce()."""
        self._require_coalesced("indices")
        return tensor_of(self._indices_kept)

    def values(self):
        """The elements, (n, *dense sizes), in the order of indices(). RuntimeError before coalesce()."""
        self._require_coalesced("values")
        return super().values()

    def _require_coalesced(self, what):
        if not self._is_rising:
            raise RuntimeError(f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first")

    def _coalesced_(self, coalesced):
        """Say that it is coalesced, or not."""
        self._is_rising = coalesced
        return self

    def is_same_size(self, other):
        """Whether the shapes are equal."""
        return self.shape == other.shape

    # --- what the backward pass asks of a gradient (runtime/eager/engine.py) ------------------------------------------
    def plus(self, other):
        """The sum with a gradient of any layout; dense if that one is."""
        return asked[sparse_coo]["add"](other if other.has_array else self, self if other.has_array else other)

    def add_to(self, gradient):
        """Add it to a gradient in place."""
        asked[sparse_coo]["add_"](gradient, self)

    def is_whole(self):
        """Whether nobody else shows its memory, or has its values, which are in order."""
        values = self._values_kept
        whole = values._base is None and not values._requires_grad and values._data is not None
        if not whole or is_held([values], 0, known=2):
            return False
        return values._data.flags.c_contiguous and self._indices_kept.flags.c_contiguous

    # --- files and text -----------------------------------------------------------------------------------------------
    def parts(self):
        """What a file has of it: indices, values, sizes, requires_grad."""
        return self._indices_kept, self._values_kept.detach().numpy(), self._meta.shape, self.requires_grad

    def __reduce_ex__(self, protocol):
        array = np.ascontiguousarray(self._values_kept.detach().numpy())
        return rebuilt, (self._indices_kept, array, self._meta.shape, self._is_rising, self.requires_grad)


def rebuilt(indices, array, shape, is_coalesced, requires_grad):
    """What pickle makes of these."""
    made = SparseTensor.of(np.array(indices), tensor_of(np.array(array)), shape, is_coalesced)
    made.requires_grad = requires_grad
    return made
