"""The modules of functions, in the order their names are given: each lists its `PUBLIC` names, and if it has some the
names of its `METHODS` and of those with an in-place form (`INPLACE`)."""

from . import (
    added_products,
    amp,
    arranging,
    complex_numbers,
    composed,
    copies,
    creation,
    draws,
    functions,
    interchange,
    matrices,
    ordering,
    placement,
    placing,
    pointwise,
    products,
    reducing,
    reductions,
    scans,
    settings,
    shaping,
    short_time,
    spectral_windows,
    tensor_methods,
    tensor_types,
)

FAMILIES = (
    *(creation, functions, reducing, shaping, composed),
    *(ordering, scans, products, added_products, placing, arranging, pointwise, reductions, matrices, complex_numbers),
    *(draws, copies, short_time, spectral_windows, placement, settings, tensor_methods, tensor_types, interchange, amp),
)
