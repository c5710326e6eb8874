"""Sums over elements, and softmax over those that are kept."""

import numpy as np

from ..compiler.shapes import normalize_axis
from ..creation import full
from ..runtime.state.tensor import tensor_of
from . import coordinates
from .conversion import added_up, coalesce, picked
from .tensors import SparseTensor


def sum_(input, dim=None, keepdim=False, *, dtype=None):
    """The sum of all elements, or over dimensions: sparse while a sparse dimension is left, dense otherwise."""
    values = input._values_kept if dtype is None else input._values_kept.to(dtype)
    if dim is None:
        return values.sum()
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    axes = [normalize_axis("sum", d, input.ndim) for d in dims or range(input.ndim)]
    if not isinstance(input, SparseTensor):
        return _of_compressed(input, values, axes, keepdim)
    n = input.sparse_dim()
    of_values = [axis - n + 1 for axis in axes if axis >= n]
    if of_values:
        values = values.sum(of_values, keepdim=keepdim)
    stay = [axis for axis in range(n) if axis not in axes]
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(input.shape) if keepdim or axis not in axes)
    if len(stay) == n:
        return SparseTensor.of(input._indices_kept, values, shape, input._is_rising)
    if not stay and not keepdim:
        return values.sum(0)
    if keepdim:
        indices = input._indices_kept.copy()
        indices[[axis for axis in axes if axis < n]] = 0
    else:
        indices = np.ascontiguousarray(input._indices_kept[stay])
    made = coalesce(SparseTensor.of(indices, values, shape))
    made._is_rising = True
    return made


def _of_compressed(input, values, axes, keepdim):
    made = sum_(input._with(values).to_sparse(), axes, keepdim)
    return made if made.has_array or made.ndim != 2 else made.to_sparse(layout=input.layout)


def sum_of(input, dim=None, dtype=None):
    """`weft.sparse.sum`: the sum of all elements, or over dimensions.

    Sparse while a sparse dimension is left, else dense. Elements that are not kept get no gradient.
    """
    return sum_(input, dim, dtype=dtype)


def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    """The root of the sum of all squares, or another norm of the elements that are kept."""
    if dim is not None or keepdim:
        raise NotImplementedError("norm: of all elements; along a dimension write x.to_dense().norm(...)")
    x = coalesce(input) if isinstance(input, SparseTensor) else input
    values = x._values_kept if dtype is None else x._values_kept.to(dtype)
    return values.reshape(-1).norm(2 if p in ("fro", None) else p)


# --- softmax ----------------------------------------------------------------------------------------------------------
def softmax(input, dim, *, dtype=None):
    """exp(x) / sum(exp(x)) along dim, over the elements that are kept: those that are not count as -inf."""
    x, shifted, sums, numbers, along = _exponentials(input, dim, dtype)
    if along is not None:
        return x._with(shifted.softmax(along))
    return x._with(shifted.exp() / picked(sums, numbers))


def log_softmax(input, dim, *, dtype=None):
    """The logarithm of softmax(input, dim)."""
    x, shifted, sums, numbers, along = _exponentials(input, dim, dtype)
    if along is not None:
        return x._with(shifted.log_softmax(along))
    return x._with(shifted - picked(sums.log(), numbers))


def _exponentials(input, dim, dtype):
    """(coalesced tensor, its values less the greatest of their line, sums of exponentials by line, the line of each,
    None), or (tensor, values, None, None, dimension of the values) along a dense dimension."""
    x = coalesce(input) if isinstance(input, SparseTensor) else coalesce(input.to_sparse())
    axis, n = normalize_axis("softmax", dim, x.ndim), x.sparse_dim()
    values = x._values_kept if dtype is None else x._values_kept.to(dtype)
    if axis >= n:
        return x, values, None, None, axis - n + 1
    lines = np.delete(x._indices_kept, axis, 0)
    places = coordinates.flat(lines, coordinates.without(x.sparse_sizes, (axis,)))
    found, numbers = np.unique(places, return_inverse=True)
    numbers = numbers.reshape(-1)
    greatest = _greatest(values.detach(), numbers, len(found))
    shifted = values - picked(greatest, numbers)
    return x, shifted, added_up(shifted.exp(), numbers, len(found)), numbers, None


def _greatest(values, numbers, n):
    """(n, *dense sizes): the greatest of the values of each number."""
    start = full((n, *values.shape[1:]), float("-inf"), dtype=values.dtype)
    if not values.numel():
        return start
    index = tensor_of(numbers).reshape(-1, *(1,) * (values.ndim - 1)).expand(values.shape)
    return start.scatter_reduce(0, index, values, "amax")
