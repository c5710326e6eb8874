"""Normalisation over groups of channels, single channels, and neighbouring channels; distances as layers."""

import math

from ..compiler.ops.arithmetic import rsqrt
from ..compiler.ops.normalization import group_norm as _group_norm
from ..compiler.ops.table import OpError
from ..creation import full, ones, zeros
from ..functions import pow
from ..half_floats import in_float32
from ..reducing import mean, var
from ..runtime.state.modes import no_grad
from ..shaping import cat, narrow, reshape
from . import functional as F
from . import init
from .module import Module
from .padding import pad
from .parameter import Parameter


def _scaled(normal, weight, bias, shape):
    """normal * weight + bias, each spread over the shape."""
    result = normal if weight is None else normal * reshape(weight, shape)
    return result if bias is None else result + reshape(bias, shape)


@in_float32
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Every group of channels of every sample to mean 0 and variance 1 (Wu and He, arXiv 1803.08494): (N, C, *)."""
    if input.ndim < 2:
        raise OpError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    channels = input.shape[1]
    if num_groups <= 0 or channels % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(input.shape)} and num_groups={num_groups}"
        )
    for name, x in (("weight", weight), ("bias", bias)):
        if x is not None and x.shape != (channels,):
            raise OpError(
                f"Expected {name} to be a vector of size equal to the number of channels {channels}: {x.shape}"
            )
    return _of_groups(input, num_groups, weight, bias, eps)


def _of_groups(input, num_groups, weight, bias, eps):
    shape = (input.shape[1], *(1,) * (input.ndim - 2))
    if not input.numel():
        return _scaled(input * 1, weight, bias, shape)
    if weight is None:
        return _scaled(_group_norm(input, groups=num_groups, eps=float(eps)), None, bias, shape)
    affine = [weight] if bias is None else [weight, bias]
    return _group_norm(input, *affine, groups=num_groups, eps=float(eps))


@in_float32
def instance_norm(
    input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5
):
    """Every channel of every sample to mean 0 and variance 1 (Ulyanov et al., arXiv 1607.08022): (N, C, *).

    Without use_input_stats by the running statistics; else those, if given, move towards the batch's by `momentum`.
    """
    axes = tuple(range(2, input.ndim))
    shape = (1, input.shape[1], *(1,) * len(axes))
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
        centred = input - reshape(running_mean, shape)
        return _scaled(centred * rsqrt(reshape(running_var, shape) + eps), weight, bias, shape)
    count = math.prod(input.shape[2:])
    if count == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    if running_mean is not None and input.numel():
        with no_grad():
            F._move(running_mean, mean(mean(input, axes), 0), momentum)
            F._move(running_var, mean(var(input, axes), 0), momentum)
    return _of_groups(input, input.shape[1], weight, bias, eps)


@in_float32
def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """x / (k + alpha mean of the squares of `size` neighbouring channels)^beta (Krizhevsky et al., 2012)."""
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if not input.numel():
        return input
    squares, channels = input * input, input.shape[1]
    padded = pad(squares, (0, 0) * (input.ndim - 2) + (size // 2, (size - 1) // 2))
    total = narrow(padded, 1, 0, channels)
    for shift in range(1, size):
        total = total + narrow(padded, 1, shift, channels)
    return input / pow(total / size * alpha + k, beta)


# --- layers -----------------------------------------------------------------------------------------------------------
class GroupNorm(Module):
    """Every group of channels to mean 0 and variance 1."""

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, *, bias=True):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.register_parameter("weight", Parameter(ones(num_channels, dtype=dtype, device=device)) if affine else None)
        self.register_parameter(
            "bias", Parameter(zeros(num_channels, dtype=dtype, device=device)) if affine and bias else None
        )

    def reset_parameters(self):
        """weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class _InstanceNorm(Module):
    """Every channel of every sample to mean 0 and variance 1. Unlike batch norm, without parameters by default."""

    rank = 1
    _version = 2

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=False,
        track_running_stats=False,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.register_parameter("weight", Parameter(ones(num_features, dtype=dtype, device=device)) if affine else None)
        shifts = affine and bias
        self.register_parameter("bias", Parameter(zeros(num_features, dtype=dtype, device=device)) if shifts else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, dtype=dtype, device=device) if tracked else None)
        self.register_buffer("running_var", ones(num_features, dtype=dtype, device=device) if tracked else None)
        self.register_buffer("num_batches_tracked", full((), 0) if tracked else None)

    def reset_parameters(self):
        """weight 1, bias 0, statistics as at the start."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def reset_running_stats(self):
        """running_mean 0, running_var 1."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def _check_input_dim(self, input):
        if input.ndim not in (self.rank + 1, self.rank + 2):
            raise ValueError(f"expected {self.rank + 1}D or {self.rank + 2}D input (got {input.ndim}D input)")

    def forward(self, input):
        self._check_input_dim(input)
        batched = input if input.ndim == self.rank + 2 else reshape(input, (1, *input.shape))
        if self.affine and batched.shape[1] != self.num_features:
            raise ValueError(
                f"expected input's size at dim=1 to match num_features ({self.num_features}): {input.shape}"
            )
        result = instance_norm(
            batched,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )
        return result if input.ndim == self.rank + 2 else result[0]

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class InstanceNorm1d(_InstanceNorm):
    """(N, C, L) or (C, L)."""


class InstanceNorm2d(_InstanceNorm):
    """(N, C, H, W) or (C, H, W)."""

    rank = 2


class InstanceNorm3d(_InstanceNorm):
    """(N, C, D, H, W) or (C, D, H, W)."""

    rank = 3


class LocalResponseNorm(Module):
    """Channels divided by their neighbours: see functional.local_response_norm."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        return local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """Channels of (N, C, H, W) divided by their neighbours. As in PyTorch the first channel stays among the neighbours
    of all that are too far from it to have it there, and an even `size` is the odd one below."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1):
        super().__init__(size, alpha, beta, k)

    def forward(self, input):
        if input.ndim != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.ndim}D instead.")
        before = int((self.size - 1) / 2)
        squares, total = pad(input * input, (0, 0, 0, 0, before, before)), 0
        for shift in range(2 * before + 1):
            total = total + narrow(squares, 1, shift, input.shape[1])
        near, far = total[:, : before + 1], total[:, before + 1 :]
        total = cat([near, far + input[:, :1] * input[:, :1]], 1)
        return input * pow(total * (self.alpha / self.size) + self.k, -self.beta)


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along dim."""

    def __init__(self, dim=1, eps=1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1, x2):
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of differences along the last dimension."""

    def __init__(self, p=2.0, eps=1e-6, keepdim=False):
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1, x2):
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


FUNCTIONS = str.split("group_norm instance_norm local_response_norm")
LAYERS = str.split("""
    CrossMapLRN2d GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d LocalResponseNorm CosineSimilarity
    PairwiseDistance
""")
