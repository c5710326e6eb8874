"""A block in which tensors that nodes have saved may be changed in place: what was saved is copied before that."""

import weakref

from ..state.modes import state, watched
from ..state.tensor import Tensor, storage_of
from .saved_hooks import pack_node


class Kept:
    """One saved tensor: the memory it shows, until that is changed, and a copy of it from then on."""

    __slots__ = ("tensor", "__weakref__")

    def __init__(self, tensor):
        self.tensor = tensor

    def before_change(self, target):
        storage = self.tensor._storage
        if storage is not None and storage is target._storage:
            self.tensor = Tensor(self.tensor.array.copy())


class MutationContext:
    """What the block gives: clear() forgets all that was saved in it."""

    def __init__(self):
        self.kept = []

    def pack(self, tensor):
        storage_of(tensor)
        kept = Kept(tensor)
        self.kept = [reference for reference in self.kept if reference() is not None]
        self.kept.append(weakref.ref(kept))
        return kept

    def unpack(self, kept):
        if state.mutations is not self:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was "
                "originally recorded."
            )
        return kept.tensor

    def before_change(self, target):
        for reference in self.kept:
            kept = reference()
            if kept is not None:
                kept.before_change(target)

    def clear(self):
        self.kept = []


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
