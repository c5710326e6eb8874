"""Neural networks: Module and layers, losses, initialisation.

>>> import weft
>>> model = weft.nn.Sequential(weft.nn.Linear(3, 8), weft.nn.GELU(), weft.nn.Linear(8, 2))
>>> model(weft.zeros(5, 3)).shape
(5, 2)
>>> list(model.state_dict())
['0.weight', '0.bias', '2.weight', '2.bias']

To read its source, start at module.py.
"""

from ..absent import mark_absent
from ..inplace import inplace_form
from ..kinds import put_doors
from ..out import taking_out
from ..public import of_module, show_public_names
from ..reference import document
from ..runtime.state.marks import remember_methods
from . import functional, init, utils
from .activation import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
)
from .containers import ModuleDict, ModuleList, Sequential
from .families import FAMILIES, INPLACE, TAKING_OUT
from .layers import Dropout, Embedding, Flatten, Identity, Linear, Unflatten
from .loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from .module import Module
from .normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d, LayerNorm, RMSNorm
from .parallel import DataParallel
from .parameter import Buffer, Parameter

for _module in FAMILIES:
    globals().update({name: getattr(_module, name) for name in getattr(_module, "LAYERS", ())})
    for _name in getattr(_module, "FUNCTIONS", ()):
        setattr(functional, _name, getattr(_module, _name))
for _name in TAKING_OUT:
    setattr(functional, _name, taking_out(_name, getattr(functional, _name)))
_functions = [name for module in FAMILIES for name in getattr(module, "FUNCTIONS", ())]
put_doors("nn.functional", vars(functional), _functions + functional.IN_DETAIL)
for _name in INPLACE:
    setattr(functional, f"{_name}_", inplace_form(getattr(functional, _name)))
__getattr__, __dir__ = of_module(__name__)

__all__ = [
    *(name for module in FAMILIES for name in getattr(module, "LAYERS", ())),
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "SyncBatchNorm",
    "Buffer",
    "CrossEntropyLoss",
    "DataParallel",
    "Dropout",
    "Embedding",
    "Flatten",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "HuberLoss",
    "Identity",
    "KLDivLoss",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "NLLLoss",
    "PReLU",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
    "Unflatten",
    "functional",
    "init",
    "utils",
]

mark_absent(Module, "nn.Module")
show_public_names(Module, "nn.Module")
remember_methods(Parameter)
document("nn", __name__)
