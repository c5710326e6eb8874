"""Functions that make sparse tensors of indices and values."""

import numpy as np

from ..compiler.dtypes import int32, int64
from ..creation import as_tensor, empty, tensor
from ..placement import (
    check_placement,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
)
from ..runtime.state.tensor import Tensor, tensor_of
from . import coordinates
from .compressed import BLOCKS, LAYOUTS, ROWS, CompressedTensor
from .conversion import to_sparse
from .tensors import SparseTensor, alias


# --- by coordinates ---------------------------------------------------------------------------------------------------
def sparse_coo_tensor(
    indices, values=None, size=None, *, dtype=None, requires_grad=False, check_invariants=None, is_coalesced=None,
    **placement,
):  # fmt: skip
    """A tensor by coordinates: element k is values[k] at indices[:, k]; elements at one place are added.

    indices: (n_sparse, n) integers; values: (n, *dense sizes); size: n_sparse sizes and those of dense dimensions, the
    smallest that has room if it is not given. `sparse_coo_tensor(size)` keeps no element. The result has the history of
    `values`, unless requires_grad makes it a leaf. RuntimeError for indices outside of size and shapes that do not fit.
    """
    check_placement("sparse_coo_tensor", {k: v for k, v in placement.items() if k != "layout"})
    if values is None:
        size = tuple(indices if size is None else size)
        return _made(empty_of(size, len(size), dtype), requires_grad)
    indices, values = _indices_given(indices), values_given(values, dtype)
    if indices.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    n_sparse, n = indices.shape
    if not values.ndim or values.shape[0] != n:
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {n}, nnz from values: "
            f"{values.shape[0] if values.ndim else 'a number'}"
        )
    if size is None:
        size = (*(indices.max(1, initial=-1) + 1).tolist(), *values.shape[1:])
    size = tuple(map(int, size))
    _check_size(indices, values, size)
    coalesced = bool(is_coalesced)
    if coalesced and not coordinates.is_rising(coordinates.flat(indices, size[:n_sparse])):
        raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")
    return _made(SparseTensor.of(indices, values, size, coalesced), requires_grad)


def _check_size(indices, values, size):
    n_sparse, n_dense = indices.shape[0], values.ndim - 1
    if len(size) != n_sparse + n_dense:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = "
            f"{n_sparse}, dense_dim = {n_dense}"
        )
    if tuple(values.shape[1:]) != size[n_sparse:]:
        raise RuntimeError(
            f"values has incorrect size, expected {[values.shape[0], *size[n_sparse:]]}, got {list(values.shape)}"
        )
    for axis, row in enumerate(indices):
        if row.size and row.min() < 0:
            raise RuntimeError(f"found negative index {row.min()} for dim {axis}")
        if row.size and row.max() >= size[axis]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {axis}, size is {size[axis]} but found index {row.max()}"
            )


def _made(made, requires_grad):
    return made.detach().requires_grad_() if requires_grad else made


def _indices_given(given):
    """An array of int64 of its own: what the user's tensor becomes later is nothing to the sparse one."""
    given = given.detach().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if given.dtype.kind not in "iuf":
        raise TypeError(f"sparse_coo_tensor: indices must be an integer tensor, got {given.dtype}")
    return np.array(given, np.int64, order="C")


def values_given(given, dtype):
    """The values as a tensor with the history of what is given."""
    if not isinstance(given, Tensor):
        return tensor(given, dtype=dtype)
    values = given if dtype is None else given.to(dtype)
    return alias(values)


def empty_of(size, n_sparse, dtype=None):
    """A tensor of that size that keeps no element."""
    values = empty((0, *size[n_sparse:]), dtype=dtype)
    return SparseTensor.of(np.zeros((n_sparse, 0), np.int64), values, size, True)


# --- compressed -------------------------------------------------------------------------------------------------------
_NAMES = {
    sparse_csr: ("crow_indices", "col_indices"), sparse_csc: ("ccol_indices", "row_indices"),
    sparse_bsr: ("crow_indices", "col_indices"), sparse_bsc: ("ccol_indices", "row_indices"),
}  # fmt: skip


def sparse_compressed_tensor(
    compressed_indices, plain_indices, values, size=None, *, dtype=None, layout=None, requires_grad=False,
    check_invariants=None, **placement,
):  # fmt: skip
    """A matrix in one of the layouts sparse_csr, sparse_csc, sparse_bsr and sparse_bsc.

    compressed_indices: where each row begins (each column, of CSC and BSC), and the number of elements at the end;
    plain_indices: the columns (rows) of the elements; values: (n,), or of blocks (n, rows, columns). RuntimeError where
    these do not fit each other, NotImplementedError for batches of matrices.
    """
    if layout not in LAYOUTS:
        raise RuntimeError(f"expected sparse compressed layout, but got layout {layout!r}")
    check_placement("sparse_compressed_tensor", placement)
    starts, others = (_plain(x) for x in (compressed_indices, plain_indices))
    values = values_given(values, dtype)
    if starts.ndim != 1:
        raise NotImplementedError(
            f"sparse_compressed_tensor: {_NAMES[layout][0]} has {starts.ndim} dimensions, and batches are not there; "
            "make one matrix at a time"
        )
    blocks = tuple(values.shape[1:3]) if layout in BLOCKS else (1, 1)
    if size is None:
        along, across = len(starts) - 1, int(others.max(initial=-1)) + 1
        rows, columns = (along, across) if layout in ROWS else (across, along)
        size = (rows * blocks[0], columns * blocks[1], *values.shape[3 if layout in BLOCKS else 1 :])
    size = tuple(map(int, size))
    _check_compressed(layout, starts, others, values, size, blocks)
    return _made(CompressedTensor.of(layout, starts, others, values, size), requires_grad)


def _plain(given):
    """An array of its own of integers, whose type stays."""
    given = given.detach() if isinstance(given, Tensor) else as_tensor(given, dtype=int64)
    if given.dtype not in (int32, int64):
        raise RuntimeError(f"expected compressed_indices and plain_indices of int32 or int64, got {given.dtype!r}")
    return np.array(given.numpy(), order="C")


def _check_compressed(layout, starts, others, values, size, blocks):
    first, second = _NAMES[layout]
    counts = [size[k] // blocks[k] for k in (0, 1)]
    along, across = counts if layout in ROWS else counts[::-1]
    if len(starts) != along + 1:
        raise RuntimeError(
            f"{first}.shape[-1] must be equal to the number of {first[1:4]}s + 1 ({along + 1}), but got {len(starts)}"
        )
    if len(others) != values.shape[0]:
        raise RuntimeError(f"{second} and values must have same nnz, but got {len(others)} and {values.shape[0]}")
    if starts[0] != 0 or starts[-1] != len(others) or (np.diff(starts) < 0).any():
        raise RuntimeError(f"{first} must begin with 0, never fall, and end with nnz ({len(others)})")
    if others.size and not 0 <= others.min() <= others.max() < across:
        raise RuntimeError(f"{second} must be within 0 and {across}, got {others.min()} to {others.max()}")
    if not coordinates.is_rising(coordinates.rows_of(starts) * across + others):
        raise RuntimeError(f"{second} must be sorted and distinct along each {'row' if layout in ROWS else 'column'}")


def _compressing(layout, function):
    first, second = _NAMES[layout]

    def make(
        compressed, plain, values, size=None, *, dtype=None, requires_grad=False, check_invariants=None, **options
    ):
        options.pop("layout", None)
        return sparse_compressed_tensor(
            compressed, plain, values, size, dtype=dtype, layout=layout, requires_grad=requires_grad, **options
        )

    make.__name__ = make.__qualname__ = function
    make.__doc__ = f"sparse_compressed_tensor({first}, {second}, values, size, layout=weft.{layout.name})."
    return make


sparse_csr_tensor = _compressing(sparse_csr, "sparse_csr_tensor")
sparse_csc_tensor = _compressing(sparse_csc, "sparse_csc_tensor")
sparse_bsr_tensor = _compressing(sparse_bsr, "sparse_bsr_tensor")
sparse_bsc_tensor = _compressing(sparse_bsc, "sparse_bsc_tensor")


# --- of diagonals -----------------------------------------------------------------------------------------------------
def spdiags(diagonals, offsets, shape, layout=None):
    """A matrix whose diagonals are the rows of `diagonals`; element k of each is in column k.

    offsets: which diagonals, as many integers as there are rows, each once; above the main one they are positive.
    """
    offsets = np.atleast_1d(offsets.detach().numpy() if isinstance(offsets, Tensor) else np.asarray(offsets))
    rows = diagonals if diagonals.ndim == 2 else diagonals.reshape(1, -1)
    if len(offsets) != rows.shape[0]:
        raise RuntimeError(f"spdiags: {rows.shape[0]} diagonals and {len(offsets)} offsets")
    if len(set(offsets.tolist())) < len(offsets):
        raise RuntimeError("Offset tensor contains duplicate values")
    numbers, columns = np.indices(rows.shape).reshape(2, -1)
    places = np.stack((columns - offsets[numbers], columns))
    inside = (places[0] >= 0) & (places[0] < shape[0]) & (columns < shape[1])
    values = rows.reshape(-1).index_select(0, tensor_of(np.flatnonzero(inside)))
    made = SparseTensor.of(np.ascontiguousarray(places[:, inside]), values, tuple(shape))
    return made if layout in (None, sparse_coo) else to_sparse(made, layout=layout)
