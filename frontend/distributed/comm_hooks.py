"""Communication hooks of DistributedDataParallel: other ways than its own to make gradients the same on all ranks.

A hook is called with the state that it was registered with and a GradBucket whose gradients are this rank's, when they
are there. It begins an exchange and returns a Future of the tensor that takes the place of the bucket's; the backward
goes on meanwhile. PyTorch's distributed.algorithms.ddp_comm_hooks.default_hooks is this module.
"""

from ..compiler.dtypes import bfloat16, float16
from ..public import of_module
from .collectives import all_reduce
from .started import member

__all__ = [
    "allreduce_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
]
__getattr__, __dir__ = of_module(__name__)


class GradBucket:
    """Gradients that go together, one after the other in one tensor of one dimension."""

    def __init__(self, index, buffer, parameters, is_last):
        self._index, self._buffer, self._parameters, self._is_last = index, buffer, parameters, is_last

    def index(self):
        """Which bucket it is: 0 is that which is full first."""
        return self._index

    def buffer(self):
        """The tensor of all gradients; it may be changed in place."""
        return self._buffer

    def set_buffer(self, buffer):
        """Put another tensor in its place."""
        self._buffer = buffer

    def gradients(self):
        """The gradients of `parameters()`, as views of the buffer."""
        parts = self._buffer.split([p.numel() for p in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters)]

    def parameters(self):
        """Whose gradients they are."""
        return list(self._parameters)

    def is_last(self):
        """Whether it is the last to be begun in a backward pass."""
        return self._is_last


def allreduce_hook(process_group, bucket):
    """The average over all ranks: each divides by how many there are, and what they have is added up."""
    return _averaged(process_group, bucket.buffer()).then(lambda done: done.value()[0])


def fp16_compress_hook(process_group, bucket):
    """The average, exchanged in float16: half of the bytes of float32."""
    return _compressed(float16, process_group, bucket)


def bf16_compress_hook(process_group, bucket):
    """The average, exchanged in bfloat16: half of the bytes of float32, and its range."""
    return _compressed(bfloat16, process_group, bucket)


def fp16_compress_wrapper(hook):
    """The hook, given buckets in float16; what it makes of one is converted back."""
    return _wrapped(float16, hook)


def bf16_compress_wrapper(hook):
    """The hook, given buckets in bfloat16; what it makes of one is converted back."""
    return _wrapped(bfloat16, hook)


def _averaged(process_group, tensor):
    group = member(process_group)
    tensor.div_(group.n_ranks)
    return all_reduce(tensor, group=group, async_op=True).get_future()


def _compressed(dtype, process_group, bucket):
    buffer = bucket.buffer()
    return _averaged(process_group, buffer.to(dtype)).then(lambda done: done.value()[0].to(buffer.dtype))


def _wrapped(dtype, hook):
    def compress_wrapper_hook(state, bucket):
        before = bucket.buffer().dtype
        bucket.set_buffer(bucket.buffer().to(dtype))
        return hook(state, bucket).then(lambda done: done.value().to(before))

    return compress_wrapper_hook
