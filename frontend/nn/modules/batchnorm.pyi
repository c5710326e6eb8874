"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
from ... import device as _Device
from ... import dtype as _DType
from ... import Tensor as Tensor
_Scalar = builtins.float | Tensor
from ...nn import *
from ...nn import Module as Module

class _BatchNorm(Module):
    def __init__(self, num_features: builtins.int, eps: _Scalar = ..., momentum: _Scalar = ..., affine: builtins.bool = ..., track_running_stats: builtins.bool = ..., device: _Device | builtins.str | builtins.int | None = ..., dtype: _DType | None = ..., *, bias: builtins.bool = ...) -> None: ...
    def extra_repr(self) -> Any: ...
    def reset_parameters(self) -> Any: ...
    def reset_running_stats(self) -> Any: ...
