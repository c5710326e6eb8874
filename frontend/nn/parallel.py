"""weft.nn.parallel: wrappers that spread a model over processes, and over devices, of which there is one."""

from ..public import of_module
from .module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]  # noqa: F822 (asked for, it is imported)
__getattr__, __dir__ = of_module(__name__)


class DataParallel(Module):
    """The module, called as it is: what PyTorch's does where there is no other device. Its keys begin with `module.`"""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        self.module, self.device_ids = module, []

    def forward(self, *inputs, **options):
        return self.module(*inputs, **options)
