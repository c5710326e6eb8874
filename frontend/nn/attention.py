"""Attention: scaled_dot_product_attention, and MultiheadAttention, which projects what it is given first."""

import math
import warnings

from ..casting import lowered
from ..compiler import dtypes
from ..compiler.ops import arithmetic, contraction, reduction, statistics
from ..compiler.ops.attention import attention, block_rows
from ..compiler.ops.comparison import eq, where
from ..compiler.ops.table import OpError
from ..composed import repeat_interleave
from ..creation import arange, empty, zeros
from ..public import of_module
from ..shaping import cat
from . import functional as F
from . import init
from .attention_backends import SDPBackend, sdpa_kernel  # noqa: F401 (names of weft.nn.attention)
from .layers import Linear
from .module import Module
from .padding import pad
from .parameter import Parameter

__getattr__, __dir__ = of_module(__name__)
FUNCTIONS = ("multi_head_attention_forward", "scaled_dot_product_attention")
LAYERS = ("MultiheadAttention",)


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """softmax(query key^T scale + mask) value: (..., L, E), (..., S, E), (..., S, V) -> (..., L, V) (arXiv 1706.03762).

    attn_mask (..., L, S): bool, True where attention is allowed, or numbers that are added. is_causal: position l sees
    positions up to l. A position that sees none gets 0. scale: by default 1 / sqrt(E). dropout_p > 0 always drops.
    enable_gqa: key and value have fewer heads (dimension -3), each for as many neighbouring heads of the query.
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError("scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    query, key, value = lowered(query, key, value)
    if attn_mask is not None:
        (attn_mask,) = lowered(attn_mask)
    _check_dot_products(query, key, value, attn_mask)
    if enable_gqa:
        key, value = _for_every_head(query, key), _for_every_head(query, value)
    # Scaling rows of the query takes less than scaling all scores.
    query = query * (1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale))
    if dropout_p == 0 and not (attn_mask is not None and attn_mask.requires_grad):
        masks = () if attn_mask is None else (attn_mask,)
        rows = block_rows(math.prod(query.shape[:-2]), query.shape[-2], key.shape[-2], is_causal)
        return attention(query, key, value, *masks, causal=is_causal, rows=rows)
    scores = contraction.matmul(query, contraction.swap_last(key))
    if is_causal:
        attn_mask = arange(scores.shape[-1]) <= arange(scores.shape[-2]).reshape((scores.shape[-2], 1))
    weights = _attention_weights(scores, attn_mask, is_causal)
    return contraction.matmul(F.dropout(weights, dropout_p), value)


def _check_dot_products(query, key, value, mask):
    name = "scaled_dot_product_attention"
    if not query.dtype is key.dtype is value.dtype:
        raise OpError(
            f"{name}: Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype} "
            f"key.dtype: {key.dtype} and value.dtype: {value.dtype} instead"
        )
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise OpError(
            f"{name}: Expected query, key, and value to all be at least 2 dimensional, but got query.dim(): "
            f"{query.ndim}, key.dim(): {key.ndim} and value.dim(): {value.ndim} instead"
        )
    if mask is not None and mask.dtype is not dtypes.bool_ and mask.dtype is not query.dtype:
        raise OpError(
            f"{name}: Expected attn_mask dtype to be bool or to match query dtype, but got attn_mask.dtype: "
            f"{mask.dtype} and query.dtype: {query.dtype} instead"
        )


def _for_every_head(query, x):
    """Every head of x as often as the query has heads for it."""
    if x.ndim < 3 or query.ndim < 3 or query.shape[-3] % x.shape[-3]:
        raise OpError(
            "scaled_dot_product_attention: Number of heads in key and value must divide the number of heads in query "
            f"(dimension -3), got shapes {query.shape} and {x.shape}"
        )
    return repeat_interleave(x, query.shape[-3] // x.shape[-3], dim=-3)


def _attention_weights(scores, mask, sees_something):
    last = len(scores.shape) - 1
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.dtype is dtypes.bool_ else scores + mask
    if mask is None or sees_something:
        return statistics.softmax(scores, axis=last)
    blind = eq(reduction.amax(scores, axes=(last,), keepdim=True), -math.inf)
    return where(blind, 0.0, statistics.softmax(where(blind, 0.0, scores), axis=last))


# --- several heads --------------------------------------------------------------------------------------------------
def multi_head_attention_forward(
    query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn,
    dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None,
    use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None,
    static_v=None, average_attn_weights=True, is_causal=False,
):  # fmt: skip
    """MultiheadAttention as a function: query (L, N, E), key (S, N, kdim), value (S, N, vdim), N may be missing.

    Returns the result (L, N, E), and the weights (N, L, S), or (N, heads, L, S) without average_attn_weights; None for
    them without need_weights. Masks as in MultiheadAttention.
    """
    batched = _check_attention_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    _check_sizes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    key_padding_mask = added_mask(key_padding_mask, "key_padding_mask", query.dtype, attn_mask, "attn_mask")
    causal = is_causal and key_padding_mask is None and not need_weights
    mask = None if causal else added_mask(attn_mask, "attn_mask", query.dtype)
    mask = _expanded(mask, query, key, num_heads)
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    q, k, v = _projections(query, key, value, weights, in_proj_bias)
    if bias_k is not None:
        k, v = (cat([x, b.repeat(1, x.shape[1], 1)]) for x, b in ((k, bias_k), (v, bias_v)))
    heads = [_heads(x, num_heads) for x in (q, k, v)]
    heads[1:] = _given("static_k", heads[1], static_k), _given("static_v", heads[2], static_v)
    if add_zero_attn:
        heads[1:] = [cat([x, x.new_zeros(*x.shape[:2], 1, x.shape[3])], 2) for x in heads[1:]]
    added = heads[1].shape[2] - key.shape[0] if static_k is None else int(add_zero_attn)
    mask = _merged(mask, key_padding_mask, added)
    rate = dropout_p if training else 0.0
    found, shares = (_weighted if need_weights else _unweighted)(*heads, mask, rate, causal)
    found = found.permute(2, 0, 1, 3).reshape(query.shape)
    found = F.linear(found, out_proj_weight, out_proj_bias)
    if shares is not None and average_attn_weights:
        shares = shares.mean(1)
    if not batched:
        found, shares = found.squeeze(1), None if shares is None else shares.squeeze(0)
    return found, shares


def _weighted(q, k, v, mask, rate, causal):
    scores = contraction.matmul(q * math.sqrt(1.0 / q.shape[-1]), contraction.swap_last(k))
    shares = statistics.softmax(scores if mask is None else scores + mask, axis=3)
    shares = F.dropout(shares, rate)
    return contraction.matmul(shares, v), shares


def _unweighted(q, k, v, mask, rate, causal):
    return scaled_dot_product_attention(q, k, v, mask, rate, causal), None


def _heads(x, n):
    """(L, N, E) -> (N, heads, L, E / heads)."""
    length, batch, width = x.shape
    return x.reshape((length, batch, n, width // n)).permute(1, 2, 0, 3)


def _given(name, x, given):
    """A key or value (N * heads, S, E / heads) in the place of what was projected, if there is one."""
    if given is None:
        return x
    batch, heads, _, width = x.shape
    if given.shape[0] != batch * heads:
        raise AssertionError(f"expecting {name}.size(0) of {batch * heads}, but got {given.shape[0]}")
    if given.shape[2] != width:
        raise AssertionError(f"expecting {name}.size(2) of {width}, but got {given.shape[2]}")
    return given.reshape((batch, heads, given.shape[1], width))


def _projections(query, key, value, weights, bias):
    """Queries, keys and values; `weights` are three, or one for all in rows."""
    width = query.shape[-1]
    if not isinstance(weights, tuple):
        if query is key and key is value:
            projected = F.linear(query, weights, bias)
            return [projected[..., k * width : (k + 1) * width] for k in range(3)]
        weights = [weights[k * width : (k + 1) * width] for k in range(3)]
    biases = (None,) * 3 if bias is None else [bias[k * width : (k + 1) * width] for k in range(3)]
    return [F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)]


# --- masks ----------------------------------------------------------------------------------------------------------
def added_mask(mask, name, dtype, other=None, other_name=""):
    """A mask as numbers to add: -inf where a bool one is True. None stays."""
    if mask is None:
        return None
    if mask.dtype is not dtypes.bool_ and not mask.dtype.is_floating_point:
        raise AssertionError(f"only bool and floating types of {name} are supported, got {mask.dtype}")
    if other is not None and other.dtype is not mask.dtype:
        warnings.warn(
            f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both instead.",
            stacklevel=3,
        )
    if mask.dtype is not dtypes.bool_:
        return mask
    return where(mask, -math.inf, zeros((), dtype=dtype))


def _expanded(mask, query, key, num_heads):
    """(L, S) or (N * heads, L, S) as (1 or N, 1 or heads, L, S)."""
    if mask is None:
        return None
    batch, sizes = query.shape[1], (query.shape[0], key.shape[0])
    wanted = sizes if mask.ndim == 2 else (batch * num_heads, *sizes)
    if mask.shape != wanted:
        raise RuntimeError(f"The shape of the {mask.ndim}D attn_mask is {mask.shape}, but should be {wanted}.")
    return mask.reshape((1, 1, *sizes) if mask.ndim == 2 else (batch, num_heads, *sizes))


def _merged(mask, padding, added):
    """Both masks as one, with 0 for keys that were added."""
    if padding is not None:
        padding = padding.reshape((padding.shape[0], 1, 1, padding.shape[1]))
    parts = [pad(m, (0, added)) if added else m for m in (mask, padding) if m is not None]
    return arithmetic.add(*parts) if len(parts) == 2 else parts[0] if parts else None


# --- checks ---------------------------------------------------------------------------------------------------------
def _check_attention_shapes(query, key, value, key_padding_mask, attn_mask, num_heads):
    """Whether there is a batch."""
    if query.ndim not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor"
        )
    kind = "batched (3-D)" if query.ndim == 3 else "unbatched (2-D)"
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {query.ndim}-D but found {key.ndim}-D and "
            f"{value.ndim}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.ndim != query.ndim - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {query.ndim - 1}-D but found "
            f"{key_padding_mask.ndim}-D tensor instead"
        )
    if attn_mask is not None and attn_mask.ndim not in (2, 3):
        raise AssertionError(
            f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found "
            f"{attn_mask.ndim}-D tensor instead"
        )
    wanted = (num_heads, query.shape[0], key.shape[0])
    if query.ndim == 2 and attn_mask is not None and attn_mask.ndim == 3 and attn_mask.shape != wanted:
        raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got {attn_mask.shape}")
    return query.ndim == 3


def _check_sizes(query, key, value, width, num_heads, separate):
    if query.shape[2] != width:
        raise AssertionError(f"was expecting embedding dimension of {width}, but got {query.shape[2]}")
    if width % num_heads:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if separate and key.shape[:2] != value.shape[:2]:
        raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
    if not separate and key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")


# --- the layer ------------------------------------------------------------------------------------------------------
class NonDynamicallyQuantizableLinear(Linear):
    """Linear under the name that PyTorch prints for the last projection."""


class MultiheadAttention(Module):
    """Attention of several heads, each with its own projections of query, key and value (Vaswani et al. 2017).

    query (L, N, embed_dim), key (S, N, kdim), value (S, N, vdim) -> (L, N, embed_dim), and the weights unless
    need_weights is False: their mean over the heads (N, L, S), or of each (N, heads, L, S). With batch_first N comes
    first; it may be missing. key_padding_mask (N, S) and attn_mask (L, S) or (N * heads, L, S): bool, True where there
    is nothing to see, or numbers that are added. is_causal says that attn_mask is the causal one.
    """

    def __init__(
        self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None,
        vdim=None, batch_first=False, device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} "
                "instead"
            )
        if embed_dim % num_heads:
            raise AssertionError(f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        kind = {"device": device, "dtype": dtype}
        shapes = dict.fromkeys(("q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_weight"))
        if self._qkv_same_embed_dim:
            shapes["in_proj_weight"] = 3 * embed_dim, embed_dim
        else:
            sizes = (embed_dim, self.kdim, self.vdim)
            shapes.update(zip(shapes, ((embed_dim, size) for size in sizes)))
        shapes["in_proj_bias"] = (3 * embed_dim,) if bias else None
        for name, shape in shapes.items():
            self.register_parameter(name, None if shape is None else Parameter(empty(*shape, **kind)))
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **kind)
        self.bias_k = Parameter(empty(1, 1, embed_dim, **kind)) if add_bias_kv else None
        self.bias_v = Parameter(empty(1, 1, embed_dim, **kind)) if add_bias_kv else None
        self._reset_parameters()

    def _reset_parameters(self):
        """Draw all parameters anew but out_proj.weight."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True,
        is_causal=False,
    ):  # fmt: skip
        swapped = self.batch_first and query.ndim == 3
        inputs = [query, key, value]
        if swapped:
            # The same tensor stays one: it is projected once.
            turned = {id(x): x.transpose(0, 1) for x in inputs}
            inputs = [turned[id(x)] for x in inputs]
        output, weights = multi_head_attention_forward(
            *inputs, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
            self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, training=self.training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight, v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights, is_causal=is_causal,
        )  # fmt: skip
        return output.transpose(0, 1) if swapped else output, weights
