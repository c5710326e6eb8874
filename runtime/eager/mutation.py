"""A block in which tensors that nodes have saved may be changed in place: what was saved is copied before that."""

import weakref

from ..state.modes import state, watched
from ..state.tensor import storage_of, tensor_of
from .saved_hooks import pack_node


class Kept:
    """One saved tensor: the memory it shows, until that is changed, and a copy of it from then on."""

    __slots__ = ("tensor", "is_copy", "__weakref__")

    def __init__(self, tensor):
        self.tensor, self.is_copy = tensor, False

    def before_change(self, target):
        storage = self.tensor._storage
        if storage is not None and storage is target._storage:
            self.tensor, self.is_copy = tensor_of(self.tensor.array.copy()), True


def _identity(tensor):
    """What tells apart what tensors show: equal for the same memory, seen in the same way, without a change between."""
    array = tensor.array
    return id(tensor._storage), array.ctypes.data, array.dtype, array.shape, array.strides, tensor._version


class MutationContext:
    """What the block gives: clear() forgets all that was saved in it.

    tid_to_weakhandle: what is saved now; cloned: the copies that were made of it, by what was saved.
    """

    def __init__(self):
        self.tid_to_weakhandle = weakref.WeakValueDictionary()

    @property
    def cloned(self):
        return {kept: kept.tensor for kept in self.tid_to_weakhandle.values() if kept.is_copy}

    def pack(self, tensor):
        storage_of(tensor)
        identity = _identity(tensor)
        kept = self.tid_to_weakhandle.get(identity)
        if kept is None or kept.is_copy:
            kept = self.tid_to_weakhandle[identity] = Kept(tensor)
        return kept

    def unpack(self, kept):
        if state.mutations is not self:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was "
                "originally recorded."
            )
        return kept.tensor

    def before_change(self, target):
        for kept in list(self.tid_to_weakhandle.values()):
            kept.before_change(target)

    def clear(self):
        self.tid_to_weakhandle.clear()


class allow_mutation_on_saved_tensors:
    """A `with` block: a tensor that a node made in it has saved may be changed in place; backward, in the block too,
    goes by what it was."""

    def __enter__(self):
        if state.mutations is not None:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        self.context = MutationContext()
        self.block = watched(self._pack, "allow_mutation_on_saved_tensors: what is saved may be changed")
        self.block.__enter__()
        state.mutations = self.context
        return self.context

    def __exit__(self, *exception):
        self.context.clear()
        state.mutations = None
        self.block.__exit__(*exception)

    def _pack(self, node, out):
        pack_node(node, self.context.pack, self.context.unpack)
