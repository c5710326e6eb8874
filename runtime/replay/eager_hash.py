"""Where a plan stands in the table of native code: the hash of what an op is asked for."""

from ...compiler.dtypes import DType
from ..eager.eager_words import HASH_MASK
from ..state.size import Size


def hash_of_plan(plan, layouts):
    """The same as `hash_of` of eager_call.py."""
    h = id(plan.op) >> 4
    for m, kind, strides in zip(plan.metas, plan.kinds, layouts):
        words = (id(kind) >> 4,) if m.weak else (id(m.dtype.numpy) >> 4, *m.shape, *(strides or ()))
        for word in words:
            h = (h * 31 + word) & HASH_MASK
    for value in plan.attributes.values():
        h = hash_with_value(h, value)
    return h ^ (h >> 11) ^ (h >> 23)


def hash_with_value(h, x):
    if type(x) in (int, float, str):
        return (h * 31 + (hash(x) & HASH_MASK)) & HASH_MASK
    if type(x) is DType:
        return (h * 31 + (id(x) >> 4)) & HASH_MASK
    if type(x) is tuple or type(x) is Size:
        for item in x:
            h = hash_with_value(h, item)
    return h


def open_hash(op, metas, kinds, layouts, attributes):
    """The same as `open_hash_of` of eager_open.py."""
    h = id(op) >> 4
    for m, kind, strides in zip(metas, kinds, layouts):
        words = (id(kind) >> 4,) if m.weak else (id(m.dtype.numpy) >> 4, 2 * len(m.shape) + (strides is None))
        for word in words:
            h = (h * 31 + word) & HASH_MASK
    if attributes:
        h = (h * 31 + len(attributes)) & HASH_MASK
    return h ^ (h >> 11) ^ (h >> 23)
