"""When two calls have the same attributes: equal ones of the same kind.

`==` alone takes 2 for 2.0 and True for 1, which make other results, and -0.0 for 0.0; and it never finds a NaN again.
Whatever decides whether a step is the one that was recorded compares with `same`, and its native twin
(native_text.py: _same) agrees wherever it says yes. The text of attributes in a program's key tells apart what `same`
does, because all recorded attributes are of the kinds below: `refusal` says no to others.
"""

from math import copysign

from ...compiler.dtypes import DType
from .size import Size

_KINDS = frozenset((type(None), bool, int, float, str, DType))
_INT = frozenset((int,))
_MISSING = object()


def same(x, y):
    """Whether two values are of the same type and equal: containers element by element, floats with their sign, and all
    NaNs alike."""
    if x is y:
        return True
    kind = _kind(x)
    if kind is not _kind(y):
        return False
    if issubclass(kind, tuple):
        # Most are shapes and axes.
        are_ints = {*map(type, x), *map(type, y)} <= _INT
        return x == y if are_ints else len(x) == len(y) and all(map(same, x, y))
    if kind is float:
        return x == y and copysign(1.0, x) == copysign(1.0, y) or x != x and y != y
    return same_attributes(x, y) if kind is dict else x == y


def same_attributes(x, y):
    """The same for two dicts, in any order."""
    if len(x) != len(y):
        return False
    for name, value in x.items():
        other = y.get(name, _MISSING)
        if value is not other and not same(value, other):
            return False
    return True


def refusal(attributes):
    """Why a step with these attributes cannot be recorded: one of them is of no kind that `same` knows. Else None."""
    for name, value in attributes.items():
        if not _is_known(value):
            return f"{name} is of type {type(value).__name__}, which compiled calls cannot compare"
    return None


def _is_known(x):
    return all(map(_is_known, x)) if _kind(x) is tuple else type(x) in _KINDS


def _kind(x):
    """The type, for all that is told apart: a shape is a tuple of numbers, however it is made."""
    kind = type(x)
    return tuple if kind is Size else kind
