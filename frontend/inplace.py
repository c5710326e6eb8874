"""In-place forms of functions: `x.f_(...)` computes f(x, ...) and writes it into x's memory."""

import inspect
from math import prod

from .compiler import dtypes
from .compiler.ops import comparison, source, spelling, view
from .compiler.ops.table import OpError
from .creation import as_tensor, plain
from .kinds import answering, door
from .numpy_words import understanding
from .operands import operand
from .runtime.eager.gate import apply_inplace, check_fits
from .runtime.state import random
from .runtime.state.elsewhere import is_elsewhere
from .runtime.state.modes import state, watching
from .runtime.state.tensor import Tensor, shape_of
from .shaping import expand

# What PyTorch also has as functions, of forms that no entry of the op table spells: weft.zero_(x) is x.zero_().
FUNCTIONS = str.split("""
    addmv as_strided clamp clamp_max clamp_min clip conj_physical deg2rad detach fill frac index_put ldexp logit
    nan_to_num rad2deg resize_as round square zero
""")


def inplace_form(function):
    """The method `f_` of a function f whose first argument is the tensor. If the function says which op it is that
    changes a part (placing.py: changing), the rest is not computed."""
    change = getattr(inspect.unwrap(function, stop=_says_its_change), "change", None)

    def method(self, *args, **kwargs):
        found = None if change is None else change(self, *args, **kwargs)
        if found is not None:
            op, operands, attributes = found
            return apply_inplace(op, self, (self, *operands), attributes)
        # The derivative means the value before the change.
        is_recorded = state.grad_enabled and (self._requires_grad or _require_grad((*args, *kwargs.values())))
        old = view.clone(self) if is_recorded else self
        return written(function.__name__, self, function(old, *args, **kwargs))

    method.__name__ = f"{function.__name__}_"
    method.__doc__ = f"{function.__name__}, in place."
    method.__wrapped__ = function  # whose signature it has
    return method


def _require_grad(given):
    """Whether an argument does, or something in one that is a list."""
    tensors = (x for part in given for x in (part if type(part) in (list, tuple) else (part,)))
    return any(isinstance(x, Tensor) and x._requires_grad for x in tensors)


def _says_its_change(function):
    return hasattr(function, "change")


def written(name, target, new):
    """The target, after its values became those of `new`: of its shape, and of a type that converts to its own."""
    to, data = target._data, new._data
    if to is None or data is None or to.dtype is not data.dtype or to.shape != data.shape:
        check_fits(name, target, new)
        if new.dtype is not target.dtype:
            new = comparison.cast(new, dtype=target.dtype)
    return apply_inplace(view.clone, target, (new,), {})


def overwrite(target, new, node="CopyBackwards"):
    """The target, after its elements became those of `new`, expanded and converted. If it had a history, that goes on
    behind a node of this name, with gradients of zero, as in PyTorch."""
    if not isinstance(new, Tensor):
        new = as_tensor(new)
    if (target._data is None or new._data is None) and is_elsewhere(target) is not is_elsewhere(new):
        new = new.to(target.device)
    if shape_of(new) != shape_of(target):
        new = expand(new, target.shape)
    if new.dtype is not target.dtype:
        new = comparison.cast(new, dtype=target.dtype)
    if target._requires_grad and state.grad_enabled:
        return apply_inplace(spelling.overwritten, target, (target, new), {"node": node})
    return apply_inplace(view.clone, target, (new,), {})


def fill(target, value, node="FillBackward2"):
    """The target, after all of its elements became one number, or those of a tensor without dimensions."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise OpError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
        if value._requires_grad and state.grad_enabled:
            return overwrite(target, value, "FillBackward3")
    if target._requires_grad and state.grad_enabled:
        return apply_inplace(spelling.refilled, target, (target, plain(value)), {"node": node})
    data = target._data
    # Where no row is as long as the target, one element is computed, and spread by who knows how the target lies.
    is_spread = data is not None and state.frame is None and not watching and not data.flags.c_contiguous
    shape = () if is_spread else shape_of(target)
    return apply_inplace(source.full, target, (plain(value),), {"shape": shape, "dtype": target.dtype})


def redrawn(target, drawn, numbers, generator, **attributes):
    """Whether the target's elements have become what a `Drawn` makes of draws and plain floats, in one step: outside
    of calls in flight, if there are few, and autograd has nothing to do with it. attributes: the type of the draws, if
    the target's is another one, and what the `Drawn` asks for."""
    if state.frame is not None or not random.at_once(prod(shape_of(target))):
        return False
    is_noted = watching and getattr(state.forward, "notes_changes", False)
    if not is_noted and (watching or target._data is None):
        return False
    dtype = target.dtype
    if dtype not in _DRAWN or target._requires_grad and state.grad_enabled:
        return False
    if not attributes:
        if not dtype.is_floating_point:
            return False
        attributes = {"dtype": dtype}
    keys = random.keys_for(drawn, generator)
    apply_inplace(drawn.op, target, keys + numbers, {"shape": shape_of(target), **attributes})
    return True


# Whole numbers below 2^53 and truths are the same whether float64 becomes these at once or by way of int64.
_DRAWN = frozenset((dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_))


def attach(modules):
    """Give Tensor the in-place forms that the modules list."""
    for module in modules:
        for name in vars(module).get("INPLACE", ()):
            if not hasattr(Tensor, f"{name}_"):
                setattr(
                    Tensor,
                    f"{name}_",
                    door(f"{name}_", inplace_form(answering(understanding(name, getattr(module, name))))),
                )


def with_multiple(op, scaled, target, other, alpha):
    """op(target, alpha * other) in the target."""
    if alpha == 1:
        return apply_inplace(op, target, (target, other), {})
    if not isinstance(other, Tensor):
        return apply_inplace(op, target, (target, other * alpha), {})
    return apply_inplace(scaled, target, (target, other, operand(alpha)), {})
