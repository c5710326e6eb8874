"""In-place forms of functions: `x.f_(...)` computes f(x, ...) and writes it into x's memory."""

from .compiler.ops import comparison, view
from .runtime.eager.gate import apply_inplace, check_fits
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor

# What PyTorch also has as functions: weft.relu_(x) is x.relu_().
FUNCTIONS = str.split("""
    abs acos acosh addmv arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh ceil clamp clamp_max
    clamp_min clip cos cosh deg2rad erf erfc exp exp2 expm1 fill fix floor frac gcd i0 index_put lcm ldexp log log10
    log1p log2 logit nan_to_num neg negative rad2deg reciprocal relu round rsqrt sigmoid sin sinc sinh sqrt square tan
    tanh trunc xlogy zero
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
        for name in getattr(module, "INPLACE", ()):
            if not hasattr(Tensor, f"{name}_"):
                setattr(Tensor, f"{name}_", inplace_form(getattr(module, name)))
