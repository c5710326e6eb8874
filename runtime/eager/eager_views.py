"""Views that eager mode makes in native code, as tensor.py: show does; of the subset (docs/native.md)."""

from ...compiler.translate.kinds import I64, Address, List, Object
from ...compiler.translate.language import cast, keep, native, require
from ..code.native_kinds import TensorObject, new_list
from ..state.storage import SHARERS_CHECKED, dropping
from .eager_nodes import new_storage, new_tensor
from .eager_words import ArrayObject, StorageObject, View, Words, new_weak_reference, replace_part, weak_target


@native()
def new_view(words: Words, view: View, shown: TensorObject) -> TensorObject:
    """A tensor that shows the memory of another one, and shares its version."""
    array = keep(cast(ArrayObject, shown._data))
    flags = array.flags & view.kept_flags
    data = array.data + view.offset
    return new_view_at(words, shown, view.dtype, view.ndim, view.shape, view.strides, data, flags)


@native(inline=True)
def new_view_at(
    words: Words,
    shown: TensorObject,
    dtype: Object,
    ndim: I64,
    shape: Address,
    strides: Address,
    data: I64,
    flags: I64,
) -> TensorObject:
    """The same of elements that lie so, from an address on."""
    array = keep(cast(ArrayObject, shown._data))
    made = words.new_view(words.array_class, dtype, ndim, shape, strides, data, flags, words.null)
    require(made is not None)
    require(words.set_base(made, array) == 0)
    out = new_tensor(words, made)
    out._storage = shared_storage(words, shown)
    append_sharer(words, cast(StorageObject, out._storage), out)
    base = keep(shown._base)
    if base is None or shown._is_apart is not None:
        out._base = shown
    else:
        out._base = base
    return out


@native()
def shared_storage(words: Words, shown: TensorObject) -> StorageObject:
    """The storage of a tensor that is about to be shared: it knows its first sharer."""
    if shown._storage is None:
        made = new_storage(words)
        # Making it may have run code that has made one.
        require(shown._storage is None and shown._base is None)
        shown._storage = made
    storage = keep(cast(StorageObject, shown._storage))
    if storage.sharers is None:
        storage.sharers = new_list(0)
        append_sharer(words, storage, shown)
    return storage


@native()
def append_sharer(words: Words, storage: StorageObject, sharer: Object):
    sharers = cast(List, storage.sharers)
    if len(sharers) & SHARERS_CHECKED == SHARERS_CHECKED and len(cast(List, dropping)) == 0:
        drop_dead(words, sharers)
    reference = new_weak_reference(sharer, words.null)
    cast(List, storage.sharers).append(reference)


@native()
def drop_dead(words: Words, sharers: List):
    """From time to time: letting go of a reference to nothing runs no code."""
    k = len(sharers) - 1
    while k >= 0:
        if weak_target(sharers[k]) is None:
            replace_part(sharers, k, k + 1, words.null)
        k -= 1
