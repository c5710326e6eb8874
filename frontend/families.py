"""The modules of functions, in the order they are imported: each lists its `PUBLIC` names, and if it has some the names
of its `METHODS` and of those with an in-place form (`INPLACE`)."""

from . import (
    arranging,
    composed,
    creation,
    functions,
    matrices,
    ordering,
    placing,
    pointwise,
    products,
    reducing,
    reductions,
    scans,
    shaping,
)

FAMILIES = (
    creation,
    functions,
    reducing,
    shaping,
    composed,
    ordering,
    scans,
    products,
    placing,
    arranging,
    pointwise,
    reductions,
    matrices,
)
