"""In-place forms of functions that change shapes, and methods that change the size: x.unsqueeze_(0) is x itself.
Methods that take another tensor's shape."""

from math import prod

from . import shaping
from .kinds import door_of
from .runtime.eager.reshaped import reshape_in_place, resize_in_place
from .runtime.state.tensor import Tensor
from .shaping import sizes


def _in_place(function):
    def method(self, *args, **kwargs):
        return reshape_in_place(method.__name__, self, lambda old: function(old, *args, **kwargs))

    method.__name__ = method.__qualname__ = f"{function.__name__}_"
    method.__doc__ = f"{function.__name__} of the tensor itself, which keeps its memory."
    return method


def resize_(self, *shape, size=None, memory_format=None):
    """Another shape for the tensor itself: its elements in their order as far as they go, then zeros."""
    shape = tuple(sizes(shape, size))
    return resize_in_place(self, shape, prod(shape))


def resize_as_(self, the_template, *, memory_format=None):
    """resize_ to the shape of another tensor."""
    return resize_(self, the_template.shape)


def _like_another(name, function):
    def method(self, other):
        return function(self, other.shape)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"{name.removesuffix('_as')} to the shape of another tensor."
    return door_of(name, method)


def attach():
    for name, function in (("view", shaping.view_), ("reshape", shaping.reshape), ("expand", shaping.expand)):
        setattr(Tensor, f"{name}_as", _like_another(f"{name}_as", function))
    for name in str.split("t squeeze unsqueeze transpose"):
        setattr(Tensor, f"{name}_", _in_place(getattr(shaping, name)))
    Tensor.resize_, Tensor.resize_as_ = resize_, door_of("resize_as_", resize_as_)
    Tensor.swapaxes_ = Tensor.swapdims_ = Tensor.transpose_
