"""Optimizers: they read `.grad` and update parameters in place. Start at optimizer.py.

>>> import weft
>>> w = weft.tensor([4.0], requires_grad=True)
>>> optimizer = weft.optim.SGD([w], lr=0.25)
>>> (w * w).sum().backward()
>>> optimizer.step()
>>> w
tensor([2.], requires_grad=True)
"""

from ..absent import attribute_of
from . import lr_scheduler
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .rmsprop import RMSprop
from .sgd import SGD

__getattr__ = attribute_of(__name__)

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]
