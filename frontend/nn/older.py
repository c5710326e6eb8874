"""Names of nn that PyTorch keeps for older programs, and what its own layers pass their keywords through."""

import warnings

from .loss import NLLLoss
from .module import Module


class Container(Module):
    """A module with the modules that it is given by name."""

    def __init__(self, **kwargs):
        message = (
            "`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. Subclass that "
            "instead."
        )
        warnings.warn(message, FutureWarning, stacklevel=2)
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


class NLLLoss2d(NLLLoss):
    """NLLLoss, by its older name."""

    def __init__(self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
        message = "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in replacement."
        warnings.warn(message, FutureWarning, stacklevel=2)
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


def factory_kwargs(kwargs):
    """The keywords for weft.empty and its like among those of a layer: device, dtype, memory_format, each by itself or
    in a dict named factory_kwargs. TypeError for any other, and for one that is given twice."""
    if kwargs is None:
        return {}
    known = {"device", "dtype", "memory_format"}
    if unknown := kwargs.keys() - known - {"factory_kwargs"}:
        raise TypeError(f"unexpected kwargs {unknown}")
    found = dict(kwargs.get("factory_kwargs", {}))
    for name in sorted(known & kwargs.keys()):
        if name in found:
            raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
        found[name] = kwargs[name]
    return found
