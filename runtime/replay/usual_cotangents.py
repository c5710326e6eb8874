"""What comes to a backward of a finished usual call, and where its gradients go, if that is nothing unusual."""

from functools import cache

from ...compiler.ops.arithmetic import add
from ...compiler.storage import ones
from ..eager.gate import apply_inplace
from ..state.modes import state
from ..state.tensor import Tensor, tensor_of
from ..state.turns import following, is_adding, one_adds, writing


def has_no_hooks(leaf):
    """Nor has anybody frozen it since the call."""
    if leaf.has_history or not leaf._requires_grad:
        return False
    accumulator = leaf._accumulator and leaf._accumulator()
    return accumulator is None or not (accumulator.pre_hooks or accumulator.post_hooks or accumulator.hooks)


def cotangent_of(result, cotangent):
    """The array of a cotangent, of ones for a scalar; None if it is not just like the result."""
    array = result._data
    if cotangent is None:
        return _ones(array.shape, array.dtype) if array.size == 1 else None
    given = cotangent.array if isinstance(cotangent, Tensor) and not cotangent._requires_grad else None
    fits = given is not None and given.shape == array.shape and given.dtype == array.dtype and given.flags.c_contiguous
    return given if fits else None


def as_tensors(outputs, cotangents, present):
    """Cotangents of the results with these numbers, with memory of their own."""
    given = {out._vid: c for out, c in zip(outputs, cotangents or (None,) * len(outputs))}
    data = {out._vid: out._data for out in outputs}
    return [tensor_of(ones(data[v].shape, data[v].dtype)) if given[v] is None else given[v] for v in present]


_ones = cache(ones)


def accumulate(leaf, gradient):
    """leaf.grad += gradient, as the engine does it."""
    enabled, state.grad_enabled = state.grad_enabled, False
    try:
        with following(), one_adds, is_adding:
            if leaf._grad is None:
                leaf._grad = gradient
            else:
                with writing(leaf._grad):
                    apply_inplace(add, leaf._grad, (leaf._grad, gradient), {})
    finally:
        state.grad_enabled = enabled
