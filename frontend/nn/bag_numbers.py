"""`weft.embedding_bag`: what layers of embeddings are made of in PyTorch, with another signature than theirs."""

import numpy as np

from ..compiler.ops.table import OpError
from ..runtime.state.tensor import tensor_of
from .bags import _MODES, _bag_numbers
from .bags import embedding_bag as combined


def embedding_bag(
    weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None,
    include_last_offset=False, padding_idx=None,
):  # fmt: skip
    """(sums, means or maxima, offset2bag, bag_size, max_indices) of rows of weight, from each offset to the next.

    mode: 0 sums, 1 means, 2 maxima. offset2bag: the bag of each index, empty for sums without
    padding_idx; bag_size: how many there are in a
    bag, but for those at padding_idx, zeros for sums; max_indices: of maxima the row of weight that each element is of,
    otherwise as bag_size. nn.functional.embedding_bag gives the first of these.
    """
    if mode not in range(len(_MODES)):
        raise RuntimeError(f"embedding_bag: `mode` must be sum, mean, or max: 0, 1 or 2, got {mode!r}")
    if indices.ndim != 1:
        raise OpError(f"embedding_bag: indices must be a 1-D tensor, got shape {indices.shape}")
    values = combined(
        indices, weight, offsets, scale_grad_by_freq=scale_grad_by_freq, mode=_MODES[mode], sparse=sparse,
        per_sample_weights=per_sample_weights, include_last_offset=include_last_offset, padding_idx=padding_idx,
    )  # fmt: skip
    kind = indices.dtype.numpy
    _, bags, count = _bag_numbers(indices, offsets, include_last_offset)
    if _MODES[mode] == "sum":
        bags = bags[:0] if padding_idx is None else bags
        return values, tensor_of(bags.astype(kind)), *(tensor_of(np.zeros(len(offsets), kind)) for _ in range(2))
    rows = indices.detach().array
    kept = np.ones(len(rows), bool) if padding_idx is None else rows != padding_idx % weight.shape[0]
    size = np.bincount(bags[kept], minlength=count).astype(kind)
    largest = size.copy() if _MODES[mode] == "mean" else _largest(weight, rows[kept], bags[kept], count)
    return values, tensor_of(bags.astype(kind)), tensor_of(size), tensor_of(largest)


def _largest(weight, rows, bags, count):
    """(bags, width): the row of weight whose element is the largest of the bag, the first of equal ones; 0 where there
    is none."""
    found, elements = np.zeros((count, weight.shape[1]), rows.dtype), weight.detach().array
    for bag in np.unique(bags):
        ours = rows[bags == bag]
        found[bag] = ours[np.argmax(elements[ours], axis=0)]
    return found
