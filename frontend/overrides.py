"""weft.overrides: what functions copied from PyTorch ask before they begin.

Classes of tensors can say there by `__torch_function__` what is called instead of a function. weft's own functions do
not ask; functions of users that do go on as PyTorch's would.
"""

from .runtime.state.tensor import Tensor

_OWN = "__torch_function__"


def is_tensor_like(inp):
    """Whether it is a tensor, or its class has a `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(type(inp), _OWN)


def has_torch_function(relevant_args):
    """Whether the class of one of these has a `__torch_function__` of its own."""
    return any(_has_own(x) for x in relevant_args)


def has_torch_function_unary(tensor):
    """The same of one argument."""
    return _has_own(tensor)


def has_torch_function_variadic(*args):
    """The same of several arguments."""
    return any(map(_has_own, args))


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """What the `__torch_function__` of the first class that has one gives in place of public_api(*args, **kwargs).
    TypeError if none has one, or if all give NotImplemented."""
    kinds = list(dict.fromkeys(type(x) for x in relevant_args if _has_own(x)))
    for kind in kinds:
        result = getattr(kind, _OWN)(public_api, tuple(kinds), args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}"
    raise TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: {kinds}")


def _has_own(x):
    return class_has_own(type(x))


def class_has_own(kind):
    """Whether a class has a `__torch_function__` of its own, and none that stands for having none."""
    own = getattr(kind, _OWN, None)
    return own is not None and own is not getattr(Tensor, _OWN, None) and getattr(own, "__name__", "") != _DISABLED


_DISABLED = "_disabled_torch_function_impl"
