"""Layers that give their input mean 0 and variance 1, over features or over the batch."""

from ..compiler.ops.table import OpError
from ..compiler.shapes import is_whole
from ..creation import full, ones, zeros
from ..runtime.state.device import require_cpu
from ..runtime.state.marks import pure
from ..runtime.state.modes import no_grad
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


def _shape_of_elements(given):
    return (int(given),) if is_whole(given) else tuple(int(n) for n in given)


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions (Ba et al., arXiv 1607.06450)."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = _shape_of_elements(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        weighted = Parameter(ones(self.normalized_shape, dtype=dtype, device=device)) if elementwise_affine else None
        self.register_parameter("weight", weighted)
        shifted = (
            Parameter(zeros(self.normalized_shape, dtype=dtype, device=device)) if elementwise_affine and bias else None
        )
        self.register_parameter("bias", shifted)

    def reset_parameters(self):
        """weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    @pure()
    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions (Zhang and Sennrich, arXiv 1910.07467)."""

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = _shape_of_elements(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        weighted = Parameter(ones(self.normalized_shape, dtype=dtype, device=device)) if elementwise_affine else None
        self.register_parameter("weight", weighted)

    def reset_parameters(self):
        """weight 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    @pure()
    def forward(self, input):
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class _BatchNorm(Module):
    """F.batch_norm with its state: weight, bias, running_mean, running_var, num_batches_tracked.

    momentum None: the running statistics are averages over all batches.
    """

    ranks = ()
    _version = 2

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__()
        require_cpu(self._get_name(), device)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.register_parameter("weight", Parameter(ones(num_features, dtype=dtype)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_features, dtype=dtype)) if affine and bias else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, dtype=dtype) if tracked else None)
        self.register_buffer("running_var", ones(num_features, dtype=dtype) if tracked else None)
        self.register_buffer("num_batches_tracked", full((), 0) if tracked else None)

    def _complete_state(self, state_dict, prefix, local_metadata):
        """Before version 2 batches were not counted."""
        version, key = local_metadata.get("version"), f"{prefix}num_batches_tracked"
        if (version is None or version < 2) and self.num_batches_tracked is not None and key not in state_dict:
            state_dict[key] = self.num_batches_tracked.detach()

    @pure(lambda layer, *_: layer.track_running_stats and not layer.training and layer._has_usual_check())
    def forward(self, input):
        self._check_input_dim(input)
        if input.shape[1] != self.num_features:
            self._refuse(input)
        momentum = self.momentum
        if self.training and self.track_running_stats:
            counted = self._count()
            momentum = counted if momentum is None else momentum
        by_batch = self.training or not self.track_running_stats
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, by_batch, momentum, self.eps
        )

    def _check_input_dim(self, input):
        """A ValueError where the rank is another one. Classes of users put their own in its place."""
        if len(input.shape) not in self.ranks:
            self._refuse(input)

    def _has_usual_check(self):
        return getattr(self._check_input_dim, "__func__", None) is _BatchNorm._check_input_dim

    def _refuse(self, input):
        wanted = " or ".join(f"{rank}D" for rank in self.ranks) or "another"
        raise OpError(
            f"{self._get_name()}({self.num_features}): input has shape {input.shape}; expected {wanted} input "
            f"with {self.num_features} channels in dimension 1"
        )

    @no_grad()
    def _count(self):
        """One batch more; its share in a mean over all of them, if that is kept."""
        self.num_batches_tracked.add_(1)
        return 1.0 / self.num_batches_tracked.double() if self.momentum is None else None

    def reset_parameters(self):
        """weight 1, bias 0, statistics as at the start."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def reset_running_stats(self):
        """running_mean 0, running_var 1, no batch seen."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Every channel of (N, C) or (N, C, L) to mean 0 and variance 1 over the batch (Ioffe and Szegedy, 1502.03167)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Every channel of (N, C, H, W) to mean 0 and variance 1 over the batch and all positions."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Every channel of (N, C, D, H, W) to mean 0 and variance 1 over the batch and all positions."""

    ranks = (5,)
