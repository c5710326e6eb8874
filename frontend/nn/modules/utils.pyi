"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
from ... import device as _Device
from ... import dtype as _DType
from ... import Tensor as Tensor
from ...nn import Linear as Linear
from ...nn.utils.rnn import PackedSequence as PackedSequence
from ... import Tensor as Tensor
from ...nn.init import constant_ as constant_
from ...nn.init import xavier_normal_ as xavier_normal_
from ...nn.init import xavier_uniform_ as xavier_uniform_
F: Any

class NonDynamicallyQuantizableLinear(Linear):
    def __init__(self, in_features: builtins.int, out_features: builtins.int, bias: builtins.bool = ..., device: _Device | builtins.str | builtins.int | None = ..., dtype: _DType | None = ...) -> None: ...
def _ntuple(n: Any, name: builtins.str = ...) -> Any: ...
def _pair(x: Any) -> Any: ...
def _quadruple(x: Any) -> Any: ...
def _reverse_repeat_tuple(t: Any, n: Any) -> Any: ...
def _single(x: Any) -> Any: ...
_size_1_t: Any
_size_2_t: Any
_size_3_t: Any
def _triple(x: Any) -> Any: ...
def consume_prefix_in_state_dict_if_present(state_dict: Any, prefix: Any) -> Any: ...
init: Any
