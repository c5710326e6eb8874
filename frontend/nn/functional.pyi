"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from typing_extensions import Self

from .. import Tensor as Tensor

def adaptive_avg_pool1d(input: Any, output_size: Any) -> Tensor: ...
def adaptive_avg_pool2d(input: Any, output_size: Any) -> Tensor: ...
def adaptive_avg_pool3d(input: Any, output_size: Any) -> Tensor: ...
def adaptive_max_pool1d(input: Any, output_size: Any, return_indices: builtins.bool = ...) -> Any: ...
def adaptive_max_pool2d(input: Any, output_size: Any, return_indices: builtins.bool = ...) -> Any: ...
def adaptive_max_pool3d(input: Any, output_size: Any, return_indices: builtins.bool = ...) -> Any: ...
def affine_grid(theta: Any, size: Any, align_corners: builtins.bool = ...) -> Tensor: ...
def alpha_dropout(input: Any, p: Any = ..., training: builtins.bool = ..., inplace: builtins.bool = ...) -> Tensor: ...
def avg_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = ...,
    padding: Any = ...,
    ceil_mode: builtins.bool = ...,
    count_include_pad: builtins.bool = ...,
) -> Tensor: ...
def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = ...,
    padding: Any = ...,
    ceil_mode: builtins.bool = ...,
    count_include_pad: builtins.bool = ...,
    divisor_override: Any = ...,
) -> Tensor: ...
def avg_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any = ...,
    padding: Any = ...,
    ceil_mode: builtins.bool = ...,
    count_include_pad: builtins.bool = ...,
    divisor_override: Any = ...,
) -> Tensor: ...
def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = ...,
    bias: Any = ...,
    training: builtins.bool = ...,
    momentum: Any = ...,
    eps: Any = ...,
) -> Tensor: ...
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = ...) -> Tensor: ...
def binary_cross_entropy(
    input: Any,
    target: Any,
    weight: Any = ...,
    size_average: Any = ...,
    reduce: Any = ...,
    reduction: builtins.str = ...,
) -> Tensor: ...
def binary_cross_entropy_with_logits(
    input: Any,
    target: Any,
    weight: Any = ...,
    size_average: Any = ...,
    reduce: Any = ...,
    reduction: builtins.str = ...,
    pos_weight: Any = ...,
) -> Tensor: ...
def celu(input: Any, alpha: Any = ..., inplace: builtins.bool = ...) -> Tensor: ...
def celu_(self: Any, *args: Any, **kwargs: Any) -> Tensor: ...
def channel_shuffle(input: Any, groups: Any) -> Tensor: ...
def conv1d(
    input: Any,
    weight: Any,
    bias: Any = ...,
    stride: Any = ...,
    padding: Any = ...,
    dilation: Any = ...,
    groups: Any = ...,
) -> Tensor: ...
def conv2d(
    input: Any,
    weight: Any,
    bias: Any = ...,
    stride: Any = ...,
    padding: Any = ...,
    dilation: Any = ...,
    groups: Any = ...,
) -> Tensor: ...
def conv3d(
    input: Any,
    weight: Any,
    bias: Any = ...,
    stride: Any = ...,
    padding: Any = ...,
    dilation: Any = ...,
    groups: Any = ...,
) -> Tensor: ...
def conv_tbc(input: Any, weight: Any, bias: Any, pad: Any = ...) -> Tensor: ...
def conv_transpose1d(
    input: Any,
    weight: Any,
    bias: Any = ...,
    stride: Any = ...,
    padding: Any = ...,
    output_padding: Any = ...,
    groups: Any = ...,
    dilation: Any = ...,
) -> Tensor: ...
def conv_transpose2d(
    input: Any,
    weight: Any,
    bias: Any = ...,
    stride: Any = ...,
    padding: Any = ...,
    output_padding: Any = ...,
    groups: Any = ...,
    dilation: Any = ...,
) -> Tensor: ...
def conv_transpose3d(
    input: Any,
    weight: Any,
    bias: Any = ...,
    stride: Any = ...,
    padding: Any = ...,
    output_padding: Any = ...,
    groups: Any = ...,
    dilation: Any = ...,
) -> Tensor: ...
def cosine_embedding_loss(
    input1: Any,
    input2: Any,
    target: Any,
    margin: Any = ...,
    size_average: Any = ...,
    reduce: Any = ...,
    reduction: builtins.str = ...,
) -> Tensor: ...
def cosine_similarity(x1: Any, x2: Any, dim: Any = ..., eps: Any = ...) -> Tensor: ...
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = ...,
    size_average: Any = ...,
    ignore_index: Any = ...,
    reduce: Any = ...,
    reduction: builtins.str = ...,
    label_smoothing: Any = ...,
) -> Tensor: ...
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: Any = ...,
    reduction: builtins.str = ...,
    zero_infinity: builtins.bool = ...,
) -> Tensor: ...
def dropout(input: Any, p: Any = ..., training: builtins.bool = ..., inplace: builtins.bool = ...) -> Tensor: ...
def dropout1d(input: Any, p: Any = ..., training: builtins.bool = ..., inplace: builtins.bool = ...) -> Tensor: ...
def dropout2d(input: Any, p: Any = ..., training: builtins.bool = ..., inplace: builtins.bool = ...) -> Tensor: ...
def dropout3d(input: Any, p: Any = ..., training: builtins.bool = ..., inplace: builtins.bool = ...) -> Tensor: ...
def elu(input: Any, alpha: Any = ..., inplace: builtins.bool = ...) -> Tensor: ...
def elu_(self: Any, *args: Any, **kwargs: Any) -> Tensor: ...
def embedding(
    input: Any,
    weight: Any,
    padding_idx: Any = ...,
    max_norm: Any = ...,
    norm_type: Any = ...,
    scale_grad_by_freq: builtins.bool = ...,
    sparse: builtins.bool = ...,
) -> Tensor: ...
def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any = ...,
    max_norm: Any = ...,
    norm_type: Any = ...,
    scale_grad_by_freq: builtins.bool = ...,
    mode: builtins.str = ...,
    sparse: builtins.bool = ...,
    per_sample_weights: Any = ...,
    include_last_offset: builtins.bool = ...,
    padding_idx: Any = ...,
) -> Tensor: ...
def feature_alpha_dropout(
    input: Any, p: Any = ..., training: builtins.bool = ..., inplace: builtins.bool = ...
) -> Tensor: ...
def fold(
    input: Any, output_size: Any, kernel_size: Any, dilation: Any = ..., padding: Any = ..., stride: Any = ...
) -> Tensor: ...
def fractional_max_pool2d(
    input: Any,
    kernel_size: Any,
    output_size: Any = ...,
    output_ratio: Any = ...,
    return_indices: builtins.bool = ...,
    _random_samples: Any = ...,
) -> Any: ...
def fractional_max_pool3d(
    input: Any,
    kernel_size: Any,
    output_size: Any = ...,
    output_ratio: Any = ...,
    return_indices: builtins.bool = ...,
    _random_samples: Any = ...,
) -> Any: ...
def gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: builtins.bool = ..., eps: Any = ..., reduction: builtins.str = ...
) -> Tensor: ...
def gelu(input: Any, approximate: builtins.str = ...) -> Tensor: ...
def glu(input: Any, dim: Any = ...) -> Tensor: ...
def grid_sample(
    input: Any, grid: Any, mode: builtins.str = ..., padding_mode: builtins.str = ..., align_corners: Any = ...
) -> Tensor: ...
def group_norm(input: Any, num_groups: Any, weight: Any = ..., bias: Any = ..., eps: Any = ...) -> Tensor: ...
def gumbel_softmax(
    logits: Any, tau: Any = ..., hard: builtins.bool = ..., eps: Any = ..., dim: Any = ...
) -> Tensor: ...
def hardshrink(input: Any, lambd: Any = ...) -> Tensor: ...
def hardsigmoid(input: Any, inplace: builtins.bool = ...) -> Tensor: ...
def hardswish(input: Any, inplace: builtins.bool = ...) -> Tensor: ...
def hardtanh(input: Any, min_val: Any = ..., max_val: Any = ..., inplace: builtins.bool = ...) -> Tensor: ...
def hardtanh_(self: Any, *args: Any, **kwargs: Any) -> Tensor: ...
def hinge_embedding_loss(
    input: Any,
    target: Any,
    margin: Any = ...,
    size_average: Any = ...,
    reduce: Any = ...,
    reduction: builtins.str = ...,
) -> Tensor: ...
def huber_loss(input: Any, target: Any, reduction: builtins.str = ..., delta: Any = ...) -> Tensor: ...
def instance_norm(
    input: Any,
    running_mean: Any = ...,
    running_var: Any = ...,
    weight: Any = ...,
    bias: Any = ...,
    use_input_stats: builtins.bool = ...,
    momentum: Any = ...,
    eps: Any = ...,
) -> Tensor: ...
def interpolate(
    input: Any,
    size: Any = ...,
    scale_factor: Any = ...,
    mode: builtins.str = ...,
    align_corners: Any = ...,
    recompute_scale_factor: Any = ...,
    antialias: builtins.bool = ...,
) -> Tensor: ...
def kl_div(
    input: Any,
    target: Any,
    size_average: Any = ...,
    reduce: Any = ...,
    reduction: builtins.str = ...,
    log_target: builtins.bool = ...,
) -> Tensor: ...
def l1_loss(
    input: Any, target: Any, size_average: Any = ..., reduce: Any = ..., reduction: builtins.str = ...
) -> Tensor: ...
def layer_norm(input: Any, normalized_shape: Any, weight: Any = ..., bias: Any = ..., eps: Any = ...) -> Tensor: ...
def leaky_relu(input: Any, negative_slope: Any = ..., inplace: builtins.bool = ...) -> Tensor: ...
def leaky_relu_(self: Any, *args: Any, **kwargs: Any) -> Tensor: ...
def linear(input: Any, weight: Any, bias: Any = ..., *, out: Any = ...) -> Tensor: ...
def local_response_norm(input: Any, size: Any, alpha: Any = ..., beta: Any = ..., k: Any = ...) -> Tensor: ...
def log_softmax(input: Any, dim: Any = ..., dtype: Any = ...) -> Tensor: ...
def logsigmoid(input: Any) -> Tensor: ...
def lp_pool1d(
    input: Any, norm_type: Any, kernel_size: Any, stride: Any = ..., ceil_mode: builtins.bool = ...
) -> Tensor: ...
def lp_pool2d(
    input: Any, norm_type: Any, kernel_size: Any, stride: Any = ..., ceil_mode: builtins.bool = ...
) -> Tensor: ...
def lp_pool3d(
    input: Any, norm_type: Any, kernel_size: Any, stride: Any = ..., ceil_mode: builtins.bool = ...
) -> Tensor: ...
def margin_ranking_loss(
    input1: Any,
    input2: Any,
    target: Any,
    margin: Any = ...,
    size_average: Any = ...,
    reduce: Any = ...,
    reduction: builtins.str = ...,
) -> Tensor: ...
def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = ...,
    padding: Any = ...,
    dilation: Any = ...,
    ceil_mode: builtins.bool = ...,
    return_indices: builtins.bool = ...,
) -> Any: ...
def max_pool1d_with_indices(
    input: Any,
    kernel_size: Any,
    stride: Any = ...,
    padding: Any = ...,
    dilation: Any = ...,
    ceil_mode: builtins.bool = ...,
    return_indices: builtins.bool = ...,
) -> Any: ...
def max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = ...,
    padding: Any = ...,
    dilation: Any = ...,
    ceil_mode: builtins.bool = ...,
    return_indices: builtins.bool = ...,
) -> Any: ...
def max_pool2d_with_indices(
    input: Any,
    kernel_size: Any,
    stride: Any = ...,
    padding: Any = ...,
    dilation: Any = ...,
    ceil_mode: builtins.bool = ...,
    return_indices: builtins.bool = ...,
) -> Any: ...
def max_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any = ...,
    padding: Any = ...,
    dilation: Any = ...,
    ceil_mode: builtins.bool = ...,
    return_indices: builtins.bool = ...,
) -> Any: ...
def max_pool3d_with_indices(
    input: Any,
    kernel_size: Any,
    stride: Any = ...,
    padding: Any = ...,
    dilation: Any = ...,
    ceil_mode: builtins.bool = ...,
    return_indices: builtins.bool = ...,
) -> Any: ...
def max_unpool1d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = ..., padding: Any = ..., output_size: Any = ...
) -> Tensor: ...
def max_unpool2d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = ..., padding: Any = ..., output_size: Any = ...
) -> Tensor: ...
def max_unpool3d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = ..., padding: Any = ..., output_size: Any = ...
) -> Tensor: ...
def mish(input: Any, inplace: builtins.bool = ...) -> Tensor: ...
def mse_loss(
    input: Any, target: Any, size_average: Any = ..., reduce: Any = ..., reduction: builtins.str = ...
) -> Tensor: ...
def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: Any,
    num_heads: Any,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: Any,
    dropout_p: Any,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: builtins.bool = ...,
    key_padding_mask: Any = ...,
    need_weights: builtins.bool = ...,
    attn_mask: Any = ...,
    use_separate_proj_weight: builtins.bool = ...,
    q_proj_weight: Any = ...,
    k_proj_weight: Any = ...,
    v_proj_weight: Any = ...,
    static_k: Any = ...,
    static_v: Any = ...,
    average_attn_weights: builtins.bool = ...,
    is_causal: builtins.bool = ...,
) -> Any: ...
def multi_margin_loss(
    input: Any,
    target: Any,
    p: Any = ...,
    margin: Any = ...,
    weight: Any = ...,
    size_average: Any = ...,
    reduce: Any = ...,
    reduction: builtins.str = ...,
) -> Tensor: ...
def multilabel_margin_loss(
    input: Any, target: Any, size_average: Any = ..., reduce: Any = ..., reduction: builtins.str = ...
) -> Tensor: ...
def multilabel_soft_margin_loss(
    input: Any,
    target: Any,
    weight: Any = ...,
    size_average: Any = ...,
    reduce: Any = ...,
    reduction: builtins.str = ...,
) -> Tensor: ...
def nll_loss(
    input: Any,
    target: Any,
    weight: Any = ...,
    size_average: Any = ...,
    ignore_index: Any = ...,
    reduce: Any = ...,
    reduction: builtins.str = ...,
) -> Tensor: ...
def normalize(input: Any, p: Any = ..., dim: Any = ..., eps: Any = ...) -> Tensor: ...
def one_hot(input: Any, num_classes: Any = ...) -> Tensor: ...
def pad(input: Any, pad: Any, mode: builtins.str = ..., value: Any = ...) -> Tensor: ...
def pairwise_distance(x1: Any, x2: Any, p: Any = ..., eps: Any = ..., keepdim: builtins.bool = ...) -> Tensor: ...
def pdist(input: Any, p: Any = ...) -> Tensor: ...
def pixel_shuffle(input: Any, upscale_factor: Any) -> Tensor: ...
def pixel_unshuffle(input: Any, downscale_factor: Any) -> Tensor: ...
def poisson_nll_loss(
    input: Any,
    target: Any,
    log_input: builtins.bool = ...,
    full: builtins.bool = ...,
    size_average: Any = ...,
    eps: Any = ...,
    reduce: Any = ...,
    reduction: builtins.str = ...,
) -> Tensor: ...
def prelu(input: Any, weight: Any) -> Tensor: ...
def relu(input: Any, inplace: builtins.bool = ...) -> Tensor: ...
def relu6(input: Any, inplace: builtins.bool = ...) -> Tensor: ...
def relu_(self: Any, *args: Any, **kwargs: Any) -> Tensor: ...
def rms_norm(input: Any, normalized_shape: Any, weight: Any = ..., eps: Any = ...) -> Tensor: ...
def rrelu(
    input: Any, lower: Any = ..., upper: Any = ..., training: builtins.bool = ..., inplace: builtins.bool = ...
) -> Tensor: ...
def rrelu_(self: Any, *args: Any, **kwargs: Any) -> Tensor: ...
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = ...,
    dropout_p: Any = ...,
    is_causal: builtins.bool = ...,
    scale: Any = ...,
    enable_gqa: builtins.bool = ...,
) -> Tensor: ...
def selu(input: Any, inplace: builtins.bool = ...) -> Tensor: ...
def selu_(self: Any, *args: Any, **kwargs: Any) -> Tensor: ...
def sigmoid(input: Any) -> Tensor: ...
def silu(input: Any, inplace: builtins.bool = ...) -> Tensor: ...
def smooth_l1_loss(
    input: Any, target: Any, size_average: Any = ..., reduce: Any = ..., reduction: builtins.str = ..., beta: Any = ...
) -> Tensor: ...
def soft_margin_loss(
    input: Any, target: Any, size_average: Any = ..., reduce: Any = ..., reduction: builtins.str = ...
) -> Tensor: ...
def softmax(input: Any, dim: Any = ..., dtype: Any = ...) -> Tensor: ...
def softmin(input: Any, dim: Any = ..., dtype: Any = ...) -> Tensor: ...
def softplus(input: Any, beta: Any = ..., threshold: Any = ...) -> Tensor: ...
def softshrink(input: Any, lambd: Any = ...) -> Tensor: ...
def softsign(input: Any) -> Tensor: ...
def tanh(input: Any) -> Tensor: ...
def tanhshrink(input: Any) -> Tensor: ...
def threshold(input: Any, threshold: Any, value: Any, inplace: builtins.bool = ...) -> Tensor: ...
def threshold_(self: Any, *args: Any, **kwargs: Any) -> Tensor: ...
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: Any = ...,
    p: Any = ...,
    eps: Any = ...,
    swap: builtins.bool = ...,
    size_average: Any = ...,
    reduce: Any = ...,
    reduction: builtins.str = ...,
) -> Tensor: ...
def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    distance_function: Any = ...,
    margin: Any = ...,
    swap: builtins.bool = ...,
    reduction: builtins.str = ...,
) -> Tensor: ...
def unfold(input: Any, kernel_size: Any, dilation: Any = ..., padding: Any = ..., stride: Any = ...) -> Tensor: ...
def upsample(
    input: Any, size: Any = ..., scale_factor: Any = ..., mode: builtins.str = ..., align_corners: Any = ...
) -> Tensor: ...
def upsample_bilinear(input: Any, size: Any = ..., scale_factor: Any = ...) -> Tensor: ...
def upsample_nearest(input: Any, size: Any = ..., scale_factor: Any = ...) -> Tensor: ...
