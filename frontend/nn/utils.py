"""Gradient clipping, parameters as one vector, and the older forms of normalised weights.

`foreach` is taken as PyTorch takes it, and has no meaning: there is one way to compute these.
"""

import math
import warnings
from types import GeneratorType

from ..compiler.dtypes import float32, float64
from ..compiler.ops import arithmetic, statistics, view
from ..compiler.ops.table import OpError
from ..creation import zeros
from ..iterables import tensors_of
from ..public import of_module
from ..reducing import norm
from ..runtime.eager.update import update
from ..runtime.state.modes import no_grad, state, watching
from ..runtime.state.tensor import Tensor, shape_of
from ..shaping import cat
from .weight_norms import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm

__getattr__, __dir__ = of_module(__name__)

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm", "parameters_to_vector",
    "remove_spectral_norm", "remove_weight_norm", "skip_init", "spectral_norm", "vector_to_parameters", "weight_norm",
]  # fmt: skip

_WIDE = (float32, float64)
_ALL_AXES = [tuple(range(ndim)) for ndim in range(5)]


@no_grad
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scale all gradients so that their common norm is at most max_norm; returns the norm they had.

    parameters: a tensor or any iterable of tensors; those without a gradient are passed over. With error_if_nonfinite a
    norm that is NaN or infinite raises RuntimeError.
    """
    params = tensors_of("clip_grad_norm_", "parameters", parameters)
    if not params and isinstance(parameters, GeneratorType):
        message = "`parameters` is an empty generator, no gradient clipping will occur."
        warnings.warn(message, stacklevel=3)
    grads = _gradients(params)
    total = get_total_norm(grads, norm_type, error_if_nonfinite)
    _scale(grads, max_norm, total)
    return total


@no_grad
def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all tensors as one vector: the norm of their norms. 0 if there are none.

    With error_if_nonfinite a norm that is NaN or infinite raises RuntimeError.
    """
    tensors, order = tensors_of("get_total_norm", "tensors", tensors), float(norm_type)
    if not tensors:
        return zeros(())
    norms = [_norm(t, order) for t in tensors]
    total = _norm(view.stack(*norms, axis=0), order)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


def _norm(x, order):
    """norm(x, order), without the questions that gradients of these types need not be asked one by one."""
    if order == 2.0 and x.dtype in _WIDE:
        ndim = x.ndim
        return statistics.norm(x, axes=_ALL_AXES[ndim] if ndim < 5 else tuple(range(ndim)), keepdim=False)
    return norm(x, order)


@no_grad
def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scale all gradients as `clip_grad_norm_` does, given the norm they have together."""
    _scale(_gradients(tensors_of("clip_grads_with_norm_", "parameters", parameters)), max_norm, total_norm)


@no_grad
def clip_grad_value_(parameters, clip_value, foreach=None):
    """Cut every element of every gradient to [-clip_value, clip_value]."""
    bound = float(clip_value)
    grads = _gradients(tensors_of("clip_grad_value_", "parameters", parameters))
    if _are_updated(grads):
        update(_clamped, [(grad,) for grad in grads], (-bound, bound))
        return
    for grad in grads:
        grad.clamp_(-bound, bound)


def _gradients(params):
    return [p.grad for p in params if p.grad is not None]


def _scale(grads, max_norm, total):
    if not grads:
        return
    factor = arithmetic.clamp_max(float(max_norm) / (total + 1e-6), 1.0)
    # Multiplying by 1 keeps the bits, and no branch has to wait for the norm.
    if _are_updated(grads):
        update(_scaled, [(grad, factor) for grad in grads])
        return
    for grad in grads:
        grad.mul_(factor)


def _are_updated(grads):
    """Whether they change as parameters do in a step of an optimizer, all in one call. What is recorded, or watched, or
    of another type goes one by one."""
    return state.frame is None and not watching and all(grad.dtype in _WIDE for grad in grads)


def _scaled(grad, factor):
    return arithmetic.mul(grad, factor), None


def _clamped(grad, low, high):
    return (arithmetic.clamp(grad, low, high),)


def parameters_to_vector(parameters):
    """All parameters one after the other, as a tensor with one dimension."""
    return cat([p.reshape((-1,)) for p in tensors_of("parameters_to_vector", "parameters", parameters)])


@no_grad
def vector_to_parameters(vec, parameters):
    """Copy a vector made by `parameters_to_vector` back into the parameters."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters: vec is a {type(vec).__name__}; it must be a Tensor: weft.tensor(...)")
    params = tensors_of("vector_to_parameters", "parameters", parameters)
    counts = [math.prod(shape_of(p)) for p in params]
    needed = sum(counts)
    if vec.shape != (needed,):
        raise OpError(f"vector_to_parameters: vec has shape {vec.shape}, the parameters need ({needed},)")
    start = 0
    for param, count in zip(params, counts):
        param.copy_(vec[start : start + count].reshape(shape_of(param)))
        start += count


def skip_init(module_cls, *args, **kwargs):
    """module_cls(*args, **kwargs): its parameters are drawn, which costs time and changes nothing that is set later."""
    return module_cls(*args, **kwargs)
