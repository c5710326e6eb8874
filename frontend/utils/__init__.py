"""Tools around training: data.py feeds it."""

from ..public import of_module
from ..reference import document
from . import data

__getattr__, __dir__ = of_module(__name__)

__all__ = ["data"]

document("utils", __name__)
