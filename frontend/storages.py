"""What programs ask of the memory under a tensor: how large it is, where it begins, whether two tensors share it.

    x.untyped_storage()     bytes                   UntypedStorage
    x.storage()             elements of a type      TypedStorage

They show memory and change none of it: for that there are the tensors, whose changes are counted.
"""

import numpy as np

from .runtime.state.device import CPU
from .runtime.state.tensor import tensor_of

_CHANGES = (
    "{name}: a storage of weft's shows memory and changes none of it, neither its size nor its elements; change the "
    "tensor instead"
)


class UntypedStorage:
    """The memory that a tensor is in, all of it, as bytes. Views of one tensor have equal ones."""

    is_cuda = is_sparse = is_hpu = False
    device, dtype = CPU, None

    def __init__(self, *args, **kwargs):
        raise NotImplementedError(f"{type(self).__name__}: storages come from tensors: weft.empty(n).untyped_storage()")

    @classmethod
    def _of(cls, tensor):
        made, owner = object.__new__(cls), tensor.array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        # Memory of others may have gaps between its elements; then it is the tensor's own part.
        made._owner = owner if owner.flags.c_contiguous else tensor.array
        return made

    def data_ptr(self):
        """The address at which the memory begins."""
        return self._owner.ctypes.data

    def nbytes(self):
        """How many bytes it has."""
        return self._owner.nbytes

    def element_size(self):
        """How many bytes an element has."""
        return 1

    def size(self):
        """How many elements it has."""
        return self.nbytes() // self.element_size()

    def tolist(self):
        """Its elements as Python numbers."""
        return self._elements().tolist()

    def get_device(self):
        """-1, which stands for the CPU."""
        return -1

    def is_pinned(self, device=None):
        return False

    def is_shared(self):
        return False

    def cpu(self):
        """Itself."""
        return self

    def resize_(self, *size):
        """RuntimeError: storages keep their size."""
        raise RuntimeError(_CHANGES.format(name="resize_"))

    def fill_(self, value):
        """RuntimeError: storages are not written."""
        raise RuntimeError(_CHANGES.format(name="fill_"))

    def copy_(self, source, non_blocking=False):
        """RuntimeError: storages are not written."""
        raise RuntimeError(_CHANGES.format(name="copy_"))

    @property
    def _cdata(self):
        return self.data_ptr()

    def _elements(self):
        flat = np.ascontiguousarray(self._owner).reshape(-1)
        return flat.view(np.uint8)

    def __getitem__(self, key):
        found = self._elements()[key]
        return found.tolist() if found.ndim == 0 else list(found.tolist())

    def __setitem__(self, key, value):
        raise RuntimeError(_CHANGES.format(name="storage[...] = value"))

    def __sizeof__(self):
        return object.__sizeof__(self) + self.nbytes()

    def __len__(self):
        return self.size()

    def __iter__(self):
        return iter(self.tolist())

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and (self.data_ptr(), self.nbytes()) == (
            other.data_ptr(),
            other.nbytes(),
        )

    def __hash__(self):
        return hash(self.data_ptr())

    def __repr__(self):
        return f"[weft.{type(self).__name__}(device=cpu) of size {len(self)}]"


class TypedStorage(UntypedStorage):
    """The same as elements of a type."""

    @classmethod
    def _of(cls, tensor):
        made = super()._of(tensor)
        made.dtype = tensor.dtype
        return made

    def element_size(self):
        """How many bytes an element has."""
        return self.dtype.size_bytes

    def untyped(self):
        """The same memory as bytes."""
        made = object.__new__(UntypedStorage)
        made._owner = self._owner
        return made

    @property
    def _untyped_storage(self):
        return self.untyped()

    def tolist(self):
        """Its elements as Python numbers."""
        return _as_tensor(self).tolist()

    def __getitem__(self, key):
        found = _as_tensor(self)[key]
        return found.item() if found.ndim == 0 else found.tolist()

    __hash__ = UntypedStorage.__hash__


def _as_tensor(storage):
    flat = super(TypedStorage, storage)._elements()
    return tensor_of(flat.view(storage.dtype.numpy))


def untyped_storage(tensor):
    """The memory that a tensor is in, as bytes: `nbytes()`, `data_ptr()`, `len()`."""
    return UntypedStorage._of(tensor)


def storage(tensor):
    """The memory that a tensor is in, as elements of its type."""
    return TypedStorage._of(tensor)


def is_set_to(tensor, other):
    """Whether both are the same elements of the same memory, in the same order."""
    return (
        UntypedStorage._of(tensor) == UntypedStorage._of(other)
        and tensor.dtype is other.dtype
        and (tensor.data_ptr(), tensor.shape, tensor.stride()) == (other.data_ptr(), other.shape, other.stride())
    )


def is_storage(obj):
    """Whether it is the memory of a tensor."""
    return isinstance(obj, UntypedStorage)
