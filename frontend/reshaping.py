"""In-place forms of functions that change shapes, and methods that change the size: x.unsqueeze_(0) is x itself.
Methods that take another tensor's shape, or its memory."""

from math import prod

import numpy as np

from . import shaping
from .arranging import as_strided
from .compiler.later import later
from .creation import empty
from .kinds import door_of
from .numpy_words import understanding
from .runtime.eager.gate import LEAF_IN_PLACE
from .runtime.state.modes import is_grad_enabled, no_grad, step_out
from .runtime.state.tensor import Tensor
from .shaping import sizes

_reshape_in_place = later("runtime.eager.reshaped:reshape_in_place")
_resize_in_place = later("runtime.eager.reshaped:resize_in_place")


def _in_place(function):
    def method(self, *args, **kwargs):
        return _reshape_in_place(method.__name__, self, lambda old: function(old, *args, **kwargs))

    method.__name__ = method.__qualname__ = f"{function.__name__}_"
    method.__doc__ = f"{function.__name__} of the tensor itself, which keeps its memory."
    method.__wrapped__ = function  # whose signature it has
    return method


def resize_(self, *shape, size=None, memory_format=None):
    """Another shape for the tensor itself: its elements in their order as far as they go, then zeros."""
    shape = tuple(sizes(shape, size))
    return _resize_in_place(self, shape, prod(shape))


def resize_as_(self, the_template, *, memory_format=None):
    """resize_ to the shape of another tensor."""
    return resize_(self, the_template.shape)


def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Another tensor's memory for the tensor itself: all that source shows, in its shape, or `size` elements of the
    contiguous ones of source, from `storage_offset` on; nothing without a source.

    RuntimeError for another dtype; there are no derivatives, so a tensor with gradients is given under no_grad.
    """
    if source is None:
        source = empty(0, dtype=self.dtype)
    if not isinstance(source, Tensor):
        raise NotImplementedError(f"set_: source is a {type(source).__name__}; give the tensor whose memory it is")
    if source.dtype is not self.dtype:
        raise RuntimeError(f"Could not set tensor of type {source.dtype.name} to a tensor of type {self.dtype.name}")
    if is_grad_enabled() and (self.requires_grad or source.requires_grad):
        if self.requires_grad and self.is_leaf:
            raise RuntimeError(LEAF_IN_PLACE)
        raise NotImplementedError("set_: has no derivative; use it under no_grad, or on detached tensors")
    with no_grad():
        self.leave_call()
        block = step_out("set_: other memory for a tensor")
        try:
            before = self._version
            self.data = source if size is None else _part(source, storage_offset, tuple(size), stride)
            if self._version == before:  # else it has another shape
                self.bump_version()
            # Graphs from before have the gradient of another value: what asks for this one's does not find it there.
            self._accumulator = None
        finally:
            block.__exit__(None, None, None)
    return self


def _part(source, offset, size, stride):
    contiguous = tuple(prod(size[k + 1 :]) for k in range(len(size)))
    if stride is not None and tuple(stride) != contiguous:
        raise NotImplementedError(f"set_: strides {tuple(stride)} of size {size}; give a view with these strides")
    if not source.is_contiguous() or source._base is not None or not 0 <= offset <= source.numel() - prod(size):
        raise NotImplementedError(
            f"set_: {prod(size)} elements from {offset} of the memory of a tensor of shape {source.shape}; give the "
            "contiguous tensor that has all of them"
        )
    return source.reshape(-1)[offset : offset + prod(size)].view(size)


def _like_another(name, function):
    def method(self, other):
        return function(self, other.shape)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"{name.removesuffix('_as')} to the shape of another tensor."
    return door_of(name, method)


def as_strided_(self, size, stride, storage_offset=None):
    """as_strided of the tensor itself, which keeps its memory. NotImplementedError where that would be a copy."""

    def view(old):
        new = as_strided(old, size, stride, storage_offset)
        if not np.shares_memory(new._data, old._data) and new.numel():
            raise NotImplementedError(
                f"as_strided_: sizes {tuple(size)} and strides {tuple(stride)} of a tensor of shape {tuple(old.shape)} "
                "show an element twice, or it does not lie in order; use y = x.as_strided(...)"
            )
        return new

    return _reshape_in_place("as_strided_", self, view)


def attach():
    for name, function in (("view", shaping.view_), ("reshape", shaping.reshape), ("expand", shaping.expand)):
        setattr(Tensor, f"{name}_as", _like_another(f"{name}_as", function))
    for name in str.split("t squeeze unsqueeze transpose"):
        setattr(Tensor, f"{name}_", _in_place(getattr(shaping, name)))
    Tensor.set_, Tensor.as_strided_ = door_of("set_", set_), door_of("as_strided_", as_strided_)
    Tensor.resize_, Tensor.resize_as_ = resize_, door_of("resize_as_", resize_as_)
    Tensor.swapaxes_, Tensor.swapdims_ = understanding("swapaxes_", Tensor.transpose_), Tensor.transpose_
