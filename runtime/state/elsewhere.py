"""Tensors whose memory is another device's: they have no array and belong to no call, and `_meta` knows where they are.

What happens to them is said by that object (runtime/gpu/arrays.py), so nothing here or in eager mode imports it.
"""

used = []
"""An entry once there has been such a tensor: then calls in flight look for them."""
IN_CALL = "a tensor on a GPU was met, and what is computed there is no part of a call's programs"


class OutOfMemoryError(RuntimeError):
    """Another device has no memory left. Of the CPU Python says MemoryError."""


def is_elsewhere(tensor):
    """Whether its memory is another device's, which `_meta` knows. What stands in for a tensor (noting.py) has none."""
    return tensor._data is None and getattr(tensor, "_frame", tensor) is None and tensor.has_array


def any_elsewhere(operands):
    """Whether one of these is such a tensor."""
    return any(x._data is None and is_elsewhere(x) for x in operands if hasattr(x, "_data"))


def values_of(tensor):
    """An array to read: the tensor's own, or a copy of what is in another device's memory."""
    return tensor._meta.to_array() if tensor._data is None and is_elsewhere(tensor) else tensor.array
