"""Extents of C functions that their callers tell: what is asked for, and the shapes that follow."""

import re
from dataclasses import replace
from typing import NamedTuple

from . import c_names
from .compiler.extent import LEAST
from .runtime.state.tensor import Tensor

_MOST = 4  # every further one doubles how often the function is called, and how many programs there are


# --- what the caller asks for -----------------------------------------------------------------------------------------
def open_axes(dynamic_shapes, args):
    """(name of each extent -> its number in the examples, for each argument the (axis, extent) that are open). `args`:
    name -> example."""
    if dynamic_shapes is None:
        return {}, [()] * len(args)
    named = _by_name(dynamic_shapes, args)
    axes = [_axes_of(name, named.get(name), x) for name, x in args.items()]
    found = {}
    for x, own in zip(args.values(), axes):
        for axis, extent in own:
            found.setdefault(extent, []).append(x.shape[axis])
    if len(found) > _MOST:
        raise ValueError(f"export: dynamic_shapes names {sorted(found)}; at most {_MOST} extents are known at run time")
    for extent, numbers in found.items():
        _check_extent(extent, set(numbers), args)
    return {extent: numbers[0] for extent, numbers in found.items()}, axes


def _check_extent(extent, numbers, args):
    if not c_names.is_name(extent) or not extent.isascii() or extent in {*args, "scratch", "state", "rank", "size"}:
        raise ValueError(f"export: {extent!r} must be a name in C that no argument has")
    if len(numbers) != 1 or min(numbers) < LEAST:
        raise ValueError(
            f"export: the examples have {sorted(numbers)} as {extent!r}; it must be one number in all of them, and "
            f"{LEAST} or more"
        )


def _by_name(dynamic_shapes, args):
    if not isinstance(dynamic_shapes, (dict, list, tuple)):
        raise ValueError(
            f'export: dynamic_shapes={dynamic_shapes!r}: it must be a dict such as {{"x": {{0: "n"}}}}, or a tuple of '
            "one for each argument"
        )
    if not isinstance(dynamic_shapes, dict):
        dynamic_shapes = dict(zip(args, dynamic_shapes))
    unknown = sorted(map(str, dynamic_shapes.keys() - args.keys()))
    if unknown:
        raise ValueError(f"export: dynamic_shapes names {unknown}; the arguments are {list(args)}")
    return dynamic_shapes


def _axes_of(name, wanted, x):
    """(axis, name of the extent) of the open axes of an argument."""
    if not isinstance(wanted, (dict, list, tuple, type(None))):
        raise ValueError(
            f"export: dynamic_shapes[{name!r}] is {wanted!r}; it must be a dict of axes and names of their extents, "
            'such as {0: "n"}'
        )
    items = wanted.items() if isinstance(wanted, dict) else enumerate(wanted or ())
    found = [(axis, extent) for axis, extent in items if extent is not None]
    for axis, extent in found:
        n_axes = x.ndim if isinstance(x, Tensor) else 0
        if not isinstance(axis, int) or not isinstance(extent, str) or not -n_axes <= axis < n_axes:
            raise ValueError(
                f"export: dynamic_shapes[{name!r}] has {axis!r}: {extent!r}; it must be an axis of a tensor of "
                f'{n_axes} dimensions and the name of its extent, such as {{0: "n"}}'
            )
    return tuple([(axis % x.ndim, extent) for axis, extent in found])


# --- what follows -----------------------------------------------------------------------------------------------------
class OpenArray(NamedTuple):
    """What an array of open shape is to those who describe it. Extents are texts, such as "2*n+1"."""

    shape: tuple
    dtype: object
    size: object = None


def with_shapes(parameters, axes, shape_of):
    """Parameters as they are for all extents. `axes`: of the arguments; `shape_of(label)`: of results."""
    return [_with_shape(p, dict(axes[k]) if k < len(axes) else {}, shape_of) for k, p in enumerate(parameters)]


def _with_shape(parameter, axes, shape_of):
    if parameter.role == "state":
        return parameter
    if parameter.role == "result":
        shape = [_readable(d) for d in shape_of(parameter.name)]
    else:
        shape = [axes.get(k, d) for k, d in enumerate(parameter.array.shape)]
    return replace(parameter, array=OpenArray(tuple(shape), parameter.array.dtype))


def _readable(length):
    """A length as it is written in C, and in Python."""
    return re.sub(r"\b1\*", "", length).replace("+-", "-") if isinstance(length, str) else length
