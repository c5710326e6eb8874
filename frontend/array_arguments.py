"""NumPy arrays as arguments of compiled functions, where a tensor is meant: where the annotation says so.

@weft.compile
def energy(x: weft.Tensor, n): ...        an array given for x comes in as the tensor that shows its memory
"""

import inspect
from functools import wraps

import numpy as np

from .creation import from_numpy
from .runtime.state.tensor import Tensor


def taking_arrays(function):
    """The function, with arrays taken for the parameters that are annotated as tensors; itself if there are none."""
    names = _annotated(function)
    if not names:
        return function
    code = function.__code__
    every = code.co_varnames[: code.co_argcount]
    places = frozenset(k for k, name in enumerate(every) if name in names)
    array = np.ndarray

    @wraps(function)
    def function_of_arrays(*args, **kwargs):
        if array in map(type, args):
            args = [from_numpy(x) if type(x) is array and k in places else x for k, x in enumerate(args)]
        if kwargs and array in map(type, kwargs.values()):
            kwargs = {k: from_numpy(x) if type(x) is array and k in names else x for k, x in kwargs.items()}
        return function(*args, **kwargs)

    return function_of_arrays


def _annotated(function):
    """The names of the parameters that are annotated as tensors."""
    if not inspect.isfunction(function):
        return frozenset()
    found = function.__annotations__.items()
    return frozenset(name for name, kind in found if name != "return" and _means_tensor(kind, function.__globals__))


def _means_tensor(kind, names):
    """Whether an annotation is the class of tensors: written out, or as the text that `from __future__` makes of it."""
    if isinstance(kind, str):
        first, *rest = kind.strip("\"'").split(".")
        kind = names.get(first)
        for part in rest:
            kind = getattr(kind, part, None)
    return kind is Tensor
