"""Tensors whose memory is another device's, or that stand for all samples of a vmap: they have no array and belong to
no call, and `_meta` knows where their elements are.

What happens to them is said by that object (runtime/gpu/arrays.py, runtime/batched/batch.py), so nothing here or in
eager mode imports it.
"""

used = []
"""An entry once there has been such a tensor: then calls in flight look for them."""
samples_at_work = []
"""An entry for each vmap at work in any thread (runtime/batched/batch.py)."""
IN_CALL = "a tensor on a GPU was met, and what is computed there is no part of a call's programs"


class OutOfMemoryError(RuntimeError):
    """Another device has no memory left. Of the CPU Python says MemoryError."""


def is_elsewhere(tensor):
    """Whether its memory is another device's, which `_meta` knows. What stands in for a tensor (noting.py) has none."""
    return tensor._data is None and getattr(tensor, "_frame", tensor) is None and tensor.has_array


def any_elsewhere(operands):
    """Whether one of these is such a tensor."""
    return any(x._data is None and is_elsewhere(x) for x in operands if hasattr(x, "_data"))


def is_sample(tensor):
    """Whether it is a tensor of one sample that stands for all samples of a vmap (runtime/batched)."""
    return tensor._data is None and is_elsewhere(tensor) and tensor._meta.gpu is None


def apply_in_call(frame, op, operands, attributes):
    """The op in a compiled call. One on tensors of one sample each is what it is for all samples."""
    if samples_at_work:
        for x in operands:
            if hasattr(x, "_data") and is_sample(x):
                return x._meta.apply(op, operands, attributes)
    return frame.apply(op, operands, attributes)


def values_of(tensor):
    """An array to read: the tensor's own, or a copy of what is in another device's memory."""
    return tensor._meta.to_array() if tensor._data is None and is_elsewhere(tensor) else tensor.array
