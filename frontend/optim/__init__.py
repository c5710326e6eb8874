"""Optimizers: they read `.grad` and update parameters in place.

>>> import weft
>>> w = weft.tensor([4.0], requires_grad=True)
>>> optimizer = weft.optim.SGD([w], lr=0.25)
>>> (w * w).sum().backward()
>>> optimizer.step()
>>> w
tensor([2.], requires_grad=True)

To read its source, start at optimizer.py.
"""

from ..absent import mark_absent
from ..public import of_module, show_public_names
from ..reference import document
from . import lr_scheduler, swa_utils
from .adadelta import Adadelta
from .adafactor import Adafactor
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .adamax import Adamax
from .asgd import ASGD
from .lbfgs import LBFGS
from .muon import Muon
from .nadam import NAdam
from .optimizer import Optimizer
from .radam import RAdam
from .rmsprop import RMSprop
from .rprop import Rprop
from .sgd import SGD
from .sparse_adam import SparseAdam

__getattr__, __dir__ = of_module(__name__)

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam",
    "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils",
]  # fmt: skip

mark_absent(Optimizer, "optim.Optimizer")
show_public_names(Optimizer, "optim.Optimizer")
document("optim", __name__)
