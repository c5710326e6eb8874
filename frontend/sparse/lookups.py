"""Reads whose gradients are sparse: rows of a table, of which a step touches few.

table (n_rows, *sizes) --index--> rows        the gradient of the table keeps the rows that were read
"""

import numpy as np

from ..compiler.ops import indexing
from ..compiler.shapes import normalize_axis
from ..runtime.eager.function import Function
from ..runtime.state.modes import step_out
from ..runtime.state.tensor import tensor_of
from .conversion import picked
from .tensors import SparseTensor

_REASON = "a gradient is asked for that is sparse"


class EmbeddingBackward(Function):
    """Rows of a table at integer positions."""

    @staticmethod
    def forward(ctx, weight, index, padding_idx, is_scaled):
        ctx.shape, ctx.padding_idx, ctx.is_scaled = tuple(weight.shape), padding_idx, is_scaled
        ctx.index = index.detach().numpy().astype(np.int64).reshape(-1)
        return indexing.embedding(weight, index)

    @staticmethod
    def backward(ctx, gradient):
        index = ctx.index
        # As it is where it can be: a leaf keeps what is no view.
        values = gradient if gradient.ndim == 2 else gradient.reshape(-1, *ctx.shape[1:])
        if ctx.is_scaled:
            counts = np.bincount(index, minlength=1)[index]
            values = values / tensor_of(counts.astype(values.dtype.numpy).reshape(-1, 1))
        if ctx.padding_idx is not None:
            kept = np.flatnonzero(index != ctx.padding_idx % ctx.shape[0])
            index, values = index[kept], picked(values, kept)
        return SparseTensor.of(index.reshape(1, -1).copy(), values, ctx.shape), None, None, None


def embedding(weight, index, padding_idx=None, scale_grad_by_freq=False):
    """Rows of weight at integer positions; the gradient of weight is sparse. The row padding_idx gets none.

    scale_grad_by_freq: the gradients of rows are divided by how often they are read.
    """
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise AssertionError(f"embedding: padding_idx {padding_idx} must be within num_embeddings {weight.shape[0]}")
    back = step_out(_REASON)
    try:
        return EmbeddingBackward.apply(weight, index, padding_idx, scale_grad_by_freq)
    finally:
        back.__exit__()


class GatherBackward(Function):
    """Elements at positions along a dimension."""

    @staticmethod
    def forward(ctx, input, axis, index):
        ctx.shape, ctx.axis = tuple(input.shape), axis
        ctx.index = index.detach().numpy().astype(np.int64)
        return input.gather(axis, index)

    @staticmethod
    def backward(ctx, gradient):
        index = ctx.index
        if not ctx.shape:
            return SparseTensor.of(np.zeros((0, index.size), np.int64), gradient.reshape(-1), ()), None, None
        indices = np.indices(index.shape).reshape(len(ctx.shape), -1)
        indices[ctx.axis] = index.reshape(-1)
        return SparseTensor.of(indices, gradient.reshape(-1), ctx.shape), None, None


def gather(input, dim, index):
    """input.gather(dim, index), with a sparse gradient."""
    axis = normalize_axis("gather", dim, input.ndim)
    if input.ndim == 1 and index.ndim == 0:
        return gather(input, dim, index.reshape(1)).reshape(())
    back = step_out(_REASON)
    try:
        return GatherBackward.apply(input, axis, index)
    finally:
        back.__exit__()
