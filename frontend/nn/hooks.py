"""Hooks of modules: what is called before and after forward, and around its backward.

    forward pre-hook          (module, args) -> None, or what takes the place of args
    forward hook              (module, args, output) -> None, or what takes the place of output
    full backward pre-hook    (module, grad_output) -> None, or what takes the place of grad_output
    full backward hook        (module, grad_input, grad_output) -> None, or what takes the place of grad_input

All are kept in the module's two tables `_forward_pre_hooks` and `_forward_hooks`, so that a module without hooks is
called at no cost: a hook with options is a `Hook` there, and backward hooks are one `AroundBackward` in each. Those of
all modules are in the tables of `EVERYWHERE` (every_module.py).
"""

import warnings
from dataclasses import dataclass

from ..runtime.eager.function import Function
from ..runtime.state.hooks import RemovableHandle
from ..runtime.state.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook with options: it may be told the keywords too, and may be called after an exception as well."""

    function: object
    with_kwargs: bool = False
    always_call: bool = False


class _Everywhere:
    """The hooks of all modules, by numbers."""

    def __init__(self):
        self.before_forward, self.after_forward, self.before_backward, self.after_backward = {}, {}, {}, {}

    def __bool__(self):
        return any(vars(self).values())


EVERYWHERE = _Everywhere()


def with_options(function, with_kwargs, always_call=False):
    return Hook(function, with_kwargs, always_call) if with_kwargs or always_call else function


def call(module, args, kwargs):
    """module.forward(*args, **kwargs) with all hooks."""
    around = AroundBackward() if EVERYWHERE.before_backward or EVERYWHERE.after_backward else None
    for hook in (*EVERYWHERE.before_forward.values(), *module._forward_pre_hooks.values()):
        if isinstance(hook, AroundBackward):
            around = hook
        else:
            args, kwargs = _before(module, hook, args, kwargs)
    called = []
    try:
        if around is not None:
            around, args = around.enter(module, args)
        result = module.forward(*args, **kwargs)
        for hook in _after_forward(module):
            called.append(hook)
            changed = _after(module, hook, args, kwargs, result)
            result = result if changed is None else changed
        return result if around is None else around.leave(result)
    except Exception:
        for hook in _after_forward(module):
            if isinstance(hook, Hook) and hook.always_call and not any(hook is one for one in called):
                _after_exception(module, hook, args, kwargs)
        raise


def _after_forward(module):
    return (*EVERYWHERE.after_forward.values(), *module._forward_hooks.values())


def _before(module, hook, args, kwargs):
    if not isinstance(hook, Hook):
        changed = hook(module, args)
        return (args if changed is None else changed if isinstance(changed, tuple) else (changed,)), kwargs
    changed = hook.function(module, args, kwargs)
    if changed is None:
        return args, kwargs
    if not isinstance(changed, tuple) or len(changed) != 2:
        raise RuntimeError(
            f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}."
        )
    return changed


def _after(module, hook, args, kwargs, result):
    if not isinstance(hook, Hook):
        return hook(module, args, result)
    return hook.function(module, args, kwargs, result) if hook.with_kwargs else hook.function(module, args, result)


def _after_exception(module, hook, args, kwargs):
    try:
        _after(module, hook, args, kwargs, None)
    except Exception as error:
        warnings.warn(
            f"module forward hook with ``always_call=True`` raised an exception that was silenced: {error}",
            stacklevel=4,
        )


# --- around backward --------------------------------------------------------------------------------------------------
class AroundBackward:
    """The backward hooks of a module: before it and after it, by numbers."""

    def __init__(self):
        self.before, self.after = {}, {}

    def enter(self, module, args):
        """(what to ask to leave, args that tell when their gradients are there)."""
        before = (*EVERYWHERE.before_backward.values(), *self.before.values())
        after = (*EVERYWHERE.after_backward.values(), *self.after.values())
        if not before and not after:
            return None, args
        call = _Call(module, before, after)
        return call, call.enter(args)


class _Call:
    """One call of a module with backward hooks."""

    def __init__(self, module, before, after):
        self.module, self.before, self.after = module, before, after
        self.grad_output = None

    def enter(self, args):
        positions = [k for k, x in enumerate(args) if isinstance(x, Tensor)]
        wanted = [k for k in positions if args[k].requires_grad]
        self.n_inputs, self.positions, self.has_inputs = len(args), positions, bool(wanted)
        if not wanted:
            return args
        passed = _Passing.apply(self._inputs_done, *(args[k] for k in positions))
        changed = list(args)
        for k, x in zip(positions, passed):
            changed[k] = x
        return tuple(changed)

    def leave(self, result):
        tensors = result if isinstance(result, tuple) else (result,)
        positions = [k for k, x in enumerate(tensors) if isinstance(x, Tensor)]
        if not any(tensors[k].requires_grad for k in positions):
            return result
        self.n_outputs, self.output_positions = len(tensors), positions
        passed = _Passing.apply(self._outputs_here, *(tensors[k] for k in positions))
        changed = list(tensors)
        for k, x in zip(positions, passed):
            changed[k] = x
        return tuple(changed) if isinstance(result, tuple) else changed[0]

    def _outputs_here(self, gradients):
        found = _spread(gradients, self.output_positions, self.n_outputs)
        for hook in self.before:
            changed = hook(self.module, found)
            found = found if changed is None else _as_tuple(changed)
        self.grad_output = found
        if not self.has_inputs:
            if self.after:
                warnings.warn(
                    "Full backward hook is firing when gradients are computed with respect to module outputs since no "
                    "inputs require gradients. See https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
                    "#torch.nn.Module.register_full_backward_hook for more details.",
                    stacklevel=2,
                )
            self._inputs_done((None,) * len(self.positions))
        return tuple(found[k] for k in self.output_positions)

    def _inputs_done(self, gradients):
        if self.grad_output is None:
            # They have not come by the outputs: a second derivative goes into the inputs only.
            return gradients
        found = _spread(gradients, self.positions, self.n_inputs)
        for hook in self.after:
            changed = hook(self.module, found, self.grad_output)
            found = found if changed is None else _as_tuple(changed)
        self.grad_output = None
        return tuple(found[k] for k in self.positions)


def _spread(gradients, positions, size):
    """One gradient per argument, None for those that are no tensors."""
    found = [None] * size
    for k, gradient in zip(positions, gradients):
        found[k] = gradient
    return tuple(found)


def _as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


class _Passing(Function):
    """Tensors as they are; in backward their gradients are what `function` makes of them."""

    @staticmethod
    def forward(ctx, function, *tensors):
        ctx.function = function
        ctx.set_materialize_grads(False)
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        return (None, *ctx.function(gradients))


def around_backward(module):
    """The AroundBackward of a module, which it gets now if it has none."""
    found = next((h for h in module._forward_pre_hooks.values() if isinstance(h, AroundBackward)), None)
    if found is None:
        found = AroundBackward()
        RemovableHandle(module._forward_pre_hooks, found)
    return found


def backward_hooks(table):
    """The property under which libraries look whether a module has such hooks: a dict, empty if it has none."""

    def read(module):
        found = next((h for h in module._forward_pre_hooks.values() if isinstance(h, AroundBackward)), None)
        return {} if found is None else getattr(found, table)

    return property(read)
