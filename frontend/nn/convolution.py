"""Convolutions as functions and layers, of one to three dimensions: the ops are in compiler/ops/convolution.py."""

import math

from ..casting import lowered
from ..compiler.ops import convolution as ops
from ..compiler.ops import view
from ..compiler.ops.table import OpError
from ..compiler.shapes import is_whole
from ..complex_numbers import complex as complex_of
from ..creation import empty
from ..runtime.state.marks import pure
from ..shaping import reshape
from . import init
from .module import Module
from .padding import pad
from .parameter import Parameter
from .tuples import _ntuple, _reverse_repeat_tuple


# --- functions --------------------------------------------------------------------------------------------------------
def _numbers(name, value, rank):
    """One number for each dimension."""
    numbers = (int(value),) * rank if is_whole(value) else tuple(int(n) for n in value)
    numbers = numbers * rank if len(numbers) == 1 else numbers
    if len(numbers) != rank:
        raise OpError(
            f"expected {name} to be a single integer value or a list of {rank} values to match the convolution "
            f"dimensions, but got {name}={list(numbers)}"
        )
    return numbers


def _batched(name, input, rank):
    """(the input with a dimension of samples, whether it had one)."""
    if input.ndim not in (rank + 1, rank + 2):
        raise OpError(
            f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {name}, but got input of size: "
            f"{list(input.shape)}"
        )
    is_batched = input.ndim == rank + 2
    return (input if is_batched else reshape(input, (1, *input.shape))), is_batched


def _sides(padding, kernel, stride, dilation, rank):
    """(before, after) of every dimension: numbers, 'valid', or 'same', which puts an odd one behind."""
    if not isinstance(padding, str):
        numbers = _numbers("padding", padding, rank)
        if min(numbers, default=0) < 0:
            raise OpError(f"negative padding is not supported: {padding}")
        return tuple((n, n) for n in numbers)
    if padding == "valid":
        return ((0, 0),) * rank
    if padding != "same":
        raise OpError(f"Invalid padding string: '{padding}'; use 'valid', 'same' or numbers")
    if any(s != 1 for s in stride):
        raise OpError("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for k, d in zip(kernel, dilation)]
    return tuple((n // 2, n - n // 2) for n in totals)


def _of_parts(convolve, rank, input, weight, bias, *how):
    """The convolution of complex numbers by four of their parts."""
    if input.dtype is not weight.dtype or bias is not None and bias.dtype is not input.dtype:
        given = " and ".join(x.dtype.name for x in (input, weight, bias) if x is not None)
        raise OpError(f"Input, weight and bias of a convolution should have one type, got {given}")

    def product(x, w):
        return convolve(rank, x, w, None, *how)

    out = complex_of(
        product(input.real, weight.real) - product(input.imag, weight.imag),
        product(input.real, weight.imag) + product(input.imag, weight.real),
    )
    return out if bias is None else out + reshape(bias, (-1, *(1,) * rank))


def _are_complex(input, weight):
    return input.dtype.is_complex or weight.dtype.is_complex


def _convolve(rank, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    if _are_complex(input, weight):
        return _of_parts(_convolve, rank, input, weight, bias, stride, padding, dilation, groups)
    name = f"conv{rank}d"
    stride, dilation = _numbers("stride", stride, rank), _numbers("dilation", dilation, rank)
    input, is_batched = _batched(name, input, rank)
    sides = _sides(padding, weight.shape[2:], stride, dilation, rank)
    operands = lowered(input, weight) if bias is None else lowered(input, weight, bias)
    out = ops.convolution(*operands, stride=stride, padding=sides, dilation=dilation, groups=groups)
    return out if is_batched else out[0]


def _convolve_transposed(rank, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    if _are_complex(input, weight):
        how = stride, padding, output_padding, groups, dilation
        return _of_parts(_convolve_transposed, rank, input, weight, bias, *how)
    stride, padding = _numbers("stride", stride, rank), _numbers("padding", padding, rank)
    extra, dilation = _numbers("output_padding", output_padding, rank), _numbers("dilation", dilation, rank)
    input, is_batched = _batched(f"conv_transpose{rank}d", input, rank)
    if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation)):
        raise OpError(
            f"output padding must be smaller than either stride or dilation, but got output_padding={extra}, "
            f"stride={stride}, dilation={dilation}"
        )
    if weight.ndim != rank + 2:
        raise OpError(f"conv_transpose{rank}d: weight has shape {weight.shape}; it needs {rank + 2} dimensions")
    spread = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(input.shape[2:], stride, dilation, weight.shape[2:])]
    size = tuple(n - 2 * p + e for n, p, e in zip(spread, padding, extra))
    if min(size, default=1) < 1:
        raise OpError(
            f"Given input size per channel: {list(input.shape[2:])}. Calculated output size per channel: {list(size)}. "
            "Output size is too small"
        )
    sides = tuple((p, p - e) for p, e in zip(padding, extra))
    operands = lowered(input, weight) if bias is None else lowered(input, weight, bias)
    how = {"stride": stride, "padding": sides, "dilation": dilation, "groups": groups}
    out = ops.convolution_input(*operands, size=size, **how)
    return out if is_batched else out[0]


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Every output channel the sum of products with a weight that slides over the input: (N, C, L), (O, C / groups, K).

    padding: zeros at both ends, or "valid" (none), or "same" (as many results as inputs, at stride 1).
    """
    return _convolve(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """conv1d in two dimensions: (N, C, H, W), (O, C / groups, KH, KW)."""
    return _convolve(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """conv1d in three dimensions: (N, C, D, H, W), (O, C / groups, KD, KH, KW)."""
    return _convolve(3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The adjoint of conv1d: (N, C, L), (C, O / groups, K). output_padding: as many results more at the end."""
    return _convolve_transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The adjoint of conv2d: (N, C, H, W), (C, O / groups, KH, KW)."""
    return _convolve_transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The adjoint of conv3d: (N, C, D, H, W), (C, O / groups, KD, KH, KW)."""
    return _convolve_transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_tbc(input, weight, bias, pad=0):
    """conv1d with time first and channels last: (T, N, C), (K, C, O)."""
    if input.ndim != 3 or weight.ndim != 3 or bias.ndim != 1:
        raise OpError(f"conv_tbc: input, weight and bias must have 3, 3 and 1 dimensions: {input.ndim}, {weight.ndim}")
    out = _convolve(1, input.permute((1, 2, 0)), weight.permute((2, 1, 0)), bias, 1, pad)
    return view.clone(out.permute((2, 0, 1)))


def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """Any of them: the number of dimensions is the input's."""
    rank = weight.ndim - 2
    if transposed:
        return _convolve_transposed(rank, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _convolve(rank, input, weight, bias, stride, padding, dilation, groups)


# --- layers -----------------------------------------------------------------------------------------------------------
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def _is_usual(method, usual):
    """Whether neither a subclass nor the object has put another method in the usual one's place."""
    return getattr(method, "__func__", None) is usual


class _ConvNd(Module):
    """What they share: weight (out_channels, in_channels / groups, *kernel_size) and bias (out_channels,), both uniform
    in +-1 / sqrt(in_channels / groups * elements of the kernel)."""

    rank, transposed = 1, False

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        device=None,
        dtype=None,
        *,
        output_padding=0,
    ):
        super().__init__()
        each = _ntuple(self.rank)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.dilation = each(kernel_size), each(stride), each(dilation)
        self.padding = padding if isinstance(padding, str) else each(padding)
        self.output_padding, self.groups, self.padding_mode = each(output_padding), groups, padding_mode
        self._check()
        self._reversed_padding_repeated_twice = self._amounts()
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (first, second // groups, *self.kernel_size)
        self.weight = Parameter(empty(*shape, dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(empty(out_channels, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def _check(self):
        if self.groups <= 0:
            raise ValueError(f"groups must be a positive integer, got {self.groups}")
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise ValueError(f"{name} must be divisible by groups: {getattr(self, name)} by {self.groups}")
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {self.padding!r}, should be one of {{'same', 'valid'}}")
            if self.padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if self.padding_mode not in _PADDING_MODES:
            given = f"padding_mode='{self.padding_mode}'"
            raise ValueError(f"padding_mode must be one of {_PADDING_MODES}, but got {given}")

    def _amounts(self):
        """What `pad` adds: (before, after) of the last dimension first."""
        if isinstance(self.padding, str):
            sides = _sides(self.padding, self.kernel_size, self.stride, self.dilation, self.rank)
            return [n for pair in reversed(sides) for n in pair]
        return _reverse_repeat_tuple(self.padding, 2)

    def reset_parameters(self):
        """Draw both parameters anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fans(self.weight)
            if fan_in:
                init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    @pure(lambda layer, *_: _is_usual(layer._conv_forward, _ConvNd._conv_forward))
    def forward(self, input):
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input, weight, bias):
        """The layer with another weight and bias: what layers that adapt their weight call or replace."""
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = pad(input, self._reversed_padding_repeated_twice, self.padding_mode), 0
        return _convolve(self.rank, input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def extra_repr(self):
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self.rank:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.rank:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * self.rank:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class Conv1d(_ConvNd):
    """conv1d with its weight and bias: (N, C, L) or (C, L). padding_mode: zeros, reflect, replicate or circular."""


class Conv2d(_ConvNd):
    """conv2d with its weight and bias: (N, C, H, W) or (C, H, W)."""

    rank = 2


class Conv3d(_ConvNd):
    """conv3d with its weight and bias: (N, C, D, H, W) or (C, D, H, W)."""

    rank = 3


class _ConvTransposeNd(_ConvNd):
    """weight (in_channels, out_channels / groups, *kernel_size). The forward may be told the size of its result."""

    transposed = True

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}, got {padding_mode!r}')
        kind = {"device": device, "dtype": dtype, "output_padding": output_padding}
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, **kind)

    @pure(lambda layer, *args: len(args) < 2)
    def forward(self, input, output_size=None):
        extra = self.output_padding if output_size is None else self._output_padding(input, output_size)
        how = self.stride, self.padding, extra, self.groups, self.dilation
        return _convolve_transposed(self.rank, input, self.weight, self.bias, *how)

    def _output_padding(self, input, output_size):
        """What is missing to a size, which must be one that the input can have come from."""
        sizes = tuple(output_size)
        sizes = sizes[2:] if len(sizes) == self.rank + 2 else sizes[1:] if len(sizes) == self.rank + 1 else sizes
        if len(sizes) != self.rank:
            raise ValueError(
                f"ConvTranspose{self.rank}D: for {input.ndim}D input, output_size must have {self.rank} or "
                f"{input.ndim} elements (got {len(sizes)})"
            )
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.shape[-self.rank :], self.stride, self.padding, self.dilation, self.kernel_size
            )
        ]
        most = [n + s - 1 for n, s in zip(least, self.stride)]
        if any(not a <= n <= b for a, n, b in zip(least, sizes, most)):
            raise ValueError(
                f"requested an output size of {list(sizes)}, but valid sizes range from {least} to {most} (for an "
                f"input of {list(input.shape[-self.rank :])})"
            )
        return tuple(n - a for n, a in zip(sizes, least))


class ConvTranspose1d(_ConvTransposeNd):
    """conv_transpose1d with its weight and bias: (N, C, L) or (C, L)."""


class ConvTranspose2d(_ConvTransposeNd):
    """conv_transpose2d with its weight and bias: (N, C, H, W) or (C, H, W)."""

    rank = 2


class ConvTranspose3d(_ConvTransposeNd):
    """conv_transpose3d with its weight and bias: (N, C, D, H, W) or (C, D, H, W)."""

    rank = 3


FUNCTIONS = str.split("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc")
LAYERS = str.split("Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d")
