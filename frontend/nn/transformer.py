"""Transformers (Vaswani et al., arXiv 1706.03762): layers of attention and two linear maps, and stacks of them."""

import copy
import math

from ..creation import full
from ..functions import triu
from . import functional as F
from . import init
from .attention import MultiheadAttention, added_mask
from .containers import ModuleList
from .layers import Dropout, Linear
from .module import Module
from .normalization import LayerNorm

LAYERS = (
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
)
_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


def _get_activation_fn(name):
    if not isinstance(name, str):
        return name
    if name not in _ACTIVATIONS:
        raise RuntimeError(f"activation should be relu/gelu, not {name}")
    return _ACTIVATIONS[name]


def _get_clones(layer, n):
    return ModuleList([copy.deepcopy(layer) for _ in range(n)])


# --- by PyTorch's names, for layers of users' that are copies of these ---
def _generate_square_subsequent_mask(sz, device=None, dtype=None):
    """(sz, sz): -inf above the diagonal, else 0; to be added."""
    return triu(full((sz, sz), -math.inf, device=device, dtype=dtype), diagonal=1)


def _get_seq_len(src, batch_first):
    """How many places a sequence has, or every one of a batch."""
    return src.shape[1 if batch_first and src.ndim > 2 else 0]


def _detect_is_causal_mask(mask, is_causal=None, size=None):
    """What is said of a mask, or else whether it is the one of a sequence of this length that does not look ahead."""
    if is_causal is not None or mask is None:
        return is_causal is True
    causal = _generate_square_subsequent_mask(mask.shape[-2] if size is None else size, dtype=mask.dtype)
    return mask.shape == causal.shape and bool((mask == causal).all())


class _Layer(Module):
    """What encoder and decoder layers share: attention to itself, two linear maps, and a norm before or after each.

    norm_first: x + f(norm(x)); else norm(x + f(x)). The parts, `_sa_block` and so on, are PyTorch's, since classes of
    users put others in their place.
    """

    def _attend(self, attention, x, memory, mask, padding, causal):
        return attention(
            x, memory, memory, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=causal
        )[0]

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        """Attention of the sequence to itself."""
        return self.dropout1(self._attend(self.self_attn, x, x, attn_mask, key_padding_mask, is_causal))

    def _feed_forward(self, x):
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _residual(self, x, norm, f):
        return x + f(norm(x)) if self.norm_first else norm(x + f(x))


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, then two linear maps with an activation ("relu", "gelu" or a function).

    (L, N, d_model), or (N, L, d_model) with batch_first; N may be missing. Masks as in MultiheadAttention.
    """

    def __init__(
        self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5,
        batch_first=False, norm_first=False, bias=True, device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        kind = {"bias": bias, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **kind)
        self.linear1 = Linear(d_model, dim_feedforward, **kind)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **kind)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **kind)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **kind)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _get_activation_fn(activation)

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        padding = added_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype, src_mask, "src_mask")
        mask = added_mask(src_mask, "src_mask", src.dtype)
        x = self._residual(src, self.norm1, lambda x: self._sa_block(x, mask, padding, is_causal=is_causal))
        return self._residual(x, self.norm2, self._ff_block)

    def _ff_block(self, x):
        """The two linear maps."""
        return self.dropout2(self._feed_forward(x))


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself, then to the encoder's result (`memory`), then two linear maps.

    tgt (T, N, d_model) and memory (S, N, d_model), N first with batch_first. Masks as in MultiheadAttention.
    """

    def __init__(
        self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5,
        batch_first=False, norm_first=False, bias=True, device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        kind = {"bias": bias, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **kind)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **kind)
        self.linear1 = Linear(d_model, dim_feedforward, **kind)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **kind)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **kind)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **kind)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, **kind)
        self.dropout1, self.dropout2, self.dropout3 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.activation = _get_activation_fn(activation)

    def forward(
        self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
        tgt_is_causal=False, memory_is_causal=False,
    ):  # fmt: skip
        own = tgt_mask, tgt_key_padding_mask
        x = self._residual(tgt, self.norm1, lambda x: self._sa_block(x, *own, tgt_is_causal))
        masks = memory_mask, memory_key_padding_mask
        x = self._residual(x, self.norm2, lambda x: self._mha_block(x, memory, *masks, memory_is_causal))
        return self._residual(x, self.norm3, self._ff_block)

    def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
        """Attention to the encoder's result."""
        return self.dropout2(self._attend(self.multihead_attn, x, mem, attn_mask, key_padding_mask, is_causal))

    def _ff_block(self, x):
        """The two linear maps."""
        return self.dropout3(self._feed_forward(x))


class TransformerEncoder(Module):
    """num_layers copies of a layer, and a norm after the last. `enable_nested_tensor` and `mask_check` mean nothing."""

    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        self.layers, self.num_layers, self.norm = _get_clones(encoder_layer, num_layers), num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check
        self.use_nested_tensor = False

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        padding = added_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype, mask, "mask")
        mask = added_mask(mask, "mask", src.dtype)
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, is_causal=is_causal is True, src_key_padding_mask=padding)
        return output if self.norm is None else self.norm(output)


class TransformerDecoder(Module):
    """num_layers copies of a layer, and a norm after the last."""

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers, self.num_layers, self.norm = _get_clones(decoder_layer, num_layers), num_layers, norm

    def forward(
        self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
        tgt_is_causal=None, memory_is_causal=False,
    ):  # fmt: skip
        output = tgt
        for layer in self.layers:
            output = layer(
                output, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal is True, memory_is_causal=memory_is_causal,
            )  # fmt: skip
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """An encoder of `src` and a decoder of `tgt` that attends to its result: (S, N, d_model), (T, N, d_model) ->
    (T, N, d_model), N first with batch_first.

    All parameters of two dimensions and more start uniform by Glorot and Bengio's rule.
    """

    def __init__(
        self, d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048, dropout=0.1,
        activation=F.relu, custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5, batch_first=False,
        norm_first=False, bias=True, device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        kind = {"bias": bias, "device": device, "dtype": dtype}
        sizes = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first)
        self.encoder, self.decoder = custom_encoder, custom_decoder
        if custom_encoder is None:
            layer, norm = TransformerEncoderLayer(*sizes, **kind), LayerNorm(d_model, eps=layer_norm_eps, **kind)
            self.encoder = TransformerEncoder(layer, num_encoder_layers, norm)
        if custom_decoder is None:
            layer, norm = TransformerDecoderLayer(*sizes, **kind), LayerNorm(d_model, eps=layer_norm_eps, **kind)
            self.decoder = TransformerDecoder(layer, num_decoder_layers, norm)
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None,
        tgt_key_padding_mask=None, memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None,
        memory_is_causal=False,
    ):  # fmt: skip
        axis = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[axis] != tgt.shape[axis]:
            raise RuntimeError(
                f"the batch number of src and tgt must be equal, got {src.shape[axis]} and {tgt.shape[axis]}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError(
                f"the feature number of src and tgt must be equal to d_model, which is {self.d_model}, got "
                f"{src.shape[-1]} and {tgt.shape[-1]}"
            )
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )  # fmt: skip

    generate_square_subsequent_mask = staticmethod(_generate_square_subsequent_mask)

    def _reset_parameters(self):
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
