"""`nn.attention.flex_attention`: attention whose scores and masks are functions of positions; `nn.attention.bias`.

    score_mod(score, b, h, q, k)    the score of a query and a key, from theirs and their numbers
    mask_mod(b, h, q, k)            whether the query at q sees the key at k

PyTorch calls them for single numbers, by vmap. Here they are called once: with all scores, and with numbers whose
shapes (B, 1, 1, 1), (1, H, 1, 1), (1, 1, L, 1) and (1, 1, 1, S) broadcast, so that comparisons, arithmetic and
`table[h, q - k]` mean the same. Masks are dense: a BlockMask is a function and the sizes that it is for.
"""

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ..compiler.dtypes import bool_
from ..composed import repeat_interleave
from ..creation import arange, full, ones
from ..functions import matmul, where
from ..reducing import amax, logsumexp
from ..runtime.state.device import require_cpu
from ..runtime.state.modes import no_grad
from ..runtime.state.tensor import Tensor, tensor_of
from ..shaping import transpose
from .functional import softmax

_BLOCK = 128


class AuxRequest(NamedTuple):
    """What flex_attention shall return beside its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for by an AuxRequest."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def flex_attention(
    query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False,
    kernel_options=None, *, return_aux=None,
):  # fmt: skip
    """softmax(score_mod(query @ key^T * scale)) @ value over (B, H, L, E), (B, H, S, E), (B, H, S, Ev).

    scale None is 1 / sqrt(E). block_mask: see create_block_mask; a query that sees no key gets zeros. enable_gqa: key
    and value have fewer heads, each for several of the queries'. return_lse: (result, log of the sums of exp(scores)).
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 4:
            raise ValueError(f"flex_attention: expected {name} to be a 4D tensor, got {x.ndim}D")
    groups, rest = divmod(query.shape[1], key.shape[1])
    if query.shape[1] != key.shape[1] and (not enable_gqa or rest):
        raise ValueError(
            f"flex_attention: query has {query.shape[1]} heads, key and value {key.shape[1]}: with enable_gqa=True the "
            "first must be a multiple of the second, else they must be the same"
        )
    if groups > 1:
        key, value = (repeat_interleave(x, groups, 1) for x in (key, value))
    scores = matmul(query, transpose(key, -2, -1)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    positions = _positions(*scores.shape)
    if score_mod is not None:
        scores = score_mod(scores, *positions).to(query.dtype)
    if block_mask is not None:
        scores = where(block_mask._fitting(scores.shape)(*positions), scores, -math.inf)
    weights = softmax(scores, -1) if score_mod is None and block_mask is None else _weights(scores)
    result = matmul(weights, value)
    if return_aux is not None:
        largest = amax(scores, -1) if return_aux.max_scores else None
        return result, AuxOutput(logsumexp(scores, -1) if return_aux.lse else None, largest)
    return (result, logsumexp(scores, -1)) if return_lse else result


def _weights(scores):
    """softmax over the keys; zeros where all scores are -inf."""
    sees_nothing = amax(scores.detach(), -1, keepdim=True) == -math.inf
    return where(sees_nothing, 0.0, softmax(where(sees_nothing, 0.0, scores), -1))


def _positions(*sizes):
    """Numbers of the batch, the head, the query and the key, each along a dimension of its own."""
    return [arange(n).reshape([n if k == axis else 1 for k in range(4)]) for axis, n in enumerate(sizes)]


# --- masks ------------------------------------------------------------------------------------------------------------
class BlockMask:
    """Which queries see which keys: what create_block_mask makes."""

    def __init__(self, mask_mod, sizes, block):
        self.mask_mod, self.shape, self.seq_lengths, self.BLOCK_SIZE = mask_mod, sizes, sizes[2:], block

    def _fitting(self, shape):
        for of_mask, size in zip(self.shape[:2], shape[:2]):
            if of_mask not in (1, size):
                raise ValueError(f"flex_attention: block_mask of shape {self.shape} does not fit scores of {shape}")
        if tuple(shape[2:]) != self.seq_lengths:
            raise ValueError(
                f"flex_attention: block_mask was created for {self.shape[2]} queries and {self.shape[3]} keys, and "
                f"there are {shape[2]} and {shape[3]}"
            )
        return self.mask_mod

    def to_dense(self):
        """(B, H, blocks of queries, blocks of keys): 1 where any query of a block sees any key of the other."""
        dense = create_mask(self.mask_mod, *self.shape).array
        for axis, size in zip((2, 3), self.BLOCK_SIZE):
            dense = np.logical_or.reduceat(dense, np.arange(0, dense.shape[axis], size), axis=axis)
        return tensor_of(dense.astype(np.int32))

    def numel(self):
        """How many pairs of a query and a key there are."""
        return math.prod(self.shape)

    def sparsity(self):
        """How many percent of the pairs are in no block of to_dense."""
        computed = int(self.to_dense().array.sum()) * math.prod(self.BLOCK_SIZE)
        return 100 * (1 - computed / self.numel())

    def to(self, device):
        """Itself: there is one device."""
        require_cpu("BlockMask.to", device)
        return self

    def __repr__(self):
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN, device=None, BLOCK_SIZE=_BLOCK, _compile=False, **how):
    """What flex_attention takes for block_mask: mask_mod(b, h, q, k) for these sizes; B and H None mean 1."""
    require_cpu("create_block_mask", device)
    block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), block)


@no_grad()
def create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device=None):
    """(B, H, Q_LEN, KV_LEN): what a mask_mod says, or what a score_mod makes of zeros."""
    require_cpu("create_mask", device)
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    code = getattr(mod_fn, "__code__", None)
    if code is not None and code.co_argcount == 5:
        return mod_fn(full(sizes, 0.0), *_positions(*sizes)).expand(sizes).contiguous()
    return (mod_fn(*_positions(*sizes)) & ones(sizes, dtype=bool_)).contiguous()


def and_masks(*mask_mods):
    """A mask_mod: where all of them say so."""
    return _combined(mask_mods, "and_masks", lambda a, b: a & b)


def or_masks(*mask_mods):
    """A mask_mod: where any of them says so."""
    return _combined(mask_mods, "or_masks", lambda a, b: a | b)


def _combined(mask_mods, name, both):
    if not all(map(callable, mask_mods)):
        raise RuntimeError(f"{name}: All inputs should be callable mask_mods: {mask_mods}")

    def mask(b, h, q, k):
        found = mask_mods[0](b, h, q, k)
        for mask_mod in mask_mods[1:]:
            found = both(found, mask_mod(b, h, q, k))
        return found

    return mask


def noop_mask(batch, head, token_q, token_kv):
    """Every query sees every key."""
    return (token_q >= 0) & (token_kv >= 0)


# --- nn.attention.bias ------------------------------------------------------------------------------------------------
class CausalVariant(IntEnum):
    """Where the diagonal of a causal mask ends that is not square."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


def causal_upper_left(*size):
    """A (L, S) mask for scaled_dot_product_attention: query q sees the keys up to q."""
    return ones(*size, dtype=bool_).tril()


def causal_lower_right(*size):
    """A (L, S) mask for scaled_dot_product_attention: the last query sees all keys, each before it one less."""
    n_queries, n_keys = size
    return ones(n_queries, n_keys, dtype=bool_).tril(n_keys - n_queries)
