"""Names inside modules that PyTorch's Module has and programs use: tables of hooks, calls without hooks, flags."""

from .hooks import AroundBackward, Hook


def _table(name):
    """The property that shows a table of hooks about the state, which a module gets with the first one who asks."""
    return property(lambda module: vars(module).setdefault(name, {}))


def _with_option(table, option):
    """The property that shows which hooks of a table have an option: their numbers, in a new dict."""

    def read(module):
        hooks = getattr(module, table).items()
        return {number: True for number, hook in hooks if isinstance(hook, Hook) and getattr(hook, option)}

    return property(read)


class InnerNames:
    """The part of Module that has these names."""

    __constants__ = []  # noqa: RUF012 - PyTorch's name for TorchScript, to which classes add
    _version = 1
    dump_patches = call_super_init = False
    _compiled_call_impl = None
    _state_dict_pre_hooks = _table("_state_dict_pre_hooks")
    _state_dict_hooks = _table("_state_dict_hooks")
    _load_state_dict_pre_hooks = _table("_load_state_dict_pre_hooks")
    _load_state_dict_post_hooks = _table("_load_state_dict_post_hooks")
    _forward_hooks_with_kwargs = _with_option("_forward_hooks", "with_kwargs")
    _forward_hooks_always_called = _with_option("_forward_hooks", "always_call")
    _forward_pre_hooks_with_kwargs = _with_option("_forward_pre_hooks", "with_kwargs")

    @property
    def _non_persistent_buffers_set(self):
        return self._non_persistent

    @property
    def _is_full_backward_hook(self):
        """True with backward hooks, None without: there are no others."""
        return True if any(isinstance(h, AroundBackward) for h in self._forward_pre_hooks.values()) else None

    def _get_backward_hooks(self):
        """(full backward hooks, others, of which there are none)."""
        return list(self._backward_hooks.values()), []

    def _get_backward_pre_hooks(self):
        return list(self._backward_pre_hooks.values())

    def _slow_forward(self, *args, **kwargs):
        """forward, without hooks."""
        return self.forward(*args, **kwargs)

    def __setstate__(self, state):
        """What a copy or pickle has of the module; classes of users add to it."""
        vars(self).update(state)
        for table in ("_forward_pre_hooks", "_forward_hooks"):
            vars(self).setdefault(table, {})
