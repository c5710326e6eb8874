"""What a tensor in the memory of a GPU has in place of an array: where its elements are, and copies to and from there.

A GpuArray is the `_meta` of its tensor (runtime/state/tensor.py: is_elsewhere). What happens to such tensors is asked
of it: an op (`apply`), a change in place (`change`), an optimizer's update (`update`), a derivative (`derive`).
"""

import sys
from contextlib import contextmanager
from math import prod

import numpy as np

from ...compiler.later import later
from ...compiler.ops.view import clone
from ...compiler.shapes import contiguous_strides
from ..state.device import device
from ..state.elsewhere import IN_CALL, is_elsewhere
from ..state.modes import no_grad, step_out
from ..state.tensor import Tensor, tensor_of

_apply, _change, _update, _derive = map(
    later, [f"runtime.gpu.{at}" for at in ("ops:apply", "changes:change", "changes:update", "ops:derive")]
)


_WRAPPERS = ("wrapper", "checked", "function_with_out")
_ROOT = __name__.partition(".")[0]


@contextmanager
def outside_call(reason=IN_CALL):
    """A block that is no part of the compiled call in flight."""
    back = step_out(reason)
    try:
        yield
    finally:
        back.__exit__()


class GpuArray:
    """Elements of a GPU's memory. `strides` and `offset` count elements of the block that they lie in. `value`: (Trace,
    number) of the value that these elements are to be, or were."""

    __slots__ = ("gpu", "block", "shape", "strides", "offset", "dtype", "value", "is_contiguous", "__weakref__")
    weak = False

    def __init__(self, gpu, block, shape, strides, offset, dtype):
        self.gpu, self.block, self.dtype, self.value = gpu, block, dtype, None
        self.shape, self.strides, self.offset = tuple(shape), tuple(strides), offset
        self.is_contiguous = self.strides == contiguous_strides(self.shape) or self._is_in_order()

    @classmethod
    def empty(cls, gpu, shape, dtype):
        """New memory in row-major order."""
        block = gpu.take(prod(shape) * dtype.size_bytes)
        return cls(gpu, block, shape, contiguous_strides(shape), 0, dtype)

    @property
    def device(self):
        return device("cuda", self.gpu.number)

    @property
    def size(self):
        return prod(self.shape)

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def address(self):
        return self.block.address + self.offset * self.dtype.size_bytes

    def _is_in_order(self):
        wanted = contiguous_strides(self.shape)
        return self.size == 0 or all(n == 1 or s == w for n, s, w in zip(self.shape, self.strides, wanted))

    @property
    def is_shown_twice(self):
        """Whether an element of memory is shown at several places."""
        return any(s == 0 and n > 1 for s, n in zip(self.strides, self.shape))

    def is_same(self, other):
        """Whether both are the same elements of memory in the same order."""
        return self.block is other.block and (self.shape, self.strides, self.offset, self.dtype) == (
            other.shape, other.strides, other.offset, other.dtype,
        )  # fmt: skip

    def seen(self, shape, strides, offset):
        """Other elements of the same memory."""
        return GpuArray(self.gpu, self.block, shape, strides, offset, self.dtype)

    # --- copies -------------------------------------------------------------------------------------------------------
    @classmethod
    def of_array(cls, gpu, array, dtype):
        """A copy of a NumPy array. It is in the GPU's memory when this returns."""
        array = np.ascontiguousarray(array).reshape(array.shape)
        with gpu:
            made = cls.empty(gpu, array.shape, dtype)
            gpu.write(made.address, array)
            gpu.synchronize()
        return made

    def to_array(self):
        """A copy as a NumPy array, once all work before is done."""
        whole = self if self.is_contiguous else self.copied()._meta
        array = np.empty(self.shape, self.dtype.numpy)
        with self.gpu:
            self.gpu.read(array, whole.address)
        return array

    def copied(self):
        """A tensor with the same elements in memory of its own, without a history."""
        with no_grad():
            return _apply(self.gpu, clone, (tensor_at(self),), {})

    # --- what is asked of it ------------------------------------------------------------------------------------------
    def refuse(self):
        """What computes on the CPU has asked for an array."""
        raise NotImplementedError(
            f"{_asked_by()}: it is computed on the CPU, and the tensor is on {self.device}. Copy it there: x.cpu(), "
            "and .to('cuda') brings the result back"
        )

    def apply(self, op, operands, attributes):
        """The op on these operands, one of which is a tensor of this array, or which is asked of one."""
        return _apply(self.gpu, op, operands, attributes)

    def change(self, op, target, operands, attributes):
        """`target`, the tensor of this array, becomes what the op gives."""
        return _change(op, target, operands, attributes)

    def update(self, rule, row, numbers, flags):
        """The first tensors of the row become what the rule says."""
        return _update(self.gpu, rule, row, numbers, flags)

    def derive(self, node, wanted, given):
        """Cotangents of the operands that are wanted, or None if no program gives them."""
        return _derive(self.gpu, node, wanted, given)


def _asked_by():
    """The name of the public function that a user has called, as far as the stack tells."""
    frame, name, other = sys._getframe(1), None, "this"
    public = {*vars(sys.modules[_ROOT]), *vars(Tensor)} - {"array"}
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _ROOT:
        own, frame = frame.f_code.co_name, frame.f_back
        other = other if own in _WRAPPERS else own
        name = next((spelled for spelled in (own, own.strip("_")) if spelled in public), name)
    return name or other


def tensor_at(array):
    """A tensor of this GpuArray."""
    made = tensor_of(None)
    made._meta = array
    return made


def tensor_showing(operand, array):
    """A tensor of a GpuArray that shows the memory of another tensor's: a view of it."""
    made = tensor_at(array)
    made.share_storage(operand)
    made._base = operand if operand._base is None else operand._base
    return made


def gpu_among(tensors):
    """The GPU of the first of these that is on one; None if none is."""
    return next((x._meta.gpu for x in tensors if hasattr(x, "_meta") and is_elsewhere(x)), None)
