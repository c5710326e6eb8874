"""The parts that a tensor is cut into along a dimension, which are views, all made in one call of native code; of the
subset (docs/native.md)."""

from ...compiler.translate.kinds import I64, List, Object
from ...compiler.translate.language import (
    METHOD,
    address_of,
    cast,
    keep,
    load_at,
    local_array,
    native,
    quotient,
    require,
)
from ..code.native_kinds import TensorObject, as_long
from ..state.modes import inferring
from .eager_inplace import require_undisturbed
from .eager_matching import is_tensor
from .eager_views import new_view_at
from .eager_words import WRITEABLE, ArrayObject, Words, new_tuple, set_tuple_item

MOST_DIMENSIONS, MOST_PARTS = 16, 1 << 20


def not_cut(*_):
    """Everything else is Python's business."""
    return None


@native(form=METHOD, slow="slow_cut", name="weft_eager_cut")
def cut(words: Words, x: Object, axis: Object, length: Object) -> Object:
    """A tuple of the parts of this length, the last of which may be shorter; or, where it is 0, of one element each,
    without the dimension. None where autograd has to know of them."""
    require_undisturbed(words)
    require(len(cast(List, inferring)) == 0)
    require(is_tensor(x) and type(axis) is int and type(length) is int)
    shown = cast(TensorObject, x)
    require(shown._data is not None and shown._requires_grad is False)
    array = keep(cast(ArrayObject, shown._data))
    ndim = array.ndim
    at = as_long(axis)
    require(at >= 0 and at < ndim and ndim <= MOST_DIMENSIONS)
    drops = as_long(length) == 0
    step = 1 if drops else as_long(length)
    size = load_at(I64, array.shape, at)
    require(step > 0 and size > 0 and size <= MOST_PARTS)
    sizes = local_array(I64, MOST_DIMENSIONS)
    strides = local_array(I64, MOST_DIMENSIONS)
    left = 0
    for d in range(ndim):
        if d != at or not drops:
            sizes[left] = load_at(I64, array.shape, d)
            strides[left] = load_at(I64, array.strides, d)
            left += 1
    stride = load_at(I64, array.strides, at)
    n = quotient(size + step - 1, step)
    made = new_tuple(n)
    for k in range(n):
        if not drops:
            sizes[at] = min(step, size - k * step)
        # Making a tensor may run code that gives it other memory.
        require(shown._data is not None and cast(ArrayObject, shown._data) is array)
        data = array.data + k * step * stride
        flags = array.flags & WRITEABLE
        out = new_view_at(words, shown, array.dtype, left, address_of(sizes), address_of(strides), data, flags)
        set_tuple_item(made, k, out)
    words.calls_taken += n
    return made
