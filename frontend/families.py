"""The modules of functions that come with weft, in the order their names are given: each lists its `PUBLIC` names, and
if it has some the names of its `METHODS` and of those with an in-place form (`INPLACE`). Others are imported when they
are asked for (later_families.py)."""

from . import (
    arranging,
    complex_numbers,
    composed,
    creation,
    equality,
    functions,
    interchange,
    placement,
    pointwise,
    reducing,
    shaping,
    tensor_methods,
    tensor_types,
)

FAMILIES = (
    *(creation, functions, equality, reducing, shaping, composed, arranging, pointwise, complex_numbers),
    *(placement, tensor_methods, tensor_types, interchange),
)
