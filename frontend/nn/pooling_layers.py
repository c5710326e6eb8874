"""Layers of pooling: the functions of pooling.py with their arguments as attributes."""

from ..runtime.state.marks import pure
from . import pooling as F
from .module import Module


class _MaxPoolNd(Module):
    """The largest element of every window; return_indices: and its position, for MaxUnpool."""

    rank = 1

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    @pure(lambda layer, *_: not layer.return_indices)
    def forward(self, input):
        how = self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        return F._max_pool(self.rank, input, *how)

    def extra_repr(self):
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class _MaxUnpoolNd(Module):
    """The inverse of MaxPool, but for what was not the largest: zeros."""

    rank = 1

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        self.kernel_size = F._numbers(self._get_name(), "kernel_size", kernel_size, self.rank)
        self.stride = F._numbers(self._get_name(), "stride", kernel_size if stride is None else stride, self.rank)
        self.padding = F._numbers(self._get_name(), "padding", padding, self.rank)

    def forward(self, input, indices, output_size=None):
        return F._max_unpool(self.rank, input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(Module):
    """The mean of every window of (N, C, L) or (C, L)."""

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        super().__init__()
        self.kernel_size = F._numbers("AvgPool1d", "kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else F._numbers("AvgPool1d", "stride", stride, 1)
        self.padding = F._numbers("AvgPool1d", "padding", padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    @pure()
    def forward(self, input):
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPoolNd(Module):
    """The mean of every window; divisor_override: the sum divided by that number."""

    rank = 2

    def __init__(
        self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
    ):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    @pure()
    def forward(self, input):
        how = self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        return F._avg_pool(self.rank, input, *how, self.divisor_override)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _LPPoolNd(Module):
    """(sum of x^norm_type)^(1 / norm_type) of every window."""

    rank = 1

    def __init__(self, norm_type, kernel_size, stride=None, ceil_mode=False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    @pure()
    def forward(self, input):
        return F._lp_pool(self.rank, input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self):
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class _AdaptiveAvgPoolNd(Module):
    """Means of as many windows as the result is to have elements."""

    rank = 1

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size

    @pure()
    def forward(self, input):
        return F._adaptive_avg_pool(self.rank, input, self.output_size)

    def extra_repr(self):
        return f"output_size={self.output_size}"


class _AdaptiveMaxPoolNd(Module):
    """The largest elements of as many windows as the result is to have elements."""

    rank = 1

    def __init__(self, output_size, return_indices=False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    @pure(lambda layer, *_: not layer.return_indices)
    def forward(self, input):
        return F._adaptive_max_pool(self.rank, input, self.output_size, self.return_indices)

    def extra_repr(self):
        return f"output_size={self.output_size}"


class _FractionalMaxPool(Module):
    """The largest elements of windows that begin at random steps (Graham, arXiv 1412.6071)."""

    rank = 2

    def __init__(self, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        super().__init__()
        name = self._get_name()
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"only one of output_size and output_ratio may be specified, and one must be, for {name}")
        each = F._numbers
        self.kernel_size, self.return_indices = each(name, "kernel_size", kernel_size, self.rank), return_indices
        self.output_size = None if output_size is None else each(name, "output_size", output_size, self.rank)
        self.output_ratio = (output_ratio,) * self.rank if isinstance(output_ratio, float) else output_ratio
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input):
        how = self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        return F._fractional_max_pool(self.rank, input, *how)


def _layers(base, name, ranks):
    for rank in ranks:
        doc = f"{base.__doc__} Over the last {rank} dimension(s)."
        yield type(f"{name}{rank}d", (base,), {"rank": rank, "__doc__": doc, "__module__": __name__})


MaxPool1d, MaxPool2d, MaxPool3d = _layers(_MaxPoolNd, "MaxPool", (1, 2, 3))
MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = _layers(_MaxUnpoolNd, "MaxUnpool", (1, 2, 3))
AvgPool2d, AvgPool3d = _layers(_AvgPoolNd, "AvgPool", (2, 3))
LPPool1d, LPPool2d, LPPool3d = _layers(_LPPoolNd, "LPPool", (1, 2, 3))
AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = _layers(_AdaptiveAvgPoolNd, "AdaptiveAvgPool", (1, 2, 3))
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = _layers(_AdaptiveMaxPoolNd, "AdaptiveMaxPool", (1, 2, 3))
FractionalMaxPool2d, FractionalMaxPool3d = _layers(_FractionalMaxPool, "FractionalMaxPool", (2, 3))
LAYERS = [
    f"{kind}{rank}d"
    for kind in str.split("MaxPool MaxUnpool AvgPool LPPool AdaptiveAvgPool AdaptiveMaxPool")
    for rank in (1, 2, 3)
]
LAYERS += ["FractionalMaxPool2d", "FractionalMaxPool3d"]
