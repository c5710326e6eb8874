"""Memory that the user sees through NumPy too (from_numpy, .numpy(), buffers), and may write to at any time.

No version tells of such a write, and a compiled call computes what it has recorded later. So an op that reads such
memory is given a copy of what is there when the op is called, which is what eager mode reads; the same copy as the op
before, if the memory is still the same, bit for bit. What is too large to be copied in every call an eager op reads.

`Storage.exposed` says that arrays of the user may be there. Whether they still are is asked here.
"""

from contextlib import contextmanager

import numpy as np

from .aligned import address_of
from .references import is_base_held
from .tensor import LentMemory, Tensor, tensor_of

MOST_BYTES = 4 << 20  # copied in a call; a copy of more would take longer than the rest of many calls
MOST_KEPT = 4 << 20  # of copies for the calls that follow, by what serves one way that calls go
TOO_LARGE = "an op reads more than 4 MiB of memory that a NumPy array shares; weft.tensor(array) is a copy of its own"
_WORD = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SMALL = 1 << 16


def shown(array):
    """A tensor of the memory of what a user gives for an array, or None: then somebody has to look closer."""
    return _native_show(array)


def set_native_show(function):
    """function(array) gives the tensor if native code can make it, else None."""
    global _native_show
    _native_show = function


def shared(tensor):
    """Another tensor of the same memory, which is there, with a version and no history of its own."""
    out = tensor_of(tensor._data.view())
    out.share_memory(tensor)
    return out


def _unknown(_):
    return None


_native_show = _unknown


def is_exposed(tensor):
    """Whether a NumPy array that somebody else holds shows the tensor's memory, or may."""
    storage = tensor._storage
    if storage is None or not storage.exposed:
        return False
    if _is_seen(tensor._data) or storage.sharers and LentMemory in map(type, storage.living_sharers()):
        return True
    # Whoever wants to see it from now on has to ask the tensor.
    storage.exposed = None
    storage.only_shared_by(tensor)
    return False


def _is_seen(array):
    """Whether the memory is not the array's own, and others hold it who can write to it."""
    if array is None or array.base is None:
        return False
    if not isinstance(array.base, np.ndarray):
        return not isinstance(array.base, bytes)
    # Not by a variable of its own: it would hold the base.
    return is_base_held(array) and array.base.flags.writeable or _is_seen(array.base)


def copied(array):
    """A copy with the same strides."""
    if array.flags.c_contiguous:
        return array.copy()
    spans = [(n - 1) * step for n, step in zip(array.shape, array.strides)] if array.size else []
    low, high = sum(s for s in spans if s < 0), sum(s for s in spans if s > 0)
    memory = np.empty(high - low + array.itemsize, np.uint8)
    copy = np.ndarray(array.shape, array.dtype, memory.data, -low, array.strides)
    copy[...] = array
    return copy


def are_same(a, b):
    """Whether two arrays of one shape, type and strides hold the same bits."""
    if a.nbytes <= _SMALL or a.itemsize not in _WORD or not (a.flags.c_contiguous and b.flags.c_contiguous):
        return a.tobytes() == b.tobytes()
    word = _WORD[a.itemsize]
    return np.array_equal(a.reshape(-1).view(word), b.reshape(-1).view(word))


class LentSince:
    """Memory that NumPy arrays of the user have come to show since a call, whose backward will read it, with what was
    in it before."""

    def __init__(self):
        self.copies = {}  # where it begins, shape and strides -> array, copy

    def add(self, array):
        """Whether it is known from now on what is in an array's memory. It is not if a copy would be too large."""
        if array.flags.writeable and array.size:
            if array.nbytes > MOST_BYTES:
                return False
            place = address_of(array), array.shape, array.strides
            if place not in self.copies:
                self.copies[place] = array, copied(array)
        return True

    def join(self, other):
        """Know what another one knows, of what is in both the earlier."""
        self.copies = {**self.copies, **other.copies}

    def is_written(self):
        return any(not are_same(array, copy) for array, copy in self.copies.values())

    @contextmanager
    def as_it_was(self):
        """A block in which the memory is as it was."""
        written = [(array, copy, copied(array)) for array, copy in self.copies.values() if not are_same(array, copy)]
        for array, copy, _ in written:
            array[...] = copy
        try:
            yield
        finally:
            for array, _, now in reversed(written):
                array[...] = now


class Snapshots:
    """Tensors with what is in the memory of others when it is asked for: the same one as long as that is the same."""

    __slots__ = ("last", "keeps")

    def __init__(self, keeps):
        """keeps: whether the last one is kept for the next call."""
        self.last, self.keeps = None, keeps

    def __call__(self, tensor):
        if self.last is not None and are_same(self.last._data, tensor._data):
            return self.last
        made = tensor_of(copied(tensor._data))
        if self.keeps:
            self.last = made
        return made


class Copies:
    """What a call has read of exposed memory. A part of every frame."""

    def __init__(self):
        # id of a tensor -> (the tensor, one with a copy of what an op has read, the array that it has read, its bytes)
        self.copies = {}
        self.copied_again = False  # whether one of these was written to between two ops
        self.held_copies = {}  # number of a value -> the copy that programs read in place of its array
        self.lent = {}  # number of a value of the call that NumPy shows since -> how many steps came before that

    def copy_of(self, tensor):
        """A tensor with what is in an exposed tensor's memory now, in its place; itself if that cannot be, because
        gradients, or the call that made it, would not find it."""
        if tensor._frame is not None or tensor._requires_grad or tensor._data.nbytes > MOST_BYTES:
            return tensor
        found = self.copies.get(id(tensor))
        if found is not None and found[0] is tensor and are_same(found[1]._data, tensor._data):
            return found[1]
        self.copied_again |= found is not None
        copy = tensor_of(copied(tensor._data))
        self.copies[id(tensor)] = tensor, copy, tensor._data, copy._data.nbytes
        return copy

    def memory(self):
        """number -> array of what is in memory, as programs are to read it."""
        return {**self.arrays, **self.held_copies} if self.held_copies else self.arrays

    def looks_only(self, tensor):
        """Whether a view of an exposed tensor is nothing that the call has to know of."""
        return tensor._frame is None and not tensor._requires_grad and id(tensor) not in self.homes


def has_exposed(tensors):
    """Whether the storage of one of these says that its memory may be exposed."""
    for x in tensors:
        if isinstance(x, Tensor):
            storage = x._storage
            if storage is not None and storage.exposed:
                return True
    return False
