"""Hooks of optimizers: around a step, around making a state, around loading one.

An optimizer gets its tables with the first hook. One with hooks around steps has a `step` of its own, so that a step
without hooks costs nothing, and so that a class of a user's that defines `step` has them too.
"""

from ..nn.hooks import RemovableHandle


class _HookedStep:
    """optimizer.step with the hooks before and after it."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def __call__(self, *args, **kwargs):
        optimizer, args = self.optimizer, (self.optimizer, *args)
        for hook in hooks_of(optimizer, "step_pre"):
            changed = hook(optimizer, args, kwargs)
            if changed is not None:
                if not isinstance(changed, tuple) or len(changed) != 2:
                    raise RuntimeError(
                        f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                    )
                args, kwargs = changed
        result = type(optimizer).step(*args, **kwargs)
        for hook in hooks_of(optimizer, "step_post"):
            hook(optimizer, args, kwargs)
        return result


def hooks_of(optimizer, kind):
    """The hooks of a kind, in order."""
    tables = vars(optimizer).get("_hooks")
    return () if tables is None else tuple(tables.get(kind, {}).values())


class Hooks:
    """Mixin: the methods by which users register hooks."""

    def _register(self, kind, hook, prepend=False):
        table = vars(self).setdefault("_hooks", {}).setdefault(kind, {})
        return RemovableHandle(table, hook, prepend)

    def register_step_pre_hook(self, hook):
        """Call hook(optimizer, args, kwargs) before every step; it may return (args, kwargs) to take their place. The
        first of args is the optimizer."""
        vars(self).setdefault("step", _HookedStep(self))
        return self._register("step_pre", hook)

    def register_step_post_hook(self, hook):
        """Call hook(optimizer, args, kwargs) after every step."""
        vars(self).setdefault("step", _HookedStep(self))
        return self._register("step_post", hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """Call hook(optimizer) before state_dict()."""
        return self._register("state_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """Call hook(optimizer, state_dict) after state_dict(); what it returns, if not None, is the result."""
        return self._register("state_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """Call hook(optimizer, state_dict) before load_state_dict(); what it returns, if not None, is loaded."""
        return self._register("load_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """Call hook(optimizer) after load_state_dict()."""
        return self._register("load_post", hook, prepend)
