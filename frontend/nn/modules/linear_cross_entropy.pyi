"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
from ... import device as _Device
from ... import dtype as _DType
from ... import Tensor as Tensor
_Scalar = builtins.float | Tensor
from ...nn import *
from ...nn import Linear as Linear
from ...nn.utils.rnn import PackedSequence as PackedSequence
from ...nn.init import constant_ as constant_
from ...nn.init import xavier_normal_ as xavier_normal_
from ...nn.init import xavier_uniform_ as xavier_uniform_
F: Any

class NonDynamicallyQuantizableLinear(Linear):
    def __init__(self, in_features: builtins.int, out_features: builtins.int, bias: builtins.bool = ..., device: _Device | builtins.str | builtins.int | None = ..., dtype: _DType | None = ...) -> None: ...
def _pair(x: Any) -> Any: ...
def _single(x: Any) -> Any: ...
_size_1_t: Any
_size_2_t: Any
_size_3_t: Any
def _triple(x: Any) -> Any: ...
def linear_cross_entropy(input: Any, linear_weight: Any, target: builtins.str, *, linear_bias: Any = ..., weight: Tensor | None = ..., reduction: builtins.str = ..., ignore_index: Any = ..., label_smoothing: _Scalar = ..., options: Any = ...) -> Any: ...
