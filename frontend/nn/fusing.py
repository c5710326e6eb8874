"""Batch norms folded into the layer before them, and forms of nn.utils that are older or change nothing here."""

import copy
import warnings

from ..runtime.state.modes import no_grad
from .parameter import Parameter
from .utils import clip_grad_norm_


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """A copy of a convolution that computes what it and the batch norm behind it compute in evaluation. `transpose`:
    it is a transposed one."""
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    return _fused(conv, bn, fuse_conv_bn_weights, transpose)


def fuse_linear_bn_eval(linear, bn):
    """A copy of a linear layer that computes what it and the batch norm behind it compute in evaluation."""
    if linear.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.num_features not in (1, linear.out_features):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    return _fused(linear, bn, fuse_linear_bn_weights)


def _fused(layer, bn, fuse, *options):
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    fused = copy.deepcopy(layer)
    fused.weight, fused.bias = fuse(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, *options
    )
    return fused


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    """(weight, bias) of the convolution that does both. `transpose`: output channels are the second dimension."""
    rows = [1] * conv_w.ndim
    rows[1 if transpose else 0] = -1
    return _folded(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, rows)


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    """(weight, bias) of the linear layer that does both."""
    return _folded(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _folded(weight, bias, mean, variance, eps, scale, shift, rows):
    # Parameters of a type that is narrower than the statistics keep it.
    kinds = weight.dtype, weight.dtype if bias is None else bias.dtype
    with no_grad():
        factor = (variance + eps).rsqrt()
        factor = factor if scale is None else factor * scale
        moved = (-mean if bias is None else bias - mean) * factor
        new = (weight * factor.reshape(rows)).to(kinds[0]), (moved if shift is None else moved + shift).to(kinds[1])
    return tuple(Parameter(value, old is None or old.requires_grad) for value, old in zip(new, (weight, bias)))


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """clip_grad_norm_, by its older name."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def convert_conv2d_weight_memory_format(module, memory_format):
    """The module: weights have one order in memory here."""
    return module


def convert_conv3d_weight_memory_format(module, memory_format):
    """The module: weights have one order in memory here."""
    return module
