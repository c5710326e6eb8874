"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
from ... import Tensor as Tensor
_Scalar = builtins.float | Tensor
from ...nn import *
def linear_cross_entropy(input: Any, linear_weight: Any, target: builtins.str, *, linear_bias: Any = ..., weight: Tensor | None = ..., reduction: builtins.str = ..., ignore_index: Any = ..., label_smoothing: _Scalar = ..., options: Any = ...) -> Any: ...
