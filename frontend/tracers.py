"""What programs ask of PyTorch's tracers, and the marks they leave for them: here none is ever at work.

torch.fx.wrap(function)                     the function itself
torch._jit_internal.Optional                typing's
torch._subclasses.fake_tensor.is_fake(x)    False: every tensor has values
isinstance(n, torch.SymInt)                 False: sizes are numbers
"""

import typing
from types import ModuleType

from .absent import attribute_of


class FakeTensor:
    """Nothing is an instance of it: every tensor has values."""


class SymInt:
    """Nothing is an instance of it: sizes are numbers."""


class SymFloat:
    """Nothing is an instance of it."""


class SymBool:
    """Nothing is an instance of it."""


def wrap(fn_or_name):
    """The function itself, or its name: a tracer of PyTorch's would not look into it."""
    return fn_or_name


def has_side_effect(fn):
    """The function itself: nothing is left out of a compiled call that has an effect."""
    return fn


def is_fake(x):
    """False: every tensor has values."""
    return False


def get_proxy_mode():
    """None: there is no tracer."""
    return None


def boolean_dispatch(arg_name, arg_index, default, if_true, if_false, module_name, func_name):
    """The function that is if_true or if_false, as the argument of that name or place says."""

    def dispatched(*args, **kwargs):
        chosen = args[arg_index] if arg_index < len(args) else kwargs.get(arg_name, default)
        return (if_true if chosen else if_false)(*args, **kwargs)

    dispatched.__name__, dispatched.__doc__ = func_name, if_true.__doc__ or if_false.__doc__
    return dispatched


def unchanged(function):
    """The function itself."""
    return function


class _Sizes:
    """BroadcastingList2[int]: an annotation of one number or several."""

    def __getitem__(self, kind):
        return typing.Union[kind, list[kind]]  # noqa: UP007


def _module(name, **contents):
    path = f"weft.{name}"
    module = ModuleType(path, f"{path}: what programs ask of PyTorch's tracers.")
    vars(module).update(contents, __getattr__=attribute_of(path))
    return module


fx = _module("fx", wrap=wrap, has_side_effect=has_side_effect)
proxy_tensor = _module("fx.experimental.proxy_tensor", get_proxy_mode=get_proxy_mode)
fake_tensor = _module("_subclasses.fake_tensor", FakeTensor=FakeTensor, is_fake=is_fake)
_KINDS = {name: getattr(typing, name) for name in str.split("Dict List Optional Tuple Union")}
annotations = _module("jit.annotations", **_KINDS)
# What copies of PyTorch's own modules import of its older compiler; its decorators are those of weft.jit.
jit_internal = _module(
    "_jit_internal",
    **{**_KINDS, "Any": typing.Any, "Callable": typing.Callable},
    **{f"BroadcastingList{n}": _Sizes() for n in range(1, 7)},
    **dict.fromkeys(("_overload", "_overload_method", "_copy_to_script_wrapper"), unchanged),
    boolean_dispatch=boolean_dispatch,
)
