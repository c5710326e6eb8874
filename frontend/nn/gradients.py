"""weft.nn.grad: the two gradients of a convolution, for those who write backward passes by hand."""

from ..compiler.ops import convolution as ops
from .convolution import _numbers, _sides


def _how(rank, stride, padding, dilation, groups):
    stride, dilation = _numbers("stride", stride, rank), _numbers("dilation", dilation, rank)
    sides = _sides(padding, (), stride, dilation, rank)
    return {"stride": stride, "padding": sides, "dilation": dilation, "groups": groups}


def _input(rank):
    def gradient(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
        how = _how(rank, stride, padding, dilation, groups)
        return ops.convolution_input(grad_output, weight, size=tuple(input_size)[2:], **how)

    gradient.__name__ = gradient.__qualname__ = f"conv{rank}d_input"
    gradient.__doc__ = f"The gradient of conv{rank}d for its input, of which the size is given."
    return gradient


def _weight(rank):
    def gradient(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
        how = _how(rank, stride, padding, dilation, groups)
        kernel, positions = tuple(weight_size)[2:], grad_output.shape[2:]
        # Elements that no window reached have no gradient; they are cut off, so that as many windows fit as there were.
        each = zip(input.shape[2:], how["padding"], kernel, positions, how["stride"], how["dilation"])
        how["padding"] = tuple(
            (before, (n - 1) * s + d * (k - 1) + 1 - size - before) for size, (before, _), k, n, s, d in each
        )
        return ops.convolution_weight(input, grad_output, kernel=kernel, **how)

    gradient.__name__ = gradient.__qualname__ = f"conv{rank}d_weight"
    gradient.__doc__ = f"The gradient of conv{rank}d for its weight, of which the size is given."
    return gradient


conv1d_input, conv2d_input, conv3d_input = (_input(rank) for rank in (1, 2, 3))
conv1d_weight, conv2d_weight, conv3d_weight = (_weight(rank) for rank in (1, 2, 3))
