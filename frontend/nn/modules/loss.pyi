"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
from ... import Tensor as Tensor
from ...nn import *
from ...nn import Module as Module

class _Loss(Module):
    def __init__(self, size_average: Any = ..., reduce: Any = ..., reduction: builtins.str = ...) -> None: ...

class _WeightedLoss(Module):
    def __init__(self, weight: Tensor | None = ..., size_average: Any = ..., reduce: Any = ..., reduction: builtins.str = ...) -> None: ...
