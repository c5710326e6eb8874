"""From one layout to another, and by the pattern of another tensor.

coalesce        each place once, in row-major order
to_dense        a tensor with memory
to_sparse       by coordinates, or in the layout that is asked for
sparse_mask     the elements of a tensor at the places that another one keeps
"""

import numpy as np

from ..compiler.dtypes import bool_, int64
from ..creation import zeros
from ..placement import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from ..runtime.state.tensor import tensor_of
from . import coordinates
from .compressed import BLOCKS, LAYOUTS, CompressedTensor, compressed
from .tensors import Sparse, SparseTensor


def added_up(values, numbers, n):
    """(n, *dense sizes): the values that belong to each number, added in their order."""
    if values.dtype is bool_:
        return added_up(values.to(int64), numbers, n) != 0
    sums = zeros((n, *values.shape[1:]), dtype=values.dtype)
    return sums.index_add(0, tensor_of(numbers), values) if values.numel() else sums


def picked(values, numbers):
    """The values of these numbers."""
    return values.index_select(0, tensor_of(np.ascontiguousarray(numbers, np.int64)))


def coalesce(self):
    """The same tensor with every place once, in row-major order: values of one place are added in their order."""
    if self._is_rising:
        return self
    sizes = self.sparse_sizes
    places = coordinates.flat(self._indices_kept, sizes)
    if coordinates.is_rising(places):
        return SparseTensor.of(self._indices_kept, self._same_values(), self._meta.shape, True)
    indices, numbers = coordinates.merged(self._indices_kept, sizes)
    values = added_up(self._values_kept, numbers, indices.shape[1])
    return SparseTensor.of(indices, values, self._meta.shape, True)


# --- dense ------------------------------------------------------------------------------------------------------------
def to_dense(self, dtype=None, *, masked_grad=None):
    """A tensor with memory: zeros where no element is kept, sums where several are."""
    if isinstance(self, CompressedTensor):
        blocks = to_dense(self.by_coordinates(), dtype)
        return _without_blocks(blocks, self._meta.shape) if self.layout in BLOCKS else blocks
    sizes, values = self.sparse_sizes, self._values_kept
    values = values if dtype is None else values.to(dtype)
    places = coordinates.flat(self._indices_kept, sizes)
    return added_up(values, places, coordinates.n_places(sizes)).reshape(self._meta.shape)


def _without_blocks(blocks, shape):
    return blocks.permute(0, 2, 1, 3).reshape(shape)


def _in_blocks(dense, block):
    rows, columns = dense.shape
    high, wide = block
    if rows % high or columns % wide:
        raise RuntimeError(
            f"tensor dimensions must be divisible by the sizes of a block, got {tuple(dense.shape)} and {block}"
        )
    return dense.reshape(rows // high, high, columns // wide, wide).permute(0, 2, 1, 3)


# --- sparse -----------------------------------------------------------------------------------------------------------
def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """By coordinates, or in another layout: x.to_sparse(), x.to_sparse(sparse_dim), x.to_sparse(layout=..., ...)."""
    layout = sparse_coo if layout is None else layout
    if sparse_dim is not None and layout is not sparse_coo:
        raise RuntimeError(f"to_sparse: sparse_dim is for layout=weft.sparse_coo, got {layout!r}")
    if blocksize is not None and layout not in BLOCKS:
        raise RuntimeError(
            f"to_sparse for {'Strided' if self.has_array else 'sparse'} to {layout!r} conversion does not use "
            "specified blocksize"
        )
    if layout is strided:
        return to_dense(self) if isinstance(self, Sparse) else self
    if layout is sparse_coo:
        return to_coordinates(self, sparse_dim)
    if layout not in LAYOUTS:
        raise RuntimeError(f"to_sparse: layout {layout!r} is none of a tensor's")
    return to_compressed(self, layout, blocksize)


def to_coordinates(self, sparse_dim=None):
    """By coordinates, of which the first sparse_dim dimensions have indices; all of them if it is not given."""
    if isinstance(self, SparseTensor):
        if sparse_dim not in (None, self.sparse_dim()):
            raise RuntimeError("to_sparse: conversion from Sparse to Sparse with another sparse_dim is not supported")
        return self
    if isinstance(self, CompressedTensor):
        if self.layout in BLOCKS:
            return to_coordinates(to_dense(self), sparse_dim)
        return self.by_coordinates()
    n_sparse = self.ndim if sparse_dim is None else sparse_dim
    if not (0 < n_sparse <= self.ndim or self.ndim == n_sparse == 0):
        raise RuntimeError(f"sparse_dim argument must be in >=1, <={self.ndim} but got {n_sparse}")
    array = self.detach().numpy()
    kept = (array != 0).any(tuple(range(n_sparse, self.ndim)))
    indices = np.array(kept.nonzero(), np.int64).reshape(n_sparse, -1) if n_sparse else np.zeros((0, 1), np.int64)
    return at_places(self, indices, True)


def at_places(dense, indices, is_coalesced):
    """The elements of a dense tensor at these places."""
    n_sparse = indices.shape[0]
    sizes = dense.shape[:n_sparse]
    rows = dense.reshape(coordinates.n_places(sizes), *dense.shape[n_sparse:])
    values = picked(rows, coordinates.flat(indices, sizes))
    return SparseTensor.of(indices, values, tuple(dense.shape), is_coalesced)


def to_compressed(self, layout, blocksize=None):
    """By compressed rows or columns, of elements or blocks."""
    if layout in BLOCKS and blocksize is None:
        raise RuntimeError(f"to_sparse: conversion to {layout!r} needs a blocksize, (rows, columns) of a block")
    block = _pair(blocksize) if layout in BLOCKS else (1, 1)
    if isinstance(self, CompressedTensor) and self.layout is layout and self.block == block:
        return self
    if self.ndim != 2:
        raise NotImplementedError(
            f"to_sparse: {layout!r} is there for matrices, got {self.ndim} dimensions; one matrix at a time: x[k]"
        )
    if layout in BLOCKS or isinstance(self, CompressedTensor) and self.layout in BLOCKS:
        dense = to_dense(self) if isinstance(self, Sparse) else self
        if layout not in BLOCKS:
            return compressed(to_coordinates(dense), layout)
        return compressed(to_coordinates(_in_blocks(dense, block), 2), layout, block)
    return compressed(coalesce(to_coordinates(self)), layout)


def _pair(size):
    return (size, size) if isinstance(size, int) else tuple(size)


def to_sparse_coo(self):
    """By coordinates (COO)."""
    return to_sparse(self)


def to_sparse_csr(self, dense_dim=None):
    """By compressed rows (CSR)."""
    return to_compressed(self, sparse_csr)


def to_sparse_csc(self, dense_dim=None):
    """By compressed columns (CSC)."""
    return to_compressed(self, sparse_csc)


def to_sparse_bsr(self, blocksize, dense_dim=None):
    """By compressed rows of blocks of these sizes (BSR)."""
    return to_compressed(self, sparse_bsr, blocksize)


def to_sparse_bsc(self, blocksize, dense_dim=None):
    """By compressed columns of blocks of these sizes (BSC)."""
    return to_compressed(self, sparse_bsc, blocksize)


# --- by the pattern of another ----------------------------------------------------------------------------------------
def sparse_mask(self, mask):
    """The elements of a tensor at the places that `mask` keeps, which has the same shape."""
    if not isinstance(mask, Sparse):
        raise RuntimeError("sparse_mask: mask must be a sparse tensor; write mask.to_sparse()")
    if tuple(self.shape) != tuple(mask.shape):
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size "
            f"{list(mask.shape)}"
        )
    return mask._with(values_at(self, mask))


def values_at(other, mask):
    """The values of a tensor at the places of a sparse one of the same shape."""
    if type(other) is type(mask) and _same_places(other, mask):
        return other._same_values()
    if isinstance(mask, CompressedTensor):
        if mask.layout in BLOCKS:
            dense = to_dense(other) if isinstance(other, Sparse) else other
            other = _in_blocks(dense, mask.block)
        return values_at(other, mask.by_coordinates())
    if isinstance(other, CompressedTensor):
        other = to_coordinates(other)
    if isinstance(other, SparseTensor):
        return _found(coalesce(other), mask)
    return at_places(other, mask._indices_kept, False)._values_kept


def _same_places(a, b):
    if isinstance(a, SparseTensor):
        return a._indices_kept is b._indices_kept or np.array_equal(a._indices_kept, b._indices_kept)
    same = a.layout is b.layout and a.block == b.block
    return same and np.array_equal(a._starts, b._starts) and np.array_equal(a._others, b._others)


def _found(other, mask):
    """The values of a coalesced tensor at the places of another, 0 where it keeps none."""
    if other.sparse_dim() != mask.sparse_dim():
        return at_places(to_dense(other), mask._indices_kept, False)._values_kept
    have, wanted = (coordinates.flat(x._indices_kept, x.sparse_sizes) for x in (other, mask))
    at = np.minimum(np.searchsorted(have, wanted), max(len(have) - 1, 0))
    there = have[at] == wanted if len(have) else np.zeros(len(wanted), bool)
    return added_up(picked(other._values_kept, at[there]), np.flatnonzero(there), len(wanted))


def values_of(self, other):
    """The values of another tensor at the places that are kept here."""
    return values_at(other, self)


def attach():
    """Give sparse tensors these methods."""
    for method in (to_dense, to_sparse, sparse_mask, values_of, to_sparse_coo, to_sparse_csr, to_sparse_csc):
        setattr(Sparse, method.__name__, method)
    Sparse.to_sparse_bsr, Sparse.to_sparse_bsc, SparseTensor.coalesce = to_sparse_bsr, to_sparse_bsc, coalesce
