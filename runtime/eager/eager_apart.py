"""Where arrays lie in memory, in native code; of the subset (docs/native.md).

is_apart         whether two have no byte between them
shows_each_once  whether none of its elements is another one too, of what strides of 0 expand
"""

from ...compiler.translate.kinds import I64, Bool
from ...compiler.translate.language import load_at, native
from .eager_words import ArrayObject, Words


@native()
def is_apart(words: Words, x: ArrayObject, y: ArrayObject) -> Bool:
    """From the first to the last byte of each."""
    first = x.data + least_step(x)
    other = y.data + least_step(y)
    ends_before = x.data + most_step(x) + size_of(words, x) <= other
    return ends_before or y.data + most_step(y) + size_of(words, y) <= first


@native()
def shows_each_once(x: ArrayObject) -> Bool:
    once = True
    for d in range(x.ndim):
        once = once and (load_at(I64, x.strides, d) != 0 or load_at(I64, x.shape, d) == 1)
    return once


@native()
def least_step(x: ArrayObject) -> I64:
    """From the first element to that which lies lowest, in bytes."""
    found = 0
    for d in range(x.ndim):
        found += min(load_at(I64, x.strides, d) * (load_at(I64, x.shape, d) - 1), 0)
    return found


@native()
def most_step(x: ArrayObject) -> I64:
    """The same to that which lies highest."""
    found = 0
    for d in range(x.ndim):
        found += max(load_at(I64, x.strides, d) * (load_at(I64, x.shape, d) - 1), 0)
    return found


@native()
def size_of(words: Words, x: ArrayObject) -> I64:
    """At least the bytes of an element."""
    if x.dtype is words.float32:
        return 4
    if x.dtype is words.float64:
        return 8
    return 16
