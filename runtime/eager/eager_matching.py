"""Whether operands and attributes are those of a Routine (eager_call.py), of the subset (docs/native.md)."""

from ...compiler.dtypes import DType
from ...compiler.translate.kinds import I64, Address, Bool, Dict, Maybe, Object, Tuple
from ...compiler.translate.language import address_of, cast, load_at, local_array, native
from ..code.native_kinds import TensorObject, as_double, compare
from ..state.size import Size
from ..state.tensor import Tensor
from .eager_words import (
    HASH_MASK,
    MIXED,
    MOST_TOLD_APART,
    ArrayObject,
    Operand,
    Routine,
    hash_of_plain,
    is_subtype,
    next_item,
)


@native(inline=True)
def is_tensor(x: Object) -> Bool:
    return type(x) is Tensor or is_subtype(type(x), Tensor) != 0


@native()
def n_elements(array: ArrayObject) -> I64:
    n = 1
    for d in range(array.ndim):
        n = n * load_at(I64, array.shape, d)
    return n


@native()
def hash_of(op: Object, operands: Tuple, attributes: Maybe(Dict)) -> I64:
    """The same as `hash_of_plan` of eager_hash.py."""
    h = id(op) >> 4
    for x in operands:
        if is_tensor(x):
            data = cast(TensorObject, x)._data
            if data is not None:
                h = hash_with(h, cast(ArrayObject, data))
        else:
            h = (h * 31 + (id(type(x)) >> 4)) & HASH_MASK
    if attributes is not None:
        h = hash_with_attributes(h, attributes)
    return h ^ (h >> 11) ^ (h >> 23)


@native()
def hash_with_attributes(h: I64, attributes: Dict) -> I64:
    at = local_array(I64, 1)
    key = local_array(Address, 1)
    value = local_array(Address, 1)
    found = h
    while next_item(attributes, address_of(at), address_of(key), address_of(value)) != 0:
        found = hash_with_value(found, cast(Object, value[0]))
    return found


@native()
def hash_with_value(h: I64, x: Object) -> I64:
    """Numbers, words, types, and tuples of such are what tells calls of one op apart."""
    if type(x) is int or type(x) is float or type(x) is str:
        return (h * 31 + (hash_of_plain(x) & HASH_MASK)) & HASH_MASK
    if type(x) is DType:
        return (h * 31 + (id(x) >> 4)) & HASH_MASK
    found = h
    if is_tuple(x):
        for item in cast(Tuple, x):
            found = hash_with_value(found, item)
    return found


@native(inline=True)
def hash_with(h: I64, array: ArrayObject) -> I64:
    found = (h * 31 + (id(array.dtype) >> 4)) & HASH_MASK
    sizes = array.shape
    for d in range(array.ndim):
        found = (found * 31 + load_at(I64, sizes, d)) & HASH_MASK
    if not is_contiguous(array):
        steps = array.strides
        for d in range(array.ndim):
            found = (found * 31 + load_at(I64, steps, d)) & HASH_MASK
    return found


@native()
def matches(routine: Routine, op: Object, default_dtype: Object, operands: Tuple, attributes: Maybe(Dict)) -> Bool:
    if routine.op is not op or routine.default_dtype is not default_dtype or len(routine.operands) != len(operands):
        return False
    for i in range(len(operands)):
        if not fits(operands[i], routine.operands[i]):
            return False
    return has_attributes(routine, attributes)


@native()
def fits(x: Object, wanted: Operand) -> Bool:
    if wanted.is_number:
        return type(x) is wanted.kind
    if not is_tensor(x):
        return False
    data = cast(TensorObject, x)._data
    return data is not None and is_array(cast(ArrayObject, data), wanted) and lies_as(cast(ArrayObject, data), wanted)


@native()
def is_array(array: ArrayObject, wanted: Operand) -> Bool:
    """Whether type and shape are those that are wanted."""
    if array.dtype is not wanted.kind or array.ndim != len(wanted.shape):
        return False
    return has_shape(array.shape, wanted)


@native()
def lies_as(array: ArrayObject, wanted: Operand) -> Bool:
    """Whether the elements of an array of the wanted shape are in the wanted order."""
    same = wanted.is_row_major == is_contiguous(array)
    for d in range(len(wanted.strides)):
        same = same and load_at(I64, array.strides, d) == wanted.strides[d]
    return same


@native(inline=True)
def is_contiguous(array: ArrayObject) -> Bool:
    return array.flags & 1 != 0


@native(inline=True)
def has_shape(sizes: Address, wanted: Operand) -> Bool:
    same = True
    for d in range(len(wanted.shape)):
        same = same and load_at(I64, sizes, d) == wanted.shape[d]
    return same


@native()
def has_attributes(routine: Routine, attributes: Maybe(Dict)) -> Bool:
    if attributes is None:
        return len(routine.attributes) == 0
    if len(attributes) != len(routine.attributes):
        return False
    for wanted in routine.attributes:
        found = attributes.get(wanted.name)
        if found is None:
            return False
        if not are_alike(found, wanted.value):
            return False
    return True


@native()
def are_alike(x: Object, y: Object) -> Bool:
    """Equal and of one kind: 2 is not 2.0, and 0.0 not -0.0."""
    if x is y:
        return True
    # A shape written by hand and one asked of a tensor have one plan.
    if is_tuple(x) and is_tuple(y):
        return are_alike_in_order(cast(Tuple, x), cast(Tuple, y))
    if type(x) is not type(y):
        return False
    if type(x) is float:
        return as_double(x) == as_double(y) and as_double(x) != 0.0
    return (type(x) is int or type(x) is str) and compare(x, y, 2) == 1


@native(inline=True)
def is_tuple(x: Object) -> Bool:
    return type(x) is tuple or type(x) is Size


@native()
def are_alike_in_order(x: Tuple, y: Tuple) -> Bool:
    if len(x) != len(y):
        return False
    same = True
    for i in range(len(x)):
        same = same and are_alike(x[i], y[i])
    return same


@native(inline=True)
def row_of(required: I64, n: I64) -> I64:
    """Where among the nodes of a routine the row is for those of its n operands that require gradients."""
    found = required
    if n > MOST_TOLD_APART and required != 0:
        found = 1 if required == (1 << n) - 1 else MIXED
    return found


@native()
def which_require(operands: Tuple) -> I64:
    """Bit k says whether operand k requires gradients."""
    found = 0
    bit = 1
    for x in operands:
        if is_tensor(x) and cast(TensorObject, x)._requires_grad is not False:
            found = found | bit
        bit += bit
    return found
