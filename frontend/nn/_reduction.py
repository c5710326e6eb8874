"""weft.nn._reduction: how losses of other authors read the names of reductions, and PyTorch's older two arguments."""

from ..runtime.state.said import warn

_NUMBERS = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction):
    """The number PyTorch has for a reduction. ValueError for a name that is none."""
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if reduction == "elementwise_mean":
        warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.", stacklevel=2)
    return _NUMBERS[reduction]


def legacy_get_string(size_average, reduce, emit_warning=True):
    """The name of the reduction that PyTorch's older arguments ask for; of one that is None, as if it was True."""
    size_average, reduce = (True if given is None else given for given in (size_average, reduce))
    found = ("mean" if size_average else "sum") if reduce else "none"
    if emit_warning:
        text = f"size_average and reduce args will be deprecated, please use reduction='{found}' instead."
        warn(text, stacklevel=2)
    return found


def legacy_get_enum(size_average, reduce, emit_warning=True):
    """Its number."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
