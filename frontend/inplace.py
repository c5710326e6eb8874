"""In-place forms of functions: `x.f_(...)` computes f(x, ...) and writes it into x's memory."""

from .compiler.ops import comparison, view
from .runtime.eager.gate import apply_inplace, check_fits
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor

# What PyTorch also has as functions, of forms that no entry of the op table spells: weft.zero_(x) is x.zero_().
FUNCTIONS = str.split("""
    addmv clamp clamp_max clamp_min clip deg2rad fill frac index_put ldexp logit nan_to_num rad2deg round square zero
""")


def inplace_form(function):
    """The method `f_` of a function f whose first argument is the tensor."""

    def method(self, *args, **kwargs):
        # The derivative means the value before the change.
        old = view.clone(self) if self._requires_grad and state.grad_enabled else self
        return written(function.__name__, self, function(old, *args, **kwargs))

    method.__name__ = f"{function.__name__}_"
    method.__doc__ = f"{function.__name__}, in place."
    return method


def written(name, target, new):
    """The target, after its values became those of `new`: of its shape, and of a type that converts to its own."""
    check_fits(name, target, new)
    if new.dtype is not target.dtype:
        new = comparison.cast(new, dtype=target.dtype)
    return apply_inplace(view.clone, target, (new,), {})


def attach(modules):
    """Give Tensor the in-place forms that the modules list."""
    for module in modules:
        for name in vars(module).get("INPLACE", ()):
            if not hasattr(Tensor, f"{name}_"):
                setattr(Tensor, f"{name}_", inplace_form(getattr(module, name)))
