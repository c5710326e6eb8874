"""Gradients that nothing else can change: which of those that have arrived are, and copies of the others."""

from ...compiler.ops.view import clone
from ..state.references import is_held


def apart(found, given):
    """Gradients that share memory with nothing, as a program's results do."""
    taken, apart = {id(c) for c in given}, []
    for cotangent in found:
        if cotangent is not None and (id(cotangent) in taken or not _is_whole(cotangent)):
            cotangent = clone(cotangent) if cotangent.has_array else cotangent.clone()
        taken.add(id(cotangent))
        apart.append(cotangent)
    return apart


def owned(cotangents):
    """A gradient that nothing else can change: the only cotangent itself if just this list holds it, and its call's if
    it is pending; else a copy."""
    if is_owned(cotangents):
        return cotangents[0]
    if not is_held(cotangents, 0) and _is_all_of_its_base(cotangents[0]):
        # As a derivative of `view` leaves it: a tensor of the memory like any other.
        cotangents[0]._base = None
        return cotangents[0]
    return clone(cotangents[0])


def _is_all_of_its_base(cotangent):
    """Whether it is a view of all elements, in their order, of memory that nobody else knows but its base, which nobody
    else holds."""
    storage, bases = cotangent._storage, [cotangent._base]
    if bases[0] is None or is_held(bases, 0, known=1) or storage is None or storage.exposed:
        return False
    array, whole = cotangent._data, bases[0]._data
    is_all = array is not None and whole is not None and array.size == whole.size and array.flags.writeable
    others = [x for x in storage.living_sharers() if x is not cotangent and x is not bases[0]]
    return is_all and array.flags.c_contiguous and not others and not cotangent._requires_grad


# Bytes from which native code does not copy (replay/eager_programs.py), and what it writes where elements do not lie in
# a row (eager_inplace.py): smaller tensors go its way, so that it learns.
_MOST_BYTES, MOST_SPREAD = 1 << 24, 1 << 16


def is_copied_once(x, target):
    """Whether a tensor that is copied into another one needs no copy before: a large one without a history."""
    return x._data is not None and not x._requires_grad and is_large(target)


def is_large(target):
    """Whether Python writes into this tensor, because it is large."""
    array = target._data
    return array is not None and array.nbytes > (_MOST_BYTES if array.flags.c_contiguous else MOST_SPREAD)


def is_owned(cotangents):
    """Whether just this list holds the only cotangent in it, and its call if it is pending, and it is no view."""
    is_pending = cotangents[0]._data is None and cotangents[0]._frame is not None
    return not is_held(cotangents, 0, known=is_pending) and _is_whole(cotangents[0])


def _is_whole(cotangent):
    """Whether it is no view, and lies in memory in its order."""
    if not cotangent.has_array:
        return cotangent.is_whole()
    plain = cotangent._base is None and not cotangent._requires_grad
    return plain and (cotangent._data is None or cotangent._data.flags.c_contiguous)
