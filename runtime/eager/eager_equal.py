"""Whether two tensors in memory have one shape and equal elements, in native code; of the subset (docs/native.md)."""

from ...compiler.translate.kinds import F64, I32, I64, Address, Bool, Object
from ...compiler.translate.language import METHOD, External, cast, load_at, native, require
from ..code.native_kinds import ArrayObject as ArrayAtAddress
from ..code.native_kinds import TensorObject
from .eager_matching import is_contiguous, is_tensor, n_elements
from .eager_words import ArrayObject, Words, thread_number, thread_state

MOST_ELEMENTS = 1 << 12  # NumPy takes several at a time
_WITHOUT_SIGN, _INFINITY = 0x7FFFFFFF, 0x7F800000
compare_memory = External("memcmp", (I64, I64, I64), I32, quiet=True)


def not_compared(*_):
    """Everything else is Python's business."""
    return None


@native(form=METHOD, slow="slow_equal", name="weft_eager_equal")
def equal(words: Words, left: Object, right: Object) -> Object:
    """True or False; None where Python has to look."""
    require(load_at(I64, words.replaying, 0) == 0 and thread_number(thread_state()) == words.thread)
    require(words.modes.get("frame", None) is None)
    require(is_tensor(left) and is_tensor(right))
    require(cast(TensorObject, left)._data is not None and cast(TensorObject, right)._data is not None)
    x = cast(ArrayObject, cast(TensorObject, left)._data)
    y = cast(ArrayObject, cast(TensorObject, right)._data)
    if not have_one_shape(x, y):
        return False
    require(x.dtype is y.dtype and is_contiguous(x) and is_contiguous(y) and n_elements(x) <= MOST_ELEMENTS)
    n_bytes = bytes_of_whole(words, x.dtype)
    require(n_bytes != 0 or x.dtype is words.float32 or x.dtype is words.float64)
    answer = words.false
    if are_equal(words, x, y, n_bytes):
        answer = words.true
    return answer


@native()
def are_equal(words: Words, x: ArrayObject, y: ArrayObject, n_bytes: I64) -> Bool:
    if n_bytes != 0:
        return compare_memory(x.data, y.data, n_elements(x) * n_bytes) == 0
    at = cast(ArrayAtAddress, x).data
    other = cast(ArrayAtAddress, y).data
    if x.dtype is words.float32:
        return are_equal_float32(at, other, n_elements(x))
    return are_equal_float64(at, other, n_elements(x))


@native()
def have_one_shape(x: ArrayObject, y: ArrayObject) -> Bool:
    d = 0
    while d < x.ndim and d < y.ndim and load_at(I64, x.shape, d) == load_at(I64, y.shape, d):
        d += 1
    return d == x.ndim and d == y.ndim


@native()
def bytes_of_whole(words: Words, dtype: Object) -> I64:
    """How many an element has, if elements are equal where their bits are; else 0."""
    found = 0
    for k in range(len(words.types)):
        if words.types[k] is dtype and words.is_whole[k] != 0:
            found = words.item_bytes[k]
    return found


@native()
def are_equal_float32(x: Address, y: Address, n: I64) -> Bool:
    """By their bits: those of NaN are beyond those of infinity, and zeros have no bits but the sign."""
    same = True
    for k in range(n):
        p = load_at(I32, x, k)
        q = load_at(I32, y, k)
        same = same and (p == q and (p & _WITHOUT_SIGN) <= _INFINITY or (p | q) & _WITHOUT_SIGN == 0)
    return same


@native()
def are_equal_float64(x: Address, y: Address, n: I64) -> Bool:
    same = True
    for k in range(n):
        same = same and load_at(F64, x, k) == load_at(F64, y, k)
    return same
