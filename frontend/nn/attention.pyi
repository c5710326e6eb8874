"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
from .. import device as _Device
from .. import dtype as _DType
from .. import Tensor as Tensor
_Scalar = builtins.float | Tensor
from ..nn import MultiheadAttention as MultiheadAttention
from ..nn import Linear as Linear

class NonDynamicallyQuantizableLinear(Linear):
    def __init__(self, in_features: builtins.int, out_features: builtins.int, bias: builtins.bool = ..., device: _Device | builtins.str | builtins.int | None = ..., dtype: _DType | None = ...) -> None: ...
def added_mask(mask: Any, name: builtins.str, dtype: _DType | None, other: Any = ..., other_name: builtins.str = ...) -> Any: ...
def multi_head_attention_forward(query: Any, key: Any, value: Any, embed_dim_to_check: Any, num_heads: builtins.int, in_proj_weight: Any, in_proj_bias: Any, bias_k: Any, bias_v: Any, add_zero_attn: Any, dropout_p: Any, out_proj_weight: Any, out_proj_bias: Any, training: builtins.bool = ..., key_padding_mask: Any = ..., need_weights: builtins.bool = ..., attn_mask: Any = ..., use_separate_proj_weight: builtins.bool = ..., q_proj_weight: Any = ..., k_proj_weight: Any = ..., v_proj_weight: Any = ..., static_k: Any = ..., static_v: Any = ..., average_attn_weights: builtins.bool = ..., is_causal: builtins.bool = ...) -> Any: ...
def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = ..., dropout_p: _Scalar = ..., is_causal: builtins.bool = ..., scale: Any = ..., enable_gqa: builtins.bool = ...) -> Any: ...
