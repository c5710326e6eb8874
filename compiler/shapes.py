"""Shape arithmetic that the op rules share: broadcasting, axes, strides. Errors name the op and the shapes."""

from math import prod
from operator import index

from .extent import whole
from .ops.table import OpError

_INT = {int}


def shape_given(sizes):
    """The shape that a user gives as sizes, or as one sequence of them. TypeError for what is no whole number."""
    if len(sizes) == 1 and isinstance(sizes[0], tuple):
        sizes = sizes[0]
    if {*map(type, sizes)} == _INT:  # nearly always
        return tuple(sizes)
    if len(sizes) == 1 and isinstance(sizes[0], (bool, dict)):
        raise TypeError(f"argument 'size' must be ints, or one tuple of ints, got {sizes[0]!r}")
    if len(sizes) == 1 and not hasattr(sizes[0], "__index__") and hasattr(sizes[0], "__iter__"):
        sizes = sizes[0] if isinstance(sizes[0], str) else tuple(sizes[0])  # which may be an iterator
    elif len(sizes) == 1 and getattr(sizes[0], "ndim", 0):
        sizes = sizes[0].tolist()
    if isinstance(sizes, str) or not all(hasattr(size, "__index__") for size in sizes):
        raise TypeError(f"argument 'size' must be ints, or one tuple of ints, got {sizes!r}")
    return tuple(map(index, sizes))


def broadcast_shapes(name, shapes):
    """NumPy broadcasting of several shapes; OpError names the first dimension that does not fit."""
    # Of one element: a number beside a tensor, mostly.
    sized = [s for s in shapes if len(s)] or shapes
    first = sized[0]
    # Python looks at the numbers in tuples before their lengths: of an extent known at run time that is a question.
    if all(len(s) == len(first) and s == first for s in sized):
        return first
    ndim = max(len(s) for s in shapes)
    result = []
    for back in range(ndim, 0, -1):
        sizes = [s[-back] for s in shapes if len(s) >= back]
        size = max(sizes) if 0 not in sizes else 0
        if any(d not in (1, size) for d in sizes):
            which = "last dimension" if back == 1 else f"dimension {ndim - back}"
            given = " and ".join(str(tuple(s)) for s in shapes)
            against = " against ".join(str(d) for d in sizes)
            raise OpError(
                f"{name}: shapes {given} do not broadcast: {which} {against}; sizes must be equal, or one of them 1"
            )
        result.append(size)
    return tuple(result)


def normalize_axis(name, axis, ndim):
    """A dimension counted from 0; negative ones count from the end. IndexError outside, as in PyTorch."""
    if axis.__class__ is int and -ndim <= axis < ndim:
        return axis if axis >= 0 else axis + ndim
    axis, span = whole_number(name, "dim", axis), max(ndim, 1)
    if not -span <= axis < span:
        raise IndexError(
            f"{name}: Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got {axis})"
        )
    return axis + span if axis < 0 else axis


def whole_number(function, argument, given):
    """A whole number that a user gives. TypeError for what is none, and for bools."""
    if given.__class__ is bool or not hasattr(given, "__index__"):
        raise TypeError(f"{function}(): argument '{argument}' must be int, not {type(given).__name__}")
    return index(given)


def is_whole(given):
    """Whether it is one whole number: an int, one of NumPy's, a tensor without dimensions. Lists of them are not."""
    return given.__class__ is int or hasattr(given, "__index__") and not getattr(given, "ndim", 0)


def normalize_axes(name, axes, ndim):
    """A sorted tuple of axes; None or () means all of them."""
    if axes is None:
        return tuple(range(ndim))
    if axes.__class__ is int:
        if -ndim <= axes < ndim:
            return (axes if axes >= 0 else axes + ndim,)
        return (normalize_axis(name, axes, ndim),) if ndim else normalize_axes(name, (axes,), 0)
    if isinstance(axes, (dict, str)) or not hasattr(axes, "__len__") or getattr(axes, "ndim", None) == 0:
        axes = (axes,)
    if len(axes) == 0:
        return tuple(range(ndim))
    result = [normalize_axis(name, a, ndim) for a in axes]
    if len(set(result)) != len(result):
        raise OpError(f"{name}: dim {tuple(axes)} names a dimension twice")
    return tuple(sorted(a for a in result if a < ndim))


def reduced_shape(shape, axes, keepdim):
    if keepdim:
        return tuple(1 if k in axes else d for k, d in enumerate(shape))
    return tuple(d for k, d in enumerate(shape) if k not in axes)


def infer_reshape(name, shape, target):
    """The target with its one -1 filled in; OpError if the element counts differ."""
    count = prod(shape)
    target = tuple(map(whole, target))
    if prod(target) == count and all(d >= 0 for d in target):
        return target
    if target.count(-1) == 1:
        k, rest = target.index(-1), -prod(target)
        if rest > 0 and count % rest == 0 and sorted(target)[:2] >= [-1, 0]:
            return (*target[:k], count // rest, *target[k + 1 :])
    unknown = [k for k, d in enumerate(target) if d == -1]
    if len(unknown) > 1:
        raise OpError(f"{name}: only one dimension can be inferred, got {target}")
    if unknown:
        rest = prod(d for d in target if d != -1)
        if rest == 0 or count % rest:
            raise OpError(f"{name}: shape {target} is invalid for input of size {count} (shape {tuple(shape)})")
        target = tuple(count // rest if d == -1 else d for d in target)
    if prod(target) != count or any(d < 0 for d in target):
        raise OpError(f"{name}: shape {target} is invalid for input of size {count} (shape {tuple(shape)})")
    return target


def contiguous_strides(shape):
    """Row-major strides in elements."""
    strides, step = [], 1
    for d in reversed(shape):
        strides.append(step)
        step *= d
    return tuple(reversed(strides))


def merged_loops(loops):
    """Loops (extent, strides of arrays), the outer one first, as fewer, where one goes on as the other would."""
    merged = []
    for n, strides in loops:
        if merged and all(outer == n * inner for outer, inner in zip(merged[-1][1], strides)):
            merged[-1] = (merged[-1][0] * n, strides)
        else:
            merged.append((n, strides))
    return merged


def joint_runs(shape, first, second):
    """((size, stride, stride), ...) with runs of both stride lists merged; at least one entry."""
    merged = []
    for d, s, t in zip(shape, first, second):
        if d == 1:
            continue
        if merged and merged[-1][1] == d * s and merged[-1][2] == d * t:
            merged[-1] = (merged[-1][0] * d, s, t)
        else:
            merged.append((d, s, t))
    return merged or [(1, 1, 1)]
