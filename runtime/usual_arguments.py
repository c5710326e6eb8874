"""The arguments of a usual call: tensors and other objects, whatever containers they are in.

f({"x": a, "y": (b, a)}, scale=c)     leaves a, b, c     structure {"x": leaf, "y": (leaf, the first again)}, ...
"""

from .tensor import Tensor

_LEAF = "leaf"


def structure_of(x, leaves):
    """What nested arguments look like without their leaves, which are collected in order. A tensor that comes again is
    no new leaf."""
    return _structure(x, leaves, {})


def _structure(x, leaves, seen):
    if isinstance(x, Tensor):
        place = seen.get(id(x))
        if place is not None:
            return place
        seen[id(x)] = len(leaves)
    elif isinstance(x, (list, tuple)):
        return type(x), [_structure(v, leaves, seen) for v in x]
    elif isinstance(x, dict):
        return type(x), list(x), [_structure(v, leaves, seen) for v in x.values()]
    leaves.append(x)
    return _LEAF


def arguments_of(args, kwargs):
    """(structure, leaves) of a call; the structure of one without keywords, containers and repetitions is None."""
    leaves = []
    structure = structure_of((args, kwargs), leaves)
    simple = not kwargs and len(leaves) == len(args) and all(x is y for x, y in zip(args, leaves))
    return (None if simple else structure), leaves
