"""Layers that learn the size of their input from the first one: LazyLinear and its like.

Until then their parameters are uninitialized: they cannot be used, and an optimizer should be made afterwards. The
first forward makes the layer what it stands for, which is then its class.
"""

from ..creation import tensor
from .convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .group_normalization import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from .layers import Linear
from .normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy

LAYERS = str.split("""
    LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear
    LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d UninitializedBuffer
    UninitializedParameter
""")


class LazyModuleMixin:
    """Base of lazy layers, before the layer's own class. Subclasses define initialize_parameters(*args), which
    materializes everything, and `cls_to_become`."""

    cls_to_become = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._initialize_hook = self.register_forward_pre_hook(_initialize, with_kwargs=True)

    def has_uninitialized_params(self):
        """Whether a parameter or buffer of its own has no shape yet."""
        return any(is_lazy(x) for x in (*self._parameters.values(), *self._buffers.values()))

    def initialize_parameters(self, *args, **kwargs):
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def reset_parameters(self):
        # The layer's own constructor calls it too early, with sizes of 0: there is no hook yet.
        if hasattr(self, "_initialize_hook") and not self.has_uninitialized_params():
            super().reset_parameters()


def materialize(module, shapes):
    """Give shapes to what has none: not to what a state_dict has filled. Whether there was any."""
    lazy = [(x, shape) for name, shape in shapes.items() if is_lazy(x := getattr(module, name))]
    for x, shape in lazy:
        x.materialize(shape)
    return bool(lazy)


def _initialize(module, args, kwargs):
    module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
    module._initialize_hook.remove()
    del module._initialize_hook
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


class LazyLinear(LazyModuleMixin, Linear):
    """Linear whose in_features is the last dimension of the first input."""

    cls_to_become = Linear

    def __init__(self, out_features, bias=True, device=None, dtype=None):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def initialize_parameters(self, input):
        self.in_features = input.shape[-1]
        shapes = {"weight": (self.out_features, self.in_features), "bias": (self.out_features,)}
        if materialize(self, shapes):
            self.reset_parameters()


class _LazyBatchNorm(LazyModuleMixin):
    """Batch normalisation whose num_features is the second dimension of the first input."""

    def __init__(
        self, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None, *, bias=True
    ):
        super().__init__(0, eps, momentum, affine=False, track_running_stats=False)
        self.affine, self.track_running_stats = affine, track_running_stats
        kind = {"device": device, "dtype": dtype}
        if affine:
            self.weight = UninitializedParameter(**kind)
            self.bias = UninitializedParameter(**kind) if bias else None
        if track_running_stats:
            self.running_mean, self.running_var = UninitializedBuffer(**kind), UninitializedBuffer(**kind)
            self.num_batches_tracked = tensor(0)

    def initialize_parameters(self, input):
        self.num_features = input.shape[1]
        shapes = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (self.num_features,))
        if materialize(self, shapes):
            self.reset_parameters()


class _LazyInstanceNorm(_LazyBatchNorm):
    """Instance normalisation whose num_features is the dimension of channels of the first input."""

    def __init__(
        self, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None, *, bias=True
    ):
        super().__init__(eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def initialize_parameters(self, input):
        channels = input.shape[1] if input.ndim == self.rank + 2 else input.shape[0]
        self.num_features = channels
        shapes = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (channels,))
        if materialize(self, shapes):
            self.reset_parameters()


class _LazyConvolution(LazyModuleMixin):
    """A convolution whose in_channels is the dimension of channels of the first input."""

    def __init__(self, out_channels, kernel_size, *args, device=None, dtype=None, **how):
        # After stride, padding, dilation (transposed: output_padding) and groups comes the bias, which is made later.
        bias = args[4] if len(args) > 4 else how.pop("bias", True)
        args = (*args[:4], False, *args[5:]) if len(args) > 4 else args
        super().__init__(0, 0, kernel_size, *args, **({} if len(args) > 4 else {"bias": False}), **how)
        kind = {"device": device, "dtype": dtype}
        self.weight, self.out_channels = UninitializedParameter(**kind), out_channels
        if bias:
            self.bias = UninitializedParameter(**kind)

    def initialize_parameters(self, input, *args, **kwargs):
        if input.ndim not in (self.rank + 1, self.rank + 2):
            raise RuntimeError(
                f"Expected {self.rank + 1}D (unbatched) or {self.rank + 2}D (batched) input to {self._get_name()}, "
                f"but got input of size: {list(input.shape)}"
            )
        self.in_channels = input.shape[-self.rank - 1]
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise ValueError(f"{name} must be divisible by groups: {getattr(self, name)} by {self.groups}")
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        shapes = {"weight": (first, second // self.groups, *self.kernel_size), "bias": (self.out_channels,)}
        if materialize(self, shapes):
            self.reset_parameters()


def _lazily(mixin, layers):
    """A lazy layer for each of some layers."""
    for layer in layers:
        doc = f"{layer.__name__} whose number of input channels is that of the first input."
        facts = {"cls_to_become": layer, "__doc__": doc, "__module__": __name__}
        yield type(f"Lazy{layer.__name__}", (mixin, layer), facts)


LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = _lazily(_LazyBatchNorm, (BatchNorm1d, BatchNorm2d, BatchNorm3d))
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = _lazily(
    _LazyInstanceNorm, (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d)
)
LazyConv1d, LazyConv2d, LazyConv3d = _lazily(_LazyConvolution, (Conv1d, Conv2d, Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = _lazily(
    _LazyConvolution, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
)
