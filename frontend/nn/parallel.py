"""weft.nn.parallel: wrappers that spread a model over processes, and over devices, of which there is one."""

from ..public import of_module
from .module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]  # noqa: F822 (asked for, it is imported)
__getattr__, __dir__ = of_module(__name__)

_ONE_DEVICE = "weft computes on one device in a process; call the module itself"


class DataParallel(Module):
    """The module, called as it is: what PyTorch's does where there is no other device. Its keys begin with `module.`"""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        self.module, self.device_ids = module, []

    def forward(self, *inputs, **options):
        return self.module(*inputs, **options)


def scatter(inputs, target_gpus, dim=0):
    """Libraries import it for machines with several devices. RuntimeError: here there is one."""
    raise RuntimeError(f"scatter: inputs cannot be spread over {target_gpus}: {_ONE_DEVICE}")


def gather(outputs, target_device, dim=0):
    """The same of what comes back."""
    raise RuntimeError(f"gather: outputs cannot be brought to {target_device}: {_ONE_DEVICE}")


def scatter_kwargs(inputs, kwargs, target_gpus, dim=0):
    """The same with keywords."""
    scatter((inputs, kwargs), target_gpus, dim)
