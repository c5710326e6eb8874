"""Methods of Tensor whose elements a function of the user's computes, one by one, and a few that say how it lies in
memory. Attached by methods.py."""

import warnings

import numpy as np

from .compiler.later import later
from .creation import tensor
from .placement import memory_format
from .runtime.state.modes import no_grad
from .runtime.state.tensor import Tensor
from .shaping import expand


def apply_(self, callable):
    """Replace every element by what the function makes of it, as a number of Python. It is slow."""
    return _replaced("apply_", self, (), callable)


def map_(self, tensor, callable):
    """Replace every element by what the function makes of it and of the other tensor's: callable(a, b)."""
    return _replaced("map_", self, (tensor,), callable)


def map2_(self, x, y, callable):
    """Replace every element by what the function makes of it and of those of two tensors: callable(a, b, c)."""
    return _replaced("map2_", self, (x, y), callable)


def _replaced(name, target, others, function):
    for x in (target, *others):
        if x.requires_grad:
            raise RuntimeError(
                f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead."
            )
        if x.dtype is not target.dtype:
            raise TypeError(f"{name}: expected tensors of {target.dtype.name}, got {x.dtype.name}")
    rows = [x.flatten().tolist() for x in (target, *(expand(x, target.shape) for x in others))]
    made = [function(*numbers) for numbers in zip(*rows)]
    with no_grad():
        return target.copy_(tensor(made, dtype=target.dtype).reshape(target.shape))


def dim_order(self, *, ambiguity_check=False):
    """The dimensions from the one with the longest steps in memory to the one with the shortest.

    ambiguity_check: whether it is an error that another order would do too (a dimension of size 1 may stand anywhere).
    """
    formats = isinstance(ambiguity_check, list) and all(isinstance(f, memory_format) for f in ambiguity_check)
    if not (isinstance(ambiguity_check, bool) or formats):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    strides, sizes = self.stride(), self.shape
    order = sorted(range(self.ndim), key=lambda k: (-strides[k], k))
    if ambiguity_check and any(strides[a] == strides[b] or 1 in (sizes[a], sizes[b]) for a, b in zip(order, order[1:])):
        raise RuntimeError("The tensor does not have unique dim order, or cannot map to exact one of the given formats")
    return tuple(order)


def module_load(self, other, assign=False):
    """What load_state_dict makes of a saved value for this parameter or buffer, as PyTorch defines it."""
    return other.detach() if assign else self.copy_(other).detach()


def resize(self, *sizes):
    """The tensor in another shape of as many elements; use `reshape`."""
    warnings.warn("non-inplace resize is deprecated", stacklevel=2)
    return _resized(self, tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)


def resize_as(self, tensor):
    """The tensor in the shape of another with as many elements; use `reshape`."""
    warnings.warn("non-inplace resize_as is deprecated", stacklevel=2)
    return _resized(self, tensor.shape)


def _resized(x, shape):
    if np.prod(shape, dtype=int) != x.numel():
        raise RuntimeError(
            f"requested resize to {tuple(shape)} ({'x'.join(map(str, shape))} elements in total), but the given tensor "
            f"has a size of {tuple(x.shape)}. autograd's resize can only change the shape of a given tensor, while "
            "preserving the number of elements."
        )
    return x.contiguous().view(shape)


def reinforce(self, reward):
    """RuntimeError: a distribution's log_prob(action) times the reward is a loss."""
    raise RuntimeError(
        "reinforce() was removed. Use weft.distributions instead: m = Categorical(probs); action = m.sample(); "
        "loss = -m.log_prob(action) * reward; loss.backward()"
    )


@property
def volatile(self):
    """False: PyTorch has no such tensors any more."""
    warnings.warn("volatile was removed (Variable.volatile is always False)", stacklevel=2)
    return False


@property
def grad_dtype(self):
    """The type that gradients of a leaf have: its own."""
    if not self.is_leaf:
        raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
    return self.dtype


def const_data_ptr(self):
    """The address of the first element."""
    return self.data_ptr()


def attach():
    """Give Tensor these methods."""
    for method in (apply_, map_, map2_, dim_order, module_load, resize, resize_as, reinforce, const_data_ptr):
        setattr(Tensor, method.__name__, method)
    Tensor.volatile, Tensor.grad_dtype = volatile, grad_dtype
    for name in ("eig", "is_distributed", "lstsq", "solve", "symeig"):
        method = later(f"older:{name}")
        method.__name__ = name
        method.__doc__ = f"weft.{name} of the tensor."
        setattr(Tensor, name, method)
    Tensor.name = property(lambda self: None, doc="None: tensors have no names.")
