"""NumPy arrays of tensors' memory, and tensors of that and of NumPy arrays' memory, made in native code as Tensor.lend,
showing and share_memory do, and `x.data`; of the subset (docs/native.md)."""

from ...compiler.translate.kinds import I64, Bool, List, Object, ObjectKind
from ...compiler.translate.language import METHOD, cast, keep, load_at, native, quotient, require
from ..code.native_kinds import TensorObject, new_list
from ..state.modes import inferring, watching
from ..state.storage import Storage
from ..state.tensor import LentMemory, Tensor
from .eager_nodes import new_storage, new_tensor
from .eager_views import append_sharer, shared_storage
from .eager_words import (
    WRITEABLE,
    ArrayObject,
    StorageObject,
    Words,
    is_subtype,
    new_object,
    thread_number,
    thread_state,
)

LentObject = ObjectKind("Lent", LentMemory, {"array": ("lent_array", Object)})


def not_lent(*_):
    """Everything else is Python's business."""
    return None


@native(form=METHOD, slow="slow_lend", name="weft_eager_lend")
def lend(words: Words, tensor: Object, is_told: Object) -> Object:
    """An array of the tensor's memory, or None. is_told: whether an open call knows of it."""
    require(thread_number(thread_state()) == words.thread)
    require(is_told is True or (load_at(I64, words.replaying, 0) == 0 and words.modes.get("frame", None) is None))
    require(type(tensor) is Tensor)
    shown = cast(TensorObject, tensor)
    require(shown._data is not None and shown._requires_grad is False)
    array = keep(cast(ArrayObject, shown._data))
    require(array.dtype is not words.bfloat16)
    storage = keep(shared_storage(words, shown))
    # Others with a version of their own have been told already (tensor.py).
    require(type(storage) is Storage)
    lent = new_object(LentMemory, 0)
    cast(LentObject, lent).array = array
    flags = array.flags & WRITEABLE
    null = words.null
    made = words.new_view(
        words.array_class, array.dtype, array.ndim, array.shape, array.strides, array.data, flags, null
    )
    require(made is not None)
    require(words.set_base(made, lent) == 0)
    append_sharer(words, cast(StorageObject, storage), lent)
    storage.exposed = True
    return made


@native(form=METHOD, slow="slow_show", name="weft_eager_show")
def show(words: Words, given: Object) -> Object:
    """A tensor of an array's memory, or None."""
    require(len(cast(List, inferring)) == 0)
    require(type(given) is words.array_class)
    array = keep(cast(ArrayObject, given))
    require(has_tensors(words, array))
    # A view of it: giving the array another shape must not change the tensor's.
    flags = array.flags & WRITEABLE
    null = words.null
    shown = words.new_view(
        words.array_class, array.dtype, array.ndim, array.shape, array.strides, array.data, flags, null
    )
    require(shown is not None)
    require(words.set_base(shown, array) == 0)
    made = new_tensor(words, shown)
    storage = new_storage(words)
    storage.exposed = True
    made._storage = storage
    return made


@native(form=METHOD, slow="slow_data", name="weft_eager_data")
def data(words: Words, tensor: Object) -> Object:
    """`x.data`: another tensor of the same memory, with a version and no history of its own."""
    require(load_at(I64, words.replaying, 0) == 0 and thread_number(thread_state()) == words.thread)
    require(words.modes.get("frame", None) is None)
    require(len(cast(List, inferring)) == 0 and len(cast(List, watching)) == 0)
    require(is_subtype(type(tensor), Tensor) != 0)
    shown = cast(TensorObject, tensor)
    require(shown._data is not None)
    array = keep(cast(ArrayObject, shown._data))
    storage = keep(shared_storage(words, shown))
    require(type(storage) is Storage)
    flags = array.flags & WRITEABLE
    null = words.null
    made = words.new_view(
        words.array_class, array.dtype, array.ndim, array.shape, array.strides, array.data, flags, null
    )
    require(made is not None)
    require(words.set_base(made, array) == 0)
    out = new_tensor(words, made)
    append_sharer(words, storage, out)
    if storage.changes is None:
        changes = new_list(0)
        changes.append(words.zero)
        storage.changes = changes
    own = new_storage(words)
    own.sharers = storage.sharers
    own.changes = storage.changes
    own.exposed = storage.exposed
    out._storage = own
    return out


@native()
def has_tensors(words: Words, array: ArrayObject) -> Bool:
    """Whether the array has a type of tensors, and neighbours are a whole number of elements apart."""
    for k in range(len(words.types)):
        if words.types[k] is array.dtype:
            return has_whole_strides(array, words.item_bytes[k])
    return False


@native()
def has_whole_strides(array: ArrayObject, n_bytes: I64) -> Bool:
    for k in range(array.ndim):
        step = load_at(I64, array.strides, k)
        if quotient(step, n_bytes) * n_bytes != step:
            return False
    return True
