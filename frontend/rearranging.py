"""weft.func.rearrange: dimensions by name, as einops writes them.

>>> import weft
>>> weft.func.rearrange(weft.zeros(2, 3, 4), "b h w -> b (h w)").shape
(2, 12)
"""

import re

from .runtime.state.tensor import Tensor
from .shaping import permute, reshape, stack

_WORD = re.compile(r"\.\.\.|[A-Za-z_]\w*|\d+|[()]")


def rearrange(tensor, pattern, **axes_lengths):
    """The tensor with its dimensions transposed, joined and split as "before -> after" says; (a b) is one dimension of
    two names, 1 is a dimension of size 1, and ... all that are not named. A list of tensors is a first dimension."""
    tensor = tensor if isinstance(tensor, Tensor) else stack(list(tensor), 0)
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError(f"rearrange: a pattern is 'before -> after', got {pattern!r}")
    before, after = (_groups(side, pattern) for side in sides)
    sizes, before = _named_sizes(tensor.shape, before, axes_lengths, pattern)
    after = [_spread(group, sizes["..."]) for group in _expanded(after, sizes["..."])]
    of_before, of_after = ([name for group in side for name in group if name != "1"] for side in (before, after))
    if sorted(of_before) != sorted(of_after) or len({*of_after}) < len(of_after):
        raise ValueError(f"rearrange: both sides of {pattern!r} must name the same dimensions, each once")
    split = reshape(tensor, tuple(sizes[name] for name in of_before))
    moved = permute(split, tuple(of_before.index(name) for name in of_after)) if of_after else split
    shape = tuple(_product(sizes[name] for name in group if name != "1") for group in after)
    return reshape(moved, shape)


def _groups(side, pattern):
    """One list of names for every dimension."""
    groups, inner = [], None
    if _WORD.sub("", side).strip():
        raise ValueError(f"rearrange: {_WORD.sub('', side).strip()!r} means nothing in {pattern!r}")
    for word in _WORD.findall(side):
        if word == "(" and inner is None:
            inner = []
        elif word == ")" and inner is not None:
            groups.append(inner)
            inner = None
        elif word in "()":
            raise ValueError(f"rearrange: parentheses of {pattern!r} do not fit")
        elif word.isdigit() and word != "1":
            raise ValueError(f"rearrange: the only number that is a dimension is 1, got {word} in {pattern!r}")
        else:
            # ... that stands alone is as many dimensions as it has to be, in parentheses it is one.
            (groups.append(word if word == "..." else [word]) if inner is None else inner.append(word))
    if inner is not None:
        raise ValueError(f"rearrange: parentheses of {pattern!r} do not fit")
    return groups


def _named_sizes(shape, groups, given, pattern):
    """({name: size}, the groups with ... as names of their own)."""
    names = [name for group in groups for name in group]
    more = len(shape) - len(groups) + 1 if "..." in groups else 0
    if "..." not in groups and len(shape) != len(groups) or more < 0 or "..." in names and "..." not in groups:
        raise ValueError(f"rearrange: {pattern!r} does not fit a tensor of shape {tuple(shape)}")
    sizes, dots = {}, [f"...{k}" for k in range(more)]
    groups = _expanded(groups, dots)
    for size, group in zip(shape, groups):
        _measure(size, group, given, sizes, pattern)
    if unknown := given.keys() - {*names}:
        raise ValueError(f"rearrange: {min(unknown)} is not in {pattern!r}")
    sizes["..."] = dots
    return sizes, groups


def _expanded(groups, dots):
    return [group for g in groups for group in ([[name] for name in dots] if g == "..." else [g])]


def _measure(size, group, given, sizes, pattern):
    """The sizes of the names in one dimension: one of them may be left open."""
    open_names = [name for name in group if name != "1" and name not in given]
    known = _product(given[name] for name in group if name in given)
    sizes.update({name: given[name] for name in group if name in given})
    if len(open_names) == 1 and known and size % known == 0:
        sizes[open_names[0]] = size // known
    elif open_names or known != size:
        raise ValueError(f"rearrange: a dimension of size {size} is not ({' '.join(group)}) of {pattern!r}")


def _spread(group, dots):
    return [name for word in group for name in (dots if word == "..." else [word])]


def _product(numbers):
    total = 1
    for number in numbers:
        total *= number
    return total
