"""Which dimensions of a compiled function's arguments may be known at run time only, from this call on.

Those that the user says: `mark_dynamic(x, 0)`, or `dynamic=True`, which means the first dimension. Else those that have
changed in the last calls: a batch of another size, one more word. A program knows a few such sizes; those that are
equal in the call, or have always followed from another one, are one. What follows from it: runtime/programs/opening.py.
"""

from .compiler.extent import LEAST
from .compiler.polynomial import affine_text, polynomial_text
from .runtime.programs.opening import Formula, Opening
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
_NAMES = "n", "m", "k"
# A size that is another one and at most so much is taken to follow from it; so is any that is a multiple.
_NEAR = 2


def openings(dynamic, tensors, signature, earlier):
    """The Openings of a call, the likeliest first. `tensors`: those among its arguments; `earlier`: the signatures that
    were called before, the last few, the latest last."""
    distinct = list({id(t): t for t in tensors}.values())
    marked = [(vid, d) for vid, t in enumerate(distinct) for d in sorted(_marks(t, _DYNAMIC))]
    if marked:
        return _of_marks(distinct, marked)
    places = [(vid, d) for vid, t in enumerate(distinct) for d in range(t.ndim) if d not in _marks(t, _STATIC)]
    if dynamic:
        return _first_dimension(distinct, places)
    now, vids = _leaves(signature), {id(t): vid for vid, t in enumerate(distinct)}
    ranks = list(map(len, now))
    before = [leaves for leaves in map(_leaves, earlier) if list(map(len, leaves)) == ranks]
    sizes = {  # of each dimension, in the calls before and in this one
        (vids[id(t)], d): [leaves[k][d] for leaves in (*before, now)]
        for k, t in enumerate(tensors)
        for d in range(t.ndim)
    }
    found = [_changed(sizes, places, n_calls) for n_calls in dict.fromkeys((len(before) + 1, 2)) if before]
    return tuple(x for x in found if x is not None)


def _of_marks(tensors, marked):
    """All together; then each size by itself."""
    sizes = list(dict.fromkeys(tensors[vid].shape[d] for vid, d in marked))
    at = {n: [(vid, d) for vid, d in marked if tensors[vid].shape[d] == n] for n in sizes}
    large = [n for n in sizes if n >= LEAST][: len(_NAMES)]
    together = [_opening({n: at[n] for n in large})] if len(large) > 1 else []
    return (*together, *(_opening({n: places}) for n, places in at.items()))


def _opening(at):
    """at: size -> the (vid, dimension) that have it."""
    names = dict(zip(at, _NAMES))
    found = [(vid, d, Formula(affine_text(1, 0, names[n]))) for n, places in at.items() for vid, d in places]
    return Opening({name: n for n, name in names.items()}, _by_value(found), True)


def _by_value(found):
    dimensions = {}
    for vid, d, formula in found:
        dimensions.setdefault(vid, {})[d] = formula
    return dimensions


def _first_dimension(tensors, places):
    """The first that is larger than 1, and what has its size: in the same place, or anywhere."""
    first = next(((vid, d) for vid, d in places if tensors[vid].shape[d] >= LEAST), None)
    if first is None:
        return ()
    n = tensors[first[0]].shape[first[1]]
    same = [(vid, d) for vid, d in places if tensors[vid].shape[d] == n]
    leading = [(vid, d) for vid, d in same if d == first[1]]
    return tuple(_opening({n: found}) for found in ([leading] if leading == same else [leading, same]))


def _changed(sizes, places, n_calls):
    """What has changed in the last so many calls; None if nothing has, or too much. What is 1 now is not among it."""
    columns = {place: tuple(found[-n_calls:]) for place, found in sizes.items()}
    columns = {place: x for place, x in columns.items() if len(set(x)) > 1}
    if not columns or not columns.keys() <= set(places):
        return None
    large = dict.fromkeys(sorted((x for x in columns.values() if x[-1] >= LEAST), key=_spread))
    found, formulas = [], {}
    for column in large:
        formulas[column] = _following(column, found)
        if formulas[column] is None and len(found) == len(_NAMES):
            return None
        if formulas[column] is None:
            formulas[column] = Formula(affine_text(1, 0, _NAMES[len(found)]))
            found.append(column)
    if not found:
        return None
    numbers = {name: column[-1] for name, column in zip(_NAMES, found)}
    if len(set(numbers.values())) < len(numbers):
        return None  # which is which is not to be seen in this call
    return Opening(numbers, _by_value((*p, formulas[x]) for p, x in columns.items() if x in formulas), False)


def _spread(column):
    return max(column) - min(column)


def _following(column, found):
    """The Formula of sizes that follow from others in all calls; None if they do not."""
    for name, other in zip(_NAMES, found):
        (x, y), (a, b) = (sorted(set(zip(other, column)))[k] for k in (0, -1))
        factor = (b - y) // (a - x) if a != x else 0
        constant = y - factor * x
        is_likely = factor == 1 or abs(constant) <= _NEAR
        if is_likely and factor > 0 and all(factor * p + constant == q for p, q in zip(other, column)):
            return Formula(affine_text(factor, constant, name))
    for k, (name, one) in enumerate(zip(_NAMES, found)):
        for more, other in zip(_NAMES[k:], found[k:]):
            if all(p * q == r for p, q, r in zip(one, other, column)):
                return Formula(polynomial_text({tuple(sorted((name, more))): 1}))
    return None


def _leaves(signature):
    """The shapes of the tensors in a signature (compiled.py: _flatten)."""
    if not isinstance(signature, tuple):
        return []
    if len(signature) == 3 and hasattr(signature[1], "category"):
        return [signature[0]]
    return [shape for part in signature for shape in _leaves(part)]
