"""In-place changes of tensors that share memory while gradients are recorded: what each of them is from then on.

    v = base[1]; v.mul_(w)       base: CopySlices --> (what base was, what v became)
                                 v, and every other view: AsStridedBackward0 --> base

A change of a view is a change of its base, whose gradient is from then on cut in two: the part that the view shows is
that of the new value, the rest is that of what base was before. All living views of the base are views of what it is
now. Which elements a view shows is known from the arrays alone, whatever made the view.
"""

import re
from math import prod

import numpy as np

from ...compiler.ops import complex_numbers, indexing, spelling, view
from ...compiler.ops.table import Op
from ..state.aligned import address_of
from ..state.elsewhere import is_elsewhere, is_sample
from ..state.modes import state, watching
from ..state.storage import is_apart
from ..state.tensor import alias_of, shape_of, tensor_of
from .inference import inferred_among, spoil, views_of
from .node import AccumulateGrad, BaseNode, Node, edge_of, shown
from .plan import is_view_op


class Place:
    """The elements of a base that a view shows: strides and offset, counted in elements of memory in which the base
    lies as it did when it was asked."""

    __slots__ = ("shape", "strides", "offset", "base_shape", "base_strides", "dtype")

    def __init__(self, shown, base):
        size = base.itemsize
        self.shape, self.base_shape, self.dtype = shown.shape, base.shape, shown.dtype
        self.strides = _in_elements(shown)
        self.base_strides = None if base.flags.c_contiguous else _in_elements(base)
        self.offset = 0 if shown.size == 0 else (address_of(shown) - address_of(base)) // size

    @property
    def is_whole_once(self):
        """Whether no element is shown twice."""
        return all(stride or length == 1 for stride, length in zip(self.strides, self.shape))

    def in_memory(self, array):
        """The view of a contiguous array of the base's shape, if the base is one."""
        return self._shown(array, 0)

    def _shown(self, memory, first):
        size = memory.itemsize
        strides = tuple([stride * size for stride in self.strides])
        return np.ndarray(self.shape, memory.dtype, memory, (first + self.offset) * size, strides)

    def _copied(self, array):
        """(what the base shows, what the view shows) of new memory that holds an array of the base's shape and order,
        in which it lies as the base did."""
        if self.base_strides is None:
            copy = np.array(array, order="C")
            return copy, self._shown(copy, 0)
        reach = [stride * (length - 1) for stride, length in zip(self.base_strides, self.base_shape)]
        first, size = -sum(r for r in reach if r < 0), array.itemsize
        memory = np.zeros(sum(map(abs, reach)) + 1, array.dtype)
        strides = tuple([stride * size for stride in self.base_strides])
        copy = np.ndarray(self.base_shape, array.dtype, memory, first * size, strides)
        copy[...] = array
        return copy, self._shown(memory, first)

    def positions(self):
        """For every element of the view its position in the base."""
        if prod(self.shape) == 0:
            return tensor_of(np.zeros(self.shape, np.int64))
        _, shown = self._copied(np.arange(prod(self.base_shape), dtype=np.int64).reshape(self.base_shape))
        return tensor_of(np.ascontiguousarray(shown).reshape(self.shape))

    def read(self, x):
        """The view of x, as a tensor with memory of its own."""
        if _is_plain(x):
            whole = x._data
            shown = self._shown(whole, 0) if self.base_strides is None else self._copied(whole)[1]
            return tensor_of(np.array(shown, order="C"))
        return spelling.index_(x, self.positions(), axis=0, merged=(prod(self.base_shape),))

    def written(self, x, value):
        """x with `value` where the view is; value has the view's shape."""
        if _is_plain(x) and _is_plain(value):
            copy, shown = self._copied(x._data)
            shown[...] = value._data
            return tensor_of(np.asarray(copy, order="C"))
        return indexing.index_put(x, self.positions(), value, axis=0, merged=(prod(self.base_shape),))

    def spread(self, x):
        """Zeros of the base's shape, with x added where the view is."""
        zeros = tensor_of(np.zeros(self.base_shape, self.dtype))
        if self.is_whole_once:
            return self.written(zeros, x)
        flat = view.reshape(zeros, shape=(prod(self.base_shape),))
        positions = view.reshape(self.positions(), shape=(prod(self.shape),))
        added = indexing.index_add(flat, positions, view.reshape(x, shape=(prod(self.shape),)), axis=0)
        return view.reshape(added, shape=self.base_shape)


class PlaceOfNumbers:
    """The elements of a base that a view of another type shows: the parts of complex numbers, or numbers made of pairs.
    It is the place of the real numbers of the one among those of the other."""

    __slots__ = ("numbers", "shape", "dtype", "base_shape", "is_complex", "of_complex")

    def __init__(self, shown, base):
        self.shape, self.dtype, self.base_shape = shown.shape, shown.dtype, base.shape
        self.is_complex, self.of_complex = shown.dtype.kind == "c", base.dtype.kind == "c"
        self.numbers = Place(_numbers_of(shown), _numbers_of(base))

    def in_memory(self, array):
        found = self.numbers.in_memory(_numbers_of(array))
        return complex_numbers.view_as_complex.evaluate(found) if self.is_complex else found

    def read(self, x):
        found = self.numbers.read(_as_numbers(x, self.of_complex))
        return complex_numbers.view_as_complex(found) if self.is_complex else found

    def written(self, x, value):
        found = self.numbers.written(_as_numbers(x, self.of_complex), _as_numbers(value, self.is_complex))
        return complex_numbers.view_as_complex(found) if self.of_complex else found

    def spread(self, x):
        found = self.numbers.spread(_as_numbers(x, self.is_complex))
        return complex_numbers.view_as_complex(found) if self.of_complex else found


def place_of(shown, base):
    """Where a base has the elements of a view of it."""
    return (Place if shown.dtype == base.dtype else PlaceOfNumbers)(shown, base)


def _in_elements(array):
    return tuple([stride // array.itemsize for stride in array.strides])


def _numbers_of(array):
    return complex_numbers.view_as_real.evaluate(array) if array.dtype.kind == "c" else array


def _as_numbers(x, is_complex):
    return complex_numbers.view_as_real(x) if is_complex else x


def _is_plain(x):
    """Whether nobody asks how what is made of x came about, and x lies in memory in its order."""
    array = x._data
    plain = array is not None and array.flags.c_contiguous and array.size > 0
    return plain and not state.grad_enabled and state.frame is None and not watching


class CopySlices(BaseNode):
    """A base of which a view was changed: edges to what the base was, and to what the view became."""

    __slots__ = ("place",)

    def __init__(self, place, edges):
        super().__init__(edges)
        self.place = place

    @property
    def output_shape(self):
        return self.place.base_shape

    def run(self, cotangent):
        before, new = self.edges
        zeros = None
        if before is not None:
            zeros = tensor_of(np.zeros(self.place.shape, self.place.dtype))
        return [
            None if before is None else self.place.written(cotangent, zeros),
            None if new is None else self.place.read(cotangent),
        ]

    def release(self):
        """Nothing is saved."""


class AsStridedBackward0(BaseNode):
    """A view of a base that has changed since the view was made."""

    __slots__ = ("place",)

    def __init__(self, place, edges):
        super().__init__(edges)
        self.place = place

    @property
    def output_shape(self):
        return self.place.shape

    def run(self, cotangent):
        return [self.place.spread(cotangent)]

    def release(self):
        """Nothing is saved."""


def set_apart(detached):
    """Let a tensor that detach() has made know whose memory it shows, but not how that came about: it would keep all
    that the base was computed from, in a loop that detaches its state all that was ever computed."""
    detached._is_apart = True
    base = detached._base
    is_pending = base is not None and base._data is None and not is_elsewhere(base)
    if base is None or detached._frame is not None or is_pending or not base.has_history:
        return
    same_memory = alias_of(base)
    same_memory._storage, same_memory._requires_grad = base._storage, base._requires_grad
    detached._base = same_memory


def take_memory(target, other):
    """Let the target have the memory of another tensor: what `x.data = other` does.

    Whatever it was a view of, it shows no part of that any more; and its own views show what it was, together. A graph
    that needs what it was in another shape would take that of the new one: then its version is another too.
    """
    views, shape = views_of(target), shape_of(target)
    if views:
        was = alias_of(target)
        was._storage, was._node, was._requires_grad = target._storage, target._node, target._requires_grad
        for shown in views:
            shown._base = was
    target._base = None
    target.replace_memory(other)
    if shape_of(target) != shape:
        target.bump_version()


def rebase(target, edge):
    """The target has been changed in place, and what it is now comes from `edge` (None: from nothing with gradients).
    Its base, and all views of that, get the history they have from now on.

    Views without gradients of a base that has them are detached, and stay so.
    """
    base = target._base
    if base is None or is_apart(target):
        base, place, living = target, None, views_of(target)
        views = [t for t in living if t._requires_grad or not target._requires_grad]
        inferred = inferred_among(living, base)
        _set(base, edge)
    else:
        before = edge_of(base)
        if before is None and edge is None:
            return
        living, place = views_of(base), place_of(_array_of(target), _array_of(base))
        views = [t for t in living if t is target or t._requires_grad or not base._requires_grad]
        inferred = inferred_among(living, base)
        _set(base, (CopySlices(place, (before, edge)), 0))
    if base._requires_grad:
        for shown in views:
            if _is_tracked(shown):
                at = place if shown is target else place_of(_array_of(shown), _array_of(base))
                _set(shown, (AsStridedBackward0(at, ((base._node, _index(base)),)), 0))
        spoil(inferred)


def _array_of(x):
    """What a tensor shows; of one that stands for all samples of a vmap what one of them shows."""
    return x._meta.array_of_one() if is_sample(x) else x.array


def _is_tracked(shown):
    return shown.dtype.is_differentiable and (shown._data is not None or is_sample(shown)) and not is_apart(shown)


def _index(tensor):
    node = tensor._node
    return node.output_index(tensor) if node.n_outputs > 1 else 0


def _set(tensor, edge):
    if tensor._frame is not None and not tensor._frame.closed:
        # A value of the call in flight, which some view that is none of its own has changed. (Those of calls that have
        # ended stay theirs: the calls know by them what has been changed since.)
        tensor.leave_call()
    before = tensor._node
    if edge is None:
        tensor._node, tensor._requires_grad = None, False
        return
    if before is not None and before is not edge[0] and before.retained:
        _retain_by(tensor, before, edge)
    tensor._node, tensor._requires_grad = edge[0], True


def _retain_by(tensor, before, edge):
    """retain_grad() means the tensor as it is when backward runs: the request goes from the old node to the new."""
    for index, reference in list(before.retained.items()):
        if reference() is tensor:
            del before.retained[index]
            if edge[0].retained is None:
                edge[0].retained = {}
            edge[0].retained[edge[1]] = reference


# --- refusals -------------------------------------------------------------------------------------------------------
def check_rebase(target, requires):
    """Raise unless the target may be changed in place; `requires` says whether what it becomes requires gradients."""
    base = target._base
    if base is None:
        return
    check_view(target, base)
    # What detach() made has the history of its own changes, whatever the other is.
    if target._requires_grad and base.is_leaf and not is_apart(target):
        raise RuntimeError(_of_leaf(target))
    if requires and not target._requires_grad and base._requires_grad and not _is_of_detached(target):
        raise RuntimeError(
            "A view of a detached tensor is being modified inplace by something that requires gradients (shape "
            f"{target.shape}), and the tensor has other ones: change a copy (x = x.clone())."
        )
    if target._requires_grad or requires:
        _check_type(target, base)


def check_view(target, base):
    """RuntimeError for a view that may not be changed in place, values or shape, because of how it was made."""
    if target._requires_grad:
        _check_part(target)
    elif base._requires_grad and target.dtype.is_differentiable and not _is_of_detached(target):
        raise RuntimeError(f"{_WITHOUT_HISTORY} (shape {target.shape}). {_TOGETHER}")


def _is_of_detached(target):
    """Whether a view has no gradients because detach() made what it is a view of. Views that calls leave behind know
    no other base then (frame_views.py: detached_above). Values of another call do not tell: then it may be so."""
    if is_apart(target):
        return True
    if target._frame is None:
        return False
    if target._frame is not state.frame:
        return True
    return state.frame.recorded().is_of_detached(target)


_WITHOUT_HISTORY = (
    "A view was created in no_grad mode and is being modified inplace with grad mode enabled; or it is a view of a "
    "leaf Variable that requires grad, made before that was asked for gradients: the change would be lost to autograd"
)
_TOGETHER = (
    "Move the view and the in-place change both inside the no_grad block (or inside the inference_mode block), if the "
    "change is not to be recorded, or both out of it, or change a copy (x = x.clone())"
)


def _of_leaf(target):
    """What is said where a view requires gradients and its base is nothing that was computed."""
    node = target._node
    before = node.edges[0] if isinstance(node, Node) else None
    if before is not None and isinstance(before[0], AccumulateGrad) and before[0].variable is not target._base:
        return (
            f"{_made(target)} is a view of a view which was created in no_grad mode, in inference mode, or asked for "
            f"gradients by itself, and is being modified inplace with grad mode enabled. {_TOGETHER}"
        )
    return "a view of a leaf Variable that requires grad is being used in an in-place operation."


PARTS = "UnbindBackward0", "SplitBackward0", "SplitWithSizesBackward0"


def _check_part(target):
    """RuntimeError for what one call has cut a tensor into: its parts would need a node in common."""
    node = target.grad_fn  # in a compiled call, asking for the edge would be one for its nodes
    index = shown(edge_of(target))[1] if node is not None and node.views else 0
    while node is not None:
        if type(node).__name__ in PARTS or index in node.views and node.n_outputs > 1:
            raise RuntimeError(
                f"{_made(target)} is a view and is being modified inplace. This view is the output of a "
                "function that returns multiple views. Such functions do not allow the output views to be modified "
                "inplace. You should replace the inplace operation by an out-of-place one."
            )
        if index in node.views:
            raise RuntimeError(
                f"{_made(target)} is a view and is being modified inplace. This view was created inside a "
                "custom Function (or because an input was returned as-is) and the autograd logic to handle "
                "view+inplace would override the custom backward associated with the custom Function, leading to "
                "incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom "
                "Function."
            )
        node, index = _viewed(node)


def _viewed(node):
    """(node, index) of what the node of a view shows, in a compiled call too; (None, 0) of other nodes."""
    op = node.op if hasattr(type(node), "op") else None
    if not isinstance(op, Op) or not is_view_op(op):
        return None, 0
    edge = node.edges[0] if isinstance(node, Node) else next(iter(node.next_functions), None)
    return (None, 0) if edge is None or edge[0] is None else shown(edge)


def _made(target):
    """What made a tensor, without what makes its name the name of a node."""
    node, index = shown(edge_of(target))
    output = f"Output {index}"
    if type(node).__name__ in PARTS:
        # Nodes of compiled calls do not say which part it is.
        index = node.attributes.get("index") if isinstance(node, Node) else None
        output = "An output" if index is None else f"Output {index}"
    return f"{output} of {re.sub(r'Backward[0-9]*$', '', node.name())}"


def _check_type(target, base):
    # Complex numbers and their parts are of one kind.
    if base.dtype is not target.dtype and base.dtype.to_real() is not target.dtype.to_real():
        raise NotImplementedError(
            f"in-place change of a view (type {target.dtype.name} of a tensor of type {base.dtype.name}) while "
            "gradients are recorded; change a copy (x = x.clone()) instead"
        )
