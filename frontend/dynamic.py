"""Which dimensions of a compiled function's arguments may be known at run time only, from this call on.

Those that the user says: `mark_dynamic(x, 0)`, or `dynamic=True`, which means the first dimension. Else those that have
changed since the call before: a batch of another size, one more word. A program knows one such size; where several are
marked, those that are equal in the call share it. What follows from it: runtime/programs/opening.py.
"""

from .compiler.extent import LEAST
from .runtime.programs.opening import Affine, Opening
from .runtime.state.tensor import Tensor

_DYNAMIC, _STATIC = "_dynamo_dynamic_indices", "_dynamo_static_indices"


# --- marks ------------------------------------------------------------------------------------------------------------
def mark_dynamic(t, index, **limits):
    """Dimensions (a number, or several) of an argument that differ from call to call: compiled functions that meet the
    tensor make one program for all sizes at once, where the graph allows it; `explain` says where not. Limits, hints
    and values to specialize on, which PyTorch takes by keyword, are not needed."""
    _mark("mark_dynamic", t, index, _DYNAMIC)


def maybe_mark_dynamic(t, index):
    """The same: neither fails where the graph needs the size as a number."""
    _mark("maybe_mark_dynamic", t, index, _DYNAMIC)


def mark_static(t, index=None):
    """Dimensions, without `index` all, that are not supposed to change before they do, whatever was marked before."""
    _mark("mark_static", t, range(t.ndim) if index is None else index, _STATIC)


def _mark(name, tensor, index, kind):
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}; mark the arguments of the function")
    dimensions = {_dimension(name, tensor, k) for k in ([index] if isinstance(index, int) else index)}
    other = _STATIC if kind is _DYNAMIC else _DYNAMIC
    setattr(tensor, kind, _marks(tensor, kind) | dimensions)
    setattr(tensor, other, _marks(tensor, other) - dimensions)


def _dimension(name, tensor, k):
    if not -tensor.ndim <= k < tensor.ndim:
        raise IndexError(f"{name}: dimension {k} of a tensor of shape {tuple(tensor.shape)}; it has {tensor.ndim}")
    return k % tensor.ndim


def _marks(tensor, kind):
    return getattr(tensor, kind, frozenset())


# --- what follows from them -------------------------------------------------------------------------------------------
def openings(dynamic, tensors, signature, last):
    """The Openings of a call, the likeliest first. `tensors`: those among its arguments; `last`: the signature that was
    called before, if there is one."""
    distinct = list({id(t): t for t in tensors}.values())
    marked = [(vid, d) for vid, t in enumerate(distinct) for d in sorted(_marks(t, _DYNAMIC))]
    if marked:
        sizes = dict.fromkeys(distinct[vid].shape[d] for vid, d in marked)
        return tuple(
            _opening(n, distinct, [(vid, d) for vid, d in marked if distinct[vid].shape[d] == n]) for n in sizes
        )
    places = [(vid, d) for vid, t in enumerate(distinct) for d in range(t.ndim) if d not in _marks(t, _STATIC)]
    if dynamic:
        return _first_dimension(distinct, places)
    found = None if last is None else _changed(_leaves(last), _leaves(signature), tensors, distinct, set(places))
    return () if found is None else (found,)


def _opening(n, tensors, places):
    return Opening(n, _by_value((vid, d, Affine(1, 0)) for vid, d in places), True)


def _by_value(found):
    dimensions = {}
    for vid, d, affine in found:
        dimensions.setdefault(vid, {})[d] = affine
    return dimensions


def _first_dimension(tensors, places):
    """The first that is larger than 1, and what has its size: in the same place, or anywhere."""
    first = next(((vid, d) for vid, d in places if tensors[vid].shape[d] >= LEAST), None)
    if first is None:
        return ()
    n = tensors[first[0]].shape[first[1]]
    same = [(vid, d) for vid, d in places if tensors[vid].shape[d] == n]
    leading = [(vid, d) for vid, d in same if d == first[1]]
    return tuple(_opening(n, tensors, found) for found in ([leading] if leading == same else [leading, same]))


def _changed(old, new, tensors, distinct, places):
    """What has changed since the call before, if one number explains it; else None."""
    if [len(shape) for shape in old] != [len(shape) for shape in new]:
        return None
    vids = {id(t): vid for vid, t in enumerate(distinct)}
    changes = {
        (vids[id(t)], d): (x, y)
        for t, before, now in zip(tensors, old, new)
        for d, (x, y) in enumerate(zip(before, now))
        if x != y
    }
    if not changes or not changes.keys() <= places:
        return None
    x, n = min(changes.values(), key=lambda pair: abs(pair[1] - pair[0]))
    if n < LEAST or any((b - a) % (n - x) for a, b in changes.values()):
        return None
    found = ((vid, d, (b - a) // (n - x), b) for (vid, d), (a, b) in changes.items())
    return Opening(n, _by_value((vid, d, Affine(factor, b - factor * n)) for vid, d, factor, b in found), False)


def _leaves(signature):
    """The shapes of the tensors in a signature (compiled.py: _flatten)."""
    if not isinstance(signature, tuple):
        return []
    if len(signature) == 3 and hasattr(signature[1], "category"):
        return [signature[0]]
    return [shape for part in signature for shape in _leaves(part)]
