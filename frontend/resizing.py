"""weft.autograd._functions: PyTorch's autograd.Functions of Python that programs call by name."""

import math

from .runtime.eager.function import Function


class Resize(Function):
    """Resize.apply(x, sizes): the elements of x in another shape, with memory of their own."""

    @staticmethod
    def forward(ctx, tensor, sizes):
        """RuntimeError if there are not as many."""
        if tensor.numel() != math.prod(sizes):
            raise RuntimeError(
                f"requested resize to {'x'.join(map(str, sizes))} ({math.prod(sizes)} elements in total), but the "
                f"given tensor has a size of {'x'.join(map(str, tensor.shape))} ({tensor.numel()} elements). "
                "Resize can only change the shape of a tensor, while preserving the number of elements."
            )
        ctx.input_sizes = tensor.shape
        return tensor.clone().view(*sizes)

    @staticmethod
    def backward(ctx, grad_output):
        """The gradient in the shape that x had."""
        return grad_output.contiguous().view(ctx.input_sizes), None
