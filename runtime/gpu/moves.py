"""Copies of tensors from one device to another, with their history: the gradient goes the way back."""

from ..eager.node import BaseNode, edge_of
from ..state.elsewhere import is_elsewhere
from ..state.modes import state
from ..state.tensor import tensor_of
from .arrays import GpuArray, outside_call, tensor_at

_READ = "a tensor was copied to another device"


class ToCopyBackward0(BaseNode):
    """The node of a copy. `gpu`: that of the operand, None for the CPU."""

    __slots__ = ("gpu", "meta")

    def __init__(self, edges, gpu, meta):
        super().__init__(edges)
        self.gpu, self.meta = gpu, meta

    def run(self, cotangent):
        return [moved(cotangent, self.gpu)]

    def release(self):
        """Nothing is saved."""


def moved(x, gpu):
    """The tensor itself if it is there already, else a copy on this GPU, or on the CPU for None."""
    if state.frame is not None:
        with outside_call(_READ):
            return moved(x, gpu)
    before = x._meta.gpu if is_elsewhere(x) else None
    if before is gpu:
        return x
    if gpu is None:
        made = tensor_of(x._meta.to_array())
    elif before is None:
        made = tensor_at(GpuArray.of_array(gpu, x.array, x.dtype))
    else:
        made = tensor_at(GpuArray.of_array(gpu, x._meta.to_array(), x.dtype))
    if x._requires_grad and state.grad_enabled:
        made._requires_grad = True
        made._node = ToCopyBackward0((edge_of(x),), before, (tuple(x.shape), x.dtype))
    return made
