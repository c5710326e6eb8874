"""What programs import of PyTorch's dispatcher, which weft has not: its modes say so when they are entered.

Functions that are called can be seen, and others put in their place, by a TorchFunctionMode (overrides.py); what runs
can be seen by a profile (profiler.py).
"""

from contextlib import nullcontext

from .overriding import NO_DISPATCHER

__all__ = ["BaseTorchDispatchMode", "TorchDispatchMode", "is_traceable_wrapper_subclass"]


class TorchDispatchMode:
    """A block whose ops would ask the mode. To enter it is a NotImplementedError."""

    def __init__(self, _dispatch_key=None):
        pass

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError

    def __enter__(self):
        raise NotImplementedError(
            f"{type(self).__name__} is a TorchDispatchMode, and {NO_DISPATCHER}. A weft.overrides.TorchFunctionMode "
            "sees the functions that a program calls, weft.profiler.profile the ops that run"
        )

    def __exit__(self, *exception):
        pass

    @classmethod
    def push(cls, *args, **kwargs):
        """The older spelling of cls(*args, **kwargs)."""
        return cls(*args, **kwargs)


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that would change nothing."""


def is_traceable_wrapper_subclass(t):
    """False: no class of tensors wraps others."""
    return False


def is_traceable_wrapper_subclass_type(t):
    """False."""
    return False


def return_and_correct_aliasing(func, args, kwargs, out):
    """The result as it is."""
    return out


def _get_current_dispatch_mode():
    """None: there is none."""
    return None


def _get_current_dispatch_mode_stack():
    """None of them: an empty list."""
    return []


_disable_current_modes = no_dispatch = nullcontext
