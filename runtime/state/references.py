"""Who else holds an object: reference counts, the one place that compares them.

Tensors that nobody holds are never computed, and memory that nobody holds is used again, so a count that is taken for
one smaller gives silently wrong numbers. What `sys.getrefcount` says of an object that nobody else holds depends on how
the object was reached and on the interpreter: CPython 3.10 counts an argument for the caller too, and from 3.14 on a
local variable may be read without being counted. Each form is therefore measured when weft is imported, in the very
words it is asked in.
"""

from operator import itemgetter
from sys import getrefcount

import numpy as np


def _count_in_list(items, k):
    return getrefcount(items[k])


_IN_LIST = _count_in_list([object()], 0)


def is_held(items, k, known=0):
    """Whether anything holds item k of a list besides the list and `known` other objects."""
    return getrefcount(items[k]) > _IN_LIST + known


def held(items, numbers):
    """Those of the numbers of a list's items that something besides the list holds."""
    return [k for k in numbers if getrefcount(items[k]) > _IN_LIST]


def _count_of_base(array):
    return getrefcount(array.base)


_AS_BASE = _count_of_base(np.empty(2)[1:])


def is_base_held(array, n_others=0):
    """Whether anything besides an array holds the array that it is a view of, and so many others that may."""
    return getrefcount(array.base) > _AS_BASE + n_others


def _count_in_loop(items):
    for item in items:
        return getrefcount(item)


_IN_LOOP = _count_in_loop([object()])


def first_unheld(items):
    """The first item of a list that only the list holds, or None. Nobody else gets it by the same question: from the
    count on, a variable holds it."""
    for item in items:
        if getrefcount(item) <= _IN_LOOP:
            return item
    return None


def counts_of_picked(items):
    """The counts of what an itemgetter picked from a list, to be compared with PICKED."""
    return list(map(getrefcount, items))


def _count_when_picked():
    items = [object(), object()]
    return counts_of_picked(itemgetter(0, 1)(items))[0]


# The count of an object that only the list and the picked items hold.
PICKED = _count_when_picked()
