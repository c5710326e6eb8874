"""Gradient clipping, and parameters as one vector."""

import math

from ..absent import attribute_of
from ..compiler.ops import arithmetic, reduction, statistics, view
from ..creation import zeros
from ..runtime.modes import no_grad
from ..runtime.tensor import Tensor

__getattr__ = attribute_of(__name__)


def _gradients(parameters):
    tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p.grad for p in tensors if p.grad is not None]


@no_grad
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scale all gradients so that their common norm is at most max_norm; returns the norm they had.

    With error_if_nonfinite a norm that is NaN or infinite raises RuntimeError.
    """
    gradients = _gradients(parameters)
    total = get_total_norm(gradients, norm_type, error_if_nonfinite)
    factor = arithmetic.clamp_max(float(max_norm) / (total + 1e-6), 1.0)
    for grad in gradients:
        # Multiplying by 1 keeps the bits, and no branch has to wait for the norm.
        grad.mul_(factor)
    return total


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all tensors as one vector: the norm of their norms."""
    tensors = list(tensors)
    if not tensors:
        return zeros(())
    norms = [view.reshape(_norm(t, float(norm_type)), shape=(1,)) for t in tensors]
    total = _norm(view.cat(*norms, axis=0), float(norm_type))
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


def _norm(x, order):
    axes = tuple(range(len(x.shape)))
    if order == 2.0:
        return statistics.norm(x, axes=axes, keepdim=False)
    sizes = arithmetic.abs_(x)
    if order == math.inf:
        return reduction.amax(sizes, axes=axes, keepdim=False)
    return (sizes**order).sum() ** (1.0 / order)


@no_grad
def clip_grad_value_(parameters, clip_value, foreach=None):
    """Cut every element of every gradient to [-clip_value, clip_value]."""
    bound = float(clip_value)
    for grad in _gradients(parameters):
        grad.clamp_(-bound, bound)


def parameters_to_vector(parameters):
    """All parameters one after the other, as a tensor with one dimension."""
    return view.cat(*(p.reshape((-1,)) for p in parameters), axis=0)


@no_grad
def vector_to_parameters(vec, parameters):
    """Copy a vector made by `parameters_to_vector` back into the parameters."""
    parameters = list(parameters)
    needed = sum(math.prod(p.shape) for p in parameters)
    if vec.shape != (needed,):
        raise ValueError(f"vector_to_parameters: vec has shape {vec.shape}, the parameters need ({needed},)")
    start = 0
    for param in parameters:
        count = math.prod(param.shape)
        param.copy_(vec[start : start + count].reshape(param.shape))
        start += count
