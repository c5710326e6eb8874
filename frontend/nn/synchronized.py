"""SyncBatchNorm: batch normalization over the batches of all processes, which share mean and variance.

    forward    sum of x, number of elements ---- all_reduce ---- mean
               sum of (x - mean)^2 ------------- all_reduce ---- variance
    backward   the two sums of cotangents, reduced in the same way

The two exchanges have derivatives (distributed.nn.functional), and the rest is made of ops that have, so the backward
is that of the joint batch: every rank must take part in it.
"""

from ..compiler import dtypes
from ..compiler.ops.table import OpError
from ..creation import tensor
from ..distributed import started
from ..distributed.collectives import all_reduce as all_reduce_into
from ..distributed.functional import all_reduce
from ..functions import arithmetic
from ..runtime.distributed.group import world
from ..runtime.state.modes import no_grad
from .normalization import _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """Every channel of (N, C, ...) to mean 0 and variance 1 over the batches of all processes of a group.

    process_group: what new_group returned; None for all processes. In evaluation, in a group of one process and where
    no group has been made it is BatchNorm. Ranks may have batches of different sizes, one of them none at all; all must
    call forward, and backward, equally often. Raises ValueError on all ranks if they have one value per channel in all.
    """

    ranks = range(2, 65)

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        process_group=None,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def forward(self, input):
        self._check(input)
        group = started.member(self.process_group) if self.training and world.group is not None else None
        if group is None or group.n_ranks == 1:
            return super().forward(input)
        share = None
        if self.track_running_stats:
            counted = self._count()
            share = counted if self.momentum is None else self.momentum
        x = input.float() if input.dtype.is_half else input
        result, mean, variance, count = _normalized(x, group, self.eps)
        if share is not None:
            self._follow(mean.detach(), variance.detach(), count, share)
        channels = (1, self.num_features) + (1,) * (x.ndim - 2)
        if self.weight is not None:
            result = result * self.weight.reshape(channels)
        if self.bias is not None:
            result = result + self.bias.reshape(channels)
        return result.to(input.dtype)

    def _check(self, input):
        if input.ndim < 2 or input.shape[1] != self.num_features:
            raise OpError(
                f"SyncBatchNorm({self.num_features}): input has shape {tuple(input.shape)}; expected at least 2D input "
                f"with {self.num_features} channels in dimension 1"
            )

    @no_grad()
    def _follow(self, mean, variance, count, share):
        """Move the running statistics towards those of the joint batch."""
        for running, value in ((self.running_mean, mean), (self.running_var, variance + variance / (count - 1))):
            running.copy_(running * (1.0 - share) + value.reshape(-1) * share)

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """The module with a SyncBatchNorm in place of each BatchNorm in it, with the same parameters and buffers; one
        in its own place, if it is a BatchNorm."""
        made = cls._of(module, process_group) if isinstance(module, _BatchNorm) else module
        for name, child in list(module._modules.items()):
            if child is not None:
                made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made

    @classmethod
    def _of(cls, layer, process_group):
        made = cls(
            layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats, process_group,
            bias=layer.bias is not None,
        )  # fmt: skip
        if layer.affine:
            made.weight, made.bias = layer.weight, layer.bias
        made.running_mean, made.running_var = layer.running_mean, layer.running_var
        made.num_batches_tracked = layer.num_batches_tracked
        made.training = layer.training
        return made


def _normalized(x, group, eps):
    """(x normalized, mean and variance of the joint batch, how many values a channel has in it)."""
    axes = (0, *range(2, x.ndim))
    count = _joint_count(x, group)
    if count <= 1:
        raise ValueError(
            "SyncBatchNorm: Expected more than 1 value per channel when training, input on all ranks together has "
            f"{count}; here it has shape {tuple(x.shape)}"
        )
    mean = all_reduce(x.sum(axes, keepdim=True), group=group) / count
    apart = x - mean
    variance = all_reduce((apart * apart).sum(axes, keepdim=True), group=group) / count
    return apart * arithmetic.rsqrt(variance + eps), mean, variance, count


def _joint_count(x, group):
    count = tensor(x.numel() // max(x.shape[1], 1), dtype=dtypes.int64)
    all_reduce_into(count, group=group)
    return count.item()
