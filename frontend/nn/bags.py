"""Bags of embeddings, and bilinear maps."""

import math

import numpy as np

from ..casting import in_wide
from ..compiler.dtypes import int64
from ..compiler.ops import indexing
from ..compiler.ops.table import OpError
from ..compiler.storage import convert
from ..creation import empty
from ..placing import scatter_reduce
from ..products import einsum
from ..runtime.state.modes import no_grad
from ..runtime.state.said import warn
from ..runtime.state.tensor import tensor_of
from ..shaping import expand, reshape, unsqueeze
from . import init
from .functional import _limit_rows, embedding
from .module import Module
from .parameter import Parameter

_MODES = ("sum", "mean", "max")


def embedding_bag(
    input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
    per_sample_weights=None, include_last_offset=False, padding_idx=None,
):  # fmt: skip
    """Sums, means or maxima of rows of weight: one bag per row of input, or from each of the offsets to the next."""
    if input.dtype.is_floating_point and weight.dtype is int64:
        warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
            "deprecated, and should now be `embedding_bag(input, weight, ...)`.",
            stacklevel=2,
        )
        input, weight = weight, input
    _check_bag(input, weight, offsets, mode, per_sample_weights)
    if max_norm is not None:
        _limit_rows(weight, input, max_norm, norm_type)
    flat, bags, count = _bag_numbers(input, offsets, include_last_offset)
    kept = None
    if padding_idx is not None:
        kept = (flat != padding_idx % weight.shape[0]).array.nonzero()[0]
        flat, bags = flat[tensor_of(kept)], bags[kept]
    rows = embedding(flat, weight, sparse=sparse)
    if per_sample_weights is not None:
        factors = reshape(per_sample_weights, -1)
        rows = rows * unsqueeze(factors if kept is None else factors[tensor_of(kept)], 1)
    return _combined(rows, bags, count, mode)


def _check_bag(input, weight, offsets, mode, per_sample_weights):
    if mode not in _MODES:
        raise ValueError(f"mode has to be one of sum, mean or max, got {mode!r}")
    if input.dtype.category != 1:
        raise OpError(f"embedding_bag: input must be integer positions, got {input.dtype.name}")
    if input.ndim == 2 and offsets is not None:
        raise ValueError("if input is 2D, then offsets has to be None, as input is treated as a mini-batch of bags")
    if input.ndim == 1 and offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if input.ndim not in (1, 2):
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if offsets is not None and offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if per_sample_weights is not None:
        if mode != "sum":
            raise NotImplementedError(
                f"embedding_bag: per_sample_weights was not None, but mode was {mode!r}, not 'sum'"
            )
        if per_sample_weights.shape != input.shape:
            raise ValueError(
                f"per_sample_weights {per_sample_weights.shape} must have the shape of input {input.shape}"
            )
        if per_sample_weights.dtype is not weight.dtype:
            raise OpError(
                f"embedding_bag: expected weight and per_sample_weights to have the same type: {weight.dtype}"
            )


def _bag_numbers(input, offsets, include_last_offset):
    """(positions in a row, the bag of each, how many bags)."""
    if input.ndim == 2:
        return reshape(input, -1), np.repeat(np.arange(input.shape[0]), input.shape[1]), input.shape[0]
    starts = offsets.detach().array
    if starts.size and (starts[0] != 0 or starts[-1] > input.shape[0]):
        raise ValueError(
            f"offsets[0] has to be 0, and the last at most {input.shape[0]}, got {starts[0]}, {starts[-1]}"
        )
    starts = starts[:-1] if include_last_offset else starts
    return input, np.searchsorted(starts, np.arange(input.shape[0]), "right") - 1, len(starts)


def _combined(rows, bags, count, mode):
    """The rows of each bag combined; of a bag without rows zeros."""
    width, sizes = rows.shape[1], np.bincount(bags, minlength=count)
    blank = rows.new_zeros((count, width))
    if mode == "max":
        index = expand(unsqueeze(tensor_of(bags.astype(np.int64)), 1), rows.shape)
        return scatter_reduce(blank, 0, index, rows, "amax", include_self=False)
    total = indexing.index_add(blank, tensor_of(bags.astype(np.int64)), rows, axis=0)
    if mode == "sum":
        return total
    return total / tensor_of(convert(np.maximum(sizes, 1)[:, None], rows.dtype))


@in_wide
def bilinear(input1, input2, weight, bias=None):
    """x1^T W[k] x2 + b[k] for every k: (*, I), (*, J), (K, I, J) -> (*, K)."""
    if input1.shape[:-1] != input2.shape[:-1]:
        raise OpError(f"bilinear(): input batch dimensions do not match: got {input1.shape} and {input2.shape}")
    for x, axis in ((input1, 1), (input2, 2)):
        if x.shape[-1] != weight.shape[axis]:
            raise OpError(f"bilinear(): input{axis} size does not match weight size: got {x.shape[-1]}, {weight.shape}")
    if bias is not None and bias.shape[0] != weight.shape[0]:
        raise OpError(
            f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but expected {weight.shape[0]}"
        )
    result = einsum("...i,kij,...j->...k", input1, weight, input2)
    return result if bias is None else result + bias


class EmbeddingBag(Module):
    """Sums, means or maxima of rows of `weight`: see functional.embedding_bag."""

    def __init__(
        self, num_embeddings, embedding_dim, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean",
        sparse=False, _weight=None, include_last_offset=False, padding_idx=None, device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type, self.mode = max_norm, norm_type, mode
        self.include_last_offset = include_last_offset
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.weight = Parameter(
            empty(num_embeddings, embedding_dim, dtype=dtype, device=device) if _weight is None else _weight
        )
        if _weight is None:
            self.reset_parameters()

    def reset_parameters(self):
        """Draw the rows anew."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self):
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, **options):
        """An EmbeddingBag around a (num_embeddings, embedding_dim) tensor; `freeze`: without gradients."""
        layer = cls(*embeddings.shape, _weight=embeddings, **options)
        layer.weight.requires_grad = not freeze
        return layer

    def forward(self, input, offsets=None, per_sample_weights=None):
        return embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, mode=self.mode, sparse=self.sparse,
            per_sample_weights=per_sample_weights, include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )  # fmt: skip

    def extra_repr(self):
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"


class Bilinear(Module):
    """x1^T W x2 + b; parameters start uniform in +-1 / sqrt(in1_features)."""

    def __init__(self, in1_features, in2_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(empty(out_features, in1_features, in2_features, dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(empty(out_features, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw both parameters anew."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1, input2):
        return bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self):
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


FUNCTIONS, LAYERS = ["embedding_bag", "bilinear"], ["EmbeddingBag", "Bilinear"]
