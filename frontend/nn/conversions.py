"""Modules of another type: all of it goes through `_apply`, which modules with tensors of their own extend."""

from ..compiler.dtypes import DType, bfloat16, dtype_of, float16, float32, float64
from ..placement import moving_to
from ..runtime.state.device import gpu_given
from ..runtime.state.modes import no_grad
from ..runtime.state.tensor import Tensor


class Conversions:
    """What nn.Module inherits."""

    def to(self, *args, dtype=None, device=None, tensor=None, non_blocking=False, memory_format=None):
        """Convert floating point parameters and buffers to a dtype, or move all to a device; or to those of a tensor.
        Returns the module."""
        place = None
        for given in (*args, device, tensor):
            if isinstance(given, (DType, type)):
                dtype = given
            elif isinstance(given, Tensor):
                dtype, place = given.dtype, given.device
            elif given is not None and not isinstance(given, bool):
                gpu_given("Module.to", given)
                place = given
        if place is not None:
            self._apply(lambda tensor: tensor.to(place))
        elif dtype is None:
            return self._apply(_same)
        if dtype is None:
            return self
        dtype = dtype_of(dtype)
        if not dtype.is_differentiable:
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )
        return self._convert(dtype)

    def to_empty(self, *, device, recurse=True):
        """`to(device)`: the values stay."""
        return self.to(device)

    def cpu(self):
        """The module on the CPU."""
        return self._apply(lambda tensor: tensor.cpu())

    cuda, xpu, ipu, mtia = map(moving_to, ("cuda", "xpu", "ipu", "mtia"))

    def share_memory(self):
        """The module: threads share all memory."""
        return self

    def float(self):
        return self._convert(float32)

    def double(self):
        return self._convert(float64)

    def half(self):
        return self._convert(float16)

    def bfloat16(self):
        return self._convert(bfloat16)

    def type(self, dst_type):
        """Convert parameters and buffers to a dtype, or to the type that one of PyTorch's older names says."""
        return self._apply(lambda tensor: tensor.type(dst_type))

    def _convert(self, dtype):
        return self._apply(lambda tensor: tensor.to(dtype) if tensor.dtype.is_differentiable else tensor)

    def _apply(self, fn, recurse=True):
        """Give every parameter, its gradient and every buffer the values of fn(it). The tensors stay the same objects.

        A module that keeps tensors in plain attributes extends it: `self.table = fn(self.table)`.
        """
        if recurse:
            for child in self.children():
                child._apply(fn)
        with no_grad():
            for tensor in [*self.parameters(recurse=False), *self.buffers(recurse=False)]:
                made, grad = fn(tensor), tensor.grad
                if made is not tensor:
                    tensor.grad, tensor.data = None, made.data
                    tensor.grad = None if grad is None else fn(grad)
        return self


def _same(tensor):
    return tensor
