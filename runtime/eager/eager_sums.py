"""Sums of what arrives at nodes and leaves in native code (eager_backward.py), as engine.py: _contribute and accumulate
make them; of the subset (docs/native.md).

A sum is written over its first operand where nobody else holds that one, else into a new array: the bits are the same.
Large ones are Python's, which has programs for them that threads share.
"""

from ...compiler.translate.kinds import I64, Bool, List, Object
from ...compiler.translate.language import address_of, cast, keep, load_at, native, require
from ..code.native_kinds import TensorObject, as_long, new_long
from ..state.aligned import Memory
from ..state.storage import Storage
from ..state.tensor import Tensor
from .eager_arrays import new_array
from .eager_matching import is_contiguous, n_elements
from .eager_nodes import new_storage, new_tensor
from .eager_steps import MOST_ELEMENTS
from .eager_words import ArrayObject, CountedObject, StorageObject, Words

OWNS_ITS_MEMORY, WRITEABLE = 0x4, 0x400  # NumPy's flags of arrays


@native()
def is_own(x: Object) -> Bool:
    """Of an item of a list: whether only the list holds it, and it is no view."""
    if x is None or cast(CountedObject, x).count != 1:
        return False
    tensor = cast(TensorObject, x)
    if tensor._base is not None or tensor._requires_grad is not False or tensor._data is None:
        return False
    return is_contiguous(cast(ArrayObject, tensor._data))


MOST_COPIED = 1 << 19  # elements: of more a program, which threads share, takes less time


@native()
def is_copied(x: Object) -> Bool:
    """Whether what arrives at a leaf is somebody else's too, or a part of more, and is copied here."""
    if x is None or type(x) is not Tensor:
        return False
    tensor = cast(TensorObject, x)
    if tensor._data is None or tensor._requires_grad is not False:
        return False
    n = n_elements(cast(ArrayObject, tensor._data))
    base = tensor._base
    if base is not None:
        whole = cast(TensorObject, base)._data
        # All of its base may be the leaf's without a copy (owned.py).
        if whole is None or n_elements(cast(ArrayObject, whole)) == n:
            return False
    return n <= MOST_COPIED


@native()
def copy_of(words: Words, x: TensorObject) -> TensorObject:
    """A tensor of the same elements in row-major order, in memory of its own."""
    array = cast(ArrayObject, x._data)
    made = new_array(words, array.dtype, array.ndim, array.shape)
    require(words.copy_into(made, array) == 0)
    return new_tensor(words, made)


@native()
def can_be_added(words: Words, x: Object, y: Object) -> Bool:
    """Whether these are row-major tensors of one shape and floating type, and not large."""
    if type(x) is not Tensor or type(y) is not Tensor:
        return False
    left = cast(TensorObject, x)._data
    right = cast(TensorObject, y)._data
    if left is None or right is None:
        return False
    return are_alike_arrays(words, cast(ArrayObject, left), cast(ArrayObject, right))


@native()
def are_alike_arrays(words: Words, left: ArrayObject, right: ArrayObject) -> Bool:
    if left.dtype is not right.dtype or left.ndim != right.ndim:
        return False
    if left.dtype is not words.float32 and left.dtype is not words.float64:
        return False
    same = is_contiguous(left) and is_contiguous(right)
    size = 1
    for d in range(left.ndim):
        size = size * load_at(I64, left.shape, d)
        same = same and load_at(I64, left.shape, d) == load_at(I64, right.shape, d)
    return same and size < MOST_ELEMENTS


@native()
def sum_of(words: Words, slots: List, cotangent: TensorObject) -> TensorObject:
    """What has arrived, which is the list's only item, and a cotangent like it."""
    if is_free(slots[0]):
        arrived = cast(TensorObject, keep(slots[0]))
        array = cast(ArrayObject, keep(arrived._data))
        add_arrays(words, array, cast(ArrayObject, cotangent._data), array)
        return arrived
    return new_sum(words, cast(TensorObject, keep(slots[0])), cotangent)


@native()
def is_free(x: Object) -> Bool:
    """Of an item of a list: whether only the list knows its memory."""
    if not is_own(x) or cast(TensorObject, x)._storage is not None:
        return False
    data = cast(TensorObject, x)._data
    if cast(CountedObject, data).count != 1:
        return False
    array = cast(ArrayObject, data)
    base = array.base
    if base is None:
        return array.flags & OWNS_ITS_MEMORY != 0
    return type(base) is Memory


@native()
def new_sum(words: Words, x: TensorObject, y: TensorObject) -> TensorObject:
    array = cast(ArrayObject, keep(x._data))
    made = new_array(words, array.dtype, array.ndim, array.shape)
    add_arrays(words, array, cast(ArrayObject, y._data), made)
    return new_tensor(words, made)


@native()
def add_arrays(words: Words, x: ArrayObject, y: ArrayObject, out: ArrayObject):
    size = 1
    for d in range(x.ndim):
        size = size * load_at(I64, x.shape, d)
    words.table[0] = x.data
    words.table[1] = y.data
    words.table[2] = out.data
    if x.dtype is words.float32:
        words.add_float32(address_of(words.table), size)
    else:
        words.add_float64(address_of(words.table), size)


# --- leaves -----------------------------------------------------------------------------------------------------------
@native()
def can_be_added_in_place(words: Words, gradient: Object, cotangent: Object) -> Bool:
    """Whether a leaf's gradient may be written to, and nobody has to be told of its changes."""
    if not can_be_added(words, gradient, cotangent):
        return False
    target = cast(TensorObject, gradient)
    if target._requires_grad is not False or target._node is not None or target._frame is not None:
        return False
    if not are_apart(words, cast(ArrayObject, target._data), cast(ArrayObject, cast(TensorObject, cotangent)._data)):
        return False
    if target._storage is None:
        return target._base is None and is_writeable(target)
    return (
        type(target._storage) is Storage
        and cast(StorageObject, target._storage).changes is None
        and is_writeable(target)
    )


@native()
def are_apart(words: Words, left: ArrayObject, right: ArrayObject) -> Bool:
    """Of arrays that are alike: whether they have no element in common, or all of them. A user may have made one of the
    other's memory the gradient."""
    n_bytes = n_elements(left) * (4 if left.dtype is words.float32 else 8)
    return left.data == right.data or left.data + n_bytes <= right.data or right.data + n_bytes <= left.data


@native(inline=True)
def is_writeable(target: TensorObject) -> Bool:
    return cast(ArrayObject, target._data).flags & WRITEABLE != 0


@native()
def add_in_place(words: Words, target: TensorObject, cotangent: TensorObject):
    if target._storage is None:
        made = new_storage(words)
        # Making it may have run code that has made one.
        require(target._storage is None and target._base is None)
        target._storage = made
    storage = keep(cast(StorageObject, target._storage))
    storage.version = new_long(as_long(storage.version) + 1)
    array = cast(ArrayObject, target._data)
    add_arrays(words, array, cast(ArrayObject, cotangent._data), array)
