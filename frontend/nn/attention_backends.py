"""`nn.attention.SDPBackend` and `sdpa_kernel`: with which kernels PyTorch computes attention. weft has one way, so
these blocks change nothing."""

from enum import IntEnum

from ..blocks import Block


class SDPBackend(IntEnum):
    """PyTorch's kernels of scaled dot-product attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


class sdpa_kernel(Block):
    """A block, or the decorator of a function, in which PyTorch uses some of its kernels only."""

    def __init__(self, backends, set_priority=False):
        self.backends = [backends] if isinstance(backends, SDPBackend) else list(backends)
        for backend in self.backends:
            if not isinstance(backend, SDPBackend):
                raise AssertionError(f"Backend must be an instance of SDPBackend or a list of them, got {backend!r}")
        self.set_priority = set_priority
