"""Small tensors of zeros, made in native code; of the subset (docs/native.md)."""

from ...compiler.translate.kinds import I64, List, Object, Tuple
from ...compiler.translate.language import METHOD, address_of, cast, load_at, local_array, native, require
from ..state.modes import inferring, watching
from .eager_arrays import new_array
from .eager_matching import is_tuple, n_elements
from .eager_nodes import new_tensor
from .eager_words import Words, as_small, set_memory, thread_number, thread_state

MOST_DIMENSIONS, MOST_ELEMENTS = 16, 1 << 12


def not_made(*_):
    """Everything else is Python's business."""
    return None


@native(form=METHOD, slow="slow_zeros", name="weft_eager_zeros")
def zeros(words: Words, shape: Object, dtype: Object) -> Object:
    """A tensor of a shape and one of NumPy's types; or None."""
    require(load_at(I64, words.replaying, 0) == 0 and thread_number(thread_state()) == words.thread)
    require(words.modes.get("frame", None) is None)
    require(len(cast(List, inferring)) == 0 and len(cast(List, watching)) == 0)
    require(is_tuple(shape) and len(cast(Tuple, shape)) <= MOST_DIMENSIONS)
    n_bytes = bytes_of(words, dtype)
    require(n_bytes != 0)
    sizes = local_array(I64, MOST_DIMENSIONS)
    overflow = local_array(I64, 1)
    n = 1
    for d in range(len(cast(Tuple, shape))):
        size = cast(Tuple, shape)[d]
        require(type(size) is int)
        sizes[d] = as_small(size, address_of(overflow))
        require(overflow[0] == 0 and sizes[d] >= 0 and sizes[d] <= MOST_ELEMENTS)
        n = n * sizes[d]
        require(n <= MOST_ELEMENTS)
    array = new_array(words, dtype, len(cast(Tuple, shape)), address_of(sizes))
    set_memory(array.data, 0, n_elements(array) * n_bytes)
    return new_tensor(words, array)


@native()
def bytes_of(words: Words, dtype: Object) -> I64:
    """Of an element; 0 of what is no type of tensors."""
    found = 0
    for k in range(len(words.types)):
        if words.types[k] is dtype:
            found = words.item_bytes[k]
    return found
