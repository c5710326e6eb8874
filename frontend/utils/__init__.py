"""Tools around training: data.py feeds it."""

from . import data

__all__ = ["data"]
