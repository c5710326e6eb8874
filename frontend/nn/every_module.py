"""Hooks of all modules: what is called around every one, before the module's own hooks.

While there are any, calling a module is a function of Python that looks for them, also in a compiled call; else they
cost nothing.
"""

from ..runtime.state.hooks import RemovableHandle
from . import hooks
from .module import Module

_found = []  # what calling a module was before there were any


class _Handle(RemovableHandle):
    def __init__(self, table, hook):
        super().__init__(table, hook)
        if not _found:
            _found.append(Module.__call__)
            Module.__call__ = _call

    def remove(self):
        super().remove()
        # What somebody has put in its place since stays there.
        if not hooks.EVERYWHERE and _found and Module.__call__ is _call:
            Module.__call__ = _found.pop()


def _call(self, *args, **kwargs):
    return hooks.call(self, args, kwargs)


def register_module_forward_pre_hook(hook):
    """Call hook(module, args) before the forward of every module; what it returns, if not None, takes the place of
    args."""
    return _Handle(hooks.EVERYWHERE.before_forward, hook)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """Call hook(module, args, output) after the forward of every module; what it returns, if not None, takes the place
    of output. With `with_kwargs` hook(module, args, kwargs, output); with `always_call` also after an exception."""
    return _Handle(hooks.EVERYWHERE.after_forward, hooks.with_options(hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook):
    """Call hook(module, grad_output) when the gradients of the outputs of any module are known; what it returns, if not
    None, takes the place of grad_output."""
    return _Handle(hooks.EVERYWHERE.before_backward, hook)


def register_module_full_backward_hook(hook):
    """Call hook(module, grad_input, grad_output) when the gradients of the inputs of any module are known; what it
    returns, if not None, takes the place of grad_input."""
    return _Handle(hooks.EVERYWHERE.after_backward, hook)


register_module_backward_hook = register_module_full_backward_hook
