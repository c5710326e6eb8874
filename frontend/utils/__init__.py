"""Tools around training: data.py feeds it."""

from ..absent import attribute_of
from . import data

__getattr__ = attribute_of(__name__)

__all__ = ["data"]
