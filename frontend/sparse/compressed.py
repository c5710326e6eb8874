"""Tensors by compressed rows or columns, of elements or of blocks: CSR, CSC, BSR and BSC.

    layout       _starts                 _others              _values
    CSR          of rows, (n_rows + 1)   column, (n)          (n, *dense sizes)
    CSC          of columns              row                  (n, *dense sizes)
    BSR, BSC     of rows of blocks, ...  column of blocks     (n, *block)

In functions they are tensors by coordinates (`by_coordinates`), and results are compressed again where PyTorch's are.
"""

import numpy as np

from ..placement import sparse_bsc, sparse_bsr, sparse_csc, sparse_csr
from ..runtime.state.tensor import tensor_of
from . import coordinates
from .tensors import Sparse, SparseTensor, _new

ROWS, BLOCKS = (sparse_csr, sparse_bsr), (sparse_bsr, sparse_bsc)
LAYOUTS = (sparse_csr, sparse_csc, sparse_bsr, sparse_bsc)


class CompressedTensor(Sparse):
    """A matrix by compressed rows or columns. Made by `weft.sparse_csr_tensor`, its relatives, and `to_sparse_csr`."""

    __slots__ = ("_starts", "_others", "_layout")

    @classmethod
    def of(cls, layout, starts, others, values, shape):
        """starts, others: arrays of integers that nobody else changes."""
        self = _new(cls)
        self._hold(values, shape)
        self._layout, self._starts, self._others = layout, starts, others
        return self

    def _with(self, values):
        return CompressedTensor.of(self._layout, self._starts, self._others, values, self._meta.shape)

    def become(self, other):
        """Be the same as another tensor of the shape: what changes in place do."""
        self.require_own()
        self._meta = other._meta
        self._values_kept, self._shown_grad = other._values_kept, None
        self._layout, self._starts, self._others = other._layout, other._starts, other._others
        return self

    @property
    def layout(self):
        return self._layout

    @property
    def is_sparse_csr(self):
        return self._layout is sparse_csr

    @property
    def block(self):
        """The sizes of a block; (1, 1) for elements."""
        return tuple(self._values_kept.shape[1:3]) if self._layout in BLOCKS else (1, 1)

    @property
    def blocksize(self):
        """The sizes of a block; None of a layout without blocks."""
        return self.block if self._layout in BLOCKS else None

    def sparse_dim(self):
        """2: rows and columns have indices."""
        return 2

    def dense_dim(self):
        """How many of the last dimensions are whole in every value."""
        return self.ndim - 2

    def _part(self, name, layouts, words, array):
        if self._layout not in layouts:
            raise RuntimeError(f"{name} expected sparse {words} compressed tensor layout but got {self._layout.word}")
        return tensor_of(array)

    def crow_indices(self):
        """Where each row begins, (n_rows + 1): of CSR and BSR."""
        return self._part("crow_indices", ROWS, "row", self._starts)

    def col_indices(self):
        """The columns of the elements: of CSR and BSR."""
        return self._part("col_indices", ROWS, "row", self._others)

    def ccol_indices(self):
        """Where each column begins, (n_columns + 1): of CSC and BSC."""
        return self._part("ccol_indices", (sparse_csc, sparse_bsc), "column", self._starts)

    def row_indices(self):
        """The rows of the elements: of CSC and BSC."""
        return self._part("row_indices", (sparse_csc, sparse_bsc), "column", self._others)

    def is_coalesced(self):
        """RuntimeError: of a tensor by coordinates."""
        raise RuntimeError(f"is_coalesced expected sparse coordinate tensor layout but got {self._layout.word}")

    def places(self):
        """(2, n): rows and columns of the elements, or of the blocks."""
        along = coordinates.rows_of(self._starts)
        others = self._others.astype(np.int64, copy=False)
        return np.stack((along, others) if self._layout in ROWS else (others, along))

    def by_coordinates(self):
        """The same tensor by coordinates, with the values as they are; of blocks one of shape
        (rows, columns of blocks, *block)."""
        shape = self._meta.shape
        if self._layout in BLOCKS:
            shape = (*(size // by for size, by in zip(shape, self.block)), *self.block)
        return SparseTensor.of(self.places(), self._same_values(), shape, self._layout in ROWS)

    def parts(self):
        """What a file has of it: where rows begin, columns, values, sizes, requires_grad."""
        return self._starts, self._others, self._values_kept.detach().numpy(), self._meta.shape, self.requires_grad

    def __reduce_ex__(self, protocol):
        array = np.ascontiguousarray(self._values_kept.detach().numpy())
        return rebuilt, (self._layout, self._starts, self._others, array, self._meta.shape, self.requires_grad)


def rebuilt(layout, starts, others, array, shape, requires_grad):
    """What pickle makes of these."""
    made = CompressedTensor.of(layout, np.array(starts), np.array(others), tensor_of(np.array(array)), shape)
    made.requires_grad = requires_grad
    return made


def compressed(by_coordinates, layout, block=None):
    """A matrix by coordinates, compressed. block: sizes of blocks, of a tensor (rows, columns of blocks, *block)."""
    from_rows = layout in ROWS
    indices, sizes = by_coordinates._indices_kept, by_coordinates.sparse_sizes
    along, others = (0, 1) if from_rows else (1, 0)
    values = by_coordinates._same_values()
    if not from_rows:
        order = np.argsort(coordinates.flat(indices[::-1], sizes[::-1]), kind="stable")
        indices, values = indices[:, order], values.index_select(0, tensor_of(order))
    starts = coordinates.starts_of(indices[along], sizes[along])
    shape = by_coordinates._meta.shape
    if layout in BLOCKS:
        shape = tuple(size * by for size, by in zip(sizes, block))
    return CompressedTensor.of(layout, starts, np.ascontiguousarray(indices[others]), values, shape)
