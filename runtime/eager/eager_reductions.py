"""Native steps of reductions."""

from math import prod

from ...compiler.dtypes import bool_, complex64, complex128, float32, float64, int32, int64
from ..code import kernels
from ..programs.evaluate import runs
from .eager_words import REDUCTION, NoSteps, Place

_TYPES = (float32, float64, bool_, int64, int32, complex64, complex128)


def steps_of_reduction(builder, op, attributes, dtype, x, out):
    """The builder has the steps of a reduction, computed in a type, from now on."""
    if dtype not in _TYPES:
        raise NoSteps(f"{op.name} of {dtype.name}")
    lies = x.dtype.is_half and x.dtype.wide is dtype or x.dtype is bool_ and dtype is int64
    x = x if lies else builder.converted(x, dtype)
    parts = list(reversed(runs(attributes["axes"])))
    if not parts:
        builder.write(builder.converted(x, dtype), out)
    x = x if x.is_whole else builder.copied(x)
    shape = x.shape
    for k, (first, count) in enumerate(parts):
        outer, n, inner = prod(shape[:first]), prod(shape[first : first + count]), prod(shape[first + count :])
        shape = (*shape[:first], *shape[first + count :])
        target = out if k == len(parts) - 1 else builder.new_value(shape, dtype)
        lying = None if x.dtype is dtype else x.dtype
        address, sizes = kernels.reduction_address(op, dtype, outer, n, inner, lying)
        places = [Place(slot=v.slot, offset=v.offset) for v in (x, target)]
        numbers = [*sizes, *[0] * (9 - len(sizes))]
        builder.append_step(kind=REDUCTION, reduction=address, places=places, numbers=numbers)
        x = target
