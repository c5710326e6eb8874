r"""The Tensor: an array, and how it came about.

    Tensor --_data--> ndarray                 (None while a compiled call has not computed it yet: `pending`)
      |                                       (None in another device's memory: _meta is a GpuArray, runtime/gpu/)
      |  \--_storage-> Storage: version        shared by all tensors that share memory
      |--_node--> Node ...                     the op that made it; None for leaves
      |--_grad--> Tensor                       leaves only, unless retain_grad()
      `--_frame, _vid, _meta                   the compiled call it belongs to, its number and description there

Only state and what the runtime needs is here; methods users call are attached by the frontend.
"""

import numpy as np

from ...compiler import dtypes
from ...compiler.ops.table import OpError
from .elsewhere import apply_in_call, is_elsewhere, is_sample, samples_at_work
from .modes import inferring, state
from .readers import readers_of
from .said import warn
from .size import Size
from .storage import InferenceStorage, Storage, is_apart

_new, _new_tuple, _ndarray = object.__new__, tuple.__new__, np.ndarray


class LentMemory:
    """The base of an array a user got from a tensor: alive as long as any array that shows the tensor's memory is."""

    __slots__ = ("array", "__weakref__")
    _base = _frame = None
    _requires_grad = False

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


class Watch(LentMemory):
    """Counts as a sharer of the memory for weft itself: no array is made of it."""

    __slots__ = ()


def is_inference(tensor):
    return tensor._storage.__class__ is InferenceStorage


class TensorType(type):
    """The type of tensors' classes, which decides what `dir` shows of them (public.py in the frontend)."""


class Tensor(metaclass=TensorType):
    """An n-dimensional array that can record how it was computed. Create one with `weft.tensor`.

    The constructor is PyTorch's older one, which the frontend attaches: `Tensor(2, 3)`, `Tensor([1, 2])`, `Tensor()`,
    `Tensor(array)`. Code here wraps arrays as they are with `tensor_of`; constructors of subclasses do, too.
    """

    __slots__ = (
        "_data",
        "_frame",
        "_vid",
        "_requires_grad",
        "_grad",
        "_node",
        "_accumulator",
        "_storage",
        "_base",
        "_meta",
        "_call_node",
        "_is_apart",
        "__dict__",
        "__weakref__",
    )
    weak, has_array = False, True  # it decides dtypes, as no number does; sparse ones have no array
    __array_priority__ = 1000

    def __new__(cls, array=(), *sizes):
        if array is not None and (cls is Tensor or not isinstance(array, _ndarray)):
            return cls._from_user(cls, array, *sizes)
        self = _new(cls)
        self._data = array
        self._frame = None
        self._vid = -1
        self._requires_grad = False
        self._grad = None
        self._node = None
        self._accumulator = None
        self._storage = InferenceStorage() if inferring and state.inference else None
        self._base = None
        self._meta = None
        return self

    # --- data ---------------------------------------------------------------------------------------------------
    @property
    def array(self):
        """The NumPy array, computed first if pending."""
        data, frame = self._data, state.frame
        if data is None:
            mine = frame is not None and self._frame is frame
            return frame.materialize(self) if mine else _array_elsewhere(self)
        if frame is not None:
            if (homes := frame.homes) and (changed := frame.as_changed(self, homes)) is not None:
                return changed
            if state.looks_on is not None:
                state.looks_on(self)
        return data

    @property
    def shape(self):
        data, meta = self._data, self._meta
        # As fast as Python can make a Size: reading `x.shape` is part of most operations.
        return _new_tuple(Size, data.shape if data is not None else meta.shape)

    @property
    def dtype(self):
        data, meta = self._data, self._meta
        return _DTYPES[data.dtype] if data is not None else meta.dtype

    @property
    def ndim(self):
        data, meta = self._data, self._meta
        return data.ndim if data is not None else len(meta.shape)

    def apply_op(self, op, operands, attributes):
        frame = state.frame
        if self._data is None and is_elsewhere(self) and all(x is not self for x in operands):
            return self._meta.apply(op, operands, attributes)
        return _eager(op, operands, attributes) if frame is None else apply_in_call(frame, op, operands, attributes)

    # --- versions and memory ------------------------------------------------------------------------------------
    @property
    def _version(self):
        storage = self._storage
        if samples_at_work and is_sample(self):
            return self._meta.version(storage)
        if storage is not None:
            return storage.version
        # A pending view gets the storage of what it shows when it is computed.
        return 0 if self._base is None else self._frame.version_of_view(self)

    def bump_version(self):
        storage = storage_of(self)
        storage.version += 1
        if storage.changes is not None:
            storage.changes[0] += 1

    def share_storage(self, other):
        """Let self and `other`, which share memory, share a version."""
        storage = storage_of(other)
        if storage.sharers is None:
            storage.shared_by(other)
        storage.shared_by(self)
        self._storage = storage

    def share_memory(self, other):
        """Let self and `other`, which share memory, know each other, but with a version each."""
        self._share_memory(other, storage_of(other).__class__)

    def _share_memory(self, other, kind):
        """The same, with a kind of storage."""
        version = self._version
        self.share_storage(other)
        theirs = self._storage
        if theirs.changes is None:
            theirs.changes = [0]
        self._storage = own = kind()
        own.version, own.sharers, own.changes, own.exposed = version, theirs.sharers, theirs.changes, theirs.exposed

    def replace_memory(self, other):
        """Let self have the memory of `other`, and keep its version: what `x.data = other` does."""
        old = storage_of(self)
        # A program of a finished call may read what this tensor was.
        old.changes = old.changes or [0]
        self.tell_readers()
        old.changes[0] += 1
        self._data, self._meta = (None, other._meta) if is_elsewhere(other) else (other.array, None)
        self._share_memory(other, old.__class__)

    def watch(self):
        """Something that counts as a sharer as long as it lives: changes of the memory then happen one by one, also in
        compiled calls, and readers are told before."""
        watch = Watch(self.array)
        self._share_with(watch)
        self._storage.changes = self._storage.changes or [0]
        return watch

    def _share_with(self, lent):
        storage = storage_of(self)
        if storage.sharers is None:
            storage.shared_by(self)
        storage.shared_by(lent)

    def tell_readers(self, is_lent=False):
        """Before a change that is no new version for all who see the memory, and before NumPy shows it (is_lent)."""
        if self._data is not None and (is_lent or self._storage is not None and self._storage.changes is not None):
            for reader in readers_of(self._data):
                (reader.before_lending if is_lent else reader.before_silent_change)(self)

    def silent_changes(self):
        """How often the memory was changed in place since it is known to have several versions, one of which counts
        each change."""
        storage = self._storage
        return 0 if storage is None or storage.changes is None else storage.changes[0]

    def lend(self):
        """A NumPy array of the same memory. While it is alive, in-place changes happen at once, also in a compiled
        call: the user may look at any time."""
        if self._storage is not None and self._storage.changes is not None:
            self._storage.expose()  # native code tells this one only
        self.tell_readers(is_lent=True)
        made = _native_lend(self, False)
        if made is None and state.frame is not None:
            state.frame.before_lending(self)
            made = _native_lend(self, True) if self.array is self._data else None
        if made is None:
            self._share_with(lent := LentMemory(self.array))
            self._storage.expose()
            made = np.asarray(lent)
        return made

    @classmethod
    def showing(cls, array):
        """A tensor on the memory of an array of the user's."""
        # A view object of our own: giving the caller's array another shape must not change the tensor's.
        tensor = tensor_of(array.view())
        tensor._storage = tensor._storage or Storage()
        tensor._storage.exposed = True
        return tensor

    # --- autograd -----------------------------------------------------------------------------------------------
    @property
    def requires_grad(self):
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value):
        if value.__class__ is not bool:
            raise RuntimeError(f"requires_grad must be a bool, got {value!r}")
        if value and not self.dtype.is_differentiable:
            raise OpError(
                f"requires_grad: only Tensors of floating point and complex dtype can require gradients, this one is "
                f"{self.dtype.name}; convert it with .float() or .double() first"
            )
        if not self.is_leaf:
            if value:
                return
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in "
                "a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            )
        if self._requires_grad is value:
            return
        if value and is_inference(self) and not state.inference:
            raise RuntimeError(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed: it was made in "
                "inference_mode; use a copy (x = x.clone()), or weft.no_grad() in its place"
            )
        frame = state.frame
        if value and frame is not None and self._frame is frame and frame.make_leaf(self):
            return
        if value and frame is not None and answering_for(self) is None:
            frame.turn(self)
        else:
            self.leave_call()
        self._requires_grad = value

    def leave_call(self):
        """What is about to be changed here is nothing that a compiled call in flight goes on with."""
        answering = answering_for(self)
        if answering is not None:
            answering.leave(self)
        elif state.frame is not None:
            state.frame.forget(self)

    @requires_grad.deleter
    def requires_grad(self):
        raise RuntimeError("requires_grad must be a bool: it cannot be deleted, but set to False")

    @property
    def is_leaf(self):
        return not self._requires_grad or not self.has_history

    @property
    def has_history(self):
        """Whether an op made this tensor, as autograd sees it."""
        if self._node is not None:
            return True
        return self._frame is not None and self._requires_grad and self._meta.history

    @property
    def grad_fn(self):
        if self._node is None and self._requires_grad:
            answering = answering_for(self)
            if answering is not None:
                return answering.node_of(self)
        elif self._node is not None:
            self._node.require_known()
        return self._node

    @property
    def grad(self):
        grad = self._grad
        if grad is None and self._requires_grad and not self.is_leaf:
            _say_no_leaf(self)
        return grad

    @grad.setter
    def grad(self, value):
        if value is not None:
            _check_grad(self, value)
        if state.frame is not None:
            state.frame.before_gradient(self)
        self._grad = value

    @grad.deleter
    def grad(self):
        self.grad = None


def _say_no_leaf(tensor):
    """Warn of .grad of a tensor that gets none."""
    retained = getattr(tensor._node, "retained", None) or {}
    if not any(reference() is tensor for reference in retained.values()):
        warn(
            "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
            "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf "
            "Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make "
            "sure you access the leaf Tensor instead.",
            stacklevel=3,
        )


def _check_grad(tensor, grad):
    if not isinstance(grad, Tensor):
        raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(grad).__name__}")
    if grad is tensor:
        raise RuntimeError("grad: can't assign Variable as its own grad")
    if grad.shape != tensor.shape or grad.dtype is not tensor.dtype:
        raise RuntimeError(
            f"grad: assigned grad is {grad.dtype.name}{grad.shape}, the tensor is {tensor.dtype.name}{tensor.shape}; "
            "shape and dtype must be equal"
        )


def shape_of(tensor):
    """The shape as a plain tuple, for those who only count and compare: reading `.shape` makes a Size."""
    data = tensor._data
    return data.shape if data is not None else tensor._meta.shape


def answering_for(tensor):
    """Who answers for a tensor of a compiled call: its frame, or who stands in for that if it is in another thread's
    hands (onlooker.py). None for all other tensors."""
    frame = tensor._frame
    return frame if frame is None or frame is state.frame or frame.closed else frame.answer(tensor)


def _array_elsewhere(tensor):
    """The array of a tensor that another call than the one in flight here is to compute, or has computed just now."""
    frame = tensor._frame
    if frame is None:
        return tensor._data if tensor._data is not None else tensor._meta.refuse()
    return frame.materialize(tensor) if frame.closed else frame.answer_at_once().materialize(tensor)


def storage_of(tensor):
    """The storage of a tensor, made if it has none. Of two threads that make one the first wins: every tensor has but
    one in all its life."""
    storage = tensor._storage
    if storage is None:
        made = _new_storages.setdefault(id(tensor), Storage())
        storage = tensor._storage
        if storage is None:
            storage = tensor._storage = made
        _new_storages.pop(id(tensor), None)
    return storage


def show(out, operand, array):
    """Make `out` a view of operand, whose array this is, if their memory is the same (a reshape may have had to copy).
    An onlooker (onlooker.py) may have been given a copy of operand's memory."""
    base = out._data.base  # of most views the operand, or what that is a view of
    is_view = base is not None and (base is array or base is array.base) or out._data.size == 0
    if is_view or np.may_share_memory(out._data, array):
        if operand._data is None or operand._data is array:
            out._storage = storage = operand._storage or storage_of(operand)
            if storage.sharers is None:
                storage.shared_by(operand)
            storage.shared_by(out)
        out._base = operand if operand._base is None or is_apart(operand) else operand._base


_new_storages = {}  # id of a tensor -> its storage, between making it and giving it to the tensor
_DTYPES = {d.numpy: d for d in dtypes.ALL}


def dtype_of(array):
    return _DTYPES[array.dtype]


def _apply(op, operands, attributes):
    frame = state.frame
    if frame is not None:
        return apply_in_call(frame, op, operands, attributes)
    # Calling an op asks native code by itself; who comes here had no tensor to call it on.
    out = _native(op, operands, attributes)
    return _eager(op, operands, attributes) if out is None else out


def set_eager(function):
    """The gate says how an op runs outside a recording (it imports this module, so it cannot be imported here)."""
    global _eager
    _eager = function


def set_native_apply(function):
    """function(op, operands, attributes) gives the result if native code knows the op for such operands, else None."""
    global _native
    _native = function


def set_native_lend(function):
    """function(tensor) gives an array of the memory if native code can make it, else None."""
    global _native_lend
    _native_lend = function


def _unknown(*_):
    return None


_eager, _native, _native_lend = None, _unknown, _unknown


def pending_tensor(frame, vid, meta):
    """A tensor that a compiled call will compute (Tensor.__new__ written out: this runs for every replayed op)."""
    self = _new(Tensor)
    self._data = None
    self._frame = frame
    self._vid = vid
    self._meta = meta
    self._requires_grad = meta.requires_grad
    self._grad = None
    self._node = None
    self._accumulator = None
    self._storage = None
    self._base = None
    return self


def tensor_of(array):
    """A tensor around an array, or None, as it is. Written out like `pending_tensor`, because it runs for every op."""
    self = _new(Tensor)
    self._data = array
    self._frame = None
    self._vid = -1
    self._requires_grad = False
    self._grad = None
    self._node = None
    self._accumulator = None
    self._storage = InferenceStorage() if inferring and state.inference else None
    self._base = None
    self._meta = None
    return self


def alias_of(tensor):
    """A tensor of the same memory, which knows nothing of the other."""
    alias = tensor_of(tensor._data)
    if tensor._data is None:
        alias._meta = tensor._meta
    return alias


def tensor_of_kind(kind, array):
    """The same of a class of tensors."""
    return tensor_of(array) if kind is Tensor else Tensor.__new__(kind, array)


def wrap(array):
    """A tensor around an array (not copied)."""
    return tensor_of(np.asarray(array))
