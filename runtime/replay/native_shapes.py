"""Shapes of tensors, computed or pending, and slices, as native code reads them; of the subset (docs/native.md)."""

from ...compiler.translate.kinds import I64, Object, ObjectKind, Tuple
from ...compiler.translate.language import address_of, cast, load_at, local_array, native
from ..code.native_kinds import TensorObject, as_long
from ..eager.eager_words import ArrayObject, as_small
from ..programs.recording import ValueMeta

MOST_DIMENSIONS = 64
SliceObject = ObjectKind("Slice", slice, {name: (f"slice_{name}", Object) for name in ("start", "stop", "step")})
MetaObject = ObjectKind("ValueMeta", ValueMeta, {name: (f"meta_{name}", Object) for name in ("shape", "dtype")})


@native()
def in_range(key: Object, size: I64) -> I64:
    """The index that an int means in a dimension of this size; -1 if it means none."""
    overflow = local_array(I64, 1)
    k = as_small(key, address_of(overflow))
    if overflow[0] != 0 or k >= size or k < -size:
        return -1
    if k < 0:
        return k + size
    return k


@native()
def n_dimensions(x: Object) -> I64:
    """-1 if it is not known."""
    data = cast(TensorObject, x)._data
    if data is not None:
        return cast(ArrayObject, data).ndim
    meta = cast(TensorObject, x)._meta
    if type(meta) is not ValueMeta:
        return -1
    return len(cast(Tuple, cast(MetaObject, meta).shape))


@native()
def size_at(x: Object, d: I64) -> I64:
    """-1 of a dimension that the tensor does not have."""
    if d >= n_dimensions(x):
        return -1
    data = cast(TensorObject, x)._data
    if data is not None:
        return load_at(I64, cast(ArrayObject, data).shape, d)
    return as_long(cast(Tuple, cast(MetaObject, cast(TensorObject, x)._meta).shape)[d])
