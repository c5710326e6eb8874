"""weft.utils.checkpoint: parts of a model whose values backward computes again instead of keeping them.

In eager mode what nodes of the part save is let go, and the part runs once more when backward asks for the first of it
(saved-tensor hooks: runtime/eager/saved_hooks.py). A compiled call simply runs the part and decides by itself what to
keep and what to compute again, for every value. Values and gradients are the same either way.
"""

import warnings
from contextlib import nullcontext
from weakref import WeakKeyDictionary

from .. import random
from ..amp import autocast
from ..public import of_module
from ..reference import document
from ..runtime.eager.saved_hooks import saved_tensors_hooks
from ..runtime.state.modes import enable_grad, no_grad, state
from ..runtime.state.tensor import Tensor

__getattr__, __dir__ = of_module(__name__)
__all__ = [
    "CheckpointError",
    "checkpoint",
    "checkpoint_sequential",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]


class CheckpointError(RuntimeError):
    """A part did something else when it ran again."""


class _EnoughRecomputed(Exception):
    """All that backward needs of a part has been computed again."""


class _Switch:
    """A setting that has another value in a `with` block."""

    def __init__(self, value):
        self.value = value


_early_stop = _Switch(True)


class set_checkpoint_early_stop:
    """A `with` block: whether parts that run again stop after the last value that backward needs."""

    def __init__(self, enable):
        self.enable = bool(enable)

    def __enter__(self):
        self.before, _early_stop.value = _early_stop.value, self.enable

    def __exit__(self, *exception):
        _early_stop.value = self.before


class set_checkpoint_debug_enabled:
    """Accepted: errors say which value differs without it."""

    def __init__(self, enabled):
        self.enabled = enabled

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


def noop_context_fn():
    """The contexts in which a part runs, first and again, if none are given."""
    return nullcontext(), nullcontext()


class _Place:
    """Stands for a saved tensor: which of those of its part it is."""

    __slots__ = ("part", "index", "meta")

    def __init__(self, part, index, meta):
        self.part, self.index, self.meta = part, index, meta


class _Part:
    """One call of a checkpointed function, which can be made again.

    `again` has what every backward pass that asked has computed again and not taken yet. It goes with the pass, whether
    that ends or fails: nothing here keeps a graph.
    """

    def __init__(self, run, context, rng_state, early_stop, checks):
        self.run, self.context, self.rng_state, self.checks = run, context, rng_state, checks
        self.early_stop, self.autocast = early_stop, state.autocast
        self.metas, self.has_run = [], False
        self.again = WeakKeyDictionary()

    def pack(self, tensor):
        self.metas.append((tensor.shape, tensor.dtype))
        return _Place(self, len(self.metas) - 1, self.metas[-1])

    def unpack(self, place):
        if state.sweep is None:
            return self.recomputed()[place.index]
        values = self.again.get(state.sweep)
        # A part that still runs may have saved more since.
        if values is None or place.index >= values.n_values:
            values = self.again[state.sweep] = self.recomputed()
        if place.index not in values:
            raise CheckpointError(_TAKEN)
        return values.pop(place.index)

    def recomputed(self):
        """What the nodes of the part save, by position."""
        values, n_wanted = _Values(), len(self.metas)

        def keep(tensor):
            k = len(values)
            if k >= n_wanted and not self.has_run:
                # What is asked for is all that the part had saved so far.
                return tensor
            if self.checks and k < n_wanted and (tensor.shape, tensor.dtype) != self.metas[k]:
                raise CheckpointError(_OTHER_META.format(k, self.metas[k], (tensor.shape, tensor.dtype)))
            values[k] = tensor
            if self.early_stop and len(values) == n_wanted:
                raise _EnoughRecomputed
            return k

        inner = saved_tensors_hooks(keep, lambda k: k if isinstance(k, Tensor) else values[k])
        after = None if self.rng_state is None else random.get_rng_state()
        try:
            if after is not None:
                random.set_rng_state(self.rng_state)
            with enable_grad(), inner, autocast("cpu", self.autocast, self.autocast is not None), self.context:
                self.run()
        except _EnoughRecomputed:
            pass
        finally:
            if after is not None:
                random.set_rng_state(after)
        if len(values) != n_wanted and (self.checks or len(values) < n_wanted):
            raise CheckpointError(_OTHER_NUMBER.format(n_wanted, len(values)))
        values.n_values = n_wanted
        return values


class _Values(dict):
    """Saved tensors by position; `n_values` counts those that have been taken too."""

    n_values = 0


_TAKEN = (
    "checkpoint: Unpack is being triggered for a tensor that was already unpacked once in this backward pass: what a "
    "part has computed again is let go when it is read. Read ctx.saved_tensors once, and keep the result."
)
_OTHER_NUMBER = (
    "checkpoint: A different number of tensors was saved during the original forward and recomputation. Number of "
    "tensors saved during forward: {}; during recomputation: {}. The function must do the same when it runs again."
)
_OTHER_META = (
    "checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass: "
    "tensor at position {}: shape and type {} then, {} now. The function must do the same when it runs again."
)


def checkpoint(
    function,
    *args,
    use_reentrant=None,
    context_fn=noop_context_fn,
    determinism_check="default",
    debug=False,
    preserve_rng_state=True,
    early_stop=True,
    **kwargs,
):
    """function(*args, **kwargs); what backward needs of it is computed again then.

    use_reentrant: with True (and None, which PyTorch asks to say) gradients only flow if one of the arguments requires
    them. context_fn gives two contexts, for the first run and the second; preserve_rng_state: the second run draws the
    same random numbers. CheckpointError if the function does something else when it runs again.
    """
    if use_reentrant is None:
        warnings.warn(
            "weft.utils.checkpoint: the use_reentrant parameter should be passed explicitly: use_reentrant=False is "
            "recommended. None stands for True.",
            stacklevel=2,
        )
        use_reentrant = True
    if use_reentrant and (kwargs or context_fn is not noop_context_fn):
        raise ValueError(
            f"Unexpected keyword arguments: {','.join(kwargs) or 'context_fn'} (use_reentrant=False takes them)"
        )
    if not use_reentrant or not state.grad_enabled:
        pass
    elif not any(isinstance(x, Tensor) and x.requires_grad for x in args):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)
        with no_grad():
            return function(*args)
    if state.frame is not None or not state.grad_enabled:
        return _required(function(*args, **kwargs), use_reentrant and state.grad_enabled)
    first, again = context_fn()
    rng_state = random.get_rng_state() if preserve_rng_state else None
    stops = early_stop and _early_stop.value
    part = _Part(lambda: function(*args, **kwargs), again, rng_state, stops, determinism_check != "none")
    with saved_tensors_hooks(part.pack, part.unpack), first:
        result = function(*args, **kwargs)
    part.has_run = True
    return _required(result, use_reentrant)


def _required(result, is_reentrant):
    """The result of a part; RuntimeError where PyTorch's backward would find that none of it has gradients."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    tensors = [x for x in outputs if isinstance(x, Tensor)]
    if is_reentrant and tensors and not any(x.requires_grad for x in tensors):
        raise RuntimeError(
            "checkpoint: none of output has requires_grad=True, this checkpoint() is not necessary; a part that has no "
            "gradients may be called as it is, or with use_reentrant=False"
        )
    return result


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """The functions, or the modules of a Sequential, one after the other, in so many parts: all but the last are
    checkpointed."""
    if use_reentrant is None:
        warnings.warn(
            "weft.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly: "
            "use_reentrant=False is recommended. None stands for True.",
            stacklevel=2,
        )
        use_reentrant = True
    functions = list(functions.children() if hasattr(functions, "children") else functions)
    size = len(functions) // segments
    for k in range(segments - 1):
        part = functions[k * size : (k + 1) * size]
        input = checkpoint(lambda x, part=part: _in_turn(part, x), input, use_reentrant=use_reentrant, **kwargs)
    return _in_turn(functions[(segments - 1) * size :], input)


def _in_turn(functions, x):
    for function in functions:
        x = function(x)
    return x


def get_device_states(*args):
    """The devices besides the CPU that the arguments are on, and the states of their generators: none, and none."""
    return [], []


def set_device_states(devices, states, *, device_type=None):
    """Give such generators their states back. There are none; ValueError for states of others."""
    if len(devices) or len(states):
        raise ValueError(f"set_device_states: got states of {len(states)} devices; weft computes on the CPU alone")


document("utils.checkpoint", __name__)
