"""weft.einops: makes einops know weft's tensors, and its layers as modules.

    import weft.einops
    from einops import rearrange

    rearrange(weft.rand(2, 3), "a b -> b a")

einops asks each of its backends whether a tensor is its own. A backend is known to it from when its class is made, and
is looked at once the module of its framework is imported: importing this file is all there is to do. It needs einops:
pip install einops.
"""

try:
    from einops._backends import AbstractBackend
    from einops.layers import RearrangeMixin, ReduceMixin
    from einops.layers._einmix import _EinmixMixin
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "weft.einops needs einops, which is not installed: pip install einops", name=missing.name
    ) from missing

from . import nn
from .compiler.dtypes import int64
from .creation import arange, empty, from_numpy
from .products import einsum
from .runtime.state.tensor import Tensor
from .shaping import cat, stack

__all__ = ["EinMix", "Rearrange", "Reduce"]


class WeftBackend(AbstractBackend):
    """What einops does with tensors, said in weft's words."""

    framework_name = "weft"

    def is_appropriate_type(self, tensor):
        return isinstance(tensor, Tensor)

    def from_numpy(self, x):
        return from_numpy(x)

    def to_numpy(self, x):
        return x.detach().numpy()

    def arange(self, start, stop):
        return arange(start, stop, dtype=int64)

    def reduce(self, x, operation, reduced_axes):
        method = {"min": "amin", "max": "amax"}.get(operation, operation)
        if operation not in ("any", "all", "prod"):
            return getattr(x, method)(dim=tuple(reduced_axes))
        for axis in sorted(reduced_axes, reverse=True):  # these take one axis at a time
            x = getattr(x, method)(dim=axis)
        return x

    def transpose(self, x, axes):
        return x.permute(axes)

    def stack_on_zeroth_dimension(self, tensors):
        return stack(tensors)

    def add_axes(self, x, n_axes, pos2len):
        sizes = [-1] * n_axes
        for axis, size in pos2len.items():
            x = self.add_axis(x, axis)
            sizes[axis] = size
        return x.expand(sizes)

    def add_axis(self, x, new_position):
        return x.unsqueeze(new_position)

    def tile(self, x, repeats):
        return x.repeat(repeats)

    def concat(self, tensors, axis):
        return cat(tensors, dim=axis)

    def is_float_type(self, x):
        return x.dtype.is_floating_point

    def einsum(self, pattern, *x):
        return einsum(pattern, *x)


class Rearrange(RearrangeMixin, nn.Module):
    """einops.rearrange as a layer: Rearrange("b c h w -> b (c h w)").

    >>> import weft
    >>> Rearrange("b c h -> b (c h)")(weft.ones(2, 3, 4)).shape
    weft.Size([2, 12])
    """

    def forward(self, input):
        return self._apply_recipe(input)


class Reduce(ReduceMixin, nn.Module):
    """einops.reduce as a layer: Reduce("b c h w -> b c", "mean")."""

    def forward(self, input):
        return self._apply_recipe(input)


class EinMix(_EinmixMixin, nn.Module):
    """einops' linear layer along named axes: EinMix("b c w -> b o w", weight_shape="c o", c=3, o=5).

    Weight and bias are drawn as einops says; see its documentation.
    """

    def _create_parameters(self, weight_shape, weight_bound, bias_shape, bias_bound):
        self.weight = nn.Parameter(empty(*weight_shape).uniform_(-weight_bound, weight_bound))
        self.bias = None if bias_shape is None else nn.Parameter(empty(*bias_shape).uniform_(-bias_bound, bias_bound))

    def _create_rearrange_layers(self, pre_pattern, pre_lengths, post_pattern, post_lengths):
        self.pre_rearrange = Rearrange(pre_pattern, **pre_lengths) if pre_pattern is not None else nn.Identity()
        self.post_rearrange = Rearrange(post_pattern, **post_lengths) if post_pattern is not None else nn.Identity()

    def forward(self, input):
        mixed = einsum(self.einsum_pattern, self.pre_rearrange(input), self.weight)
        return self.post_rearrange(mixed if self.bias is None else mixed + self.bias)
