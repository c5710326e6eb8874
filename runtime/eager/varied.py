"""Which numbers of an op's operands change from call to call: sizes, strides, and whole numbers in attributes.

Calls are alike if op, types, ranks, which sizes are 0 or 1, and everything else but these numbers is the same. When
some that are alike have come with different numbers, native code is told of one plan for all of them
(runtime/replay/open_plans.py), in which what has changed is known in the call only.

Some numbers have to be known: the sum along axis 0 is no sum along axis 1 with another number. Where there can be no
plan for calls that differ in attributes too, those with the same attributes are alike from then on.
"""

import numpy as np

from ...compiler.dtypes import DType

CALLS_BEFORE = 3  # with other numbers, before a plan for all is made
WAITING = 32  # such calls, before it is asked again whether a program for large operands pays
MOST_ATTEMPTS = 12  # at one, of calls that are alike
MOST_KINDS = 4096
MOST_PARTS = 64  # of calls that are alike, by their attributes
_PLAIN = frozenset((bool, str, type(None), DType))
_kinds = {}


class Varied:
    """Calls that are alike. numbers: of the first; changed: positions of those that were others since. left: how many
    attempts more are made; told: whoever serves them holds here what it needs; refusal: why the last attempt failed;
    left_to_python: with which operands that require gradients they are Python's, because their nodes would be. parts:
    numbers in attributes -> the Varied of the calls that have these."""

    __slots__ = ("numbers", "changed", "n_calls", "left", "told", "refusal", "left_to_python", "parts")

    def __init__(self, numbers):
        self.numbers, self.changed, self.n_calls, self.left, self.told = numbers, set(), 0, MOST_ATTEMPTS, []
        self.refusal, self.left_to_python, self.parts = None, set(), {}

    def wait(self):
        """It does not pay yet: no attempt was made."""
        self.left, self.n_calls = self.left + 1, CALLS_BEFORE - WAITING

    def part(self, numbers, n_sizes):
        """That of these numbers, of which so many are sizes and strides: itself, unless the attributes have to be
        known; None if there are too many of them."""
        if self.refusal is None or all(k < n_sizes for k in self.changed):
            return self
        key = tuple(numbers[n_sizes:])
        if key not in self.parts and len(self.parts) == MOST_PARTS:
            return None
        return self.parts.setdefault(key, Varied(numbers))


def forget():
    _kinds.clear()


def kind_and_numbers(op, arrays, attributes, default_dtype):
    """(what calls that are alike have in common, the other numbers, how many of them are sizes and strides); None of
    calls that are never served together."""
    key, numbers = [op, default_dtype], []
    for x in arrays:
        if not isinstance(x, np.ndarray):
            key.append(x.__class__)
            continue
        is_whole = x.flags.c_contiguous
        key += (x.dtype, is_whole, *[n if n < 2 else 2 for n in x.shape])
        numbers += x.shape
        if 0 in x.shape:
            return None
        if not is_whole:
            numbers += x.strides
    # Attributes of what is computed element by element are no places or sizes: code may do with them what it likes.
    are_sizes, n_sizes = op.kind != "elementwise", len(numbers)
    for name, value in attributes.items():
        key.append(name)
        if not _put(key, numbers, value, are_sizes):
            return None
    return tuple(key), numbers, n_sizes


def _put(key, numbers, value, are_sizes):
    kind = value.__class__
    key.append(kind)
    if kind is int and are_sizes:
        numbers.append(value)
    elif issubclass(kind, tuple):
        key.append(len(value))
        return all(_put(key, numbers, x, are_sizes) for x in value)
    elif kind is int:
        key.append(value)
    elif kind is float:
        key.append(repr(value))
    elif kind in _PLAIN:
        key.append(value)
    else:
        return False
    return True


def ask(op, arrays, attributes, default_dtype):
    """The Varied of such a call, and its numbers, if it is time to make a plan for all of them; else None."""
    found = kind_and_numbers(op, arrays, attributes, default_dtype)
    if found is None:
        return None
    key, numbers, n_sizes = found
    varied = _kinds.get(key)
    if varied is None:
        if len(_kinds) >= MOST_KINDS:
            _kinds.clear()
        _kinds[key] = Varied(numbers)
        return None
    varied = varied.part(numbers, n_sizes)
    if varied is None:
        return None
    changed = [k for k, (x, y) in enumerate(zip(numbers, varied.numbers)) if x != y]
    if not changed or not varied.left:
        return None
    varied.changed.update(changed)
    varied.n_calls += 1
    if varied.n_calls < CALLS_BEFORE:
        return None
    varied.left -= 1
    return varied, numbers
