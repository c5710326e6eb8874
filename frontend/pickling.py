"""How tensors are pickled and copied: joblib, multiprocessing and copy.copy go this way.

A pickled tensor is its class, its elements and whether it requires gradients: no graph and no gradient, as in PyTorch.
Tensors that are one object stay one; those that merely share memory become separate.
"""

import copyreg
from copy import deepcopy
from importlib import import_module

import numpy as np

from .overriding import off
from .runtime.state.elsewhere import is_elsewhere, values_of
from .runtime.state.tensor import Tensor, TensorType, tensor_of_kind

_ROOT = __name__.partition(".")[0]


def reduce_tensor(self, protocol=None):
    """What `pickle` writes for a tensor."""
    array = np.ascontiguousarray(values_of(self)).reshape(self.shape)
    return rebuild_tensor, (type(self), array, self.requires_grad), self.__dict__ or None


def rebuild_tensor(kind, array, requires_grad):
    """The tensor with these elements."""
    made = tensor_of_kind(kind, own_array(array))
    with off():
        made.requires_grad = requires_grad
    return made


def reduce_class(kind):
    """What `pickle` writes for a class of tensors: weft's own by their place in weft, where they are whether or not
    weft is called torch in the process that reads it."""
    module = kind.__module__
    if kind is Tensor:
        return class_at, (f"{_ROOT}.runtime.state.tensor", "Tensor")
    if module.partition(".")[0] == "torch":
        return class_at, (f"{_ROOT}{module.removeprefix('torch')}", kind.__qualname__)
    return kind.__qualname__


def class_at(module, name):
    """The class of this name."""
    return getattr(import_module(module), name)


def own_array(array):
    """An array that a tensor may have: joblib hands large ones to its workers as files that cannot be written."""
    return array if type(array) is np.ndarray and array.flags.writeable else np.array(array)


def copy_tensor(self):
    """copy.copy: a leaf that shares the memory, with the attributes that the user gave the tensor."""
    with off():
        made = self.detach()
        made.__class__ = type(self)
        made.requires_grad = self.requires_grad
    made.__dict__.update(self.__dict__)
    return made


def deepcopy_tensor(self, memo):
    """copy.deepcopy: a leaf with memory of its own, and its gradient."""
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol")
    made = _copied(self)
    made._requires_grad = self._requires_grad
    memo[id(self)] = made
    if self._grad is not None:
        made._grad = _copied(self._grad)
    if self.__dict__:
        made.__dict__.update(deepcopy(self.__dict__, memo))
    return made


def _copied(tensor):
    """A tensor of the same class with the same elements, on the same device."""
    if not is_elsewhere(tensor):
        return tensor_of_kind(type(tensor), tensor.array.copy())
    made = tensor_of_kind(type(tensor), None)
    made._meta = tensor._meta.copied()._meta
    return made


def attach():
    copyreg.pickle(TensorType, reduce_class)
    Tensor.__reduce_ex__, Tensor.__copy__, Tensor.__deepcopy__ = reduce_tensor, copy_tensor, deepcopy_tensor
