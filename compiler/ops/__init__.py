"""The op table. Importing this package fills `TABLE`; table.py says what an entry holds."""

from . import (
    arithmetic,
    comparison,
    contraction,
    indexing,
    neural,
    ordering,
    random,
    reduction,
    scan,
    scattering,
    source,
    spelling,
    statistics,
    transcendental,
    view,
)
from .table import TABLE, Meta, Op, OpError, Sample

__all__ = [
    "TABLE",
    "Meta",
    "Op",
    "OpError",
    "Sample",
    "arithmetic",
    "comparison",
    "contraction",
    "indexing",
    "neural",
    "ordering",
    "random",
    "reduction",
    "scan",
    "scattering",
    "source",
    "spelling",
    "statistics",
    "transcendental",
    "view",
]
